"""Virtual hosts on demand: which of them serves a host, and what ends Envoy's wait for them.

Envoy asks for `<route configuration>/<host>` when a request for the host arrives. A virtual host says by its aliases
(`<route configuration>/<domain>`) which hosts it serves; wildcards are among them.

Source: xDS protocol, "Virtual Host Discovery Service"; ENVOY.md D5.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Resource

VIRTUAL_HOSTS = BY_SHORT_NAME["vhds"].type_url
ROUTES = BY_SHORT_NAME["rds"].type_url

# A host name has at most 253 characters and a port; what is longer has no wildcard looked for at each of them.
LONGEST_HOST = 512


def domain_matches(name: str) -> Iterator[str]:
    """Yield the aliases that serve a requested `<route configuration>/<host>`, the best first.

    The name is cut at its last slash: a route configuration's name may have slashes, a host has none. The order is
    Envoy's: the host itself, the longest `*.suffix`, the longest `prefix.*`, `*`.
    """
    yield name
    route, slash, host = name.rpartition("/")
    if not slash or not host or len(host) > LONGEST_HOST:
        return
    for start in range(1, len(host)):
        yield f"{route}/*{host[start:]}"
    for end in range(len(host) - 1, 0, -1):
        yield f"{route}/{host[:end]}*"
    yield f"{route}/*"


def find_virtual_hosts(name: str, rows: Container[str], by_alias: Mapping[str, str]) -> tuple[str, ...]:
    """Return the virtual host that serves a requested host, and the one that has this name; mostly they are one."""
    serving = next((by_alias[alias] for alias in domain_matches(name) if alias in by_alias), None)
    named = name if name in rows else None
    return tuple(own for own in dict.fromkeys((serving, named)) if own is not None)


def is_hidden(domain: str, wildcard: str) -> bool:
    """Whether a domain serves some host better than a wildcard does that serves it too.

    An Envoy that has the wildcard does not ask for such a host: it takes what it has.
    """
    if domain in {"*", wildcard}:
        return False
    if wildcard == "*":
        return True
    if wildcard.startswith("*"):
        return domain.endswith(wildcard[1:])
    # Whatever their length, wildcards of suffixes come before those of prefixes.
    return domain.startswith(("*", wildcard[:-1]))


def find_hidden(resource: Resource, by_alias: Mapping[str, str]) -> frozenset[str]:
    """Return the virtual hosts of the same route configuration that an Envoy which has this one may not ask for."""
    route = route_of(resource.name) + "/"
    domains = [alias.removeprefix(route) for alias in resource.aliases if alias.startswith(route)]
    wildcards = [domain for domain in domains if domain.startswith("*") or domain.endswith("*")]
    if not wildcards:
        return frozenset()
    others = ((alias.removeprefix(route), own) for alias, own in by_alias.items() if alias.startswith(route))
    return frozenset(own for domain, own in others if any(is_hidden(domain, wildcard) for wildcard in wildcards))


def aliases_to_tell(resource: Resource, requested: Iterable[str]) -> tuple[str, ...]:
    """Return the aliases of a virtual host in a response: its domains without the wildcards, and what was requested.

    By them Envoy knows which of its waiting requests are answered.
    """
    explicit = (alias for alias in resource.aliases if "*" not in alias.rpartition("/")[2])
    return tuple(sorted({*explicit, *requested} - {resource.name}))


def wake_ups(routes: Iterable[Resource]) -> Iterator[str]:
    """Yield for each route configuration that has virtual hosts on demand the name that ends Envoy's wait for them.

    Its start, or the listener that brings the route configuration, waits until it was told something of that route
    configuration's virtual hosts; `<route configuration>/` as a removed resource is something, and none is called so.
    """
    for resource in routes:
        for reference in resource.references:
            if reference.type_url == VIRTUAL_HOSTS:
                yield f"{route_of(reference.name)}/"


def wake_ups_of_hosts(hosts: Iterable[Resource]) -> Iterator[str]:
    """Yield the same for the route configurations that virtual hosts belong to."""
    for resource in hosts:
        yield f"{route_of(resource.name)}/"


def route_of(name: str) -> str:
    """Return the route configuration that a virtual host belongs to."""
    return name.rpartition("/")[0]


def is_wake_up(name: str) -> bool:
    """Whether a name stands for a route configuration's virtual hosts as such."""
    return name.endswith("/")
