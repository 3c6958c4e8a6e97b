"""The whole examination: every message of the bootstrap and of the tree, then the two together.

Whether the time to live of a resource gets to the Envoy of a bootstrap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.client.polls import open_session
from fsxds.envoy.admin import AdminPage
from fsxds.errors import UsageError
from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE
from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Resource, Snapshot
from fsxds.settings.forms import Address, UnixAddress
from fsxds.tools.doctor.bootstraps import (
    ScopedRoutes,
    TreeFacts,
    bootstrap_faults,
    check_data_source,
    check_route_table,
    xds_cluster_faults,
)
from fsxds.tools.doctor.facts import ConfigSourceUse, EnvoyFacts, LookAt, messages_in, subscriptions_of
from fsxds.tools.doctor.glob_locators import glob_faults
from fsxds.tools.doctor.source_checks import check_config_source
from fsxds.values import Fault, Severity

_GRPC, _DELTA_GRPC, _AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC = 2, 3, 5, 6  # ApiConfigSource.ApiType
_SOTW, _DELTA = frozenset({_GRPC, _AGGREGATED_GRPC}), frozenset({_DELTA_GRPC, _AGGREGATED_DELTA_GRPC})


def expiry_faults(resource: Resource, bootstrap: DynamicMessage) -> Iterator[Fault]:
    """Note a time to live that comes to nothing; None is no bootstrap. Source: ENVOY.md E19.

    By REST and from files Envoy ignores it. On streams the server sends one only to a client that announces the feature,
    which Envoy does only where its bootstrap lists it.
    """
    if resource.ttl_s is None or bootstrap is None:
        return
    streams = _streams(bootstrap)
    if not streams & (_SOTW | _DELTA):
        yield _note("a ttl has no effect by REST or from files", "remove it, or serve by gRPC")
        return
    wanted = [TTL_FEATURE] if streams & _DELTA else [TTL_FEATURE, SOTW_TTL_FEATURE]
    missing = [feature for feature in wanted if feature not in bootstrap.node.client_features]
    if missing:
        fact = "a ttl is sent to clients that announce that they understand it, and the bootstrap does not"
        yield _note(fact, f"add {' and '.join(missing)} to node.client_features, or remove the ttl")


def _streams(bootstrap: DynamicMessage) -> frozenset[int]:
    """Return the types of API by which the bootstrap has resources come."""
    dynamic = bootstrap.dynamic_resources
    sources = [dynamic.ads_config, dynamic.cds_config.api_config_source, dynamic.lds_config.api_config_source]
    return frozenset(source.api_type for source in sources if source.ByteSize())


def _note(fact: str, remedy: str) -> Fault:
    return Fault("ttl-without-effect", fact, remedy, (), severity=Severity.NOTE)


Check = Callable[[DynamicMessage, DynamicMessage, EnvoyFacts], Iterator[Fault]]

_SCOPED_ROUTES = "envoy.extensions.filters.network.http_connection_manager.v3.ScopedRoutes"


@dataclass(frozen=True, slots=True)
class Case:
    """What is examined.

    Attributes:
        bootstrap: its message; None where only the tree is examined.
        snapshot: the tree.
        is_rewritten: the tree is mirrored as files, with its sources replaced by paths into the mirror.
    """

    bootstrap: DynamicMessage
    snapshot: Snapshot
    is_rewritten: bool = False


@dataclass(frozen=True, slots=True)
class BootstrapFindings:
    """What was found: faults of the bootstrap, and of resources, with paths from the top of each."""

    bootstrap: tuple[Fault, ...]
    resources: tuple[tuple[Resource, Fault], ...]


def examine(case: Case, catalogue: Catalogue, look_at: LookAt) -> BootstrapFindings:
    """Examine a bootstrap and a tree.

    Args:
        case: the two.
        catalogue: the message types that exist.
        look_at: returns what is at the path of a file.
    """
    bootstrap, snapshot = case.bootstrap, case.snapshot
    envoy = EnvoyFacts.of(bootstrap, catalogue, look_at)
    checks = _checks(snapshot, catalogue)
    subscriptions: set[ConfigSourceUse] = set()
    of_resources: list[tuple[Resource, Fault]] = []
    own_clusters = frozenset(snapshot.resources(BY_SHORT_NAME["cds"].type_url))
    envoy_of_tree = replace(envoy, is_rewritten=case.is_rewritten, clusters_of_tree=own_clusters)
    for resource in _resources(snapshot):
        faults = _examine_message(_message_of(resource, catalogue), envoy_of_tree, checks, subscriptions)
        of_resources += ((resource, fault) for fault in (*faults, *expiry_faults(resource, bootstrap)))
    if bootstrap is None:
        return BootstrapFindings((), tuple(of_resources))
    if case.is_rewritten:
        subscriptions.clear()
    of_bootstrap = list(_examine_message(bootstrap, envoy, checks, subscriptions))
    of_bootstrap += bootstrap_faults(bootstrap, envoy, _tree_facts(snapshot))
    of_bootstrap += glob_faults(bootstrap, snapshot, catalogue)
    of_bootstrap += xds_cluster_faults(envoy, subscriptions, _stream_clusters(bootstrap))
    return BootstrapFindings(tuple(of_bootstrap), tuple(of_resources))


def _checks(snapshot: Snapshot, catalogue: Catalogue) -> Mapping[str, Check]:
    scopes = snapshot.resources(BY_SHORT_NAME["srds"].type_url).values()
    names = frozenset(_message_of(scope, catalogue).route_configuration_name for scope in scopes)
    return {
        "envoy.config.core.v3.ConfigSource": check_config_source,
        "envoy.config.core.v3.DataSource": check_data_source,
        "envoy.config.route.v3.RouteConfiguration": check_route_table,
        _SCOPED_ROUTES: ScopedRoutes(names).check,
    }


def _examine_message(
    top: DynamicMessage, envoy: EnvoyFacts, checks: Mapping[str, Check], subscriptions: set[ConfigSourceUse]
) -> Iterator[Fault]:
    for field_path, message in messages_in(top, envoy.catalogue):
        subscriptions.update(subscriptions_of(message, field_path))
        check = checks.get(message.DESCRIPTOR.full_name)
        if check is not None:
            yield from check(message, field_path, envoy)


def _resources(snapshot: Snapshot) -> Iterable[Resource]:
    return (resource for resources in snapshot.by_type.values() for resource in resources.values())


def _message_of(resource: Resource, catalogue: Catalogue) -> DynamicMessage:
    return catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)


def _tree_facts(snapshot: Snapshot) -> TreeFacts:
    clusters, listeners, runtime = (snapshot.resources(BY_SHORT_NAME[name].type_url) for name in ("cds", "lds", "rtds"))
    return TreeFacts(len(clusters), len(listeners), tuple(runtime))


def _stream_clusters(bootstrap: DynamicMessage) -> frozenset[str]:
    services = bootstrap.dynamic_resources.ads_config.grpc_services
    return frozenset(service.envoy_grpc.cluster_name for service in services if service.HasField("envoy_grpc"))


READ_PATIENCE_S = 10.0


async def drain_remark(address: Address, linger_s: float) -> str | None:
    """Return what is wrong with `--linger` for the Envoy with this admin page; None where it is long enough.

    Source: ENVOY.md E66, E68.

    Raises:
        UsageError: no Envoy answers there.
    """
    async with open_session(str(address), READ_PATIENCE_S) as session:
        host = "envoy" if isinstance(address, UnixAddress) else str(address)
        drain_s = await AdminPage(session, host).drain_time_s()
    if drain_s is None:
        raise UsageError(f"{address}: no Envoy answers there; give the address of its admin page")
    if drain_s <= linger_s:
        return None
    return (
        f"warning: {address}: this Envoy lets the connections of a changed listener go on for {drain_s:g} s, and fsxds keeps "
        f"what they use for {linger_s:g} s: then they get 503; give fsxds --linger {drain_s:g}s, or start Envoy with "
        f"--drain-time-s {linger_s:.0f}"
    )
