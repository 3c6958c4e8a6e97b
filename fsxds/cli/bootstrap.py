"""`fsxds bootstrap`: a bootstrap for Envoy that works with fsxds, with safe values."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

from fsxds import reload
from fsxds.cli.running import spinner
from fsxds.cli.subjects import tell_if_empty
from fsxds.envoy.bootstrap_text import bootstrap_text
from fsxds.envoy.envoy_bootstrap import (
    BootstrapRequest,
    Identity,
    Section,
    ads_bootstrap,
    mirror_bootstrap,
    rest_bootstrap,
)
from fsxds.errors import UsageError
from fsxds.lint.linter import linter_of
from fsxds.observe.log_lines import count_of, escape
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.settings.forms import OFF, TcpAddress, parse_address
from fsxds.settings.options import Settings
from fsxds.snapshots.merge import may_define
from fsxds.transports.mirror.files import path_of
from fsxds.values import TypeUrl

# As long as Envoy itself waits. The start of a server is not a moment to give up early.
INITIAL_FETCH_TIMEOUT = "15s"

ALL_TYPES = BootstrapRequest(clusters=True, listeners=True)


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for: how Envoy gets its resources, from where, and what it is called."""

    transport: str
    address: str | None
    mirror: Path | None
    identity: Identity

    def bootstrap(self, wanted: BootstrapRequest, settings: Settings) -> Section:
        """Return the bootstrap of an Envoy that asks for what is wanted."""
        if self.transport == "files":
            mirror, suffix = self.mirror_of(settings), f".{settings.mirror_format}"

            def file_of(short_name: str, name: str | None) -> Path:
                return mirror / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)

            return mirror_bootstrap(file_of, wanted, self.identity, xds=self.address)
        if self.transport == "rest":
            return rest_bootstrap(self.address or http_address(settings), wanted, self.identity)
        return ads_bootstrap(
            self.address or grpc_address(settings), wanted, self.identity, delta=self.transport == "delta"
        )

    def mirror_of(self, settings: Settings) -> Path:
        """Return the directory of the mirrored files; UsageError when nothing says which it is."""
        mirror = self.mirror or settings.mirror
        if mirror is None:
            raise UsageError("no directory is given for the files; add --mirror DIR, the same as for `fsxds serve`")
        return mirror

    def usage(self, directory: Path | None, settings: Settings) -> tuple[str, ...]:
        """Return the commands that serve such an Envoy and start it."""
        envoy = "envoy -c bootstrap.yaml"
        serve = ["fsxds", "serve", str(directory or "DIR")]
        if self.transport == "files":
            serve += ["--mirror", str(self.mirror_of(settings)), *([] if self.address else ["--mirror-config-sources"])]
        elif self.address is not None:
            serve += ["--http" if self.transport == "rest" else "--grpc", self.address]
        if self.transport in {"ads", "delta"}:
            serve.append("--ads-config-sources")
        return escape(shlex.join(serve)), envoy


def http_address(settings: Settings) -> str:
    """Return where REST listens; UsageError where the settings say nowhere."""
    if settings.http == OFF:
        raise UsageError("the settings switch REST off; add --address HOST:PORT, where fsxds listens")
    return settings.http


def grpc_address(settings: Settings) -> str:
    """Return where streams are opened; UsageError where the settings say nowhere."""
    if settings.grpc == OFF:
        raise UsageError("the settings switch gRPC off; add --address HOST:PORT, where fsxds listens")
    return settings.grpc


def read_address(written: str) -> str:
    """Return an address to connect to; UsageError if it is none."""
    address = parse_address(written)
    if isinstance(address, TcpAddress) and address.port == 0:
        raise UsageError(f"{escape(written)}: port 0 is none to connect to; give the one that fsxds listens at")
    return str(address)


class BootstrapFlags(TypedDict):
    """The flags of the command."""

    transport: str
    address: str | None
    mirror: Path | None
    node: str
    cluster: str
    admin_port: int
    output_format: str


def run_bootstrap(directory: Path | None, settings: Settings, flags: BootstrapFlags) -> None:
    """Print a bootstrap that subscribes to what is in the tree; UsageError where nothing says how Envoy reaches fsxds."""
    choice = _choice(flags)
    wanted = ALL_TYPES if directory is None else _wanted(directory, settings)
    section = choice.bootstrap(wanted, settings)
    if flags["output_format"] == "json":
        print(json.dumps(section, indent=2, ensure_ascii=False))
    else:
        print(bootstrap_text(section, choice.transport, choice.usage(directory, settings)), end="")


def _choice(flags: BootstrapFlags) -> Choice:
    address = flags["address"]
    identity = Identity(flags["node"], flags["cluster"], flags["admin_port"], INITIAL_FETCH_TIMEOUT)
    return Choice(flags["transport"], None if address is None else read_address(address), flags["mirror"], identity)


def _wanted(directory: Path, settings: Settings) -> BootstrapRequest:
    """Return what a tree calls for: of broken files also what they may hold, and of a tree without any all that may come."""
    with spinner(f"loading {directory}"):
        loaded = reload.load_once(directory, settings, reload.find_catalogue(settings), linter_of(settings))
    tell_if_empty(directory, loaded)
    if not loaded.records:
        return ALL_TYPES
    if loaded.held:
        told = f"{count_of(len(loaded.held), 'file')} cannot be read, and may hold more types and runtime layers"
        print(f"{escape(str(directory))}: {told}: fsxds check lists what is wrong", file=sys.stderr)
    wanted = BootstrapRequest.by(loaded.snapshot)
    unread = frozenset[TypeUrl]().union(*(may_define(file.path) for file in loaded.held))
    clusters, listeners = (BY_SHORT_NAME[name].type_url in unread for name in ("cds", "lds"))
    return replace(wanted, clusters=wanted.clusters or clusters, listeners=wanted.listeners or listeners)
