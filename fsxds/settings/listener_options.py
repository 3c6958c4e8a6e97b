"""The options of listeners and access; `settings/options.py` has all further rows."""

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
    SOCKET_MODE,
    SOCKET_OWNER,
    SWITCH,
    SocketOwner,
    one_of,
)
from fsxds.settings.option import ADMIN, ADMIN_USERS, ALL, GRPC, LASTING, REST, SECURITY, option, optional, reloadable


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """The values of these options."""

    http: str = option(
        ADDRESS_OR_OFF,
        "127.0.0.1:18001",
        REST,
        LASTING,
        "Where Envoy polls; port 0 lets the system choose a free port; off for nowhere.",
    )
    max_hold_s: float = reloadable(
        option(DURATION, "60s", REST, LASTING, "The longest time that a poll is held when nothing is new.")
    )
    cors_origin: tuple[str, ...] | None = reloadable(
        optional(ORIGINS, REST, LASTING, "Origins whose pages may read resources by GET, or *; secrets are for none.")
    )
    allowed_hosts: tuple[str, ...] | None = reloadable(
        optional(
            HOSTS,
            REST,
            LASTING,
            "Names by which REST may be asked, beside IP addresses and localhost, or *. Default: any, but none at a loopback address.",
        )
    )

    grpc: str = option(
        ADDRESS_OR_OFF, "127.0.0.1:18000", GRPC, LASTING, "Where Envoy opens its streams; off for nowhere."
    )
    ttl: str = option(
        one_of("envoy", "spec"),
        "envoy",
        GRPC,
        (*LASTING, "check"),
        "Which resources keep their ttl on streams: those for which Envoy survives it, or all.",
    )

    ads_config_sources: bool = option(
        SWITCH,
        "false",
        GRPC,
        ("serve", "doctor"),
        "Make the resources on streams subscribe by ADS instead of REST or other streams.",
    )

    admin: str = option(
        ADDRESS_OR_OFF,
        "127.0.0.1:18002",
        ADMIN,
        (*LASTING, *ADMIN_USERS, "diff"),
        "Where operators see rollouts and decide about them; off for nowhere.",
    )
    state: Path | None = optional(
        PATH,
        ADMIN,
        ("serve", "diff"),
        "The private directory in which the history and the place of each rollout are kept; secrets are in it.",
    )

    tls_cert: Path | None = optional(
        PATH,
        SECURITY,
        ("serve",),
        "The certificate, with its chain, that REST and gRPC show, and admin where it is no loopback address; read again when "
        "it changes.",
    )
    tls_key: Path | None = optional(PATH, SECURITY, ("serve",), "The private key of that certificate.")
    client_ca: Path | None = optional(
        PATH, SECURITY, ("serve",), "Clients have to show a certificate that is signed by one in this file."
    )
    admin_ca: Path | None = optional(
        PATH,
        SECURITY,
        (*ADMIN_USERS, "check", "diff"),
        "Ask the admin address by TLS, and trust the certificates that are signed by one in this file.",
    )
    tokens: Path | None = reloadable(
        optional(
            PATH,
            SECURITY,
            ("serve",),
            "Clients have to send one of the bearer tokens in this file, NAME: TOKEN or TOKEN in a line; read again when it "
            "changes.",
        )
    )
    access: tuple[AccessRule, ...] | None = reloadable(
        optional(ACCESS, SECURITY, ("serve",), "Who may ask for which nodes, and who may ask the admin address.")
    )
    admin_token: Path | None = reloadable(
        optional(
            PATH,
            SECURITY,
            (*LASTING, *ADMIN_USERS, "check", "diff"),
            "The file of the token that operators have to send, or that a command sends; read again when it changes.",
        )
    )
    insecure_secrets: bool = reloadable(
        option(
            SWITCH,
            "false",
            SECURITY,
            ("serve",),
            "Serve secrets in clear, without TLS, also to clients on other machines.",
        )
    )
    follow_outside: bool = reloadable(
        option(
            SWITCH,
            "false",
            SECURITY,
            ALL,
            "Read also what links of the tree lead to outside of it; the tree itself may be reached through links anyway.",
        )
    )
    verify_with: Path | None = reloadable(
        optional(
            PATH,
            SECURITY,
            ("serve", "check", "mirror", "show", "export"),
            "Hold back a tree, and what an upstream sends, unless it is in a manifest signed with a certificate of the CAs in this file.",
        )
    )
    reuse_port: bool = option(
        SWITCH, "false", SECURITY, ("serve",), "Share the addresses with a new fsxds of this user, to take over."
    )
    socket_mode: int = option(SOCKET_MODE, "660", SECURITY, LASTING, "The mode of the unix sockets that are made.")
    socket_owner: SocketOwner | None = optional(
        SOCKET_OWNER, SECURITY, LASTING, "Who owns these sockets, such as envoy:envoy; by default who runs fsxds."
    )
