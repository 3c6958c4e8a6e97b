"""Clients that send anything: they get an answer or a closed connection, and leave nothing behind.

Never: a status that says that fsxds failed, a traceback, a connection that hangs, something that stays counted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.discovery.v3 import discovery_pb2
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.end_to_end.attacks import CDS, EDS, PREFACE, SETTINGS, call_head, frame
from tests.fuzzing.fuzzed_server import CODES, REPLIES, Fuzzed, fuzzed, mutations
from tests.support.polls import REAL_REQUEST

BOUNDED = settings(suppress_health_check=list(HealthCheck))

NODE = {"id": "n1", "cluster": "c", "metadata": {"tier": "edge"}, "locality": {"zone": "z"}}
POLL = json.dumps({"node": NODE, "resource_names": ["a", "b"], "version_info": "1", "response_nonce": "2"}).encode()
CLUSTERS = "/v3/discovery:clusters"

# As it is written by Envoy, without the list of its extensions.
STREAM_NODE = base_pb2.Node(id="n1", cluster="c", user_agent_name="envoy", client_features=["a.b"])
STREAM_NODE.metadata.update({"tier": "edge", "deep": {"list": [1, "x"]}})
SOTW = discovery_pb2.DiscoveryRequest(
    type_url=CDS, node=STREAM_NODE, resource_names=["a", "b"], version_info="1", response_nonce="2"
).SerializeToString()
DELTA = discovery_pb2.DeltaDiscoveryRequest(
    type_url=EDS,
    node=STREAM_NODE,
    resource_names_subscribe=["a", "*"],
    resource_names_unsubscribe=["b"],
    initial_resource_versions={"a": "1"},
).SerializeToString()
ADS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
PATHS = (
    *(f"{ADS}StreamAggregatedResources", f"{ADS}DeltaAggregatedResources"),
    *("/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",),
    *("/envoy.service.endpoint.v3.EndpointDiscoveryService/DeltaEndpoints",),
    *("/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts",),
    *("/envoy.service.status.v3.ClientStatusDiscoveryService/StreamClientStatus",),
    *("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", "/nothing/here"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[Fuzzed]:
    """Both servers; when all is over, nothing is left of any client, and nothing failed."""
    with fuzzed() as server:
        yield server
        left, errors = server.left_behind(), [error for each in server.recorders for error in each.errors]
    assert (left, errors) == ({}, [])


def poll(body: bytes, *headers: bytes, path: bytes = CLUSTERS.encode(), method: bytes = b"POST") -> bytes:
    """Return a request with a body."""
    lines = (method + b" " + path + b" HTTP/1.1", b"host: localhost", b"content-type: application/json", *headers)
    return b"\r\n".join((*lines, b"content-length: %d" % len(body), b"connection: close", b"", body))


@BOUNDED
@given(st.binary(max_size=200) | mutations(lambda: POLL) | mutations(REAL_REQUEST.read_bytes))
@example(b"")
@example(b"[" * 100_000)
@example(b'{"node":' * 20_000)
@example(b'{"node": {"id": "\\ud800"}}')
@example(b'{"version_info": 1e999}')
@example(b'{"resource_names": ["' + b"\\u0000" * 50_000 + b'"]}')
@example(b'{"a":1,"a":2}' * 3)
@example(b"\xff\xfe{\x00}\x00")
@example(b'{"node": {"metadata": {"x": ' + b'{"x": ' * 500 + b"1" + b"}" * 500 + b"}}}")
@example(b'{"node": {"id": ["x"]}, "resource_names": {"a": 1}}')
@example(b'{"error_detail": {"code": "x", "message": null, "details": [{"@type": 1}]}}')
def test_bodies(server: Fuzzed, body: bytes) -> None:
    """Any body, JSON or not, whole or not."""
    assert server.status_of(poll(body)) in REPLIES


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
FIELDS = (
    "node",
    "resource_names",
    "version_info",
    "error_detail",
    "type_url",
    "resourceNames",
    "resource_locators",
    "x",
)


@BOUNDED
@given(st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=3), st.sampled_from(FIELDS), JSON)
def test_values(server: Fuzzed, more: dict[str, object], name: str, value: object) -> None:
    """JSON of another form than a request has, in its fields or beside them."""
    assert server.status_of(poll(json.dumps({**more, name: value}).encode())) in REPLIES


@BOUNDED
@given(
    mutations(lambda: poll(POLL, b"accept-encoding: gzip", b"x-envoy-expected-rq-timeout-ms: 100"))
    | st.binary(max_size=300)
)
@example(poll(POLL, b"transfer-encoding: chunked"))
@example(poll(POLL, b"content-length: 3"))
@example(poll(POLL, b"content-encoding: gzip"))
@example(poll(POLL, b"content-encoding: deflate, gzip"))
@example(poll(POLL, b"expect: 100-continue"))
@example(poll(POLL, b"x-envoy-expected-rq-timeout-ms: 1e400"))
@example(poll(POLL, b"upgrade: h2c", b"connection: upgrade"))
@example(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
@example(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
@example(b"GET / HTTP/9.9\r\n\r\n")
@example(b"POST http://[::1/ HTTP/1.1\r\nhost: localhost\r\n\r\n")
@example(b"CONNECT x:1 HTTP/1.1\r\nhost: localhost\r\n\r\n")
@example(b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\n\r\n")
def test_requests(server: Fuzzed, content: bytes) -> None:
    """Any bytes on a connection: mostly those of a request, with something wrong."""
    # 204 answers OPTIONS, unless the client is taken to be gone before.
    assert server.status_of(content, is_whole=False) in {*REPLIES, 204, None}


@BOUNDED
@given(
    st.text(st.characters(blacklist_characters=" \r\n#", max_codepoint=0x2FF), max_size=40),
    st.sampled_from((b"POST", b"GET", b"PUT")),
)
@example("v3/discovery:clusters/../../../../etc/passwd", b"GET")
@example("%2e%2e/%2e%2e/etc/passwd%00.yaml", b"GET")
@example("v3/discovery:clusters?timeout=\x7f", b"POST")
@example("v3/discovery:clusters?timeout=-1", b"POST")
@example("v3/discovery:clusters?timeout=\u0661", b"POST")
@example("v3/discovery:clusters?timeout=1&timeout=2", b"POST")
@example("/" * 8000, b"POST")
@example("%ff%fe", b"POST")
def test_paths(server: Fuzzed, path: str, method: bytes) -> None:
    """Paths and parameters lead to what is served, or to nothing."""
    content = poll(b"{}", path=b"/" + path.encode("utf-8", "surrogateescape"), method=method)
    assert server.status_of(content) in {*REPLIES, None}


TYPE = b"/envoy.config.cluster.v3.Cluster/"
GET = b"\r\n".join(
    (
        b"GET " + TYPE + b"a?xds.node.id=n1&xds.node.metadata.k=%22v%22&x=y&wait=0 HTTP/1.1",
        b"host: localhost:80",
        b"accept: text/html, application/yaml;q=0.5, */*;q=0.1",
        b"accept-encoding: zstd;q=0.5, br;q=0.3, gzip",
        b'if-none-match: "1", W/"2.yaml.gzip", *',
        b'if-match: "3"',
        b'prefer: respond-async, wait="0"',
        b"connection: close",
        b"",
        b"",
    )
)


@BOUNDED
@given(mutations(lambda: GET))
@example(GET)
@example(GET.replace(b"a?", b"*?"))
@example(GET.replace(TYPE + b"a", b"/"))
@example(GET.replace(b"a?", b"?"))
@example(GET.replace(b"%22v%22", b"[" * 3000))
@example(GET.replace(b"a?", b"%ff%00?"))
@example(GET.replace(TYPE, b"http://[::1" + TYPE))
@example(GET.replace(b"fsxds:80", b'\xff<b>"'))
@example(GET.replace(b'"1", ', b'"' * 5000))
@example(GET.replace(b"text/html", b";q=,/*;;q" * 700))
@example(GET.replace(b"GET ", b"OPTIONS "))
def test_gets(server: Fuzzed, content: bytes) -> None:
    """GET with anything wrong in its URL or its headers."""
    assert server.status_of(content, is_whole=False) in {*REPLIES, 204, 302, 406, 412, None}


@BOUNDED
@given(
    st.lists(st.binary(max_size=100) | mutations(lambda: SOTW) | mutations(lambda: DELTA), max_size=4),
    st.sampled_from(PATHS),
)
@example([b"\xff" * 1000], PATHS[0])
@example([SOTW, SOTW, b"", DELTA], PATHS[0])
@example([b"\x1a\x01\xff"], PATHS[1])
@example([b"\x12" + b"\x80" * 9 + b"\x01"], PATHS[0])
def test_messages(server: Fuzzed, messages: list[bytes], path: str) -> None:
    """Messages that are none, or are another one's, on streams of every kind."""
    assert server.code_of(path, messages) in CODES


@BOUNDED
@given(
    st.binary(max_size=300)
    | mutations(lambda: frame(1, 4, 1, call_head()) + frame(0, 0, 1, b"\x00\x00\x00\x00\x03abc"))
)
@example(frame(1, 4, 1, call_head()) + frame(0, 1, 1, b"\x01\x00\x00\x00\x03abc"))
@example(frame(1, 4, 1, call_head()) + frame(0, 1, 1, b"\x00\xff\xff\xff\xff"))
@example(frame(9, 4, 3, b"x") + frame(8, 0, 0, b"\x00\x00\x00\x00"))
@example(frame(2, 0, 1, b"\x00\x00\x00\x01\x00") + frame(5, 4, 1, b""))
@example(frame(1, 5, 1, call_head(b"/not\xff\xfeutf-8/\xd6")))
def test_frames(server: Fuzzed, frames: bytes) -> None:
    """Frames of HTTP/2 that are none, incomplete, or in no order: the connection ends, and others are served."""
    server.exchange_grpc(PREFACE + frame(SETTINGS, 0, 0, b"") + frames)
    assert server.code_of(PATHS[2], [SOTW]) in CODES
