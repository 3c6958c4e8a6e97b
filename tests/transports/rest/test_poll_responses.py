from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import os
import time

import pytest

from fsxds.api.printing import Printer
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import Subscription, select
from fsxds.transports.rest.poll_responses import LARGE_RESOURCE_BYTES, RENDER_SLICE_S, Payload, ResponseBodies
from tests.support.polls import envoy_catalogue, named, snapshot_of

CDS, EDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["eds"].type_url
EVERYTHING = Subscription(CDS)


@pytest.fixture
def bodies() -> ResponseBodies:
    return ResponseBodies(Printer(envoy_catalogue()))


async def payload(bodies: ResponseBodies, snapshot: Snapshot, subscription: Subscription = EVERYTHING) -> Payload:
    return await bodies.payload_of(select(snapshot, subscription), snapshot, is_whole=subscription.wildcard)


def clusters(count: int, note: str = "") -> tuple[Resource, ...]:
    return tuple(named("cds", f"c-{number:05}", alt_stat_name=note) for number in range(count))


async def test_the_parts_of_a_body(bodies: ResponseBodies) -> None:
    """Version, resources in the order of their names, type, and the version again as nonce."""
    snapshot = snapshot_of(1, named("cds", "b"), named("cds", "ü"), named("cds", "a"))
    content = json.loads((await payload(bodies, snapshot)).body)

    assert list(content) == ["version_info", "resources", "type_url", "nonce"]
    assert [resource["name"] for resource in content["resources"]] == ["a", "b", "ü"]
    assert content["nonce"] == content["version_info"] == snapshot.versions[CDS]


async def test_no_resources(bodies: ResponseBodies) -> None:
    """An empty list is there."""
    content = json.loads((await payload(bodies, snapshot_of(1))).body)

    assert content["resources"] == []


async def test_an_authored_version_is_quoted(bodies: ResponseBodies) -> None:
    """Whatever the author wrote."""
    snapshot = dataclasses.replace(snapshot_of(1), authored={CDS: 'v"1"\n'})
    content = json.loads((await payload(bodies, snapshot)).body)

    assert content["version_info"] == 'v"1"\n'


async def test_a_whole_body_is_made_once(bodies: ResponseBodies) -> None:
    """Until something changes; then only what changed is written."""
    snapshot = snapshot_of(1, *clusters(10))
    first = await payload(bodies, snapshot)

    assert await payload(bodies, snapshot) is first
    assert bodies.rendered == 10
    second = await payload(bodies, snapshot_of(2, *clusters(10), named("cds", "z")))
    assert second.body != first.body
    assert bodies.rendered == 11


async def test_an_authored_version_does_not_hide_a_change(bodies: ResponseBodies) -> None:
    """Bodies are known by their content."""
    before = dataclasses.replace(snapshot_of(1, named("cds", "a")), authored={CDS: "1"})
    after = dataclasses.replace(snapshot_of(2, named("cds", "b")), authored={CDS: "1"})

    assert (await payload(bodies, before)).body != (await payload(bodies, after)).body


async def test_named_resources_share_what_is_written(bodies: ResponseBodies) -> None:
    """Each is written once, whoever asks for it."""
    snapshot = snapshot_of(1, named("eds", "a"), named("eds", "b"))
    for names in ("a", "b", "ab", "abx"):
        subscription = Subscription(EDS, frozenset(names), wildcard=False)
        content = json.loads((await payload(bodies, snapshot, subscription)).body)
        assert [resource["cluster_name"] for resource in content["resources"]] == sorted(set(names) - {"x"})

    assert bodies.rendered == 2


async def test_what_is_gone_is_dropped(bodies: ResponseBodies) -> None:
    """A thousand changes leave one snapshot's worth."""
    for generation in range(1, 101):
        await payload(bodies, snapshot_of(generation, *clusters(3, str(generation))))

    assert len(bodies._types[CDS].fragments) == 3


async def test_an_older_snapshot_can_still_be_told(bodies: ResponseBodies) -> None:
    """A poll that was decided before the change gets what was decided."""
    old, new = snapshot_of(1, named("cds", "a")), snapshot_of(2, named("cds", "b"))
    await payload(bodies, new)

    assert b'"name":"a"' in (await payload(bodies, old)).body
    assert b'"name":"b"' in (await payload(bodies, new)).body


async def test_polls_that_want_the_same_share_one_rendering(bodies: ResponseBodies) -> None:
    """Twenty at once, and each resource is written once."""
    snapshot = snapshot_of(1, *clusters(500, "x" * 2000))
    async with asyncio.TaskGroup() as tasks:
        polls = [tasks.create_task(payload(bodies, snapshot)) for _ in range(20)]

    assert len({id(poll.result()) for poll in polls}) == 1
    assert bodies.rendered == 500


class SlowPrinter(Printer):
    """Takes longer for each resource than a slice lasts."""

    def any_json(self, type_url: TypeUrl, body: bytes) -> bytes:
        """Take the time, and do it."""
        time.sleep(RENDER_SLICE_S)
        return super().any_json(type_url, body)


async def test_the_loop_is_not_stalled() -> None:
    """Others get their turn while many resources are written."""
    bodies = ResponseBodies(SlowPrinter(envoy_catalogue()))
    async with asyncio.TaskGroup() as tasks:
        poll = tasks.create_task(payload(bodies, snapshot_of(1, *clusters(10))))
        for turn in range(10):
            await asyncio.sleep(0)
            assert bodies.rendered == turn + 1

    assert poll.done()


async def test_a_rendering_that_is_cancelled_is_taken_over() -> None:
    """Its client went away; who waited goes on where it stopped."""
    bodies = ResponseBodies(SlowPrinter(envoy_catalogue()))
    snapshot = snapshot_of(1, *clusters(10))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(payload(bodies, snapshot))
        second = tasks.create_task(payload(bodies, snapshot))
        await asyncio.sleep(0)
        first.cancel()

    assert first.cancelled()
    assert len(json.loads(second.result().body)["resources"]) == 10
    assert bodies.rendered == 10


async def test_a_large_resource_is_written_in_a_thread(bodies: ResponseBodies) -> None:
    """With the same result."""
    note = "x" * LARGE_RESOURCE_BYTES
    content = json.loads((await payload(bodies, snapshot_of(1, named("cds", "a", alt_stat_name=note)))).body)

    assert content["resources"][0]["alt_stat_name"] == note


@pytest.mark.parametrize("size", [10, 1_000_000])
async def test_a_body_is_compressed_once(size: int) -> None:
    """The bytes are kept, and are the same each time."""
    body = os.urandom(size)
    one = Payload(body)
    compressed = await one.gzipped()

    assert gzip.decompress(compressed.body) == body
    assert await one.gzipped() is compressed
    assert (await Payload(body).gzipped()).body == compressed.body

    in_pieces = Payload(body[:5], body[5:])

    assert in_pieces.body == gzip.decompress((await in_pieces.gzipped()).body) == body
