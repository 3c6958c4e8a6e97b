"""Virtual hosts on demand: which of them serves a host, and what ends Envoy's wait for them.

Envoy asks for `<route configuration>/<host>` when a request for the host arrives. A virtual host says by its aliases
(`<route configuration>/<domain>`) which hosts it serves; wildcards are among them.

Source: xDS protocol, "Virtual Host Discovery Service"; ENVOY.md D5.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fsxds.protocol.subscription import WILDCARD
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import Resource

VIRTUAL_HOSTS = BY_SHORT_NAME["vhds"].type_url
ROUTES = BY_SHORT_NAME["rds"].type_url

# No host is called so: told as removed, it concerns a route configuration and none of its virtual hosts.
NO_HOST = "*"

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


def find_virtual_hosts(
    name: str, rows: Mapping[str, Resource], by_alias: Mapping[str, Resource]
) -> tuple[Resource, ...]:
    """Return the virtual host that serves a requested host, and the one that has this name; mostly they are one."""
    serving = next((by_alias[alias] for alias in domain_matches(name) if alias in by_alias), None)
    named = rows.get(name)
    return tuple(resource for resource in dict.fromkeys((serving, named)) if resource is not None)


def aliases_to_tell(resource: Resource, requested: Iterable[str]) -> tuple[str, ...]:
    """Return the aliases of a virtual host in a response: its domains without the wildcards, and what was requested.

    By them Envoy knows which of its waiting requests are answered.
    """
    explicit = (alias for alias in resource.aliases if "*" not in alias.rpartition("/")[2])
    return tuple(sorted({*explicit, *requested} - {resource.name}))


def wake_ups(routes: Iterable[Resource]) -> Iterator[str]:
    """Yield for each route configuration that has virtual hosts on demand the name that ends Envoy's wait for them.

    Its start, or the listener that brings the route configuration, waits until it was told something of that route
    configuration's virtual hosts; `<route configuration>/*` as a removed resource is something, and changes nothing.
    """
    for resource in routes:
        for reference in resource.references:
            if reference.type_url == VIRTUAL_HOSTS:
                yield reference.name


def wake_ups_of_hosts(hosts: Iterable[Resource]) -> Iterator[str]:
    """Yield the same for the route configurations that virtual hosts belong to."""
    for resource in hosts:
        yield f"{route_of(resource.name)}/{NO_HOST}"


def route_of(name: str) -> str:
    """Return the route configuration that a virtual host belongs to."""
    return name.rpartition("/")[0]


def is_wake_up(name: str) -> bool:
    """Whether a name stands for a route configuration's virtual hosts as such."""
    return name.endswith(f"/{NO_HOST}") or name == WILDCARD
