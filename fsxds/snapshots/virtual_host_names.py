"""How virtual hosts are named that Envoy asks for one by one, and by which other names they are found."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsxds.api.host_names import name_of_domain, route_configuration_of
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Reference
from fsxds.rules.mentions import HOST, HOST_NAME
from fsxds.values import Fault, FieldPath, Severity

VIRTUAL_HOST = BY_SHORT_NAME["vhds"]


def table_fault(name: str, place: FieldPath) -> Fault | None:
    """Demand `<route configuration>/<name>`: Envoy finds the table before the last slash. Source: ENVOY.md D5."""
    table, _, host = name.rpartition("/")
    if table and host:
        return None
    fact = (
        f'"{name}" does not say of which route configuration it is; requests for it would hang in Envoy without an end'
    )
    return Fault("virtual-host-name", fact, f'name it "<route configuration>/{host or table}"', place)


def lasting_fault(name: str, own_name: str, field_path: FieldPath) -> Fault | None:
    """Warn of a virtual host that Envoy would not let go of: it keeps it by its own name, and is told the resource's."""
    if own_name in {"", name}:
        return None
    fact = f'the Resource is named "{name}", the virtual host in it "{own_name}"; Envoy keeps it when it is removed'
    remedy = f'name the virtual host "{name}" as well'
    return Fault("lasting-virtual-host", fact, remedy, (*field_path, "name"), severity=Severity.WARNING)


def aliases_of(name: str, host: Any, authored: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names by which a virtual host is found beside its own: each of its domains, and what its author added.

    Domains are as they are written, wildcards too, but in lower case, which is how Envoy asks: `<route>/<domain>`.
    """
    table = route_configuration_of(name)
    return tuple(dict.fromkeys((*(name_of_domain(table, domain) for domain in host.domains), *authored)))


def claims_of(name: str, host: Any, authored: tuple[str, ...]) -> Iterator[Reference]:
    """Yield what no other virtual host may have: the names by which it is found, and that by which Envoy keeps it."""
    table = route_configuration_of(name)
    claimed = set()
    for index, domain in enumerate(host.domains):
        claimed.add(name_of_domain(table, domain))
        yield Reference(HOST, name_of_domain(table, domain), ("domains", index), Severity.ERROR)
    for other in (name, *authored):
        if other not in claimed:
            yield Reference(HOST, other, (), Severity.ERROR)
    yield Reference(HOST_NAME, f"{table}\n{host.name}", ("name",), Severity.ERROR)
