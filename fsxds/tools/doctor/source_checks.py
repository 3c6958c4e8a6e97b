"""Checks config sources and their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from fsxds.api.catalogue import DynamicMessage
from fsxds.model.values import Fault, FieldPath, Severity
from fsxds.tools.doctor.facts import REST, EnvoyFacts, FileFacts

# Envoy reads text format under these suffixes as JSON (ENVOY.md E22).
_TEXT_FORMAT = (".textproto", ".txtpb", ".pbtxt", ".prototxt")
_READ_AS_YAML = (".yaml", ".yml")
# No serialized DiscoveryResponse begins like this; read as binary, such a file is an empty response.
_TEXT_HEADS = (b"{", b"#", b"---", b"resources", b"version_info", b"versionInfo", b"type_url", b"typeUrl", b'"')


def path_faults(path: str, watched: str | None, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    """Check a subscribed path and its `watched_directory`; `field_path` is the path's or its holder's."""
    facts = envoy.look_at(path)
    if not facts.exists:
        yield _missing_file(path, field_path)
    yield from _check_suffix(path, facts, field_path)
    if watched is not None and not envoy.look_at(watched).exists:
        yield _missing_file(watched, (*field_path, "watched_directory"))
    elif facts.swapped_in is not None and (
        watched is None or PurePosixPath(facts.swapped_in) != PurePosixPath(watched)
    ):
        fact = "a ConfigMap or Secret volume" if facts.is_config_map else "a directory that a link is swapped in"
        yield Fault(
            "unwatched-directory",
            f"{path} is in {fact}: Envoy does not notice its changes unless it watches {facts.swapped_in}",
            f"add watched_directory: {{path: {facts.swapped_in}}} beside the path",
            (*field_path, "watched_directory") if watched is not None else field_path,
            severity=Severity.WARNING,
        )


def _missing_file(path: str, field_path: FieldPath) -> Fault:
    return Fault(
        "missing-file",
        f"{path} does not exist here; Envoy rejects a reference to a missing file, and does not start if its bootstrap has one",
        "write it before Envoy starts (`fsxds mirror DIR OUT` writes them all), or correct the path",
        field_path,
    )


def _check_suffix(path: str, facts: FileFacts, field_path: FieldPath) -> Iterator[Fault]:
    name, begin, how = path.lower(), facts.head.lstrip(), ""
    if name.endswith(_TEXT_FORMAT):
        how = "JSON: text format is read under the suffix .pb_text alone"
    elif name.endswith(".pb"):
        if begin.startswith(_TEXT_HEADS):
            how = "binary, and reads text as an empty response, so it deletes every resource"
    elif not name.endswith((*_READ_AS_YAML, ".pb_text")) and begin and not begin.startswith(b"{"):
        how = "JSON, which it is not"
    if how:
        yield Fault(
            "misread-file",
            f"Envoy goes by the suffix, and reads {PurePosixPath(path).name} as {how}",
            "rename it to .yaml, .json, .pb or .pb_text, whichever it is",
            field_path,
        )


_LONGEST_DELAY_S = 5.0
_SHORTEST_TIMEOUT_S = 5.0
_DEFAULT_TIMEOUT_S = 1.0
# Less than half a millisecond means no time-out (ENVOY.md E3); field rules check zero.
_NO_TIMEOUT_S = 0.0005


def check_config_source(source: DynamicMessage, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    """Check a ConfigSource."""
    chosen = source.WhichOneof("config_source_specifier")
    if envoy.is_rewritten and chosen in {"ads", "api_config_source"}:
        return
    if chosen == "path":
        yield from path_faults(source.path, None, (*field_path, "path"), envoy)
    if chosen == "path_config_source":
        watched = source.path_config_source
        directory = watched.watched_directory.path if watched.HasField("watched_directory") else None
        yield from path_faults(watched.path, directory, (*field_path, chosen), envoy)
    if chosen == "ads" and not envoy.has_ads:
        yield Fault(
            "no-ads",
            "ads is the stream of `ads_config`, which the bootstrap does not have",
            "add dynamic_resources.ads_config to the bootstrap, or mirror files with --mirror-config-sources",
            (*field_path, "ads"),
        )
    is_waiting = source.HasField("initial_fetch_timeout") and seconds_of(source.initial_fetch_timeout) == 0
    if chosen in {"ads", "api_config_source"} and is_waiting:
        yield Fault(
            "endless-start",
            "0 makes the start wait for the first answer for ever",
            "give a limit such as 15s, or leave it out: that is Envoy's default",
            (*field_path, "initial_fetch_timeout"),
            severity=Severity.WARNING,
        )
    if chosen == "api_config_source":
        yield from _check_api(source.api_config_source, (*field_path, chosen), envoy)


def _check_api(api: DynamicMessage, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    if api.api_type == REST:
        delay_s = seconds_of(api.refresh_delay)
        if delay_s > _LONGEST_DELAY_S:
            yield Fault(
                "slow-refresh",
                f"a change takes up to {2 * delay_s:g} s to be seen: Envoy pauses {delay_s:g} to {2 * delay_s:g} s after each poll",
                "write 0.05s: fsxds holds polls, so that short pauses make no more of them",
                (*field_path, "refresh_delay"),
                severity=Severity.WARNING,
            )
        yield from _check_request_timeout(api, (*field_path, "request_timeout"))
        for index, name in enumerate(api.cluster_names):
            yield from _check_cluster(name, (*field_path, "cluster_names", index), envoy)
        return
    for index, service in enumerate(api.grpc_services):
        if service.HasField("envoy_grpc"):
            steps = ("grpc_services", index, "envoy_grpc", "cluster_name")
            yield from _check_cluster(service.envoy_grpc.cluster_name, (*field_path, *steps), envoy)


def _check_request_timeout(api: DynamicMessage, field_path: FieldPath) -> Iterator[Fault]:
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


def _check_cluster(name: str, field_path: FieldPath, envoy: EnvoyFacts) -> Iterator[Fault]:
    if envoy.clusters is None:
        return
    cluster = envoy.clusters.get(name)
    if cluster is not None and not cluster.is_eds:
        return
    is_secret = "sds_config" in field_path
    if is_secret and name in envoy.clusters_of_tree:
        return
    fact = "is of type EDS" if cluster else "is no static cluster of the bootstrap"
    yield Fault(
        "no-xds-cluster",
        f'"{name}" {fact}; configuration can come from static clusters with fixed or DNS addresses alone',
        "add it to the bootstrap's static_resources.clusters, or mirror files with --mirror-config-sources",
        field_path,
        # Envoy subscribes to secrets later than to the rest, also at clusters that come by CDS.
        severity=Severity.WARNING if is_secret else Severity.ERROR,
    )


def seconds_of(duration: DynamicMessage) -> float:
    """Return a Duration in seconds."""
    return float(duration.seconds + duration.nanos / 1e9)
