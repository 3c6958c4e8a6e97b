"""The metrics: events are counted at once, current values read on each scrape.

In the event loop, a dict needs no lock.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from fsxds import __version__
from fsxds.events.client_events import (
    AckReceived,
    NackReceived,
    RequestAnswered,
    ResponseSent,
)
from fsxds.events.event import Event, Measure
from fsxds.events.file_events import SnapshotPublished, TreeLoaded
from fsxds.events.phrases import LONGEST_NAME, escape, name_of, type_name
from fsxds.events.process_events import (
    InternalError,
)
from fsxds.events.rollout_events import RolloutChanged
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import Severity, TypeUrl
from fsxds.observe.metric_catalogue import CATALOGUE, ROWS_BY_NAME, MetricRow
from fsxds.rollout import Completed, Held, StepKind, StepStarted, StepTimedOut, Superseded

Labels: TypeAlias = tuple[str, ...]
"""The values of a row's labels, in order."""

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
            self._take(event, measure)

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, also without a value."""
        self._take_frequent()
        values = {name: {**counts} for name, counts in self._counts.items()}
        for name, labels, value in self._read():
            values[name][labels] = value
        for row in CATALOGUE:
            family = _family(row)
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
        """For events with more effects than `measures`."""
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

    def _take(self, event: Event, measure: Measure) -> None:
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


def _family(row: MetricRow) -> CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily:
    match row.metric_type:
        case "counter":
            return CounterMetricFamily(row.name, row.meaning, labels=row.labels)
        case "gauge":
            return GaugeMetricFamily(row.name, row.meaning, labels=row.labels)
        case _:
            return HistogramMetricFamily(row.name, row.meaning, labels=row.labels)


def _sendable(labels: Labels) -> Labels:
    """File and node names may have lone surrogates, which UTF-8 cannot encode."""
    return tuple(label if label.isascii() else label.encode(errors="replace").decode() for label in labels)
