"""`fsxds bootstrap`: prints a bootstrap."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TypedDict

from fsxds.cli.command import Choice
from fsxds.cli.running import spinner
from fsxds.cli.subjects import load_chosen, warn_if_empty
from fsxds.envoy.bootstrap_text import bootstrap_text
from fsxds.envoy.envoy_bootstrap import (
    LIST,
    BootstrapRequest,
    EnvoyTls,
    Identity,
    Section,
    ads_bootstrap,
    mirror_bootstrap,
    read_collection,
    rest_bootstrap,
    with_globs,
    with_lists,
    with_tls,
)
from fsxds.events.event import count_of, escape
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import metadata_of
from fsxds.server import loading_rules
from fsxds.settings.forms import OFF, TcpAddress, parse_address
from fsxds.settings.options import Settings
from fsxds.snapshots.load import may_define
from fsxds.transports.mirror.files import path_of

# Envoy's own default: the start of a server is no moment to give up early.
INITIAL_FETCH_TIMEOUT = "15s"

ALL_TYPES = BootstrapRequest(clusters=True, listeners=True)


class TransportFlags(TypedDict):
    """The flags of the way to fsxds, and of the node."""

    transport: str
    address: str | None
    mirror: Path | None
    node: str
    cluster: str


class BootstrapFlags(TransportFlags):
    """The flags."""

    ca: Path | None
    cert: Path | None
    key: Path | None
    node_metadata: dict[str, str]
    view: str | None
    collections: tuple[str, ...]
    admin_port: int
    output_format: str


def run_bootstrap(directory: Path | None, settings: Settings, flags: BootstrapFlags) -> None:
    """Print a bootstrap; UsageError without a way to reach fsxds."""
    address = None if flags["address"] is None else read_address(flags["address"])
    named = {} if flags["view"] is None else {"view": flags["view"]}
    choice = (*(named | {"id": flags["node"], "cluster": flags["cluster"]} | flags["node_metadata"]).items(),)
    request = ALL_TYPES if directory is None else _request_of(directory, settings, choice)
    metadata = metadata_of(flags["node_metadata"].items())
    identity = Identity(flags["node"], flags["cluster"], flags["admin_port"], INITIAL_FETCH_TIMEOUT, metadata)
    section = bootstrap_section(request, identity, flags, address, settings)
    section = _with_collections(section, flags, settings)
    ca, cert, key = flags["ca"], flags["cert"], flags["key"]
    if (cert is None) != (key is None):
        raise UsageError("--cert and --key belong together; give both, or neither")
    if ca is None and cert is not None:
        raise UsageError("--cert needs --ca: without the CA of fsxds, Envoy would trust any server; give --ca FILE")
    if ca is not None:
        section = with_tls(section, EnvoyTls(ca, cert, key))
    if flags["output_format"] == "json":
        print(json.dumps(section, indent=2))
    else:
        commands = _usage(directory, flags, address, settings)
        print(bootstrap_text(section, flags["transport"], commands), end="")


def read_address(written: str) -> str:
    """Return an address to connect to, or raise UsageError."""
    address = parse_address(written)
    if isinstance(address, TcpAddress) and address.port == 0:
        raise UsageError(f"{escape(written)}: Envoy cannot connect to port 0; give the port that fsxds listens on")
    return str(address)


def _request_of(directory: Path, settings: Settings, choice: Choice) -> BootstrapRequest:
    """Broken files count, too; without any configuration, all types do."""
    with spinner(f"loading {directory}"):
        loaded = load_chosen(directory, settings, loading_rules.find_catalogue(settings), choice)
    warn_if_empty(directory, loaded)
    if not loaded.records:
        return ALL_TYPES
    if loaded.held:
        fact = f"{count_of(len(loaded.held), 'file')} cannot be read, and may hold more types and runtime layers"
        print(f"{escape(str(directory))}: {fact}: fsxds check lists the mistakes", file=sys.stderr)
    request = BootstrapRequest.by(loaded.snapshot)
    unread = frozenset[TypeUrl]().union(*(may_define(file.path) for file in loaded.held))
    clusters, listeners = (BY_SHORT_NAME[name].type_url in unread for name in ("cds", "lds"))
    return replace(request, clusters=request.clusters or clusters, listeners=request.listeners or listeners)


def bootstrap_section(
    request: BootstrapRequest, identity: Identity, flags: TransportFlags, address: str | None, settings: Settings
) -> Section:
    """Return a bootstrap; UsageError without a way to reach fsxds."""
    if flags["transport"] == "files":
        mirror, suffix = mirror_of(flags, settings), f".{settings.mirror_format}"

        def file_of(short_name: str, name: str | None) -> Path:
            return mirror / path_of(BY_SHORT_NAME[short_name].type_url, name, suffix)

        return mirror_bootstrap(file_of, request, identity, xds=address)
    if flags["transport"] == "rest":
        return rest_bootstrap(address or _listening(settings.http, "REST"), request, identity)
    is_delta = flags["transport"] == "delta"
    return ads_bootstrap(address or _listening(settings.grpc, "gRPC"), request, identity, delta=is_delta)


def _with_collections(section: Section, flags: BootstrapFlags, settings: Settings) -> Section:
    names = [read_collection(text, settings.authority) for text in flags["collections"]]
    if flags["transport"] == "files":
        mirror, suffix = mirror_of(flags, settings).absolute(), f".{settings.mirror_format}"
        return with_lists(section, names, lambda name: mirror / path_of(LIST.type_url, name, suffix))
    if flags["transport"] == "rest" and names:
        raise UsageError("Envoy has no collections over REST; give --transport delta, or files for a list of listeners")
    return with_globs(section, names)


def _listening(address: str, transport: str) -> str:
    if address == OFF:
        raise UsageError(f"the settings switch {transport} off; add --address HOST:PORT, the address of fsxds")
    return address


def mirror_of(flags: TransportFlags, settings: Settings) -> Path:
    """Return the mirror's directory, or raise UsageError."""
    mirror = flags["mirror"] or settings.mirror
    if mirror is None:
        raise UsageError("no directory is given for the files; add --mirror DIR, the same as for `fsxds serve`")
    return mirror


def _usage(directory: Path | None, flags: BootstrapFlags, address: str | None, settings: Settings) -> tuple[str, str]:
    serve = ["fsxds", "serve", str(directory or "DIR")]
    if flags["transport"] == "files":
        serve += ["--mirror", str(mirror_of(flags, settings)), *([] if address else ["--mirror-config-sources"])]
    elif address is not None:
        serve += ["--http" if flags["transport"] == "rest" else "--grpc", address]
    if flags["transport"] in {"ads", "delta"}:
        serve.append("--ads-config-sources")
    if flags["ca"] is not None:
        serve += ["--tls-cert", "FILE", "--tls-key", "FILE", *(["--client-ca", "FILE"] if flags["cert"] else [])]
    if settings.linger_s != Settings().linger_s:
        serve += ["--linger", f"{settings.linger_s:g}s"]
    return escape(shlex.join(serve)), f"envoy -c bootstrap.yaml --drain-time-s {ceil(settings.linger_s)}"
