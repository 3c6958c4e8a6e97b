"""What becomes of events in the metrics; their names, and what they cost, whoever connects."""

from __future__ import annotations

import shutil
import subprocess
import time
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest
from prometheus_client import generate_latest

from fsxds.events import client_events, file_events, process_events, rollout_events
from fsxds.events.client_events import AckReceived, NackReceived, ResponseSent
from fsxds.events.event import Event
from fsxds.events.process_events import InternalError
from fsxds.events.upstream_events import (
    UpstreamChanged,
    UpstreamConnected,
    UpstreamExpired,
    UpstreamFailedOver,
    UpstreamLooped,
    UpstreamLost,
    UpstreamNacked,
    UpstreamRejected,
    UpstreamShadowed,
)
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Snapshot
from fsxds.model.values import HeldFile, Problem, Severity, TypeUrl, Version
from fsxds.observe.log import observed_by
from fsxds.observe.metrics import ACKED_WITHIN_S, CATALOGUE, LABELS, MOST_NODES, MOST_UNACKED, ROWS_BY_NAME, Metrics
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.rollout import Held, Step
from fsxds.rollout.step import Completed, RolloutEvent, StepKind, StepStarted, StepTimedOut, Superseded
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.server.admin_serving import upstream_readings
from tests.support.log_events import subclasses

CDS = next(row.type_url for row in RESOURCE_TYPES if row.short_name == "cds")
NODE = Node("edge-1", peer="192.0.2.1")
SUBSCRIPTION = Subscription(CDS)
STEP = Step(StepKind.GROW, Snapshot(1, {}), {})


@pytest.fixture
def metrics() -> Metrics:
    """Metrics of a process that did nothing so far."""
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    """Return one value as it is exposed; None where there is none."""
    return metrics.registry.get_sample_value(name, labels)


def nack(node: str, version: str = "v1") -> NackReceived:
    """Return the NACK of a node."""
    return NackReceived(Node(node), SUBSCRIPTION, Acknowledgement(Version(version), accepted=False), ())


def of_rollout(happened: RolloutEvent) -> Event:
    """Return an event of a rollout."""
    return rollout_events.RolloutChanged((), "main", happened, {})


@pytest.mark.parametrize(
    ("event", "name", "labels"),
    [
        (ResponseSent(NODE, SUBSCRIPTION, Version("v")), "responses_sent_total", {"type": "cds"}),
        (AckReceived(NODE, SUBSCRIPTION, Version("v")), "acks_total", {"type": "cds"}),
        (nack("edge-1"), "nacks_total", {"node": "edge-1", "type": "cds"}),
        (client_events.RequestAnswered("REST", 304, ""), "requests_total", {"listener": "REST", "status": "304"}),
        (client_events.RequestRejected("", "NOT_FOUND", "no view"), "requests_rejected_total", {"status": "NOT_FOUND"}),
        (client_events.LimitReached("max-streams"), "limit_reached_total", {"limit": "max-streams"}),
        (client_events.StreamOpened(NODE, "StreamClusters", ""), "streams_opened_total", {"service": "StreamClusters"}),
        (client_events.StreamClosed(NODE, "StreamClusters", ""), "streams_closed_total", {"service": "StreamClusters"}),
        (file_events.QueueOverflowed(), "file_event_overflows_total", {}),
        (of_rollout(StepStarted("t", STEP)), "rollout_steps_total", {"step": "grow"}),
        (of_rollout(StepTimedOut("t", STEP, frozenset())), "rollout_step_timeouts_total", {"step": "grow"}),
        (of_rollout(Completed("t")), "rollouts_total", {"result": "completed"}),
        (of_rollout(Superseded("t")), "rollouts_total", {"result": "superseded"}),
        (of_rollout(Held("t", ())), "removal_holds_total", {}),
        (rollout_events.VersionsHeld(frozenset({((CDS, "a"), Version("v"))}), ()), "version_holds_total", {}),
        (file_events.FilesWritten(written=(PurePosixPath("cds.pb"),)), "mirror_files_written_total", {}),
        (file_events.FilesWritten(removed=(PurePosixPath("cds.pb"),)), "mirror_files_removed_total", {}),
        (file_events.FilesWritten(restored=(PurePosixPath("cds.pb"),)), "mirror_files_restored_total", {}),
        (file_events.FilesWritten(duration_s=0.1), "mirror_write_duration_seconds_count", {}),
        (file_events.FilesWritten(), "mirror_writes_total", {}),
        (file_events.MirrorFailed(OSError(), 1.0), "mirror_failures_total", {}),
        (process_events.StateWritten(Path("/state"), 1), "state_writes_total", {}),
        (process_events.StateFailed(Path("/state"), "full", 1.0), "state_failures_total", {}),
        (process_events.StateFailed(Path("/state"), "full", 1.0), "state_failing", {}),
        (process_events.ComponentDegraded("watcher", "it", 1.0), "component_restarts_total", {"component": "watcher"}),
        (process_events.SnapshotSetAside("mirror", ValueError()), "snapshots_set_aside_total", {"component": "mirror"}),
        (InternalError("REST request", ValueError()), "internal_errors_total", {"where": "REST request"}),
        (InternalError("reload", ValueError()), "reloads_total", {"result": "failed"}),
        (process_events.SettingsReloaded((), ()), "settings_reloads_total", {"result": "applied"}),
        (process_events.SettingsRejected("a word"), "settings_reloads_total", {"result": "rejected"}),
        (process_events.CertificatesReloaded(("a.pem",)), "certificate_reloads_total", {"result": "applied"}),
        (process_events.CertificatesKept("no key"), "certificate_reloads_total", {"result": "rejected"}),
        (client_events.HandshakeFailed("", "no TLS"), "handshake_failures_total", {}),
        (file_events.SnapshotPublished(Snapshot(1, {}), 0.0), "snapshots_published_total", {}),
        (file_events.SnapshotPublished(Snapshot(1, {}), 0.0), "update_publish_seconds_count", {}),
        (file_events.TreeLoaded((), ()), "reloads_total", {"result": "good"}),
        (file_events.TreeLoaded((), (HeldFile(PurePosixPath("a"), None, has_last_good=True),)), "reloads_total", {"result": "held"}),
        (UpstreamConnected("up", "a:1", "REST"), "upstream_connects_total", {"upstream": "up"}),
        (UpstreamLost("up", "a:1", "refused", 1.0), "upstream_losses_total", {"upstream": "up"}),
        (UpstreamFailedOver("up", "a:1", "b:1", "refused"), "upstream_failovers_total", {"upstream": "up"}),
        (UpstreamLooped("up", "a:1", ("1",)), "upstream_loops_total", {"upstream": "up"}),
        (UpstreamExpired("up", ((CDS, "a"),)), "upstream_expired_total", {"upstream": "up"}),
        (UpstreamShadowed("up", 1), "upstream_shadowed_resources", {"upstream": "up"}),
        (UpstreamChanged("up", "a:1", CDS, "1", 3, 0), "upstream_responses_total", {"upstream": "up", "type": "cds"}),
        (UpstreamRejected("up", "a:1", CDS, "1", ("x",)), "upstream_rejections_total", {"upstream": "up", "type": "cds", "by": "relay"}),
        (UpstreamNacked("up", CDS, "x", frozenset({"a"}), was_sent=True), "upstream_rejections_total", {"upstream": "up", "type": "cds", "by": "nodes"}),
    ],
)  # fmt: skip
def test_an_event_is_counted(metrics: Metrics, event: Event, name: str, labels: dict[str, str]) -> None:
    """Once, in the metric that its meaning names."""
    assert not value(metrics, f"fsxds_{name}", **labels)
    metrics.receive(event)

    assert value(metrics, f"fsxds_{name}", **labels) == 1


def test_what_an_event_has_several_of_counts_so_often(metrics: Metrics) -> None:
    """A write of two files is two files, in one write."""
    metrics.receive(file_events.FilesWritten(written=(PurePosixPath("cds.pb"), PurePosixPath("lds.pb"))))

    assert value(metrics, "fsxds_mirror_files_written_total") == 2
    assert value(metrics, "fsxds_mirror_writes_total") == 1


def test_every_metric_of_events_has_one_that_counts_it() -> None:
    """What no event counts is read when it is asked for: nothing of the catalogue is without a source."""
    import_module("fsxds.observe.log_catalogue")  # and so all families of events
    readings = Path("fsxds/server/admin_serving.py").read_text(encoding="utf-8")
    counted = Path("fsxds/observe/metrics.py").read_text(encoding="utf-8")
    measured = {f"fsxds_{measure.name}" for event in subclasses(Event) for measure in event.measures}

    assert set() == measured - ROWS_BY_NAME.keys()
    assert set() == {row.name for row in CATALOGUE if f'"{row.name}"' not in counted + readings} - measured


def test_readings_of_an_upstream() -> None:
    """Whether it is connected, how old what it sent is, and how much that is; no age where it never sent anything."""
    away = UpstreamStatus("up", ("a:1",), state="away", resources={CDS: 3}, pending=(CDS,), last_update_s=40.0)
    never = UpstreamStatus("up", ("a:1",), server="a:1", state="connected")

    assert list(upstream_readings(away, 100.0)) == [
        ("fsxds_upstream_connected", ("up",), 0.0),
        ("fsxds_upstream_pending_types", ("up",), 1.0),
        ("fsxds_upstream_age_seconds", ("up",), 60.0),
        ("fsxds_upstream_resources", ("up", "cds"), 3.0),
    ]
    assert next(iter(upstream_readings(never, 100.0))) == ("fsxds_upstream_connected", ("up",), 1.0)
    assert "fsxds_upstream_age_seconds" not in [name for name, _, _ in upstream_readings(never, 100.0)]


def test_the_last_load_is_what_gauges_say(metrics: Metrics) -> None:
    """Problems by severity, and whether a file was held back."""
    problem = Problem.of_file(PurePosixPath("cds.yaml"), "r", "fact", "remedy")
    held = HeldFile(PurePosixPath("cds.yaml"), problem, has_last_good=True)
    metrics.receive(file_events.TreeLoaded((problem,), (held,), 0.02))

    assert value(metrics, "fsxds_problems", severity=Severity.ERROR.value) == 1
    assert value(metrics, "fsxds_problems", severity=Severity.WARNING.value) == 0
    assert value(metrics, "fsxds_last_reload_successful") == 0
    assert value(metrics, "fsxds_last_reload_success_timestamp_seconds") is None
    assert value(metrics, "fsxds_reload_duration_seconds_bucket", le="0.01") == 0
    assert value(metrics, "fsxds_reload_duration_seconds_bucket", le="0.025") == 1
    metrics.receive(file_events.TreeLoaded((), ()))

    assert value(metrics, "fsxds_problems", severity="error") == 0
    assert value(metrics, "fsxds_last_reload_successful") == 1
    assert value(metrics, "fsxds_last_reload_success_timestamp_seconds") == pytest.approx(time.time(), abs=600)


def test_what_began_ends(metrics: Metrics) -> None:
    """A directory that was lost, a state directory that failed, and settings with a mistake are over again."""
    begins: tuple[Event, ...] = (
        file_events.TreeDisappeared("gone"),
        process_events.StateFailed(Path("/s"), "full", 1.0),
        process_events.SettingsRejected("a"),
    )
    ends: tuple[Event, ...] = (
        file_events.TreeReturned(),
        process_events.StateRecovered(Path("/s")),
        process_events.SettingsReloaded((), ()),
    )
    names = ("fsxds_tree_present", "fsxds_state_failing", "fsxds_settings_last_reload_successful")
    for some, expected in ((begins, [0, 1, 0]), (ends, [1, 0, 1])):
        for event in some:
            metrics.receive(event)
        assert [value(metrics, name) for name in names] == expected


def test_latency_is_that_of_changes(metrics: Metrics) -> None:
    """From the first sign of a change to its response, and to the ACK of that; what a client asked for is none."""
    sent = ResponseSent(NODE, SUBSCRIPTION, Version("v1"), time.monotonic() - 0.3)
    metrics.receive(ResponseSent(NODE, SUBSCRIPTION, Version("v0")))
    metrics.receive(AckReceived(NODE, SUBSCRIPTION, Version("v0")))
    assert value(metrics, "fsxds_update_send_seconds_count", type="cds") is None
    metrics.receive(sent)
    metrics.receive(AckReceived(NODE, SUBSCRIPTION, Version("v1")))
    metrics.receive(AckReceived(NODE, SUBSCRIPTION, Version("v1")))

    for stage in ("send", "ack"):
        assert value(metrics, f"fsxds_update_{stage}_seconds_count", type="cds") == 1
        assert value(metrics, f"fsxds_update_{stage}_seconds_bucket", type="cds", le="0.25") == 0
        assert (value(metrics, f"fsxds_update_{stage}_seconds_sum", type="cds") or 0) >= 0.3
    metrics.receive(sent)
    metrics.receive(nack("edge-1"))
    metrics.receive(NackReceived(NODE, SUBSCRIPTION, Acknowledgement(Version("v1"), accepted=False), ()))
    metrics.receive(AckReceived(NODE, SUBSCRIPTION, Version("v1")))
    assert value(metrics, "fsxds_update_ack_seconds_count", type="cds") == 1


def test_what_nobody_acks_is_forgotten(metrics: Metrics) -> None:
    """Of many clients, and after a while: an ACK that comes then says nothing about the change."""
    now_s = time.monotonic()
    for number in range(MOST_UNACKED + 10):
        metrics.receive(ResponseSent(Node(str(number)), SUBSCRIPTION, Version("v"), now_s))
    assert len(metrics._unacked) == MOST_UNACKED
    for number in range(MOST_UNACKED + 10):
        metrics.receive(AckReceived(Node(str(number)), SUBSCRIPTION, Version("v")))
    assert value(metrics, "fsxds_update_ack_seconds_count", type="cds") == MOST_UNACKED
    metrics.receive(ResponseSent(NODE, SUBSCRIPTION, Version("v"), now_s - ACKED_WITHIN_S - 1))
    assert not metrics._unacked


def test_node_ids_cannot_fill_the_memory(metrics: Metrics) -> None:
    """Ten thousand made-up nodes are two hundred series and one; long and strange names are cut, and can be sent."""
    for number in range(10_000):
        metrics.receive(nack(f"node-{number}"))
    assert value(metrics, "fsxds_nacks_total", node="other", type="cds") == 10_000 - MOST_NODES
    assert generate_latest(metrics.registry).count(b"\nfsxds_nacks_total{") == MOST_NODES + 1


def test_types_of_an_upstream_cannot_fill_the_memory(metrics: Metrics) -> None:
    """A server that invents a type with each response adds one series."""
    for number in range(10):
        metrics.receive(UpstreamRejected("up", "a:1", TypeUrl(f"type.googleapis.com/made.up{number}"), "1", ("x",)))
    labels = {"upstream": "up", "type": "other", "by": "relay"}
    assert value(metrics, "fsxds_upstream_rejections_total", **labels) == 10


@pytest.mark.parametrize("name", ["\ud800", 'a"\\\n}', "\x1b[31m", "é" * 300, "", "\u2028"])
def test_strange_names_can_be_read(metrics: Metrics, name: str) -> None:
    """Whatever clients call themselves, the next scrape has it, and all lines are whole."""
    metrics.receive(nack(name))
    metrics.receive(process_events.ComponentDegraded(f"mirror {name}", "it", 1.0))
    lines = generate_latest(metrics.registry).decode().removesuffix("\n").split("\n")

    assert len([line for line in lines if line.startswith("fsxds_nacks_total{")]) == 1
    assert all(line.startswith(("#", "fsxds_", "process_")) for line in lines), lines


def test_the_catalogue_is_whole() -> None:
    """Every label has a meaning, no meaning is left over, and no name comes twice."""
    assert {label for row in CATALOGUE for label in row.labels} == LABELS.keys()
    assert sorted(LABELS) == list(LABELS)
    assert len(ROWS_BY_NAME) == len(CATALOGUE)
    assert all(row.meaning.endswith(".") for row in CATALOGUE)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_names_follow_the_conventions() -> None:
    """The real `promtool check metrics` finds nothing in them."""
    gauges = [(row.name, tuple("x" for _ in row.labels), 1.0) for row in CATALOGUE if row.metric_type == "gauge"]
    metrics = Metrics(lambda: gauges)
    for event in (nack("a"), client_events.RequestAnswered("REST", 200, ""), client_events.LimitReached("max-streams")):
        metrics.receive(event)
    content = generate_latest(metrics.registry)
    checked = subprocess.run(["promtool", "check", "metrics"], input=content, capture_output=True, check=False)

    assert (0, b"") == (checked.returncode, checked.stdout + checked.stderr)


def test_an_event_that_cannot_be_counted_is_logged() -> None:
    """So is the error, and nobody who sends events gets it."""
    logged: list[Event] = []

    def fail(_: Event) -> None:
        raise ZeroDivisionError

    event = file_events.QueueOverflowed()
    observed_by(logged.append, metrics=fail)(event)

    assert isinstance(logged[0], InternalError)
    assert (logged[0].where, type(logged[0].error)) == ("metrics", ZeroDivisionError)
    assert logged[1] is event


def test_an_event_that_cannot_be_logged_is_counted(metrics: Metrics) -> None:
    """It was counted before."""

    def fail(_: Event) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        observed_by(fail, metrics=metrics.receive)(file_events.QueueOverflowed())
    assert value(metrics, "fsxds_file_event_overflows_total") == 1
