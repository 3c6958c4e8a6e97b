"""The catalogue of metrics at `/metrics`, and labels."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric.

    Attributes:
        name: as in queries; a histogram appends `_bucket`, `_sum` and `_count`.
        metric_type: `counter`, `gauge` or `histogram`.
        meaning: one sentence.
        labels: in order; see `LABELS`.
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
