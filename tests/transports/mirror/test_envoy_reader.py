"""What statistics of an Envoy say of a step: taken, pending or rejected."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import RowsChange
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.rollout import Step
from fsxds.rollout.rejections import Nack
from fsxds.rollout.step import Standing, StepKind
from fsxds.transports.mirror.envoy_reader import FileRejection, ListVersions, standing_of
from tests.support.polls import named, snapshot_of

CDS, LDS, RDS, LISTS = (BY_SHORT_NAME[name].type_url for name in ("cds", "lds", "rds", "lcds"))
WRITTEN = snapshot_of(1, named("cds", "web"), named("lds", "front"), named("rds", "r1"))
CLUSTERS = str(version_of(WRITTEN, Subscription(CDS)))
CALM = {"cluster_manager.warming_clusters": "0", "listener_manager.total_listeners_warming": "0"}


def step(type_url: TypeUrl, change: RowsChange) -> Step:
    return Step(StepKind.WHOLE, WRITTEN, MappingProxyType({type_url: change}))


def clusters(version: str, success: int, rejected: int = 0) -> dict[str, str]:
    """Return the statistics of an Envoy that reads clusters alone."""
    scope = "cluster_manager.cds"
    counters = {f"{scope}.update_success": str(success), f"{scope}.update_rejected": str(rejected)}
    return {**CALM, **counters, f"{scope}.version_text": f'"{version}"'}


BEFORE = clusters("old", 3)
NEW = RowsChange(fresh=frozenset({"web"}))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param({}, Standing.PENDING, id="the page does not answer"),
        pytest.param(BEFORE, Standing.PENDING, id="not read yet"),
        pytest.param(clusters("older", 4), Standing.PENDING, id="an earlier file was read"),
        pytest.param(clusters(CLUSTERS, 4), Standing.TAKEN, id="accepted"),
        pytest.param(clusters(CLUSTERS, 3), Standing.PENDING, id="the version is left from before a rejection"),
        pytest.param(
            {**clusters(CLUSTERS, 4), "cluster_manager.warming_clusters": "1"}, Standing.PENDING, id="still warming"
        ),
        pytest.param(clusters("old", 3, 1), FileRejection(CDS, NEW.fresh), id="rejected"),
        pytest.param(clusters(CLUSTERS, 1), Standing.TAKEN, id="started again since"),
        pytest.param(CALM, Standing.TAKEN, id="subscribes to no clusters"),
    ],
)
def test_clusters(now: dict[str, str], expected: Standing | FileRejection) -> None:
    """Clusters are taken when an update was accepted since, their version shows, and nothing warms."""
    assert standing_of(step(CDS, NEW), WRITTEN, (BEFORE, now)) == expected


def routes(success: int, rejected: int = 0) -> dict[str, str]:
    """Return the statistics of an Envoy two of whose listeners subscribe to the same routes, with dots in the prefix."""
    scopes = [f"http.{prefix}.rds.r1" for prefix in ("in.gress", "other")]
    return {
        **CALM,
        **{f"{scope}.update_success": str(success) for scope in scopes},
        **{f"{scope}.update_rejected": str(rejected) for scope in scopes},
    }


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (routes(2), Standing.PENDING),
        (routes(3), Standing.TAKEN),
        (routes(2, 1), FileRejection(RDS, frozenset({"r1"}))),
        (CALM, Standing.TAKEN),
    ],
)
def test_routes(now: dict[str, str], expected: Standing | FileRejection) -> None:
    """Routes are taken when all subscriptions to them counted one more; those that nobody subscribes to do not count."""
    change = RowsChange(fresh=frozenset({"r1", "nobody-subscribes"}))
    assert standing_of(step(RDS, change), WRITTEN, (routes(2), now)) == expected


def test_what_is_in_no_file_is_not_waited_for() -> None:
    """A time to live is in no file, so that Envoy reads nothing."""
    assert standing_of(step(CDS, RowsChange(renewed=frozenset({"web"}))), WRITTEN, (BEFORE, BEFORE)) is Standing.TAKEN


def test_why_listeners_were_rejected_is_kept() -> None:
    """A rejection has the reason in Envoy's words."""
    scope = "listener_manager.lds"
    before = {**CALM, f"{scope}.update_success": "1", f"{scope}.update_rejected": "0"}
    now = {**before, f"{scope}.update_rejected": "1"}
    standing = standing_of(
        step(LDS, RowsChange(fresh=frozenset({"front"}))),
        WRITTEN,
        (before, now),
        "Error adding/updating listener(s) front: no",
    )
    assert isinstance(standing, FileRejection)
    assert standing.reason == "Error adding/updating listener(s) front: no"


def test_what_was_rejected_has_versions() -> None:
    """Those that were written: of the resource that Envoy's words name, else of all that may be meant."""
    front, web = (((url, name), WRITTEN.resources(url)[name].version) for url, name in ((LDS, "front"), (CDS, "web")))
    words = "Error adding/updating listener(s) front: no"

    assert FileRejection(LDS, frozenset({"front"}), words).nack(WRITTEN) == Nack(
        frozenset({front}), is_named=True, words=words
    )
    assert FileRejection(CDS, frozenset({"web", "gone"})).nack(WRITTEN) == Nack(frozenset({web}))


def listeners(version: str, success: int, rejected: int = 0) -> dict[str, str]:
    """Return the statistics of an Envoy that reads listeners alone, of a file of theirs or a list collection."""
    scope = "listener_manager.lds"
    counters = {f"{scope}.update_success": str(success), f"{scope}.update_rejected": str(rejected)}
    return {**CALM, **counters, f"{scope}.version_text": f'"{version}"'}


WARMING = {"listener_manager.total_listeners_warming": "1"}
OF_LISTENERS = RowsChange(fresh=frozenset({"front"}))
OLD_LIST, NEW_LIST, OTHER_LIST = (Version(text) for text in ("l1", "l2", "o1"))
REJECTED = FileRejection(LDS, OF_LISTENERS.fresh, "no")


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        pytest.param(listeners("l1", 3), listeners("l1", 3), Standing.PENDING, id="not read yet"),
        pytest.param(listeners("l1", 3), listeners("l2", 4), Standing.TAKEN, id="accepted"),
        pytest.param(listeners("l1", 3), {**listeners("l2", 4), **WARMING}, Standing.PENDING, id="still warming"),
        pytest.param(listeners("l1", 3), listeners("l1", 3, 1), REJECTED, id="rejected"),
        pytest.param(listeners("o1", 3), listeners("o1", 3), Standing.TAKEN, id="its own list stays as it was"),
        pytest.param(listeners("l2", 1), listeners("l2", 1), Standing.TAKEN, id="nothing is new in it"),
        pytest.param(listeners("x", 3), listeners("x", 3), Standing.PENDING, id="it reads listeners"),
    ],
)
def test_listeners_of_a_list(before: dict[str, str], now: dict[str, str], expected: Standing | FileRejection) -> None:
    """An Envoy that shows the version of a list collection has taken listeners when that is one that was written last."""
    lists = ListVersions(frozenset({NEW_LIST, OTHER_LIST}), frozenset({OLD_LIST, OTHER_LIST}))
    assert standing_of(step(LDS, OF_LISTENERS), WRITTEN, (before, now), "no", lists=lists) == expected


def test_lists_of_others() -> None:
    """An Envoy that reads listeners is not waited for where a list changes, one that reads a list is."""
    change = RowsChange(fresh=frozenset({"xdstp:…"}))
    lists = ListVersions(frozenset({NEW_LIST}), frozenset({OLD_LIST}))
    for version, expected in (("x", Standing.TAKEN), ("l1", Standing.PENDING)):
        looks = listeners(version, 3)
        assert standing_of(step(LISTS, change), WRITTEN, (looks, looks), lists=lists) is expected
    assert lists.after(lists.now) is lists
    assert lists.after(frozenset()) == ListVersions(frozenset(), lists.now)
