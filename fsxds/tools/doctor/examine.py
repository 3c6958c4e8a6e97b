"""Examines the messages of a bootstrap and a tree, then both together.

Source: ENVOY.md E72, E73, E77.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.printing import Printer
from fsxds.api.walk import messages_in
from fsxds.client.polls import open_session
from fsxds.envoy.admin import AdminPage
from fsxds.model.errors import UsageError
from fsxds.model.resource_names import MalformedName, ResourceName, is_structured, parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, ResourceType
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Fault, FieldPath, Severity
from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE
from fsxds.settings.forms import Address, UnixAddress
from fsxds.tools.doctor.bootstraps import (
    bootstrap_faults,
    check_config_source,
    check_data_source,
    check_route_table,
    check_scoped_routes,
    xds_cluster_faults,
)
from fsxds.tools.doctor.facts import GRPC, REST, ConfigSourceUse, EnvoyFacts, LookAt, subscriptions_of

_GRPC, _DELTA_GRPC, _AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC = 2, 3, 5, 6  # ApiConfigSource.ApiType
_SOTW, _DELTA = frozenset({_GRPC, _AGGREGATED_GRPC}), frozenset({_DELTA_GRPC, _AGGREGATED_DELTA_GRPC})


def expiry_faults(resource: Resource, bootstrap: DynamicMessage) -> Iterator[Fault]:
    """Report a TTL without effect. Source: ENVOY.md E19.

    Envoy ignores it by REST and from files. On streams, clients that announce the feature get it, as Envoy does if its
    bootstrap lists it.
    """
    if resource.ttl_s is None or bootstrap is None:
        return
    dynamic = bootstrap.dynamic_resources
    sources = [dynamic.ads_config, dynamic.cds_config.api_config_source, dynamic.lds_config.api_config_source]
    streams = frozenset(source.api_type for source in sources if source.ByteSize())
    fact, remedy = "a ttl has no effect by REST or from files", "remove it, or serve by gRPC"
    if streams & (_SOTW | _DELTA):
        wanted = [TTL_FEATURE] if streams & _DELTA else [TTL_FEATURE, SOTW_TTL_FEATURE]
        missing = [feature for feature in wanted if feature not in bootstrap.node.client_features]
        if not missing:
            return
        fact = "a ttl is sent to clients that announce that they understand it, and the bootstrap does not"
        remedy = f"add {' and '.join(missing)} to node.client_features, or remove the ttl"
    yield Fault("ttl-without-effect", fact, remedy, (), severity=Severity.NOTE)


Check = Callable[[DynamicMessage, DynamicMessage, EnvoyFacts], Iterator[Fault]]

_SCOPED_ROUTES = "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes"


@dataclass(frozen=True, slots=True)
class Case:
    """The input; `bootstrap` is None for the tree alone.

    Attributes:
        is_rewritten: the tree is mirrored, with paths for sources.
    """

    bootstrap: DynamicMessage
    snapshot: Snapshot
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True)
class BootstrapFindings:
    """Faults; paths start at the top of each message."""

    bootstrap: tuple[Fault, ...]
    resources: tuple[tuple[Resource, Fault], ...]


def examine(case: Case, catalogue: Catalogue, look_at: LookAt) -> BootstrapFindings:
    """Examine a bootstrap and a tree."""
    bootstrap, snapshot = case.bootstrap, case.snapshot
    envoy = EnvoyFacts.of(bootstrap, catalogue, look_at)
    scopes = snapshot.resources(BY_SHORT_NAME["srds"].type_url).values()
    names = frozenset(_message_of(scope, catalogue).route_configuration_name for scope in scopes)
    checks: dict[str, Check] = {
        "envoy.config.core.v3.ConfigSource": check_config_source,
        "envoy.config.core.v3.DataSource": check_data_source,
        "envoy.config.route.v3.RouteConfiguration": check_route_table,
        _SCOPED_ROUTES: partial(check_scoped_routes, names),
    }
    subscriptions: set[ConfigSourceUse] = set()
    of_resources: list[tuple[Resource, Fault]] = []
    own_clusters = frozenset(snapshot.resources(BY_SHORT_NAME["cds"].type_url))
    envoy_of_tree = replace(envoy, is_rewritten=case.is_rewritten, clusters_of_tree=own_clusters)
    for resource in (resource for resources in snapshot.by_type.values() for resource in resources.values()):
        faults = _examine_message(_message_of(resource, catalogue), envoy_of_tree, checks, subscriptions)
        of_resources += ((resource, fault) for fault in (*faults, *expiry_faults(resource, bootstrap)))
    if bootstrap is None:
        return BootstrapFindings((), tuple(of_resources))
    if case.is_rewritten:
        subscriptions.clear()
    of_bootstrap = list(_examine_message(bootstrap, envoy, checks, subscriptions))
    of_bootstrap += bootstrap_faults(bootstrap, envoy, snapshot)
    of_bootstrap += glob_faults(bootstrap, snapshot, catalogue)
    services = bootstrap.dynamic_resources.ads_config.grpc_services
    of_bootstrap += xds_cluster_faults(
        envoy,
        subscriptions,
        frozenset(service.envoy_grpc.cluster_name for service in services if service.HasField("envoy_grpc")),
    )
    return BootstrapFindings(tuple(of_bootstrap), tuple(of_resources))


def _examine_message(
    top: DynamicMessage, envoy: EnvoyFacts, checks: Mapping[str, Check], subscriptions: set[ConfigSourceUse]
) -> Iterator[Fault]:
    for field_path, message in messages_in(top, envoy.catalogue):
        subscriptions.update(subscriptions_of(message, field_path))
        check = checks.get(message.DESCRIPTOR.full_name)
        if check is not None:
            yield from check(message, field_path, envoy)


def _message_of(resource: Resource, catalogue: Catalogue) -> DynamicMessage:
    return catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)


READ_PATIENCE_S = 10.0


async def drain_remark(address: Address, linger_s: float) -> str | None:
    """Warn if `--linger` is shorter than this Envoy's drain time.

    Source: ENVOY.md E66, E68.

    Raises:
        UsageError: no Envoy answers.
    """
    async with open_session(str(address), READ_PATIENCE_S) as session:
        host = "envoy" if isinstance(address, UnixAddress) else str(address)
        drain_s = await AdminPage(session, host).drain_time_s()
    if drain_s is None:
        raise UsageError(f"{address}: no Envoy answers there; give the address of its admin page")
    if drain_s <= linger_s:
        return None
    return (
        f"warning: {address}: this Envoy drains the connections of a changed listener for {drain_s:g} s, and fsxds keeps "
        f"their resources for {linger_s:g} s: afterwards they get 503; give fsxds --linger {drain_s:g}s, or start Envoy with "
        f"--drain-time-s {linger_s:.0f}"
    )


_NODE = "xds.node."
_METADATA = "metadata"
# Envoy sets these itself, whatever the bootstrap says.
_OF_ENVOY = frozenset({"user_agent_name", "user_agent_version"})


def glob_faults(bootstrap: DynamicMessage, snapshot: Snapshot, catalogue: Catalogue) -> Iterator[Fault]:
    """Check the locators."""
    node = _node_params(bootstrap, Printer(catalogue))
    for row in (BY_SHORT_NAME["cds"], BY_SHORT_NAME["lds"]):
        text = getattr(bootstrap.dynamic_resources, f"{row.short_name}_resources_locator")
        if is_structured(text):
            place: FieldPath = ("dynamic_resources", f"{row.short_name}_resources_locator")
            fault = _locator_fault(text, row, place, bootstrap.dynamic_resources)
            if fault is not None:
                yield fault
            elif (name := ResourceName.parse(text)).is_glob:
                names = map(parse_or_none, snapshot.resources(row.type_url))
                faults = _check_members(name, {**node, **dict(name.context)}, row, filter(None, names))
                yield from (replace(fault, field_path=place) for fault in faults)


def _locator_fault(text: str, row: ResourceType, place: FieldPath, dynamic: DynamicMessage) -> Fault | None:
    example = f"write xdstp://<authority>/{row.message_type}/<directory>/*"
    fact = ""
    try:
        name = ResourceName.parse(text)
    except MalformedName as error:
        fact, example = f"{error.fact}; Envoy does not start, or finds no resource", error.remedy
    else:
        if text.startswith("udpa:"):
            fact = "Envoy does not start with the scheme udpa"
        elif name.message_type != row.message_type:
            fact = f"Envoy does not start: it asks for resources of {row.message_type} here"
    if fact:
        return Fault("impossible-locator", fact, example, place)
    source = getattr(dynamic, f"{row.short_name}_config")
    is_own = source.WhichOneof("config_source_specifier") == "api_config_source"
    if is_own and source.api_config_source.api_type in {REST, GRPC}:
        fact = "Envoy does not start: by REST, and by GRPC but for Delta and ADS, it has no collections"
        return Fault("impossible-locator", fact, f"write {row.short_name}_config: {{ads: {{}}}}, or DELTA_GRPC", place)
    return None


def _node_params(bootstrap: DynamicMessage, printer: Printer) -> dict[str, str | None]:
    params: dict[str, str | None] = {}
    for field in bootstrap.node_context_params:
        if field == _METADATA:
            # Numbers in a Struct are written as in JSON; a text is in quotes.
            metadata = printer.to_plain(bootstrap.node.metadata)
            params |= {
                f"{_NODE}{_METADATA}.{key}": (
                    None if isinstance(value, float | dict | list) else json.dumps(value, ensure_ascii=False)
                )
                for key, value in metadata.items()
            }
        else:
            # A flag of Envoy may set an empty one.
            owner, _, part = field.rpartition(".")
            holder = bootstrap.node.locality if owner == "locality" else bootstrap.node
            found = None if field in _OF_ENVOY else getattr(holder, part if owner == "locality" else field, None)
            params[_NODE + field] = found if isinstance(found, str) and found else None
    return params


def _check_members(
    asked: ResourceName, params: Mapping[str, str | None], row: ResourceType, names: Iterable[ResourceName]
) -> Iterator[Fault]:
    """A parameter is None if its value is unknown."""
    glob = replace(asked, context=())
    beside = [dict(name.context) for name in names if replace(name.glob, context=()) == glob]
    for context in beside:
        is_equal = all(value is None or value == context.get(key) for key, value in params.items())
        if is_equal and context.keys() == params.keys():
            return
    others = sorted({", ".join(context) or "none" for context in beside})
    fact = f"the tree has no {row.noun} in this collection; Envoy starts without any"
    remedy = f'name {row.noun} "{replace(glob, path=glob.path[:-1] + "NAME")}"'
    if others:
        wanted = ", ".join(sorted(params)) or "none"
        fact += f": it asks with the parameters {wanted}, and resources in the directory have {' or '.join(others)}"
        remedy = "give them the same parameters and values; node_context_params adds parameters of the node"
    yield Fault("no-members", fact, remedy, severity=Severity.WARNING)
