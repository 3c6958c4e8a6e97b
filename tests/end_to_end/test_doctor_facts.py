"""What the doctor says of Envoy is what the real Envoy does."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.envoy import Envoy
from tests.support.envoy_admin import EnvoyError
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.this_envoy import this_envoy
from tests.tools.doctor.examples import (
    HEALTHY,
    HTTP2,
    Doctor,
    cds_of,
    eds_clusters,
    file_source,
    grpc_source,
    rest_source,
    xds_of,
)

NOWHERE = "/no/such/file.json"


@pytest.fixture(scope="module")
def doctor() -> Doctor:
    """Examines what is written down in tests."""
    return Doctor(this_envoy())


def bootstrap(edit: Callable[[Any], object]) -> dict[str, Any]:
    """Return the healthy bootstrap, edited; nobody listens where it expects its server."""
    value: dict[str, Any] = json.loads(json.dumps(yaml.safe_load(HEALTHY)).replace("18001", str(free_port())))
    edit(value)
    return value


def dynamic(**changes: Any) -> Callable[[Any], object]:
    """Return an edit of `dynamic_resources`."""
    return lambda value: value["dynamic_resources"].update(changes)


ADS = {"resource_api_version": "V3", "ads": {}}

# Each ends Envoy at its start.
FATAL: dict[str, tuple[str, Callable[[Any], object], str]] = {
    "crash": ("short-refresh-delay", lambda value: cds_of(value).update(refresh_delay="0.0001s"), "backtrace"),
    "no delay": ("wrong-config-source", lambda value: cds_of(value).pop("refresh_delay"), "refresh_delay is required"),
    "two names": (
        "wrong-config-source",
        lambda value: cds_of(value).update(cluster_names=["xds", "xds"]),
        "singleton cluster name",
    ),
    "no cluster": (
        "no-xds-cluster",
        lambda value: cds_of(value).update(cluster_names=["web"]),
        "statically defined non-EDS cluster",
    ),
    "no stream": ("no-ads", dynamic(cds_config=ADS), "ADS must be configured"),
    "a stream by REST": (
        "impossible-transport",
        dynamic(ads_config=rest_source()["api_config_source"]),
        "non-aggregated gRPC",
    ),
    "no file": ("missing-file", dynamic(cds_config=file_source(NOWHERE)), "does not exist"),
    "half a node": (
        "no-node",
        lambda value: value.update(node={"id": "edge-1"}),
        "'id' and 'cluster' are required",
    ),
}


@pytest.mark.parametrize("case", FATAL)
def test_envoy_does_not_start(case: str, doctor: Doctor) -> None:
    """Envoy ends with what the doctor finds, and says why."""
    rule, edit, words = FATAL[case]
    file = doctor.problems_of(bootstrap(edit))
    envoy = Envoy(bootstrap(edit), wait="none")
    try:
        envoy.start()
        with pytest.raises(EnvoyError, match="Envoy exited"):
            envoy.wait(lambda: False, what="its end")

        assert rule in file
        assert envoy.log_lines(words)
    finally:
        envoy.stop()


def test_watched_directory_that_is_missing(tmp_path: Path) -> None:
    """Envoy does not start without the directory that it is to watch."""
    file = tmp_path / "cds.json"
    file.write_text("{}")
    envoy = Envoy(bootstrap(dynamic(cds_config=file_source(str(file), "/no/such/directory"))), wait="none")
    try:
        envoy.start()
        with pytest.raises(EnvoyError, match="Envoy exited"):
            envoy.wait(lambda: False, what="its end")
        assert envoy.log_lines("unable to add filesystem watch")
    finally:
        envoy.stop()


def test_collection_of_clusters_in_a_file(tmp_path: Path, doctor: Doctor) -> None:
    """Envoy starts, and does not get a cluster out of it."""
    kinds = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    inline = {"name": "a", "version": "1", "resource": {"@type": kinds, **rows(rest_source())[0]}}
    collection = {"@type": f"{kinds}Collection", "entries": {"inline_entry": inline}}
    file = tmp_path / "cds.json"
    file.write_text(json.dumps({"version": "1", "resource": collection}))
    value = bootstrap(lambda value: value.update(dynamic_resources={"cds_resources_locator": f"file://{file}"}))
    with Envoy(value, wait="admin") as envoy:
        envoy.wait(lambda: envoy.log_lines("Invalid structure for collection|rejected|failure"), what="its complaint")

        assert {"cluster-collection-file"} == doctor.problems_of(value)
        assert envoy.stat("cluster_manager.cds.update_success") == 0


# Each is refused with the cluster that brings it along.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no delay": (rest_source(refresh_delay=None), "refresh_delay is required"),
    "two names": (rest_source(cluster_names=["xds", "xds"]), "singleton cluster name"),
    "no-xds-cluster": (rest_source(cluster_names=["web"]), "statically defined non-EDS cluster"),
    "no-ads": (ADS, "ADS must be configured"),
    "missing-file": (file_source(NOWHERE), "does not exist"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_envoy_refuses_the_resource(case: str, tmp_path: Path) -> None:
    """A cluster that comes with such a source is rejected."""
    source, words = REFUSED[case]
    clusters = [{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", **row} for row in rows(source)]
    file = tmp_path / "cds.json"
    file.write_text(json.dumps({"version_info": "1", "resources": clusters}))
    section = {"cds_config": file_source(str(file))}
    with Envoy(bootstrap(lambda value: value.update(dynamic_resources=section)), wait="admin") as envoy:
        envoy.wait_stat("cluster_manager.cds.update_rejected", 1)

        assert envoy.log_lines(words)


def rows(source: dict[str, Any], count: int = 1) -> Any:
    return yaml.safe_load(eds_clusters(count, source))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Serves eight EDS clusters that poll."""
    tree = tmp_path / "xds"
    tree.mkdir()
    (tree / "cds.yaml").write_text(eds_clusters(8, {**rest_source(), "initial_fetch_timeout": "1s"}))
    (tree / "eds.yaml").write_text("".join(f"- {{cluster_name: c{number}}}\n" for number in range(8)))
    with Server(tree, tmp_path) as running:
        yield running


def started(server: Server, edit: Callable[[Any], object]) -> Envoy:
    """Return an Envoy that polls the server for clusters."""

    def to_server(value: Any) -> None:
        address = xds_of(value)["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
        address["socket_address"]["port_value"] = server.port
        del value["dynamic_resources"]["lds_config"]
        value["dynamic_resources"]["cds_config"]["initial_fetch_timeout"] = "1s"
        edit(value)

    return Envoy(bootstrap(to_server))


def test_few_connections(server: Server) -> None:
    """Beyond max_requests polls fail, beyond max_connections they wait."""
    wide = {"max_connections": 100, "max_pending_requests": 100, "max_requests": 100}
    limits = {"max_requests": "upstream_rq_503", "max_connections": "upstream_cx_overflow"}
    for name, stat in limits.items():
        breakers = {"circuit_breakers": {"thresholds": [{**wide, name: 4}]}}
        with started(server, lambda value: xds_of(value).update(breakers)) as envoy:  # noqa: B023, called at once
            envoy.wait_stat(f"cluster.xds.{stat}", 1)

            assert envoy.stat("cluster.xds.upstream_rq_active") <= 4


def localhost(family: str | None) -> Callable[[Any], None]:
    """Return an edit that looks the server up by name."""

    def edit(value: Any) -> None:
        address = xds_of(value)["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
        address["socket_address"]["address"] = "localhost"
        xds_of(value).update({"type": "STRICT_DNS", **({"dns_lookup_family": family} if family else {})})

    return edit


@pytest.mark.parametrize(("family", "arrives"), [(None, False), ("V4_ONLY", True), ("V4_PREFERRED", True)])
def test_localhost(family: str | None, *, arrives: bool, server: Server) -> None:
    """With Envoy's default, polls for `localhost` go to `::1`, where fsxds does not listen."""
    with started(server, localhost(family)) as envoy:
        envoy.wait_stat(f"cluster_manager.cds.{'update_success' if arrives else 'update_failure'}", 1)

        assert arrives == bool(envoy.stat("cluster_manager.cds.update_success"))


def test_rest_over_http2(server: Server) -> None:
    """A server of HTTP/1.1 does not understand it."""
    with started(server, lambda value: xds_of(value).update(typed_extension_protocol_options=HTTP2)) as envoy:
        envoy.wait_stat("cluster_manager.cds.update_failure", 2)

        assert envoy.stat("cluster_manager.cds.update_success") == 0


@pytest.mark.parametrize(("protocol", "arrives"), [({}, False), ({"typed_extension_protocol_options": HTTP2}, True)])
def test_grpc_without_http2(protocol: dict[str, Any], *, arrives: bool, server: Server) -> None:
    """No stream comes up; with HTTP/2 one does."""

    def edit(value: Any) -> None:
        endpoint = xds_of(value)["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]
        endpoint["address"]["socket_address"]["port_value"] = server.grpc_port
        xds_of(value).update(copy.deepcopy(protocol))
        value["dynamic_resources"] = {
            "ads_config": grpc_source()["api_config_source"],
            "cds_config": {**ADS, "initial_fetch_timeout": "0.5s"},
        }

    with Envoy(bootstrap(edit)) as envoy:
        assert arrives == bool(envoy.stat("cluster_manager.cds.update_success"))
