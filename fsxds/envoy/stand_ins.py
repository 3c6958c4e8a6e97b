"""Clusters and listeners that use a resource, to have it validated (pure)."""

from __future__ import annotations

from collections.abc import Mapping

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.envoy.stub_files import STAND_IN, STUB_CERTIFICATE, STUB_PRIVATE_KEY
from fsxds.lint.extensions import extension_facts

_TLS = "envoy.extensions.transport_sockets.tls.v3."
_NETWORK = "envoy.extensions.filters.network."
_CONNECTION_MANAGER = f"{_NETWORK}http_connection_manager.v3.HttpConnectionManager"
_ROUTER = "envoy.extensions.filters.http.router.v3.Router"
_WITH_MATCHER = "envoy.extensions.common.matching.v3.ExtensionWithMatcher"
_UPSTREAM_CODEC = "envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec"
_TCP_PROXY = f"{_NETWORK}tcp_proxy.v3.TcpProxy"

# Fields of a validation context with the trusted authorities.
_AUTHORITIES = ("trusted_ca", "ca_certificate_provider_instance", "system_root_certs", "custom_validator_config")
_V3 = 2  # ApiVersion.V3
_GRPC = 2  # ApiConfigSource.GRPC
_SERVED: Mapping[str, object] = {
    "resource_api_version": _V3,
    "api_config_source": {
        "api_type": _GRPC,
        "transport_api_version": _V3,
        "grpc_services": [{"envoy_grpc": {"cluster_name": STAND_IN}}],
    },
}

_STUB_PAIR: Mapping[str, object] = {
    "certificate_chain": {"inline_string": STUB_CERTIFICATE},
    "private_key": {"inline_string": STUB_PRIVATE_KEY},
}

Fields = Mapping[str, object]


class StandIns:
    """Builds stand-ins with given names."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        features = catalogue.features
        self._is_terminal = {**extension_facts().is_terminal, **(features.terminal if features else {})}

    def cluster(self, name: str, **fields: object) -> DynamicMessage:
        """Return a cluster without endpoints."""
        assignment = {"cluster_name": name}
        return self._new("envoy.config.cluster.v3.Cluster", name=name, **{"load_assignment": assignment, **fields})

    def of_endpoints(self, name: str, body: bytes) -> DynamicMessage:
        """Return a cluster with fixed endpoints, as with EDS."""
        cluster = self.cluster(name)
        cluster.load_assignment.ParseFromString(body)
        for locality in cluster.load_assignment.endpoints:
            # Only EDS may request more endpoints, and not beside a list of them: that stays, so that Envoy rejects it.
            if not locality.lb_endpoints:
                locality.ClearField("leds_cluster_locality_config")
        return cluster

    def of_lb_endpoint(self, name: str, body: bytes) -> DynamicMessage:
        """Return a cluster with one endpoint."""
        cluster = self.cluster(name)
        cluster.load_assignment.endpoints.add().lb_endpoints.add().ParseFromString(body)
        return cluster

    def of_secret(self, name: str, secret: DynamicMessage) -> DynamicMessage:
        """Return a static secret's user; None for unchecked forms."""
        form, used = secret.WhichOneof("type"), {"name": secret.name}
        if form == "tls_certificate":
            return self._tls_cluster(name, {"tls_certificate_sds_secret_configs": [used]})
        if form == "validation_context":
            # Add the missing authority, as users of the secret may have one too.
            whole = any(secret.validation_context.HasField(field) for field in _AUTHORITIES)
            default = {} if whole else {"trusted_ca": {"inline_string": STUB_CERTIFICATE}}
            combined = {"default_validation_context": default, "validation_context_sds_secret_config": used}
            return self._tls_cluster(name, {"combined_validation_context": combined})
        if form == "session_ticket_keys":
            return self._ticket_listener(name, used)
        return None

    def of_route(self, name: str, body: bytes) -> DynamicMessage:
        """Return a listener with an RDS-like table: clusters are checked on demand."""
        table = self._catalogue.read("envoy.config.route.v3.RouteConfiguration", body)
        table.ClearField("vhds")
        if not table.HasField("validate_clusters"):
            table.validate_clusters.value = False
        return self.http_listener(name, route_config=table)

    def of_scope(self, name: str, body: bytes) -> DynamicMessage:
        """Return a listener with one scope."""
        fragment = {"header_value_extractor": {"name": "x", "element_separator": ",", "index": 0}}
        scopes: DynamicMessage = self._new(
            f"{_NETWORK}http_connection_manager.v3.ScopedRoutes",
            name=name,
            scope_key_builder={"fragments": [fragment]},
            rds_config_source=_SERVED,
        )
        scope = scopes.scoped_route_configurations_list.scoped_route_configurations.add()
        scope.ParseFromString(body)
        if scope.route_configuration_name:
            # Scopes within a listener cannot request their routes.
            scope.route_configuration.name = scope.route_configuration_name
            scope.ClearField("route_configuration_name")
        return self.http_listener(name, scoped_routes=scopes)

    def of_virtual_hosts(self, name: str, table_name: str, bodies: tuple[bytes, ...]) -> DynamicMessage:
        """Return a listener with one table's virtual hosts."""
        unchecked = {"value": False}
        table: DynamicMessage = self._new(
            "envoy.config.route.v3.RouteConfiguration", name=table_name, validate_clusters=unchecked
        )
        for body in bodies:
            table.virtual_hosts.add().ParseFromString(body)
        return self.http_listener(name, route_config=table)

    def of_extension(self, name: str, body: bytes) -> DynamicMessage:
        """Return a filter's user; None for an unknown kind."""
        extension = self._catalogue.read("envoy.config.core.v3.TypedExtensionConfig", body)
        message_type = extension.typed_config.type_url.rpartition("/")[2]
        if not extension.HasField("typed_config"):
            # A field for which Envoy reports that.
            return self.cluster(name, load_balancing_policy={"policies": [{"typed_extension_config": extension}]})
        used = {"name": extension.name, "typed_config": extension.typed_config}
        if message_type == _UPSTREAM_CODEC:
            return None
        if message_type.startswith("envoy.extensions.filters.http.") or message_type == _WITH_MATCHER:
            return self.http_listener(name, (used,), route_config={"name": name})
        if message_type.startswith("envoy.extensions.filters.listener."):
            return self._listener(name, [self._tcp_proxy()], listener_filters=[used])
        if message_type.startswith(_NETWORK):
            # Filters that pass on need one behind them that ends their chain.
            return self._listener(name, [used] if self._is_terminal.get(message_type) else [used, self._tcp_proxy()])
        return None

    def http_listener(self, name: str, filters: tuple[Fields, ...] = (), **routes: object) -> DynamicMessage:
        """Return a listener with filters, the router, and routes."""
        ends = any(_ROUTER in str(one["typed_config"].type_url) for one in filters)  # type: ignore[attr-defined]
        router = () if ends else ({"name": "router", "typed_config": self._packed(_ROUTER)},)
        manager = self._packed(_CONNECTION_MANAGER, stat_prefix=STAND_IN, http_filters=[*filters, *router], **routes)
        return self._listener(name, [{"name": "http", "typed_config": manager}])

    def static_secrets(self, name: str) -> tuple[DynamicMessage, ...]:
        """Return secrets of all forms for the bootstrap."""
        forms: tuple[Fields, ...] = (
            {"tls_certificate": _STUB_PAIR},
            {"validation_context": {"trusted_ca": {"inline_string": STUB_CERTIFICATE}}},
            {"session_ticket_keys": {"keys": [{"inline_bytes": bytes(80)}]}},
            {"generic_secret": {"secret": {"inline_string": STAND_IN}}},
        )
        return tuple(self._new(f"{_TLS}Secret", name=name, **form) for form in forms)

    def _tls_cluster(self, name: str, context: Fields) -> DynamicMessage:
        packed = self._packed(f"{_TLS}UpstreamTlsContext", common_tls_context=context)
        return self.cluster(name, transport_socket={"name": "tls", "typed_config": packed})

    def _ticket_listener(self, name: str, used: Fields) -> DynamicMessage:
        context = self._packed(
            f"{_TLS}DownstreamTlsContext",
            common_tls_context={"tls_certificates": [_STUB_PAIR]},
            session_ticket_keys_sds_secret_config=used,
        )
        listener = self._listener(name, [self._tcp_proxy()])
        listener.filter_chains[0].transport_socket.name = "tls"
        listener.filter_chains[0].transport_socket.typed_config.MergeFrom(context)
        return listener

    def _tcp_proxy(self) -> Fields:
        return {"name": "tcp", "typed_config": self._packed(_TCP_PROXY, stat_prefix=STAND_IN, cluster=STAND_IN)}

    def _listener(self, name: str, filters: list[Fields], **fields: object) -> DynamicMessage:
        # A private pipe: no listener of the tree has this address, and in validation nothing is bound.
        address = {"pipe": {"path": f"/{name}"}}
        chains = [{"filters": filters}]
        return self._new(
            "envoy.config.listener.v3.Listener", name=name, address=address, filter_chains=chains, **fields
        )

    def _packed(self, message_type: str, **fields: object) -> DynamicMessage:
        packed: DynamicMessage = self._new("google.protobuf.Any")
        packed.type_url = f"type.googleapis.com/{message_type}"
        packed.value = self._new(message_type, **fields).SerializeToString(deterministic=True)
        return packed

    def _new(self, message_type: str, **fields: object) -> Message:
        return self._catalogue.message_class(message_type)(**fields)
