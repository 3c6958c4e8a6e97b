"""Names of members and collections."""

from __future__ import annotations

import pytest

from fsxds.protocol.xdstp_names import collection_of, is_glob


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xdstp://x/t/d/*", True),
        ("xdstp://x/t/d/*?p=1", True),
        ("xdstp://x/t/d/a", False),
        ("xdstp://x/t/d/a?p=/*", False),
        ("d/*", False),
        ("*", False),
    ],
)
def test_what_is_a_glob(name: str, expected: bool) -> None:
    """A glob begins with the scheme, and its path ends with `/*`."""
    assert expected == is_glob(name)


def test_members_and_glob_have_one_collection() -> None:
    """The glob and its members give the same collection, whatever the order of parameters; others do not."""
    glob = collection_of("xdstp://x/t/d/*?a=1&b=2")

    assert glob == collection_of("xdstp://x/t/d/member?b=2&a=1")
    assert glob != collection_of("xdstp://x/t/d/member")
    assert glob != collection_of("xdstp://x/t/d/deep/member?a=1&b=2")
    assert glob != collection_of("xdstp://y/t/d/member?a=1&b=2")
