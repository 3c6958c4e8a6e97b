"""By which names Envoy asks for virtual hosts one by one: `<route configuration>/<domain in lower case>` (ENVOY.md D5)."""

from __future__ import annotations


def route_configuration_of(name: str) -> str:
    """Return the route configuration that a virtual host belongs to, by its name; it may have slashes itself."""
    return name.rpartition("/")[0]


def name_of_domain(route_configuration: str, domain: str) -> str:
    """Return the name by which a domain of a route configuration is asked for."""
    return f"{route_configuration}/{lowered(domain)}"


def lowered(domain: str) -> str:
    """Return a domain in lower case as Envoy understands it: the letters of ASCII alone."""
    return domain.encode().lower().decode()
