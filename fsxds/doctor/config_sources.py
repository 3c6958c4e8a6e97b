"""What can be wrong with a config source, wherever it stands: in a bootstrap or in a resource."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsxds.doctor.chart import REST, Chart
from fsxds.doctor.paths import path_faults
from fsxds.values import Fault, FieldPath, Severity

_LONGEST_DELAY_S = 5.0
_SHORTEST_TIMEOUT_S = 5.0
_DEFAULT_TIMEOUT_S = 1.0
# Less than half a millisecond is no time-out at all (ENVOY.md A3); field rules have their say on zero.
_NO_TIMEOUT_S = 0.0005


def check_config_source(source: Any, field_path: FieldPath, chart: Chart) -> Iterator[Fault]:
    """Check a ConfigSource and what it points at."""
    chosen = source.WhichOneof("config_source_specifier")
    if chart.is_rewritten and chosen in {"ads", "api_config_source"}:
        return
    if chosen == "path":
        yield from path_faults(source.path, None, (*field_path, "path"), chart)
    if chosen == "path_config_source":
        watched = source.path_config_source
        directory = watched.watched_directory.path if watched.HasField("watched_directory") else None
        yield from path_faults(watched.path, directory, (*field_path, chosen), chart)
    if chosen == "ads" and not chart.has_ads:
        yield Fault(
            "no-ads",
            "ads is the stream of `ads_config`, which the bootstrap does not have",
            "add dynamic_resources.ads_config to the bootstrap, or mirror files with --mirror-config-sources",
            (*field_path, "ads"),
        )
    if chosen in {"ads", "api_config_source"} and _is_zero(source, "initial_fetch_timeout"):
        yield Fault(
            "endless-start",
            "0 makes the start wait for the first answer for ever",
            "give a limit such as 15s, or leave it out: that is Envoy's default",
            (*field_path, "initial_fetch_timeout"),
            severity=Severity.WARNING,
        )
    if chosen == "api_config_source":
        yield from _check_api(source.api_config_source, (*field_path, chosen), chart)


def _check_api(api: Any, field_path: FieldPath, chart: Chart) -> Iterator[Fault]:
    if api.api_type == REST:
        yield from _check_refresh_delay(api, (*field_path, "refresh_delay"))
        yield from _check_request_timeout(api, (*field_path, "request_timeout"))
        for index, name in enumerate(api.cluster_names):
            yield from _check_cluster(name, (*field_path, "cluster_names", index), chart)
        return
    for index, service in enumerate(api.grpc_services):
        if service.HasField("envoy_grpc"):
            steps = ("grpc_services", index, "envoy_grpc", "cluster_name")
            yield from _check_cluster(service.envoy_grpc.cluster_name, (*field_path, *steps), chart)


def _check_refresh_delay(api: Any, field_path: FieldPath) -> Iterator[Fault]:
    delay_s = seconds_of(api.refresh_delay)
    if delay_s > _LONGEST_DELAY_S:
        yield Fault(
            "slow-refresh",
            f"a change takes up to {2 * delay_s:g} s to be seen: Envoy pauses {delay_s:g} to {2 * delay_s:g} s after each poll",
            "write 0.05s: fsxds holds polls, so that short pauses make no more of them",
            field_path,
            severity=Severity.WARNING,
        )


def _check_request_timeout(api: Any, field_path: FieldPath) -> Iterator[Fault]:
    given = api.HasField("request_timeout")
    timeout_s = seconds_of(api.request_timeout) if given else _DEFAULT_TIMEOUT_S
    if _NO_TIMEOUT_S <= timeout_s < _SHORTEST_TIMEOUT_S:
        fact = (
            f"a poll is held for {timeout_s:g} s" if given else "without it a poll is held for Envoy's default of 1 s"
        )
        yield Fault(
            "short-request-timeout",
            f"{fact}, so that each subscription sends {60 / timeout_s:.0f} requests of 77 kB in a quiet minute",
            "write request_timeout: 30s",
            field_path if given else field_path[:-1],
            severity=Severity.WARNING,
        )


def _check_cluster(name: str, field_path: FieldPath, chart: Chart) -> Iterator[Fault]:
    if chart.clusters is None:
        return
    cluster = chart.clusters.get(name)
    if cluster is not None and not cluster.is_eds:
        return
    is_secret = "sds_config" in field_path
    if is_secret and name in chart.clusters_of_tree:
        return
    fact = "is of type EDS" if cluster else "is no static cluster of the bootstrap"
    yield Fault(
        "no-xds-cluster",
        f'"{name}" {fact}; configuration can come from static clusters with fixed or DNS addresses alone',
        "add it to the bootstrap's static_resources.clusters, or mirror files with --mirror-config-sources",
        field_path,
        # Secrets are asked for later than the rest, also of clusters that come by CDS.
        severity=Severity.WARNING if is_secret else Severity.ERROR,
    )


def seconds_of(duration: Any) -> float:
    """Return a Duration in seconds."""
    return float(duration.seconds + duration.nanos / 1e9)


def _is_zero(message: Any, name: str) -> bool:
    return bool(message.HasField(name) and seconds_of(getattr(message, name)) == 0)
