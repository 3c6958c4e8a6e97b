"""Names of files: safe, unique, and of the right type to fsxds."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resource_types import BY_SHORT_NAME, exact_type_from_path
from fsxds.server.loading_rules import is_read
from fsxds.settings.options import EXCLUDED
from fsxds.source.listing import Exclusion
from fsxds.tools.importing.plan import TreePaths

LISTENERS = BY_SHORT_NAME["lds"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", "web"),
        ("outbound|80||a.b.svc", "outbound_80_a.b.svc"),
        ("../../etc/passwd", "_.._etc_passwd"),
        (".hidden", "hidden"),
        ("Ä", "_"),
        ("", "unnamed"),
        ("routes", "listener-routes"),
        ("a.clusters", "listener-a.clusters"),
        ("README", "listener-README"),
        ("x" * 300, "x" * 120),
    ],
)
def test_names(name: str, expected: str) -> None:
    """Unsafe characters become one `_`; a name that would mean another type, or be left out, gets a prefix."""
    assert PurePosixPath("listeners", expected) == TreePaths().path_of(LISTENERS, name)


def test_equal_names_get_numbers() -> None:
    """Names that are equal once they are safe, or differ in case alone, are different files."""
    names = TreePaths()

    assert ["a_b", "A_B-2", "a_b-3"] == [names.path_of(LISTENERS, name).name for name in ("a/b", "A_B", "a b")]


@given(st.lists(st.text(max_size=30), max_size=8))
def test_any_names_are_files_of_their_type(wanted: list[str]) -> None:
    """Whatever the names are, each has a file of its own, which is read as one of its type."""
    names = TreePaths()
    files = [path.with_name(f"{path.name}.yaml") for path in (names.path_of(LISTENERS, name) for name in wanted)]

    assert len(wanted) == len({str(file).lower() for file in files})
    for file in files:
        assert file.parent == PurePosixPath("listeners")
        assert exact_type_from_path(file) is LISTENERS
        assert is_read(file.name)
        assert not file.name.startswith(".")
        assert not Exclusion(EXCLUDED).covers(str(file))
