"""Clients that ask for anything that looks like a structured name, on every wire: an answer, or a status with a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote_from_bytes

import pytest
from envoy.service.discovery.v3 import discovery_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from tests.end_to_end.attacks import CDS, EDS
from tests.fuzzing.fuzzed_server import CODES, REPLIES, Fuzzed, fuzzed
from tests.fuzzing.test_fuzz_requests import ADS, BOUNDED, POLL, STREAM_NODE, poll

TYPE = "envoy.config.cluster.v3.Cluster"
GOOD = f"xdstp://a/{TYPE}/foo/*?b=2&xds.node.id=n 1"
# What may be a part of a name, and what breaks one.
PARTS = st.sampled_from(
    (
        *(
            "xdstp:",
            "udpa:",
            "file:",
            "XDSTP:",
            "//",
            "/",
            "/a/",
            f"/{TYPE}/",
            f"//a/{TYPE}/x",
            "/no.Type/",
            "/*",
            "*",
            "**",
        ),
        *(
            "?",
            "a=1",
            "&",
            "=",
            "a=1&a=2",
            "a=constraint:1",
            "xds.node.id=",
            "%",
            "%2",
            "%zz",
            "%00",
            "%ff",
            "%2F",
            "%2e%2e",
        ),
        *(
            "#",
            "#alt=",
            "#entry=",
            "entry=x",
            ",",
            "alt=xdstp://",
            "..",
            ".",
            " ",
            "\u00e9",
            "\U0001f600",
            "\x00",
            "\r\n",
            "|",
            ":",
            "[",
            "]",
        ),
        *("a" * 300, "%41" * 200, "&".join(f"k{number}=v" for number in range(100)), "#alt=" * 20),
    )
)
NAMES = st.lists(PARTS | st.text(max_size=4), max_size=8).map("".join) | st.builds(
    lambda place, part: GOOD[:place] + part + GOOD[place:], st.integers(0, len(GOOD)), PARTS
)


@pytest.fixture(scope="module")
def server() -> Iterator[Fuzzed]:
    """Both servers; when all is over, nothing is left of any client, and nothing failed."""
    with fuzzed() as server:
        yield server
        left, errors = server.left_behind(), [error for each in server.recorders for error in each.errors]
    assert (left, errors) == ({}, [])


@BOUNDED
@given(st.lists(NAMES, min_size=1, max_size=3))
@example([f"xdstp://a/{TYPE}/x{'#alt=xdstp://a/b/c' * 500}"])
@example([f"xdstp://a/{TYPE}/" + "x/" * 20_000 + "*"])
@example(["xdstp://" + "a" * 100_000])
@example([f"xdstp://a/{TYPE}/x?" + "&".join(f"{number}=" for number in range(5000))])
def test_polls(server: Fuzzed, names: list[str]) -> None:
    """As names of a poll."""
    body = json.dumps({**json.loads(POLL), "resource_names": names}).encode()

    assert server.status_of(poll(body)) in REPLIES


@BOUNDED
@given(st.lists(NAMES.map(lambda name: name.encode("utf-8", "surrogatepass")), min_size=1, max_size=3), st.booleans())
def test_streams(server: Fuzzed, names: list[bytes], is_delta: bool) -> None:
    """As names of Delta (subscribe, unsubscribe, held versions) and SotW requests, one after another."""
    messages = []
    for name in names:
        text = name.decode("utf-8", "replace")
        if is_delta:
            request = discovery_pb2.DeltaDiscoveryRequest(
                type_url=CDS if len(text) % 2 else EDS,
                node=STREAM_NODE,
                resource_names_subscribe=[text, GOOD],
                resource_names_unsubscribe=[text],
                initial_resource_versions={text: "1"},
            )
        else:
            request = discovery_pb2.DiscoveryRequest(type_url=CDS, node=STREAM_NODE, resource_names=[text, GOOD, "a"])
        messages.append(request.SerializeToString())
    path = f"{ADS}{'DeltaAggregatedResources' if is_delta else 'StreamAggregatedResources'}"

    assert server.code_of(path, messages) in CODES


# What GET may answer beside the replies to polls: redirects, and formats that nobody has.
GET_REPLIES = {*REPLIES, 204, 302, 406}


@BOUNDED
@given(
    NAMES.map(lambda name: quote_from_bytes(name.encode("utf-8", "surrogatepass"), safe="/?&=%#:*")),
    st.sampled_from((b"GET", b"HEAD", b"OPTIONS")),
)
@example(f"{TYPE}/" + "%2e%2e/" * 1000, b"GET")
@example(f"{TYPE}/x?wait=-1", b"GET")
@example(f"{TYPE}/x?wait=1e9", b"GET")
@example(f"{TYPE}/%ff%fe", b"GET")
@example(f"{TYPE}/" + "x/" * 3000 + "*", b"GET")
def test_paths(server: Fuzzed, path: str, method: bytes) -> None:
    """As paths of GET."""
    content = method + b" /" + path.encode() + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"

    assert server.status_of(content) in {*GET_REPLIES, None}
