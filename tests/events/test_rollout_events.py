"""What the log says of rollouts: what is served, who is late, what is held back from all nodes and why, what is rolled back."""

from __future__ import annotations

import pytest

from fsxds.events.event import Event, Level, LogLine
from fsxds.events.rollout_events import CanaryAwaited, RolloutChanged, VersionsHeld, VersionsReleased
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import RowsChange
from fsxds.model.values import Version
from fsxds.rollout import Held, Step
from fsxds.rollout.holding import Removal
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode
from fsxds.rollout.step import (
    Completed,
    LingeringEnded,
    LingeringStarted,
    PinsChanged,
    RolloutEvent,
    StepKind,
    StepStarted,
    StepTimedOut,
    Superseded,
)
from tests.support.snapshots import snapshot

CDS, RDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["rds"].type_url
STEP = Step(StepKind.GROW, snapshot({"CDS": {"a": "1"}}), {CDS: RowsChange(frozenset({"a"}), removed=frozenset({"b"}))})
WEB, MAIN = ((CDS, "web"), Version("1")), ((RDS, "main"), Version("2"))


class Named:
    """A client of which the log knows a name."""

    def standing(self, _: Step) -> None:
        """It is not asked."""


CLIENT = Named()


def of_rollout(happened: RolloutEvent, cohort: str = "main", layers: tuple[str, ...] = ()) -> LogLine:
    """Return the line of something that happened in a rollout."""
    return RolloutChanged(layers, cohort, happened, {CLIENT: "edge-1"}).line()  # type: ignore[dict-item]


def node(name: str, reason: str | None, *versions: ResourceVersion) -> RejectingNode:
    """Return a node that rejects versions."""
    return RejectingNode(name, name, dict.fromkeys(versions, (reason, 0.0)))


@pytest.mark.parametrize(
    ("happened", "level", "words"),
    [
        (StepStarted("1a", STEP), Level.DEBUG, "grow: +1 -1 cds"),
        (StepTimedOut("1a", STEP, frozenset({CLIENT})), Level.WARNING, "grow: edge-1 did not ACK it in time; the rollout goes on without them"),  # type: ignore[arg-type]
        (Completed("1a"), Level.DEBUG, "completed"),
        (Superseded("1a"), Level.DEBUG, "replaced by a newer change"),
        (Held("1a", (Removal(CDS, 6, 10, frozenset()),)), Level.WARNING, "6 of 10 clusters removed: waiting for approval; if this is intended, run `fsxds rollout approve 1a`"),
        (PinsChanged("1a", 1, 0), Level.WARNING, "rolled back: 1 resource, each until it changes in the tree, or until `fsxds rollout resume`"),
        (PinsChanged("1a", 3, 1), Level.WARNING, "rolled back: 3 resources, each until it changes in the tree, or until `fsxds rollout resume`"),
        (PinsChanged("1a", 1, 3), Level.INFO, "rollback: 1 resource still rolled back; the others changed in the tree, and follow it"),
        (PinsChanged("1a", 0, 3), Level.INFO, "rollback: ended; all resources follow the tree"),
        (LingeringStarted("1a", frozenset({(CDS, "a")})), Level.INFO, "cds a stay for connections of draining listeners"),
        (LingeringEnded("1a", frozenset({(CDS, "a")})), Level.INFO, "cds a stayed for connections of draining listeners, and are removed now"),
    ],
)  # fmt: skip
def test_words(happened: RolloutEvent, level: Level, words: str) -> None:
    """The fact, and the command that decides about it."""
    line = of_rollout(happened)

    assert (line.level, line.text) == (level, f"rollout 1a: {words}")
    assert line.details["cohort"] == "main"


@pytest.mark.parametrize(
    ("layers", "cohort", "place"),
    [
        ((), "main", "rollout 1a: "),
        (("common", "edge"), "main", "rollout 1a of common, edge: "),
        ((), "canary", "rollout 1a (canary): "),
        (("edge",), "rejecting", "rollout 1a of edge (rejecting): "),
        (("edge",), "catching up", "rollout 1a of edge (catching up): "),
    ],
)
def test_whose_rollout_it_is(layers: tuple[str, ...], cohort: str, place: str) -> None:
    """A cohort is called in the log as in metrics and in the status; the usual one is not mentioned."""
    line = of_rollout(Completed("1a"), cohort, layers)

    assert line.text == f"{place}completed"
    assert (line.details["layers"], line.details["cohort"]) == ([*layers], cohort)


@pytest.mark.parametrize(
    ("event", "level", "text"),
    [
        (
            VersionsHeld(frozenset({WEB}), (node("edge-1", "no such file", WEB),)),
            Level.ERROR,
            "cds web: held back from all nodes if a good version is known, because edge-1 rejected them: no such file",
        ),
        (
            VersionsHeld(frozenset({WEB, MAIN}), (node("b", None, MAIN), node("a", "no", WEB))),
            Level.ERROR,
            "cds web, rds main: held back from all nodes if a good version is known, because a, b rejected them: it gave no reason; see its own log",
        ),
        (
            VersionsHeld(frozenset({WEB}), ()),
            Level.ERROR,
            "cds web: held back from all nodes if a good version is known, because nodes rejected them: it gave no reason; see its own log",
        ),
        (VersionsReleased(frozenset({WEB})), Level.INFO, "cds web: no longer held back from all nodes"),
        (
            CanaryAwaited(0, 0),
            Level.WARNING,
            "a change waits: no canary is connected; check the canaries, or run `fsxds rollout promote`",
        ),
        (
            CanaryAwaited(1, 3),
            Level.WARNING,
            "a change waits: 1 of 3 canaries have not ACKed it, or left; check the canaries, or run `fsxds rollout promote`",
        ),
    ],
)
def test_words_of_all_nodes(event: Event, level: Level, text: str) -> None:
    """What is held back, who rejects it, why; what a change waits for, with the command that ends it."""
    line = event.line()

    assert (line.level, line.text) == (level, text)


def test_a_reason_that_is_of_another_version() -> None:
    """A node may reject something else, too: its words about that are not those."""
    event = VersionsHeld(frozenset({WEB}), (RejectingNode("n", "n", {MAIN: ("other", 0.0), WEB: ("this", 0.0)}),))

    assert event.line().details["reason"] == "this"


def test_long_and_secret_words_are_cut_and_masked() -> None:
    """Whatever an Envoy quotes, and however many resources it rejects."""
    versions = [((CDS, f"c{number:03}{'x' * 500}"), Version("1")) for number in range(200)]
    reason = 'Proto constraint: inline_string: "hunter2 is here"' + "y" * 5000
    line = VersionsHeld(frozenset(versions), (node("n" * 5000, reason, *versions),)).line()

    assert "hunter2" not in f"{line.text}{line.details}"
    assert line.text.startswith("200 resources: held back from all nodes")
    assert len(line.text) < 1500
    assert line.details["count"] == 200
