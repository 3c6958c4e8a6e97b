"""What resources say of one another, collected in the walk: whom they name, and which addresses they take."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.host_names import name_of_domain
from fsxds.api.walk import Hook, Path, Walk
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.rules import cluster_references, discovery_references
from fsxds.rules.listener_addresses import addresses_taken
from fsxds.rules.mentions import ADDRESS, HOST
from fsxds.values import Severity

Hooks: TypeAlias = dict[str, tuple[Hook, ...]]

_LISTENER = BY_SHORT_NAME["lds"].message_type
_ROUTES = BY_SHORT_NAME["rds"].message_type


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the hooks that collect references and claims; they find no faults."""
    merged: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    merged[_LISTENER] = (_claim_addresses,)
    merged[_ROUTES] = (_claim_domains,)
    for chapter in (cluster_references.hooks(catalogue), discovery_references.hooks(catalogue)):
        for message_type, own in chapter.items():
            merged[message_type] += own
    return dict(merged)


def _claim_addresses(listener: Any, path: Path, walk: Walk) -> None:
    """Note the addresses of a listener that no other may have: Envoy compares them whatever is bound, and how."""
    if path is not None:
        return
    claimed = set()
    for place, name in addresses_taken(listener):
        # The same address twice in one listener is no conflict.
        if name not in claimed:
            claimed.add(name)
            walk.refer(place, ADDRESS, name, Severity.ERROR)


def _claim_domains(config: Any, path: Path, walk: Walk) -> None:
    """Note the domains that no virtual host may have which is discovered beside those of the configuration itself."""
    if path is not None or not config.HasField("vhds"):
        return
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            place: Path = ((((path, "virtual_hosts"), number), "domains"), index)
            walk.refer(place, HOST, name_of_domain(config.name, domain), Severity.ERROR)
