"""How a relay stands as a client of its upstreams: what it has of each, what it rejected, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from fsxds.api.secrets import mask_reason, mask_text
from fsxds.protocol.messages import Node
from fsxds.protocol.resource_status import ClientResourceStatus, ConfigStatus, OwnStatus, ResourceStatus
from fsxds.protocol.subscription import WILDCARD
from fsxds.resource_names import is_glob
from fsxds.resources import Key
from fsxds.snapshots.upstream_content import HeldResource
from fsxds.upstream.holdings import NO_TABLE
from fsxds.upstream.upstream import Upstream
from fsxds.upstream_events import UpstreamStatus
from fsxds.values import TypeUrl, Version

# Names that are looked up together.
MOST_AT_ONCE = 1000

Rejected = Mapping[tuple[str, Key], str]
"""What clients rejected, with their words: by the name of the upstream, and the resource."""


def own_statuses(
    upstreams: Iterable[Upstream], rejected: Rejected, node: Callable[[Upstream], Node]
) -> Iterator[OwnStatus]:
    """Yield the state of this process as a client of each upstream.

    Args:
        upstreams: all of them.
        rejected: what clients rejected.
        node: returns how this process shows itself to an upstream.
    """
    for upstream in upstreams:
        status = upstream.status()
        by_clients = {key: words for (name, key), words in rejected.items() if name == status.name}
        words = {key: mask_reason(each) for key, each in (by_clients | dict(upstream.rejected)).items()}
        wanted = sum(map(len, upstream.wanted().values()))
        count = sum(map(len, upstream.held.values())) + len(words) + wanted
        yield OwnStatus(node(upstream), _scope(status), count, _resources(upstream, words))


def _scope(status: UpstreamStatus) -> str:
    facts = (status.state, status.server, status.wire)
    return mask_text(f"upstream {status.name}: {' '.join(filter(None, facts))}")


def _resources(upstream: Upstream, rejected: Mapping[Key, str]) -> Iterator[ResourceStatus]:
    """Yield what is held, then what was rejected and never good, then names without a resource."""
    held, wanted = upstream.held, upstream.wanted()
    for type_url, table in held.items():
        for name, each in table.items():
            yield _held(each, rejected.get((type_url, name)))
    for (type_url, name), words in rejected.items():
        if name not in held.get(type_url, NO_TABLE):
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.NACKED, reason=words)
    for type_url, names in wanted.items():
        table = held.get(type_url, NO_TABLE)
        without = (name for name in names if name not in table and (type_url, name) not in rejected)
        # Whoever takes them lets other work go on between two; all at once may be a million.
        while some := frozenset(islice(without, MOST_AT_ONCE)):
            yield from _without_resource(upstream, type_url, some)


def _held(each: HeldResource, rejected: str | None) -> ResourceStatus:
    client_status = ClientResourceStatus.ACKED if rejected is None else ClientResourceStatus.NACKED
    resource = each.resource
    return ResourceStatus(
        resource.type_url,
        resource.name,
        ConfigStatus.UNKNOWN,
        client_status,
        Version(each.version),
        resource,
        reason=rejected,
        updated_s=each.received_s,
    )


def _without_resource(upstream: Upstream, type_url: TypeUrl, names: frozenset[str]) -> Iterator[ResourceStatus]:
    # A wildcard that was answered is no name that does not exist.
    groups = {name for name in names if name == WILDCARD or is_glob(name)}
    missing = upstream.denies(type_url, names)
    for name in sorted(names):
        if name not in missing:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.REQUESTED)
        elif name not in groups:
            yield ResourceStatus(type_url, name, ConfigStatus.UNKNOWN, ClientResourceStatus.DOES_NOT_EXIST)
