"""What Envoy subscribes to because of a message, and from which cluster (pure)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from fsxds.doctor.chart import REST
from fsxds.values import FieldPath

_CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3"


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription that holds a poll or a stream of its own.

    `asked` tells it from others: a type's short name and what it asks for. Equal ones are one subscription.
    """

    cluster: str
    is_rest: bool
    asked: tuple[str, str]


def subscriptions_of(message: Any, field_path: FieldPath) -> Iterator[Subscription]:
    """Yield the subscriptions that a message makes by itself; those of messages within it are not looked for."""
    find = _FINDERS.get(message.DESCRIPTOR.full_name)
    for source, asked in find(message, field_path) if find else ():
        if source.WhichOneof("config_source_specifier") != "api_config_source":
            continue
        api = source.api_config_source
        if api.api_type == REST:
            yield from (Subscription(name, True, asked) for name in api.cluster_names)
        else:
            yield from (
                Subscription(service.envoy_grpc.cluster_name, False, asked)
                for service in api.grpc_services
                if service.HasField("envoy_grpc")
            )


_Found = Iterator[tuple[Any, tuple[str, str]]]


def _of_cluster(message: Any, _: FieldPath) -> _Found:
    if message.HasField("eds_cluster_config"):
        eds = message.eds_cluster_config
        # Each cluster asks for itself, also when two have one service_name.
        yield eds.eds_config, ("eds", message.name)


def _of_secret(message: Any, _: FieldPath) -> _Found:
    if message.HasField("sds_config"):
        yield message.sds_config, ("sds", message.name)


def _of_routes(message: Any, _: FieldPath) -> _Found:
    yield message.config_source, ("rds", message.route_config_name)


def _of_scopes(message: Any, field_path: FieldPath) -> _Found:
    yield message.scoped_rds_config_source, ("srds", str(field_path))


def _of_extension(message: Any, field_path: FieldPath) -> _Found:
    yield message.config_source, ("ecds", str(field_path))


def _of_layer(message: Any, _: FieldPath) -> _Found:
    yield message.rtds_config, ("rtds", message.name)


def _of_bootstrap(message: Any, _: FieldPath) -> _Found:
    for name in ("cds", "lds"):
        if message.HasField(f"{name}_config"):
            yield getattr(message, f"{name}_config"), (name, "")


_FINDERS: Mapping[str, Callable[[Any, FieldPath], _Found]] = MappingProxyType({
    "envoy.config.cluster.v3.Cluster": _of_cluster,
    "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig": _of_secret,
    f"{_CONNECTION_MANAGER}.Rds": _of_routes,
    f"{_CONNECTION_MANAGER}.ScopedRds": _of_scopes,
    "envoy.config.core.v3.ExtensionConfigSource": _of_extension,
    "envoy.config.bootstrap.v3.RuntimeLayer.RtdsLayer": _of_layer,
    "envoy.config.bootstrap.v3.Bootstrap.DynamicResources": _of_bootstrap,
})  # fmt: skip
