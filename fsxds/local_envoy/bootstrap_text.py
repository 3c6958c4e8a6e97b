"""A bootstrap as a file for people: what it is for, how to use it, and why each value is what it is (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fsxds.local_envoy.commented_yaml import as_yaml
from fsxds.local_envoy.xds_cluster import Section

_TITLES: Mapping[str, str] = MappingProxyType({
    "rest": "An Envoy that gets everything from fsxds by REST long polling.",
    "ads": "An Envoy that gets everything by one gRPC stream: state-of-the-world ADS.",
    "delta": "An Envoy that gets everything by one gRPC stream: delta ADS.",
    "files": "An Envoy that reads files which fsxds rewrites.",
})  # fmt: skip

# By key; each stands above the first such key.
_COMMENTS: Mapping[str, str] = MappingProxyType({
    "node": "fsxds tells its clients apart by the id: give each Envoy its own.",
    "admin": "For this machine only: whoever reaches this page can change settings and stop Envoy.",
    "clusters": "fsxds. It has to be static: a cluster that comes by CDS cannot be where configuration comes from.",
    "dns_lookup_family": "Without it, Envoy looks for an IPv6 address first.",
    "circuit_breakers":
        "Each subscription (one for each EDS cluster, route table, secret …) holds a poll, and each poll a connection.\n"
        "Envoy's default limit of 1024 makes a start with more of them slow.",
    "connection_keepalive":
        "Not more often: gRPC servers close connections that ping more than once in five minutes.",
    "upstream_connection_options": "Tells within a minute when the server's machine is gone without a word.",
    "set_node_on_first_message_only": "Else each message carries 61 kB of what this Envoy is able to.",
    "initial_fetch_timeout": "How long the start waits for the first answer; 0 would wait for ever.",
    "refresh_delay": "The pause between two polls. Below one millisecond it makes Envoy 1.40 crash.",
    "request_timeout":
        "fsxds holds a poll that long, less a margin, when there is nothing new. Envoy's own default is 1s.",
    "layers":
        "A later layer goes before an earlier one. Values that are set by hand on the admin page go first; without\n"
        "the layer `admin` they cannot be set.",
})  # fmt: skip

_STREAM_COMMENTS: Mapping[str, str] = MappingProxyType({
    "circuit_breakers": "For resources whose sources are not `ads: {}`: each has a stream or a held poll of its own.",
})  # fmt: skip

_FILES_COMMENTS: Mapping[str, str] = MappingProxyType({
    "dynamic_resources":
        "The files must exist before Envoy starts: wait for fsxds's --ready-file. Paths are relative to where Envoy is\n"
        "started. No watched_directory is needed: fsxds moves each file over the one before, which Envoy notices. Files\n"
        "that come by a Kubernetes ConfigMap need one: `watched_directory: {path: the directory that is mounted}`.",
})  # fmt: skip


def bootstrap_text(bootstrap: Section, transport: str, usage: tuple[str, ...]) -> str:
    """Write a bootstrap as commented YAML.

    Args:
        bootstrap: of an Envoy of that transport.
        transport: `rest`, `ads`, `delta` or `files`.
        usage: the commands that go with it, one a line.
    """
    comments = dict(_COMMENTS)
    if transport == "files":
        comments |= _FILES_COMMENTS
    elif transport != "rest":
        comments |= _STREAM_COMMENTS
    head = "\n".join((f"# {_TITLES[transport]}", "#", *(f"#   {line}" for line in usage)))
    return f"{head}\n\n{as_yaml(bootstrap, comments, 'source')}"
