"""`fsxds watch ADDRESS`: be a client of an xDS server, and print what it tells."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from contextlib import aclosing

import click

from fsxds import loading
from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.commands.options import table_command
from fsxds.commands.running import run, spinner
from fsxds.commands.watch_output import JsonOutput, Output, TextOutput, Troubles, tell
from fsxds.errors import UsageError
from fsxds.protocol.messages import Node
from fsxds.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.settings import Settings
from fsxds.watching.clients import Wire
from fsxds.watching.follow import Trouble, follow
from fsxds.watching.holdings import Holdings
from fsxds.watching.messages import AGENT
from fsxds.watching.wanted import URLS, Wanted, connecting

# What a client announces that takes times to live, in SotW in a wrapper of its own.
TTL_FEATURES = frozenset({"xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"})


class Choosing(click.Option):
    """A flag of this command alone; what it says belongs to one client, and to no settings file."""

    group = "The client"


@table_command(
    "watch",
    """\
  fsxds watch 127.0.0.1:18000 --type cds
  fsxds watch 127.0.0.1:18000 --type eds --names backend,web --delta
  fsxds watch 127.0.0.1:18000 --ads --type cds --type eds --format json
  fsxds watch http://127.0.0.1:18001 --type cds --count 1""",
)
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--type",
    "types",
    cls=Choosing,
    type=click.Choice([row.short_name for row in RESOURCE_TYPES]),
    multiple=True,
    required=True,
    help="What to ask for; with --ads it may be given several times.",
)
@click.option("--names", cls=Choosing, metavar="A,B", help="Ask for these alone; by default for everything.")
@click.option("--delta", cls=Choosing, is_flag=True, help="Be told changes alone, not the state of the world.")
@click.option("--ads", cls=Choosing, is_flag=True, help="Take the stream of all types, not that of the one type.")
@click.option("--rest", cls=Choosing, is_flag=True, help="Poll over REST; an http:// address means the same.")
@click.option("--node", cls=Choosing, metavar="ID", help="The node to ask as; by default a new one.")
@click.option("--cluster", cls=Choosing, metavar="NAME", default="watch", help="The fleet that the node belongs to.")
@click.option(
    "--agent", cls=Choosing, metavar="NAME", default=AGENT, help="The user agent to be; `envoy` is told what Envoy is."
)
@click.option("--ttl", cls=Choosing, is_flag=True, help="Say that times to live are understood, and tell heartbeats.")
@click.option("--count", cls=Choosing, metavar="N", type=click.IntRange(min=1), help="End after N updates.")
@click.option(
    "--format",
    "output_format",
    cls=Choosing,
    type=click.Choice(("text", "json")),
    default="text",
    help="For people, or one JSON object per update.",
)
def watch(address: str, settings: Settings, count: int | None, output_format: str, **flags: object) -> None:
    """Be a client of the xDS server at ADDRESS, and print what it tells.

    ADDRESS is HOST:PORT or unix:PATH. The first answer is listed, every later one shown as what it changed, and each is
    accepted. Secrets are hidden. When the server goes, its return is waited for. Ctrl-C ends it.
    """
    # Until there is an event loop that answers it.
    signal.signal(signal.SIGHUP, lambda *_: None)
    node = _node(**flags)
    wanted = _wanted(address, **flags)
    wanted.check()
    with spinner("reading Envoy's API"):
        catalogue = loading.find_catalogue(settings)
    output = JsonOutput(catalogue) if output_format == "json" else TextOutput(catalogue, wanted.names)
    tell(f"watching {wanted.title} as {node.id}")
    try:
        run(_until_interrupted(_watch(wanted, node, catalogue, (output, count))))
    except asyncio.CancelledError as error:
        raise click.Abort from error


def _node(**flags: object) -> Node:
    # An id of its own: a server remembers by it what it told to a client that polls.
    own_id = f"watch-{socket.gethostname()}-{os.getpid()}"
    features = TTL_FEATURES if flags["ttl"] else frozenset[str]()
    return Node(str(flags["node"] or own_id), str(flags["cluster"]), features=features, agent=str(flags["agent"]))


def _wanted(address: str, **flags: object) -> Wanted:
    over_rest = flags["rest"] or (address.startswith(URLS) and not (flags["delta"] or flags["ads"]))
    if flags["rest"] and flags["delta"]:
        raise UsageError("there is no --delta over REST; give HOST:PORT of streams, and leave --rest out")
    names = str(flags["names"] or "").split(",")
    types = flags["types"]
    return Wanted(
        address,
        tuple(BY_SHORT_NAME[name] for name in dict.fromkeys(types if isinstance(types, tuple) else ())),
        tuple(dict.fromkeys(name for name in names if name)),
        Wire.REST if over_rest else Wire.DELTA if flags["delta"] else Wire.SOTW,
        is_aggregated=bool(flags["ads"]),
    )


async def _until_interrupted(work: Coroutine[object, object, None]) -> None:
    """Run until Ctrl-C, which ends it like the end of the work does. Who presses it twice is not told of it twice.

    SIGHUP ends nothing.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGHUP, tell, "SIGHUP: goes on; a client has no settings to read again")
    await work


async def _watch(wanted: Wanted, node: Node, catalogue: Catalogue, printing: tuple[Output, int | None]) -> None:
    output, left = printing
    holdings, troubles = Holdings(), Troubles()
    async with connecting(wanted, node, Converter(catalogue)) as client, aclosing(follow(client)) as events:
        client.on_connected = troubles.connected
        async for event in events:
            if isinstance(event, Trouble):
                troubles.happened(event)
                continue
            troubles.updated()
            output.step(holdings.take(event))
            left = None if left is None else left - 1
            if left == 0:
                await client.finish()
                return
