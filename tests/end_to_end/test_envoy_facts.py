"""What a real Envoy does with what fsxds never sends, or must never let happen: the facts of fsxds/ENVOY.md."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from envoy.service.discovery.v3 import discovery_pb2
from google.protobuf import any_pb2

from fsxds.cli.main import main
from tests.end_to_end.test_grpc_time_to_live import FEATURES, TTL_S, mortal
from tests.support.envoy import Envoy
from tests.support.envoy_admin import EnvoyError
from tests.support.grpc_envoy import SOTW_ADS, Fleet
from tests.support.resources import direct_route, document, endpoints, http_listener, static_cluster
from tests.support.scripted_rest import Answer, Poll, ScriptedRest
from tests.support.settings_files import file_flags

CDS, LDS = "cluster_manager.cds", "listener_manager.lds"
TYPES = "type.googleapis.com/envoy"
ROUTER = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": f"{TYPES}.extensions.filters.http.router.v3.Router"},
}
A_WHILE_S = 0.5


def path_source(path: Path) -> dict[str, Any]:
    """Return a config source that reads a file."""
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


def from_files(**paths: Path) -> dict[str, Any]:
    """Return a bootstrap that reads clusters (`cds`) or listeners (`lds`) from files."""
    return {"dynamic_resources": {f"{name}_config": path_source(path) for name, path in paths.items()}}


def from_server(port: int, **changes: str) -> dict[str, Any]:
    """Return a bootstrap that polls for clusters; `changes` are of its source."""
    source = {"api_type": "REST", "transport_api_version": "V3", "cluster_names": ["xds"], "refresh_delay": "0.05s"}
    return {
        "static_resources": {"clusters": [static(static_cluster("xds", port))]},
        "dynamic_resources": {
            "cds_config": {
                "resource_api_version": "V3",
                "initial_fetch_timeout": "1s",
                "api_config_source": {**source, **changes},
            }
        },
    }


def static(item: str) -> dict[str, Any]:
    """Return a list item as a static resource, which has no `@type`."""
    (resource,) = yaml.safe_load(item)
    return {name: value for name, value in resource.items() if name != "@type"}


def replace(path: Path, content: str | bytes) -> None:
    """Move a file with this content over another, as Envoy wants it."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content if isinstance(content, bytes) else content.encode())
    temporary.replace(path)


# -- REST


def polls_of(answer: Answer, count: int, **changes: str) -> list[Poll]:
    """Return the first polls for clusters of an Envoy that is answered so."""
    with ScriptedRest(answer) as server, Envoy(from_server(server.port, **changes), wait="admin") as envoy:
        envoy.wait(lambda: len(server.polls) >= count, what=f"{count} polls")
        return server.polls[:count]


def test_a_poll_bears_its_deadline_and_all_extensions() -> None:
    """The deadline is a header in milliseconds; nearly all of the body is the list of what the Envoy is built with."""
    (poll,) = polls_of(lambda _: None, 1)

    assert poll.headers["x-envoy-expected-rq-timeout-ms"] == "1000"
    assert 60_000 < poll.size_bytes < 100_000
    assert {"node", "type_url"} == set(poll.body)
    assert poll.body["node"]["user_agent_name"] == "envoy"
    assert len(json.dumps(poll.body["node"]["extensions"])) > 0.9 * poll.size_bytes
    assert "client_features" not in poll.body["node"]


def test_a_poll_names_its_cluster_as_host() -> None:
    """Whatever the address of the cluster is, and without an origin."""
    (poll,) = polls_of(lambda _: None, 1)

    assert poll.headers["host"] == "xds"
    assert "origin" not in poll.headers


def test_a_deadline_below_half_a_millisecond_is_none() -> None:
    """It is rounded to zero, and the header is left out."""
    (poll,) = polls_of(lambda _: None, 1, request_timeout="0.0001s")

    assert "x-envoy-expected-rq-timeout-ms" not in poll.headers


def test_a_poll_that_is_held_too_long_is_a_failure() -> None:
    """Envoy gives it up at its deadline and polls again; what it has stays."""
    answered = threading.Event()

    def answer(poll: Poll) -> bytes | None:
        if "version_info" not in poll.body:
            return json.dumps({"version_info": "1", **yaml.safe_load(document([static_cluster("a")]))}).encode()
        answered.wait(2)
        return None

    with (
        ScriptedRest(answer) as server,
        Envoy(from_server(server.port, request_timeout="0.3s"), wait="admin") as envoy,
    ):
        envoy.wait_stat(f"{CDS}.update_failure", 1)
        answered.set()

        assert envoy.cluster_names(dynamic_only=True) == {"a"}


def test_a_rejection_is_told_by_the_version_alone() -> None:
    """The next poll has the version before; there is no nonce and no reason, and without a first version there is none."""
    good, bad = document([static_cluster("a")]), document([static_cluster("b", address="nowhere")])

    def answer(poll: Poll) -> bytes:
        version, text = ("2", bad) if poll.body.get("version_info") == "1" else ("1", good)
        return json.dumps({"version_info": version, "nonce": "n", **yaml.safe_load(text)}).encode()

    polls = polls_of(answer, 4)

    assert [None, "1", "1", "1"] == [poll.body.get("version_info") for poll in polls]
    assert not {"response_nonce", "error_detail"} & {name for poll in polls for name in poll.body}


# -- what an answer does


def test_a_rejected_update_is_applied_in_part(tmp_path: Path) -> None:
    """A resource that cannot be made is left out alone: the others are added, and what is not there is removed."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(document([static_cluster("a")]))
    with Envoy(from_files(cds=cds)) as envoy:
        replace(cds, document([static_cluster("b"), static_cluster("c", address="nowhere")]))
        envoy.wait_stat(f"{CDS}.update_rejected", 1)

        assert envoy.cluster_names(dynamic_only=True) == {"b"}


def test_a_name_twice_is_rejected(tmp_path: Path) -> None:
    """One of the two is applied."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(document([static_cluster("a", 1), static_cluster("a", 2)]))
    with Envoy(from_files(cds=cds)) as envoy:
        assert envoy.stat(f"{CDS}.update_rejected") == 1
        assert envoy.cluster_names(dynamic_only=True) == {"a"}


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        (".json", b"{}"),
        (".yaml", b"resources: []\n"),
        (".yaml", b"resources:\n"),
        (".pb", b""),
        (".pb", b"this is no message"),
    ],
)
def test_an_answer_without_resources_deletes_everything(suffix: str, content: bytes, tmp_path: Path) -> None:
    """Whatever it looks like, and with success."""
    cds = tmp_path / f"cds{suffix}"
    first = yaml.safe_load(document([static_cluster("a")]))
    if suffix == ".pb":
        cluster = any_pb2.Any(type_url=first["resources"][0]["@type"], value=b"\x0a\x01a\x22\x02\x08\x01")
        cds.write_bytes(discovery_pb2.DiscoveryResponse(resources=[cluster]).SerializeToString())
    else:
        cds.write_text(json.dumps(first))
    with Envoy(from_files(cds=cds)) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {"a"}

        replace(cds, content)
        envoy.wait_stat(f"{CDS}.update_success", 2)

        assert envoy.cluster_names(dynamic_only=True) == set()


def _named(kind: str, path: Path) -> tuple[dict[str, Any], str]:
    """Return static resources that get one resource `x` from a file, and the scope of that subscription."""
    cluster = {"name": "x", "connect_timeout": "1s"}
    if kind == "eds":
        return {"clusters": [{**cluster, "type": "EDS", "eds_cluster_config": {"eds_config": path_source(path)}}]}, (
            "cluster.x"
        )
    if kind == "sds":
        validation = {"name": "x", "sds_config": path_source(path)}
        tls = {
            "@type": f"{TYPES}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
            "common_tls_context": {"validation_context_sds_secret_config": validation},
        }
        socket = {"name": "envoy.transport_sockets.tls", "typed_config": tls}
        return {"clusters": [{**cluster, "type": "STATIC", "transport_socket": socket}]}, "sds.x"
    listener = static(http_listener("front", 0, "x"))
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    if kind == "rds":
        manager["rds"]["config_source"] = path_source(path)
        return {"listeners": [listener]}, "http.front.rds.x"
    del manager["rds"]
    manager["route_config"] = {"name": "r"}
    discovery = {"config_source": path_source(path), "type_urls": [f"{TYPES}.extensions.filters.http.router.v3.Router"]}
    manager["http_filters"] = [{"name": "x", "config_discovery": discovery}]
    return {"listeners": [listener]}, "extension_config_discovery.http_filter.x"


def _verdict(kind: str, content: str, tmp_path: Path) -> str:
    """Return what an Envoy makes of a file that it reads for the resource `x`: `success` or `rejected`."""
    path = tmp_path / f"{kind}.yaml"
    path.write_text(content)
    if kind == "rtds":
        layers = [{"name": "x", "rtds_layer": {"name": "x", "rtds_config": path_source(path)}}]
        bootstrap, scope = {"layered_runtime": {"layers": layers}}, "runtime"
    else:
        static, scope = _named(kind, path)
        bootstrap = {"static_resources": static}
    with Envoy(bootstrap, wait="admin") as envoy:
        words = ("success", "rejected")
        envoy.wait(lambda: any(envoy.stat(f"{scope}.update_{word}") for word in words), what="a verdict")
        (verdict,) = [word for word in words if envoy.stat(f"{scope}.update_{word}")]
        return verdict


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [("eds", "success"), ("rds", "success"), ("sds", "rejected"), ("rtds", "rejected"), ("ecds", "rejected")],
)
def test_an_empty_answer_for_one_name(kind: str, verdict: str, tmp_path: Path) -> None:
    """For endpoints and routes it means that there are none; for other types it is a mistake."""
    assert verdict == _verdict(kind, "resources: []\n", tmp_path)


@pytest.mark.parametrize(
    ("kind", "items"),
    [
        ("eds", [endpoints("x", 1), endpoints("z", 2)]),
        ("eds", [endpoints("z", 2)]),
        ("rds", [direct_route("x", "a"), direct_route("z", "b")]),
        ("rds", [direct_route("z", "b")]),
    ],
)
def test_more_than_was_asked_for_is_rejected(kind: str, items: list[str], tmp_path: Path) -> None:
    """A file or a poll for one resource must have this one alone."""
    assert _verdict(kind, document(items), tmp_path) == "rejected"


def wrapper(name: str, *resource: str) -> str:
    """Return a `Resource` of a name around a resource, as a response."""
    content = {"@type": f"{TYPES}.service.discovery.v3.Resource", "name": name}
    for one in resource:
        content["resource"] = yaml.safe_load(one)[0]
    return yaml.safe_dump({"resources": [content]})


def test_a_wrapper_of_another_name_deletes_its_cluster(tmp_path: Path) -> None:
    """The next update removes what the last one added, with success."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(wrapper("x", static_cluster("z")))
    with Envoy(from_files(cds=cds)) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {"z"}

        replace(cds, cds.read_text())
        envoy.wait_stat(f"{CDS}.update_success", 2)
        assert envoy.cluster_names(dynamic_only=True) == set()


def test_an_empty_wrapper_makes_a_cluster_without_a_name(tmp_path: Path) -> None:
    """A heartbeat has no meaning in files and over REST."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(wrapper("x"))
    with Envoy(from_files(cds=cds)) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {""}


def test_a_time_to_live_in_a_file_is_none(tmp_path: Path) -> None:
    """The cluster stays when it is over."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(f"resources:\n{mortal('a', static_cluster('a'))}")
    bootstrap = from_files(cds=cds)
    bootstrap["node"] = {"id": "edge-1", "cluster": "edge", "client_features": FEATURES}
    with Envoy(bootstrap) as envoy:
        time.sleep(TTL_S + A_WHILE_S)

        assert envoy.cluster_names(dynamic_only=True) == {"a"}


def test_one_listener_may_lack_a_name(tmp_path: Path) -> None:
    """Envoy makes one up, another one at each update; of two without a name it rejects one."""
    lds = tmp_path / "lds.yaml"
    (listener,) = yaml.safe_load(http_listener("front", 0, "r"))
    del listener["name"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    del manager["rds"]
    manager["route_config"] = {"name": "r"}
    lds.write_text(json.dumps({"resources": [listener]}))
    with Envoy(from_files(lds=lds)) as envoy:
        (first,) = envoy.listener_names()
        replace(lds, json.dumps({"version_info": "2", "resources": [listener]}))
        envoy.wait_stat(f"{LDS}.update_success", 2)
        envoy.wait(lambda: first not in envoy.listener_names(), what="another name")
        replace(lds, json.dumps({"resources": [listener, listener]}))
        envoy.wait_stat(f"{LDS}.update_rejected", 1)


# -- files


def test_a_file_is_read_when_another_is_moved_over_it(tmp_path: Path) -> None:
    """Writing into it, deleting it or making it anew goes unnoticed."""
    cds = tmp_path / "cds.yaml"
    cds.write_text(document([static_cluster("a")]))
    with Envoy(from_files(cds=cds)) as envoy:
        cds.write_text(document([static_cluster("b")]))
        cds.unlink()
        cds.write_text(document([static_cluster("c")]))
        time.sleep(A_WHILE_S)
        assert envoy.stat(f"{CDS}.update_attempt") == 1

        replace(cds, document([static_cluster("d")]))
        envoy.wait_stat(f"{CDS}.update_success", 2)
        assert envoy.cluster_names(dynamic_only=True) == {"d"}


@pytest.mark.parametrize(
    ("suffix", "is_text_format"), [(".pb_text", True), (".textproto", False), (".txtpb", False), (".pbtxt", False)]
)
def test_text_format_has_one_suffix(suffix: str, *, is_text_format: bool, tmp_path: Path) -> None:
    """Under any other it is read as JSON."""
    cds = tmp_path / f"cds{suffix}"
    cds.write_text('version_info: "1"')
    with Envoy(from_files(cds=cds)) as envoy:
        verdict = "update_success" if is_text_format else "update_failure"
        assert envoy.stat(f"{CDS}.{verdict}") == 1


# -- values

SCALARS = """
word: [yes, no, on, off, y, n, Yes, NO, "yes", truth]
time: [12:30:45, 2024-01-01, 2024-01-01T00:00:00Z, 1_000, 0b101]
number: [1, -7, 0x1f, 017, 4294967295, 9223372036854775807]
fraction: [1.0, 0.5, .5, 1e3, .inf]
nothing: [~, null, ""]
quoted: ['

  ', 'a


  ', "it\\x41


  ", 'it''



  ', "\\



  ", "\\\\



  ", "\\n

  ", ! '

  ']
folded: >+
  a

  b


indented: >+
  a
    b


kept: |+
  a


"""


def test_yaml_means_the_same_to_fsxds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words, times, numbers, fractions and line breaks within a Struct are to Envoy what they are to fsxds."""
    cds = tmp_path / "cds.yaml"
    scalars = "".join(f"        {line}\n" for line in SCALARS.splitlines()[1:])
    metadata = f"  metadata:\n    filter_metadata:\n      x:\n{scalars}"
    cds.write_text(f"resources:\n{static_cluster('a')}{metadata}")
    with Envoy(from_files(cds=cds)) as envoy:
        (theirs,) = envoy.config_section("ClustersConfigDump")["dynamic_active_clusters"]

    assert main(["show", str(tmp_path), "--format", "json"]) == 0
    (ours,) = json.loads(capsys.readouterr().out)["cds"]["resources"]
    assert theirs["cluster"]["metadata"] == ours["resource"]["metadata"]


LIBERTIES = """\
{resources: {'@type': 'type.googleapis.com/envoy.config.cluster.v3.Cluster', name: 'a', type: "static",},}
"""


def test_liberties_of_json(tmp_path: Path) -> None:
    """Trailing commas, single quotes, bare keys, enums in any case, and one object for a list of one."""
    cds = tmp_path / "cds.json"
    cds.write_text(LIBERTIES)
    with Envoy(from_files(cds=cds)) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {"a"}


# -- streams


def test_endpoints_that_expire_crash_a_state_of_the_world_client(tmp_path: Path) -> None:
    """Fsxds with `ttl: spec` tells their time to live, and ends: Envoy dies of it."""
    fleet = Fleet(tmp_path, SOTW_ADS, *file_flags(ttl="spec"))
    cluster = {"name": "web", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": {"eds_config": {}}}
    cluster["eds_cluster_config"] = {"eds_config": SOTW_ADS.config_source()}
    fleet.write("cds.yaml", yaml.safe_dump([{"@type": f"{TYPES}.config.cluster.v3.Cluster", **cluster}]))
    fleet.write("eds.yaml", mortal("web", endpoints("web", 9)))
    with fleet.server() as server:
        bootstrap = fleet.bootstrap(server)
        bootstrap["node"]["client_features"] = FEATURES
        envoy = Envoy(bootstrap)
        try:
            envoy.start()
            server.stop()
            with pytest.raises(EnvoyError, match="Envoy exited"):
                envoy.wait(lambda: False, 10 * TTL_S, "its end")
            assert envoy.log_lines("Segmentation fault|backtrace")
        finally:
            envoy.stop()


Requests = Iterator[Any]


def ads_server(handler: Callable[[Requests], Iterator[Any]]) -> tuple[grpc.Server, int]:
    """Return a running server of state-of-the-world ADS that does as the handler says, and its port."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    method = grpc.stream_stream_rpc_method_handler(
        lambda requests, _: handler(requests),
        discovery_pb2.DiscoveryRequest.FromString,
        discovery_pb2.DiscoveryResponse.SerializeToString,
    )
    service = "envoy.service.discovery.v3.AggregatedDiscoveryService"
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"StreamAggregatedResources": method}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def test_a_nack_has_a_reason_with_a_code() -> None:
    """Its code is INTERNAL, its version is the one before, and its nonce is that of what was rejected."""
    seen: list[Any] = []

    def handler(requests: Requests) -> Iterator[Any]:
        for request in requests:
            if request.type_url.endswith("Cluster"):
                seen.append(request)
                if len(seen) == 1:
                    broken = any_pb2.Any(type_url=request.type_url, value=b"\xff")
                    response = discovery_pb2.DiscoveryResponse(version_info="1", nonce="n", type_url=request.type_url)
                    response.resources.append(broken)
                    yield response

    server, port = ads_server(handler)
    try:
        with Envoy(SOTW_ADS.bootstrap(f"127.0.0.1:{port}"), wait="admin") as envoy:
            envoy.wait(lambda: len(seen) == 2, what="a NACK")
    finally:
        server.stop(0)

    first, nack = seen
    assert [] == list(first.resource_names)
    assert ("", "n", 13) == (nack.version_info, nack.response_nonce, nack.error_detail.code)
