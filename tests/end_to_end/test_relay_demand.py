"""A relay that asks for what clients ask for: who asks first waits for the upstream, and the upstream hears what clients say."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from envoy.config.endpoint.v3 import endpoint_pb2

from fsxds.settings.forms import parse_address
from tests.support.grpc_clients import DiscoveryClient, channel_to, method_path
from tests.support.patience import PATIENCE_S
from tests.support.scripted_streams import Request, ScriptedStreams, names_of, resource
from tests.support.server import Server
from tests.support.settings_files import file_flags
from tests.support.snapshots import type_url
from tests.upstream.made import cluster

CDS, EDS = type_url("cds"), type_url("eds")
ENDPOINTS = "envoy.config.endpoint.v3.ClusterLoadAssignment"


class Upstream(ScriptedStreams):
    """An upstream that says nothing by itself, but that there is nothing where everything is asked for."""

    def __init__(self) -> None:
        super().__init__(self._answer_at_once)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Take aggregated streams alone: manifests are none of them."""
        return super().service(details) if details.method.endswith("AggregatedResources") else None

    def _answer_at_once(self, request: Request) -> dict[str, Any] | None:
        is_first = not request.response_nonce
        return {} if is_first and not set(names_of(request)) - {"*"} else None

    def asked(self, of_type: str) -> set[str]:
        """Return the names that were asked for."""
        return {name for request in self.requests if request.type_url == of_type for name in names_of(request)}

    def send_endpoints(self, *names: str, removed: tuple[str, ...] = ()) -> None:
        """Send endpoints, and what does not exist."""
        found = [resource(name, endpoint_pb2.ClusterLoadAssignment(cluster_name=name)) for name in names]
        self.send(EDS, resources=found, removed_resources=removed)

    def send_cluster(self, name: str, timeout_s: int = 1) -> str:
        """Send a cluster; return the nonce of the response."""
        self.send(CDS, resources=[resource(name, cluster(name, timeout_s=timeout_s))])
        return str(self._nonce)

    def answers_to(self, nonce: str) -> list[str]:
        """Return the answers to a response: the words of a NACK, empty for an ACK."""
        found: list[Request] = [each for each in self.requests if each.response_nonce == nonce]
        return [each.error_detail.message for each in found]

    def was_acked(self, nonce: str) -> bool:
        """Whether a response was ACKed."""
        return self.answers_to(nonce) == [""]


@contextmanager
def relaying(folder: Path, *options: str) -> Iterator[tuple[Upstream, Server]]:
    """Run an upstream that does as a test says, and a relay of it."""
    folder.mkdir(exist_ok=True)
    with Upstream() as upstream:
        address = f"127.0.0.1:{upstream.port}"
        flags = ("--upstream", address, "--log-format", "json", "--linger", "0s")
        with Server(None, folder, *flags, *options) as relay:
            yield upstream, relay


@asynccontextmanager
async def stream_of(relay: Server, *, is_delta: bool = True) -> AsyncIterator[DiscoveryClient]:
    """Open an aggregated stream to a relay."""
    async with channel_to(parse_address(str(relay.ready["grpc"]))) as channel:
        yield DiscoveryClient(channel, method_path("", "Delta" if is_delta else "Stream"))


async def until(predicate: Callable[[], Any], what: str) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not predicate():  # noqa: ASYNC110 - what it waits for happens in other processes
            await asyncio.sleep(0.01)
    assert predicate(), what


def get(relay: Server, path: str) -> tuple[int, str]:
    """GET from a relay; return the status and the text."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{relay.port}/{path}", timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def get_answered(relay: Server, path: str) -> tuple[int, str]:
    """GET from a relay as often as it says that it does not know yet."""
    status, text = get(relay, path)
    while status == 503:
        status, text = get(relay, path)
    return status, text


def poll(relay: Server, name: str) -> dict[str, Any]:
    """Poll endpoints of this name, and wait for the answer."""
    body = json.dumps({"node": {"id": "poller"}, "resource_names": [name]}).encode()
    url = f"http://127.0.0.1:{relay.port}/v3/discovery:endpoints?timeout=20s"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


async def in_thread(work: Callable[..., Any], *given: object) -> Any:
    """Do what blocks."""
    return await asyncio.to_thread(work, *given)


@pytest.mark.parametrize("mode", ["asked", "all"])
async def test_who_asks_first_waits_for_the_upstream(tmp_path: Path, mode: str) -> None:
    """A stream is silent, a poll and a GET are held until the upstream has answered; nothing is removed before it said so."""
    with relaying(tmp_path, "--upstream-names", mode) as (upstream, relay):
        async with stream_of(relay) as client, stream_of(relay, is_delta=False) as unary, asyncio.TaskGroup() as tasks:
            await client.ask("EDS", node="first", resource_names_subscribe=["a", "b", "gone"])
            await unary.ask("EDS", node="second", resource_names=["a"])
            polled = tasks.create_task(in_thread(poll, relay, "a"))
            read = tasks.create_task(in_thread(get, relay, f"{ENDPOINTS}/b?wait=20s"))
            missing = tasks.create_task(in_thread(get_answered, relay, f"{ENDPOINTS}/gone"))
            await until(lambda: {"a", "b", "gone"} <= upstream.asked(EDS), "the upstream was asked")
            assert await client.is_silent()
            upstream.send_endpoints("a", "b", removed=("gone",))

            found, removed = set[str](), set[str]()
            while found != {"a", "b"} or not removed:
                answer = await client.answer()
                found |= {each.name for each in answer.resources}
                removed |= set(answer.removed_resources)
                await client.take(answer)
            assert removed == {"gone"}
            assert len((await unary.answer()).resources) == 1
        assert [each["cluster_name"] for each in polled.result()["resources"]] == ["a"]
        assert read.result()[0] == 200
        assert missing.result()[0] == 404


async def test_an_upstream_that_is_silent(tmp_path: Path) -> None:
    """A GET that does not want to wait is told to ask again; what it asked for is served when it came."""
    with relaying(tmp_path) as (upstream, relay):
        status, text = await in_thread(get, relay, f"{ENDPOINTS}/a?wait=0s")
        assert (status, "has not answered yet" in text) == (503, True)
        await until(lambda: "a" in upstream.asked(EDS), "the upstream was asked")
        upstream.send_endpoints("a")

        await until(lambda: get(relay, f"{ENDPOINTS}/a")[0] == 200, "the endpoints")


async def test_what_nobody_asked_for_is_not_asked_for(tmp_path: Path) -> None:
    """With `asked`, an upstream is asked for nothing before a client asks."""
    # A server that is asked for nothing says nothing, not even that it is there.
    options = ("--upstream-names", "asked", *file_flags(upstream_patience="1s"))
    with relaying(tmp_path, *options) as (upstream, relay):
        async with stream_of(relay) as client:
            await client.ask("EDS", node="first", resource_names_subscribe=["a"])
            await until(lambda: upstream.asked(EDS), "the upstream was asked")

        assert upstream.asked(EDS) == {"a"}
        assert {request.type_url for request in upstream.requests} == {EDS}


async def test_rejections_reach_the_upstream(tmp_path: Path) -> None:
    """A response is ACKed when the relay has taken it in, and NACKed when half of the clients reject it, also when it comes again."""
    with relaying(tmp_path) as (upstream, relay):
        async with stream_of(relay) as client, stream_of(relay) as other:
            await client.ask("CDS", node="n1", resource_names_subscribe=["*"])
            await other.ask("CDS", node="n2", resource_names_subscribe=["*"])
            good = upstream.send_cluster("web")
            await until(lambda: upstream.was_acked(good), "the ACK")
            for each in (client, other):
                while not (answer := await each.answer()).resources:
                    await each.take(answer)
                await each.take(answer)

            bad = upstream.send_cluster("web", timeout_s=2)
            await client.take(await client.answer(), nack="web: too slow")
            await until(
                lambda: (
                    upstream.answers_to(bad) == ["", "node n1: Error adding/updating cluster(s) web: web: too slow"]
                ),
                "the late NACK",
            )
            again = upstream.send_cluster("web", timeout_s=2)
            await until(
                lambda: upstream.answers_to(again) == ["node n1: Error adding/updating cluster(s) web: web: too slow"],
                "the same NACK",
            )
        [event] = relay.log_events("upstream_nacked")
        assert event["reason"] == "node n1: Error adding/updating cluster(s) web: web: too slow"


@pytest.mark.parametrize(
    "options", [("--nack-limit", "off"), file_flags(upstream_verdict="relay")], ids=["no limit", "relay"]
)
async def test_the_upstream_hears_of_no_rejection(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Who rejects something gets what was before; without a limit, and with `relay`, that is no matter of the upstream."""
    with relaying(tmp_path, *options) as (upstream, relay):
        async with stream_of(relay) as client:
            await client.ask("CDS", node="n1", resource_names_subscribe=["*"])
            upstream.send_cluster("web")
            while not (answer := await client.answer()).resources:
                await client.take(answer)
            await client.take(answer)
            bad = upstream.send_cluster("web", timeout_s=2)
            await client.take(await client.answer(), nack="web: too slow")
            before = await client.answer()
            last = upstream.send_cluster("other")
            await until(lambda: upstream.was_acked(last), "the ACK")

    assert before.resources[0].version == answer.resources[0].version
    assert upstream.answers_to(bad) == [""]
