"""The outline of what is served: enough to know what would be held, and no content."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fsxds.model.resources import ADDRESS, Reference, Resource, Snapshot, claims_of, version_of_body
from fsxds.model.values import Severity, Version
from fsxds.rollout.holding import COLLECTIONS, Hold, HoldReason, removals_to_approve
from fsxds.rollout.served_outline import ServedOutline
from fsxds.rollout.uses import demands_of
from tests.support.mentions import load_mentions
from tests.support.polls import ORIGIN, envoy_catalogue, snapshot_of
from tests.support.snapshots import type_url

CDS, RDS, LDS = map(type_url, ("CDS", "RDS", "LDS"))


def read_back(outline: ServedOutline) -> ServedOutline:
    """Return an outline as it arrives."""
    return ServedOutline.read(json.loads(json.dumps(outline.plain())))


def tree(text: str) -> Snapshot:
    """Return what a file with these resources holds."""
    return load_mentions({"a": text}).snapshot


def collection(count: int) -> Resource:
    """Return a list collection with so many entries."""
    message: Any = envoy_catalogue().message_class("envoy.config.listener.v3.ListenerCollection")()
    for number in range(count):
        message.entries.add().inline_entry.name = str(number)
    body = message.SerializeToString(deterministic=True)
    return Resource(COLLECTIONS, "xdstp://a/b/c", body, version_of_body(COLLECTIONS, body), ORIGIN)


def test_what_arrives() -> None:
    """Names, versions, places and mentions are the same; content is not there."""
    served = tree("CDS c\nRDS r CDS:c")
    read = read_back(ServedOutline.of(("common",), served, {}, has_upstreams=True)).served

    for url in (CDS, RDS):
        assert dict.fromkeys(served.resources(url)) == dict.fromkeys(read.resources(url))
        assert not read.resources(url).changes_since(served.resources(url))
    (route,) = read.resources(RDS).values()
    assert demands_of(route) == {(CDS, "c")}
    assert route.body == b""
    assert route.origin == served.resources(RDS)["r"].origin
    assert read_back(ServedOutline.of(("common",), served, {}, has_upstreams=True)).has_upstreams


def test_what_the_bootstrap_has_is_not_mentioned() -> None:
    """The tree does not have to."""
    one = Reference(CDS, "in the bootstrap", (), Severity.ERROR, is_static=True)
    route = Resource(RDS, "r", b"", Version("1"), ORIGIN, references=(one,))
    (read,) = (
        read_back(ServedOutline.of((), snapshot_of(1, route), {}, has_upstreams=False)).served.resources(RDS).values()
    )

    assert read.references == ()


def test_claims_arrive() -> None:
    """What listeners have that no other may have is compared, too."""
    served = tree("LDS l @10.0.0.1:80")
    (listener,) = read_back(ServedOutline.of((), served, {}, has_upstreams=False)).served.resources(LDS).values()

    assert claims_of(listener) == {(ADDRESS, "10.0.0.1:80")}


def test_entries_of_list_collections_are_counted() -> None:
    """The guard finds the same as with content."""
    before, after = (snapshot_of(1, collection(count)) for count in (8, 2))
    read = read_back(ServedOutline.of((), before, {}, has_upstreams=False)).served

    (removal,) = removals_to_approve(read, after, 0.5)
    assert (removal.type_url, removal.removed, removal.before) == (COLLECTIONS, 6, 8)


@pytest.mark.parametrize(("asked", "is_held"), [("CDS c\nCDS d", True), ("CDS d", False)])
def test_what_is_rejected_is_held_as_long_as_the_tree_has_it(asked: str, *, is_held: bool) -> None:
    """Another version, or none, is a change like any other."""
    was, bad = tree("CDS d"), tree("CDS c\nCDS d")
    holds = {
        (CDS, "c"): Hold(HoldReason.REJECTED, None, bad.resources(CDS)["c"]),
        (CDS, "d"): Hold(HoldReason.IN_USE, was.resources(CDS)["d"], None),
    }
    read = read_back(ServedOutline.of((), was, holds, has_upstreams=False))

    assert ([(CDS, "c")] if is_held else []) == list(read.holds_of(tree(asked)))


@pytest.mark.parametrize("plain", [{}, {"layers": [], "resources": {}, "held": [["x"]], "has_upstreams": False}])
def test_what_is_no_outline(plain: Any) -> None:
    """Another version of fsxds may write it otherwise."""
    with pytest.raises((LookupError, ValueError)):
        ServedOutline.read(plain)
