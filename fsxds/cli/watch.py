"""`fsxds watch ADDRESS`: an xDS client that prints updates."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Coroutine
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TypedDict

import click

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.cli.running import spinner
from fsxds.client.client_tls import ClientTls
from fsxds.client.connection import URLS, ClientOptions, Trouble, Wire, connecting, follow
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.protocol.messages import Node
from fsxds.server import loading_rules
from fsxds.server.event_loop import run
from fsxds.settings.access_rules import read_token
from fsxds.settings.options import Settings
from fsxds.tools.watch_output import Holdings, JsonOutput, TextOutput, TroubleReporter, report

# The features of a client that supports TTLs, with a wrapper in SotW.
TTL_FEATURES = frozenset({"xds.config.supports-resource-ttl", "xds.config.supports-resource-in-sotw"})


class WatchFlags(TypedDict):
    """The flags, as given."""

    types: tuple[str, ...]
    names: str | None
    delta: bool
    ads: bool
    rest: bool
    node: str | None
    cluster: str
    node_metadata: dict[str, str]
    agent: str
    ttl: bool
    count: int | None
    output_format: str
    token: Path | None


def run_watch(address: str, settings: Settings, flags: WatchFlags, tls: ClientTls | None) -> None:
    """Watch until Ctrl-C, or for the given number of updates."""
    # Until the event loop handles it.
    signal.signal(signal.SIGHUP, lambda *_: None)
    # A unique id, because a server tracks by it the state of a polling client.
    own_id = f"watch-{socket.gethostname()}-{os.getpid()}"
    features = TTL_FEATURES if flags["ttl"] else frozenset[str]()
    attributes = tuple(sorted(flags["node_metadata"].items()))
    node = Node(
        flags["node"] or own_id, flags["cluster"], features=features, agent=flags["agent"], attributes=attributes
    )
    token = "" if flags["token"] is None else read_token(flags["token"])
    over_rest = flags["rest"] or (address.startswith(URLS) and not (flags["delta"] or flags["ads"]))
    if flags["rest"] and flags["delta"]:
        raise UsageError("there is no --delta over REST; give HOST:PORT of streams, and leave --rest out")
    names = (flags["names"] or "").split(",")
    rows = tuple(BY_SHORT_NAME[name] for name in dict.fromkeys(flags["types"]))
    wire = Wire.REST if over_rest else Wire.DELTA if flags["delta"] else Wire.SOTW
    wanted = ClientOptions(address, rows, tuple(dict.fromkeys(filter(None, names))), wire, is_aggregated=flags["ads"])
    wanted = replace(wanted, tls=tls, token=token)
    wanted.check()
    with spinner("reading Envoy's API"):
        catalogue = loading_rules.find_catalogue(settings)
    output = JsonOutput(catalogue) if flags["output_format"] == "json" else TextOutput(catalogue, wanted.names)
    report(f"watching {wanted.title} as {node.id}")
    try:
        run(_until_interrupted(_watch(wanted, node, catalogue, (output, flags["count"]))))
    except asyncio.CancelledError as error:
        raise click.Abort from error


async def _until_interrupted(work: Coroutine[object, object, None]) -> None:
    """Ctrl-C ends the work as if done; a second one and SIGHUP do nothing."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def interrupt() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if task is not None:
            task.cancel()

    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGHUP, report, "SIGHUP: goes on; a client has no settings to read again")
    await work


async def _watch(
    wanted: ClientOptions, node: Node, catalogue: Catalogue, printing: tuple[JsonOutput | TextOutput, int | None]
) -> None:
    output, left = printing
    holdings, troubles = Holdings(), TroubleReporter()
    async with (
        connecting(wanted, node, Converter(catalogue)) as client,
        aclosing(follow(client, names=wanted.names)) as events,
    ):
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
