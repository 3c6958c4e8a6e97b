"""Options of listeners, access and limits; see `settings/options.py`."""

# The defaults of the table are calls that return dataclass fields, which Ruff cannot know.
# ruff: noqa: RUF009

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fsxds.settings.access_rules import ACCESS, AccessRule
from fsxds.settings.forms import (
    ADDRESS_OR_OFF,
    DURATION,
    HOSTS,
    ORIGINS,
    PATH,
    SIZE,
    SOCKET_MODE,
    SOCKET_OWNER,
    SWITCH,
    SocketOwner,
    one_of,
)
from fsxds.settings.option import (
    ADMIN,
    ADMIN_USERS,
    ALL,
    GRPC,
    LASTING,
    LIMITS,
    REST,
    SECURITY,
    option,
    optional,
    reloadable,
    reloadable_optional,
)
from fsxds.settings.rollout_forms import COUNT, COUNT_OR_OFF


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The values."""

    http: str = option(
        ADDRESS_OR_OFF,
        "127.0.0.1:18001",
        REST,
        LASTING,
        "Listen here for REST polls and HTTP GET; port 0 picks a free port, `off` disables it.",
    )
    max_hold_s: float = reloadable(
        DURATION, "60s", REST, LASTING, "Answer a poll after this long even if nothing has changed."
    )
    cors_origin: tuple[str, ...] | None = reloadable_optional(
        ORIGINS,
        REST,
        LASTING,
        "Origins whose web pages may read resources by GET, or * for all; secrets are never included.",
    )
    allowed_hosts: tuple[str, ...] | None = reloadable_optional(
        HOSTS,
        REST,
        LASTING,
        "Host names that REST requests may use besides IP addresses and localhost, or *; default: all, but none on a loopback address.",
    )

    grpc: str = option(
        ADDRESS_OR_OFF, "127.0.0.1:18000", GRPC, LASTING, "Listen here for gRPC streams; `off` disables gRPC."
    )
    ttl: str = option(
        one_of("envoy", "spec"),
        "envoy",
        GRPC,
        (*LASTING, "check"),
        "Send the ttl of resources on streams only for types whose expiry Envoy survives (`envoy`), or for all types (`spec`).",
    )

    ads_config_sources: bool = option(
        SWITCH, "false", GRPC, ("serve", "doctor"), "Rewrite the config sources of streamed resources to ADS."
    )

    admin: str = option(
        ADDRESS_OR_OFF,
        "127.0.0.1:18002",
        ADMIN,
        (*LASTING, *ADMIN_USERS, "diff"),
        "Address of the admin API and status page, which `fsxds status` and `fsxds rollout` ask; `off` disables it.",
    )
    state: Path | None = optional(
        PATH,
        ADMIN,
        ("serve", "diff"),
        "Private directory that keeps the history and unfinished rollouts across restarts; it contains secrets.",
    )

    tls_cert: Path | None = optional(
        PATH,
        SECURITY,
        ("serve",),
        "Certificate chain for REST, gRPC and an admin address that is not loopback; reread when it changes.",
    )
    tls_key: Path | None = optional(PATH, SECURITY, ("serve",), "Private key of --tls-cert.")
    client_ca: Path | None = optional(
        PATH, SECURITY, ("serve",), "Require client certificates signed by a CA in this file."
    )
    admin_ca: Path | None = optional(
        PATH,
        SECURITY,
        (*ADMIN_USERS, "check", "diff"),
        "Connect to the admin address over TLS and trust the CAs in this file.",
    )
    tokens: Path | None = reloadable_optional(
        PATH,
        SECURITY,
        ("serve",),
        "Require one of the bearer tokens in this file, a `NAME: TOKEN` or `TOKEN` per line; reread when it changes.",
    )
    access: tuple[AccessRule, ...] | None = reloadable_optional(
        ACCESS, SECURITY, ("serve",), "Which clients may ask for which nodes, and who may use the admin address."
    )
    admin_token: Path | None = reloadable_optional(
        PATH,
        SECURITY,
        (*LASTING, *ADMIN_USERS, "check", "diff"),
        "File with the token that the admin address requires and commands send; reread when it changes.",
    )
    insecure_secrets: bool = reloadable(
        SWITCH, "false", SECURITY, ("serve",), "Serve secrets to other machines without TLS."
    )
    follow_outside: bool = reloadable(
        SWITCH, "false", SECURITY, ALL, "Follow symbolic links that lead out of the tree."
    )
    verify_with: Path | None = reloadable_optional(
        PATH,
        SECURITY,
        ("serve", "check", "mirror", "show", "export"),
        "Serve files and upstream resources only if a manifest lists them that a certificate of the CAs in this file signed.",
    )
    reuse_port: bool = option(
        SWITCH,
        "false",
        SECURITY,
        ("serve",),
        "Share the addresses with a new fsxds of the same user, so that it can take over without a gap.",
    )
    socket_mode: int = option(SOCKET_MODE, "660", SECURITY, LASTING, "Mode of the unix sockets that fsxds creates.")
    socket_owner: SocketOwner | None = optional(
        SOCKET_OWNER,
        SECURITY,
        LASTING,
        "Owner of the unix sockets, such as envoy:envoy; default: the user that runs fsxds.",
    )

    max_connections: int = reloadable(
        COUNT, "100000", LIMITS, LASTING, "Most connections to the REST address, and to the gRPC address."
    )
    max_held_polls: int = reloadable(
        *(COUNT, "100000", LIMITS, LASTING),
        "Most polls, GETs and unary gRPC requests that wait; further ones get 503 or RESOURCE_EXHAUSTED.",
    )
    max_streams: int = reloadable(
        COUNT, "100000", LIMITS, LASTING, "Most gRPC streams; further ones get RESOURCE_EXHAUSTED."
    )
    max_streams_per_peer: int | None = reloadable(
        COUNT_OR_OFF, "off", LIMITS, LASTING, "Most gRPC streams from one IP address (IPv6: one /64 network)."
    )
    max_requests_per_peer: int | None = reloadable(
        COUNT_OR_OFF,
        "off",
        LIMITS,
        LASTING,
        "Most REST requests and gRPC calls per second from one IP address (IPv6: /64 network); bursts may be ten times that.",
    )
    max_body_bytes: int = reloadable(
        SIZE, "1MiB", LIMITS, LASTING, "Largest body of a REST request, decompressed; a larger one gets 413."
    )
    max_all_bodies_bytes: int = reloadable(
        SIZE, "1GiB", LIMITS, LASTING, "Most bytes of request bodies that are being received at one time."
    )
    max_message_bytes: int = option(
        SIZE, "16MiB", LIMITS, LASTING, "Largest gRPC request; a larger one ends its stream with RESOURCE_EXHAUSTED."
    )
    max_names: int = reloadable(
        COUNT, "250000", LIMITS, LASTING, "Most names that one stream subscribes to, or one request has."
    )
    max_all_names: int = reloadable(
        COUNT, "20000000", LIMITS, LASTING, "Most names of all streams and waiting requests together."
    )
    max_nodes: int = reloadable(
        COUNT,
        "20000",
        LIMITS,
        LASTING,
        "Most polling nodes to remember, each with ten subscriptions on average; the longest silent ones are forgotten.",
    )
    max_views: int = reloadable(COUNT, "10000", LIMITS, LASTING, "Most views to load at one time.")
    max_files: int = reloadable(
        COUNT,
        "100000",
        LIMITS,
        ALL,
        "Most files and directories in the tree; if there are more, the tree as it was before stays.",
    )
    max_resources: int = reloadable(
        COUNT, "1000000", LIMITS, ALL, "Most resources in a view; a file that exceeds it is held back."
    )
