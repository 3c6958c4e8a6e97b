"""What names may stand for that no file defines."""

from __future__ import annotations

import pytest

from fsxds.model.resource_names import is_structured
from fsxds.model.resources import Rows
from fsxds.model.values import TypeUrl
from fsxds.snapshots.proposals import NOWHERE, Elsewhere, UpstreamScope
from fsxds.snapshots.references import ANY, IN_FILE
from fsxds.snapshots.upstream_content import UpstreamContent
from tests.support.snapshots import resource, type_url

CDS, EDS, LDS = map(type_url, ("CDS", "EDS", "LDS"))
HELD = UpstreamContent("top", {CDS: Rows(CDS, {"web": resource("CDS", "web")})})
EAST = "xdstp://east/envoy.config.cluster.v3.Cluster/web"


def plain(name: str) -> bool:
    """Whether a name is none of an authority."""
    return not is_structured(name)


# It said all of its clusters, and nothing of endpoints.
TOP = Elsewhere((HELD,), (UpstreamScope(plain, frozenset({CDS})),), frozenset({(EDS, "denied")}))


@pytest.mark.parametrize(
    ("key", "may_have"),
    [
        ((CDS, "web"), True),
        ((CDS, "api"), False),
        ((CDS, ANY), True),
        ((EDS, "web"), True),
        ((EDS, "denied"), False),
        ((EDS, ANY), True),
        ((CDS, EAST), False),
        ((TypeUrl(f"{IN_FILE}{CDS}"), "web"), False),
    ],
)
def test_what_an_upstream_has_or_may_have(key: tuple[TypeUrl, str], may_have: bool) -> None:
    """What it holds; and of what it is asked for, all that it did not say it has none of."""
    assert TOP.may_have(key) is may_have


def test_structured_names_are_no_part_of_everything() -> None:
    """An upstream that said all plain names of a type said nothing of those of authorities."""
    everywhere = Elsewhere((HELD,), (UpstreamScope(lambda _: True, frozenset({CDS})),))

    assert (everywhere.may_have((CDS, EAST)), everywhere.may_have((CDS, "api"))) == (True, False)


def test_what_nobody_is_asked_for_may_be_anything() -> None:
    """Commands ask no upstream; without one there is nothing."""
    unknown = Elsewhere(is_unknown=True)

    assert (unknown.may_have((LDS, "a")), bool(unknown)) == (True, True)
    assert (NOWHERE.may_have((LDS, "a")), bool(NOWHERE)) == (False, False)
