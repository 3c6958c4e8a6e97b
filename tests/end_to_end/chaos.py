"""Random exceptions at random points under load: `python -m tests.end_to_end.chaos 60` runs for a minute.

An edit is made every 20 ms while a share of all calls at the points below raises. Then the faults end, one more edit is made,
and every client must come to it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.faulty_server import Faults, FaultyServer, following, serving_with_faults, until

POINTS = (
    "fsxds.transports.sockets.until_lost",
    "fsxds.server.readiness.ReadyFile.write",
    "fsxds.source.scan.Scanner.look",
    "fsxds.server.parsing.Parsing.parse",
    "fsxds.server.parsing.Parsing._change_until",
    "fsxds.server.reload.load",
    "fsxds.publishing.channel_rollout.ChannelRollout.advance",
    "fsxds.publishing.publisher.Publisher._take_event",
    "fsxds.runtime.channels.SnapshotStore.newer_than",
    "fsxds.observe.problem_reports.ProblemReports.update",
    "fsxds.observe.log.ChangeReports.publish",
    "fsxds.observe.log.ChangeReports.answer",
    "fsxds.observe.log.PublishedChange.line",
    "fsxds.transports.config_sources.AdsConfigSources.rewrite",
    "fsxds.transports.mirror.writer.Mirror.write",
    "fsxds.transports.mirror.layout.LayoutMaker.lay_out",
    "fsxds.transports.rest.application.is_json",
    "fsxds.transports.rest.application.RestJson._hold",
    "fsxds.transports.rest.poll_responses.ResponseBodies.payload_of",
    "fsxds.transports.grpc_streams.stream_requests._parsed",
    "fsxds.transports.grpc_streams.stream.StreamCall.wake",
    "fsxds.protocol.poll.PollMemory.receive_request",
    "fsxds.protocol.poll.PollMemory.receive_snapshot",
    "fsxds.protocol.sotw.SotwStream.receive_request",
    "fsxds.protocol.sotw.SotwStream.receive_snapshot",
    "fsxds.protocol.delta.DeltaStream.receive_request",
    "fsxds.protocol.delta.DeltaStream.receive_snapshot",
)
SHARE = 0.15
EDIT_EVERY_S = 0.02
CLIENTS_OF_EACH = 4


@dataclass(frozen=True)
class Outcome:
    """What came of a run: the exceptions by their points, the edits, and what each client holds, and should."""

    raised: dict[str, int]
    edits: int
    held: set[str]
    expected: str


async def run(folder: Path, duration_s: float, seed: int) -> Outcome:
    """Serve, raise, edit and follow for a while; TimeoutError when a client does not come to the last version."""
    faults = Faults(seed)
    loop = asyncio.get_running_loop()
    patches = [faults.plant(point, point) for point in POINTS]
    async with serving_with_faults(folder, *patches) as server, following(server, CLIENTS_OF_EACH) as followers:
        await until(lambda: all(follower.name for follower in followers))
        faults.share = SHARE
        ends_at_s, edits = loop.time() + duration_s, 0
        while loop.time() < ends_at_s:
            edits += 1
            server.edit(edits)
            await asyncio.sleep(EDIT_EVERY_S)
        faults.share = 0.0
        server.edit(edits + 1)
        expected = f"v{edits + 1}"
        await until(lambda: {expected} == {follower.name for follower in followers} and mirrors(server, expected))
        return Outcome(faults.raised, edits + 1, {follower.name for follower in followers}, expected)


def mirrors(server: FaultyServer, name: str) -> bool:
    """Tell whether the mirrored file has a cluster."""
    return name.encode() in (server.out / "cds.pb").read_bytes()


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.end_to_end.chaos")
    parser.add_argument("seconds", type=float, nargs="?", default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(run(Path(folder), chosen.seconds, chosen.seed))
    for point in POINTS:
        print(f"{outcome.raised.get(point, 0):7} {point}")  # noqa: T201
    total = sum(outcome.raised.values())
    clients = 3 * CLIENTS_OF_EACH
    print(  # noqa: T201
        f"seed {chosen.seed}: {total} exceptions at {len(outcome.raised)} points, {outcome.edits} edits; "
        f"{clients} clients and the mirror ended on {outcome.expected}"
    )


if __name__ == "__main__":
    main()
