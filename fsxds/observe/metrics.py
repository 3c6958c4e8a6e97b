"""The metrics and their catalogue: events are counted at once, current values read on each scrape.

In the event loop, a dict needs no lock.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fsxds import __version__
from fsxds.events.client_events import AckReceived, NackReceived, RequestAnswered, ResponseSent
from fsxds.events.event import LONGEST_NAME, Event, escape, name_of, type_name
from fsxds.events.file_events import SnapshotPublished, TreeLoaded
from fsxds.events.process_events import InternalError
from fsxds.events.rollout_events import RolloutChanged
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import Severity, TypeUrl
from fsxds.rollout import Held
from fsxds.rollout.step import Completed, StepKind, StepStarted, StepTimedOut, Superseded

Labels: TypeAlias = tuple[str, ...]
"""The values of a row's labels, in order.
"""

Readings: TypeAlias = Iterable[tuple[str, Labels, float]]
"""Gauges' names, labels and values."""

# An edit of a small file takes 20 ms, of a hundred thousand clusters seconds; steps wait 5 s by default.
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

# A client may use any name.
MOST_NODES = 200
OTHER = "other"

# Responses with an awaited ACK, and for how long.
MOST_UNACKED = 10_000
ACKED_WITHIN_S = 300.0

TYPE_LABELS = {row.type_url: (row.short_name,) for row in RESOURCE_TYPES}

# So that the first event is seen as an increase.
_ALWAYS: dict[str, tuple[str, ...]] = {
    "fsxds_reloads_total": ("good", "held", "failed"),
    "fsxds_rollouts_total": ("completed", "superseded"),
    "fsxds_certificate_reloads_total": ("applied", "rejected"),
    "fsxds_settings_reloads_total": ("applied", "rejected"),
    "fsxds_rollout_steps_total": tuple(step_kind.value for step_kind in StepKind),
    "fsxds_rollout_step_timeouts_total": tuple(step_kind.value for step_kind in StepKind),
}


class Distribution:
    """A histogram: counts between `BOUNDS_S`, and the sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(BOUNDS_S, value)] += 1
        self.total += value

    @property
    def buckets(self) -> list[tuple[str, float]]:
        """Counts up to each bound, for the library."""
        buckets, count = [], 0
        for bound, own in zip((*BOUNDS_S, "+Inf"), self.counts, strict=True):
            count += own
            buckets.append((str(bound), float(count)))
        return buckets


class Metrics(Collector):
    """Counts events. For the event loop, also the registry's reader."""

    def __init__(self, read: Callable[[], Readings] = tuple) -> None:
        """Count from now on; `read` returns current gauges."""
        self.registry = CollectorRegistry()
        self._read = read
        self._counts: dict[str, dict[Labels, float]] = {row.name: {} for row in CATALOGUE}
        self._distributions: dict[str, defaultdict[Labels, Distribution]] = {
            row.name: defaultdict(Distribution) for row in CATALOGUE if row.metric_type == "histogram"
        }
        self._responses: defaultdict[TypeUrl, int] = defaultdict(int)
        self._acks: defaultdict[TypeUrl, int] = defaultdict(int)
        self._answers: defaultdict[tuple[str, int | str], int] = defaultdict(int)
        self._nodes: set[str] = set()
        # {awaited response: detection time of its change}, oldest first.
        self._unacked: OrderedDict[tuple[str, str, TypeUrl, str], float] = OrderedDict()
        self._sent = self._distributions["fsxds_update_send_seconds"]
        self._acked = self._distributions["fsxds_update_ack_seconds"]
        self._receivers = self._find_receivers()
        self._begin()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def receive(self, event: Event) -> None:
        """Count an event."""
        receive = self._receivers.get(type(event))
        if receive is not None:
            receive(event)
        for measure in event.measures:
            name, value = f"fsxds_{measure.name}", measure.value
            if isinstance(value, str):
                value = getattr(event, value)
            number = value if isinstance(value, (int, float)) else float(len(value))
            labels = (*(str(getattr(event, label)) for label in measure.labels), *measure.fixed)
            match ROWS_BY_NAME[name].metric_type:
                case "counter":
                    self._add(name, number, *labels)
                case "gauge":
                    self._set(name, number, *labels)
                case _:
                    self._observe(name, number)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, also without a value."""
        self._take_frequent()
        values = {name: {**counts} for name, counts in self._counts.items()}
        for name, labels, value in self._read():
            values[name][labels] = value
        for row in CATALOGUE:
            family = _FAMILIES[row.metric_type](row.name, row.meaning, labels=row.labels)
            if isinstance(family, HistogramMetricFamily):
                for labels, distribution in self._distributions[row.name].items():
                    family.add_metric(_sendable(labels), distribution.buckets, distribution.total)
            else:
                for labels, value in values[row.name].items():
                    family.add_metric(_sendable(labels), value)
            yield family

    def _begin(self) -> None:
        for row in CATALOGUE:
            if row.metric_type == "histogram" and not row.labels:
                self._distributions[row.name][()]
            elif row.metric_type == "counter" and not row.labels:
                self._counts[row.name][()] = 0
        for name, values in _ALWAYS.items():
            self._counts[name] = {(value,): 0 for value in values}
        self._set("fsxds_build_info", 1, __version__)
        self._set("fsxds_tree_present", 1)
        self._set("fsxds_settings_last_reload_successful", 1)
        self._set("fsxds_certificates_last_reload_successful", 1)
        self._set("fsxds_state_failing", 0)

    def _find_receivers(self) -> dict[type[Event], Callable[[Any], None]]:
        return {
            ResponseSent: self._receive_response,
            AckReceived: self._receive_ack,
            NackReceived: self._receive_nack,
            RequestAnswered: self._receive_answer,
            TreeLoaded: self._receive_load,
            SnapshotPublished: self._receive_snapshot,
            RolloutChanged: self._receive_rollout,
            InternalError: self._receive_error,
        }

    def _add(self, name: str, count: float, *labels: str) -> None:
        counts = self._counts[name]
        counts[labels] = counts.get(labels, 0) + count

    def _set(self, name: str, value: float, *labels: str) -> None:
        self._counts[name][labels] = value

    def _observe(self, name: str, value: float) -> None:
        self._distributions[name][()].observe(value)

    # Thousands may come at once: they get labels on a scrape.
    def _receive_response(self, event: ResponseSent) -> None:
        type_url = event.subscription.type_url
        self._responses[type_url] += 1
        if event.detected_s is None:
            return
        now_s = time.monotonic()
        self._sent[TYPE_LABELS[type_url]].observe(now_s - event.detected_s)
        unacked, node = self._unacked, event.node
        unacked[node.id, node.peer, type_url, event.version] = event.detected_s
        while unacked and (len(unacked) > MOST_UNACKED or next(iter(unacked.values())) < now_s - ACKED_WITHIN_S):
            unacked.popitem(last=False)

    def _receive_ack(self, event: AckReceived) -> None:
        type_url = event.subscription.type_url
        self._acks[type_url] += 1
        if self._unacked:
            detected_s = self._unacked.pop((event.node.id, event.node.peer, type_url, event.version), None)
            if detected_s is not None:
                self._acked[TYPE_LABELS[type_url]].observe(time.monotonic() - detected_s)

    def _receive_answer(self, event: RequestAnswered) -> None:
        self._answers[event.name, event.status] += 1

    def _take_frequent(self) -> None:
        for name, counts in (("fsxds_responses_sent_total", self._responses), ("fsxds_acks_total", self._acks)):
            self._counts[name] = {(type_name(type_url),): count for type_url, count in counts.items()}
        self._counts["fsxds_requests_total"] = {
            (name, str(status)): count for (name, status), count in self._answers.items()
        }

    def _receive_nack(self, event: NackReceived) -> None:
        type_url, node = event.subscription.type_url, escape(name_of(event.node)[:LONGEST_NAME])
        self._unacked.pop((event.node.id, event.node.peer, type_url, event.acknowledgement.version), None)
        if len(self._nodes) < MOST_NODES:
            self._nodes.add(node)
        self._add("fsxds_nacks_total", 1, node if node in self._nodes else OTHER, type_name(type_url))

    def _receive_load(self, event: TreeLoaded) -> None:
        self._add("fsxds_reloads_total", 1, "held" if event.held else "good")
        self._observe("fsxds_reload_duration_seconds", event.duration_s)
        self._set("fsxds_last_reload_successful", 0 if event.held else 1)
        if not event.held:
            self._set("fsxds_last_reload_success_timestamp_seconds", time.time())
        counts = dict.fromkeys(Severity, 0)
        for problem in event.problems:
            counts[problem.severity] += 1
        for severity, count in counts.items():
            self._set("fsxds_problems", count, severity.value)

    def _receive_snapshot(self, event: SnapshotPublished) -> None:
        self._add("fsxds_snapshots_published_total", 1)
        self._observe("fsxds_update_publish_seconds", time.monotonic() - event.detected_s)

    def _receive_rollout(self, event: RolloutChanged) -> None:
        match event.happened:
            case StepStarted(_, step):
                self._add("fsxds_rollout_steps_total", 1, step.step_kind.value)
            case StepTimedOut(_, step):
                self._add("fsxds_rollout_step_timeouts_total", 1, step.step_kind.value)
            case Completed():
                self._add("fsxds_rollouts_total", 1, "completed")
            case Superseded():
                self._add("fsxds_rollouts_total", 1, "superseded")
            case Held():
                self._add("fsxds_removal_holds_total", 1)

    def _receive_error(self, event: InternalError) -> None:
        self._add("fsxds_internal_errors_total", 1, event.where)
        if event.where == RELOAD:
            self._add("fsxds_reloads_total", 1, "failed")
            self._set("fsxds_last_reload_successful", 0)


RELOAD = "reload"
"""The component that loads the directory."""


_FAMILIES: Mapping[str, type[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]] = MappingProxyType(
    {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
)


def _sendable(labels: Labels) -> Labels:
    """File and node names may have lone surrogates, which UTF-8 cannot encode."""
    return tuple(label if label.isascii() else label.encode(errors="replace").decode() for label in labels)


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric.

    `name` is as in queries; a histogram appends `_bucket`, `_sum` and `_count`. `labels` are in order.
    """

    name: str
    metric_type: str
    meaning: str
    labels: tuple[str, ...] = ()


def _counter(name: str, meaning: str, labels: str = "") -> MetricRow:
    return MetricRow(f"fsxds_{name}", "counter", meaning, tuple(labels.split()))


def _gauge(name: str, meaning: str, labels: str = "") -> MetricRow:
    return MetricRow(f"fsxds_{name}", "gauge", meaning, tuple(labels.split()))


def _histogram(name: str, meaning: str, labels: str = "") -> MetricRow:
    return MetricRow(f"fsxds_{name}", "histogram", meaning, tuple(labels.split()))


_ROLLOUT = "view cohort"

CATALOGUE = (
    _gauge("build_info", "Always 1; its labels say which fsxds this is.", "version"),
    _gauge("ready", "1 while `/readyz` answers 200, otherwise 0."),
    # Files.
    _gauge("tree_present", "1 while the directory is there, 0 while it, or all its files, are gone."),
    _gauge("files", "Files of the directory.", "state"),
    _gauge("problems", "Mistakes in the files of the directory.", "severity"),
    _counter(
        "file_event_overflows_total", "Times that the kernel dropped file events, and fsxds read the whole tree again."
    ),
    # Reload.
    _counter("reloads_total", "Loads of the directory.", "result"),
    _gauge("last_reload_successful", "1 if the last load held no file back, otherwise 0."),
    _gauge("last_reload_success_timestamp_seconds", "Unix time of the last load that held no file back."),
    _histogram("reload_duration_seconds", "Time to parse, check and merge a change."),
    _counter("snapshots_published_total", "Published changes; a change of several views counts once."),
    _histogram("update_publish_seconds", "From the first file event of a change to its publication."),
    _histogram("update_send_seconds", "From the first file event of a change to its response to a client.", "type"),
    _histogram("update_ack_seconds", "From the first file event of a change to the ACK of a client.", "type"),
    # Served resources.
    _gauge("resources", "Resources that are served.", "view type"),
    _gauge("version_info", "Always 1; the served version.", "view type version"),
    # Clients.
    _gauge("clients", "Connected clients; a polling client counts until fsxds forgets it.", "transport view state"),
    _gauge("polls_held", "Polls, GETs and unary gRPC requests waiting for a change."),
    _counter("requests_total", "Requests and streams that ended, by the client's status.", "listener status"),
    _counter("handshake_failures_total", "Failed TLS handshakes at REST or admin."),
    _counter("requests_rejected_total", "Rejected or ignored requests.", "status"),
    _counter("limit_reached_total", "Times that a limit was reached.", "limit"),
    _counter("streams_opened_total", "Streams on which a client sent its first request.", "service"),
    _counter("streams_closed_total", "Streams that ended.", "service"),
    _counter("responses_sent_total", "Versions sent to clients.", "type"),
    _counter("acks_total", "Versions that clients ACKed.", "type"),
    _counter("nacks_total", "Versions that clients NACKed.", "node type"),
    # Rollouts.
    _gauge(
        "rollouts_active", "Rollouts under way: some clients do not have the content of the directory yet.", _ROLLOUT
    ),
    _gauge(
        "rollout_step_age_seconds",
        "Age of the step that clients have not all ACKed; absent without one.",
        f"{_ROLLOUT} step",
    ),
    _gauge("rollout_waiting_clients", "Clients that the step waits for.", _ROLLOUT),
    _gauge("rollout_clients", "Clients that follow the rollout.", _ROLLOUT),
    _gauge("approvals_pending", "1 while a removal waits for approval.", _ROLLOUT),
    _gauge("held_resources", "Resources served in another version than the directory has.", f"{_ROLLOUT} reason"),
    _gauge("rollback_timestamp_seconds", "Unix time of the rollback in force; absent without one.", _ROLLOUT),
    _gauge("rejecting_nodes", "Nodes that reject an offered version."),
    _gauge("held_versions", "Versions of resources held back from all nodes, because nodes reject them."),
    _gauge("canary_wait_seconds", "Time for which a change has waited for missing canaries; 0 if none waits."),
    _gauge("lingering_resources", "Removed resources that stay for connections of draining listeners.", "view type"),
    _counter("rollout_steps_total", "Published steps of rollouts.", "step"),
    _counter("rollout_step_timeouts_total", "Steps that clients did not ACK in time.", "step"),
    _counter("rollouts_total", "Rollouts that ended.", "result"),
    _counter("removal_holds_total", "Removals that waited for approval."),
    _counter(
        "version_holds_total", "Versions that fsxds began to hold back from all nodes, because nodes rejected them."
    ),
    # Mirrors and the state directory.
    _counter("mirror_writes_total", "Snapshots written to a mirror directory."),
    _counter("mirror_files_written_total", "Mirrored files written."),
    _counter("mirror_files_removed_total", "Mirrored files removed."),
    _counter("mirror_files_restored_total", "Mirrored files written again after another program changed them."),
    _histogram("mirror_write_duration_seconds", "Time to write a snapshot to a mirror directory."),
    _counter("mirror_failures_total", "Failures to write a mirror directory."),
    _counter("state_writes_total", "Writes to the state directory."),
    _counter("state_failures_total", "Failures to write the state directory."),
    _gauge("state_failing", "1 while the state directory is behind the served content, because it cannot be written."),
    # Fleets.
    _gauge("fleet_reached", "1 while the store of the fleet answers, otherwise 0."),
    _gauge("fleet_publishes", "1 while this server publishes for its fleet, otherwise 0."),
    _counter("fleet_elections_total", "Times that this server was elected publisher."),
    _counter("fleet_damages_total", "Publications that could not be read."),
    # Upstreams.
    _gauge("upstream_connected", "1 while the upstream is connected, otherwise 0.", "upstream"),
    _gauge(
        "upstream_age_seconds",
        "Time since the last message of the upstream, to this or an earlier process; absent before the first.",
        "upstream",
    ),
    _gauge("upstream_resources", "Resources received from the upstream.", "upstream type"),
    _gauge("upstream_pending_types", "Types for which the upstream has not responded yet.", "upstream"),
    _gauge("upstream_shadowed_resources", "Resources of the upstream that an earlier source replaces.", "upstream"),
    _counter("upstream_responses_total", "Responses that changed resources.", "upstream type"),
    _counter("upstream_rejections_total", "Rejected resources of the upstream.", "upstream type by"),
    _counter("upstream_connects_total", "Connections on which a server of the upstream answered.", "upstream"),
    _counter("upstream_losses_total", "Lost connections and failed attempts.", "upstream"),
    _counter("upstream_failovers_total", "Switches to another server of the upstream.", "upstream"),
    _counter(
        "upstream_loops_total",
        "Connections refused because the upstream gets its resources from this process.",
        "upstream",
    ),
    _counter("upstream_expired_total", "Resources removed at the end of their time to live.", "upstream"),
    # The process.
    _gauge("component_degraded", "1 from a failure of the component until it runs again, otherwise 0.", "component"),
    _counter("component_restarts_total", "Restarts of a component after a failure.", "component"),
    _counter("snapshots_set_aside_total", "Snapshots on which a component failed three times in a row.", "component"),
    _counter("internal_errors_total", "Errors of fsxds itself, by the part that failed.", "where"),
    _counter("certificate_reloads_total", "Reloads of changed TLS files.", "result"),
    _gauge(
        "certificates_last_reload_successful", "0 if the TLS files that were read last cannot be used, otherwise 1."
    ),
    _counter("settings_reloads_total", "Reloads of the settings by SIGHUP.", "result"),
    _gauge("settings_last_reload_successful", "0 if the settings that were read last have a mistake, otherwise 1."),
)
ROWS_BY_NAME = MappingProxyType({row.name: row for row in CATALOGUE})

LABELS = MappingProxyType(
    {
        "by": "`relay` if fsxds cannot use them, `nodes` if too many nodes reject them",
        "cohort": "`main`, `canary`, `rejecting` for nodes that reject a version, or `catching up` for nodes that are slower, or on their way to another view",
        "component": "name of the component, as in the log",
        "limit": "name of the option, such as `max-streams`",
        "listener": "`REST`, `gRPC` or `admin`",
        "node": "the first 200 node ids with a NACK; all others are `other`",
        "reason": "`rejected`, `pinned`, `waits for approval`, `in use`, `names an undefined resource`, `names a held resource` or `claims what another one has`",
        "result": "of a load `good` (no file is held back), `held` or `failed`; of a rollout `completed` or `superseded`; of settings and certificates `applied` or `rejected`",
        "service": "method of the stream",
        "severity": "`error`, `warning` or `note`",
        "state": "of a file `good`, `held` (its last good version is served) or `broken` (never good); of a client `SYNCED`, `STALE`, `NACK` or `NOT SENT`",
        "status": "HTTP status, or name of the gRPC status",
        "step": "`whole`, `grow`, `switch` or `shrink`",
        "transport": "`REST`, `gRPC` or `mirror`",
        "type": "short name of the resource type (`cds`)",
        "upstream": "name of the upstream",
        "version": "the version of fsxds, or of the served resources",
        "view": "name of the view, with its layers if several have this name; the first 100, all others are `other`; `whole tree` without views",
        "where": "the request, stream or component that failed",
    }
)
"""The labels' meanings; each has a bounded number of values."""
