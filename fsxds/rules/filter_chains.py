"""Filter chains beside one another: no connection may fit two of them equally well."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from itertools import product
from math import prod
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_RULE = "filter-chain"
# Beyond so many combinations of what a listener's chains match, nothing is said.
_MOST_COMBINATIONS = 20_000


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over the filter chains of a listener."""
    return {"envoy.config.listener.v3.Listener": (_check_chains,)}


def _check_chains(listener: Any, path: Path, walk: Walk) -> None:
    chains = listener.filter_chains
    if listener.HasField("filter_chain_matcher"):
        _check_names(chains, (path, "filter_chains"), walk)
    elif len(chains) > 1 or (chains and chains[0].HasField("filter_chain_match")):
        _check_matches(chains, (path, "filter_chains"), walk)


def _check_names(chains: Any, path: Path, walk: Walk) -> None:
    seen: set[str] = set()
    for index, chain in enumerate(chains):
        fact = None
        if not chain.name:
            fact = "a filter chain needs a name where filter_chain_matcher chooses by it"
        elif chain.name in seen:
            fact = f'"{chain.name}" is the name of two filter chains, and filter_chain_matcher chooses by it'
        seen.add(chain.name)
        if fact is not None:
            walk.tell(((path, index), "name"), _RULE, fact, "give it a name of its own")


def _check_matches(chains: Any, path: Path, walk: Walk) -> None:
    """Compare all that each chain matches, in the form in which Envoy keeps it."""
    dimensions = [
        _dimensions(chain.filter_chain_match) if chain.HasField("filter_chain_match") else _ALL for chain in chains
    ]
    if sum(prod(map(len, one)) for one in dimensions) > _MOST_COMBINATIONS:
        return
    owners: dict[tuple[Any, ...], int] = {}
    for index, one in enumerate(dimensions):
        for combination in product(*one):
            if combination not in owners:
                owners[combination] = index
                continue
            fact = f"matches connections that filter_chains[{owners[combination]}] matches just so"
            if owners[combination] == index:
                fact = "matches the same connections twice"
            remedy = "let each chain match something of its own; letter case, and bits beyond prefix_len, do not count"
            walk.tell(((path, index), "filter_chain_match"), _RULE, fact, remedy)
            return


def _dimensions(match: Any) -> tuple[list[Any], ...]:
    """Return what a chain matches by, each as a list of alternatives."""
    return (
        [match.destination_port.value if match.HasField("destination_port") else None],
        _networks(match.prefix_ranges),
        [_server_name(name) for name in match.server_names] or [""],
        [match.transport_protocol],
        list(match.application_protocols) or [""],
        _networks(match.direct_source_prefix_ranges),
        [match.source_type],
        _networks(match.source_prefix_ranges),
        list(match.source_ports) or [0],
    )


# What a chain without a match has.
_ALL: tuple[list[Any], ...] = ([None], [None], [""], [""], [""], [None], [0], [None], [0])


def _server_name(name: str) -> str:
    lowered = name.lower()
    return lowered[1:] if lowered.startswith("*.") else lowered


def _networks(ranges: Iterable[Any]) -> list[Any]:
    return [_network(cidr) for cidr in ranges] or [None]


def _network(cidr: Any) -> Any:
    """Return the network that a range stands for; the range itself when its address is none, which is told elsewhere."""
    try:
        address = ipaddress.ip_address(cidr.address_prefix.partition("%")[0])
    except ValueError:
        return cidr.address_prefix, cidr.prefix_len.value
    length = min(cidr.prefix_len.value, address.max_prefixlen)
    return ipaddress.ip_network((address, length), strict=False)
