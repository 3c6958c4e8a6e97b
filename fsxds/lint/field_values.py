"""Values anywhere: IP addresses, sockets, durations, regular expressions, config sources."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator
from math import isnan
from typing import Any

import re2

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.scalars import LONGEST_S
from fsxds.api.walk import Hook, Hooks, Leave, Path, Walk, field_path_of, ip_version
from fsxds.model.memo import Lru
from fsxds.model.values import Fault

_HOST_OR_NUMBERS = re.compile(r"[0-9a-fA-F:./]{1,60}|localhost|[\w-]{1,60}(\.[\w-]{1,60}){1,8}")

# Linux has 108 bytes for the path of a socket, the last of them a zero.
LONGEST_SOCKET_PATH = 107

IP_REMEDY = 'write an IP address such as "192.0.2.1" or "2001:db8::1"'

# envoy.config.cluster.v3.Cluster.DiscoveryType
_STATIC, _STRICT_DNS, _LOGICAL_DNS, _EDS = range(4)
REDIS = "envoy.extensions.clusters.redis.v3.RedisClusterConfig"
_NAMES_REMEDY = "write an IP address, or let the cluster's type be STRICT_DNS or LOGICAL_DNS"

# The default of the runtime key re2.max_program_size.error_level.
LARGEST_PROGRAM = 100
_LIMIT = "max_program_size"  # only in Envoy's own matcher
# Longer ones far exceed Envoy's program size, and RE2 needs a gigabyte for the worst megabyte.
_LONGEST_REGEX = 100_000
_MOST_REMEMBERED = 10_000
_GROUP = re.compile(r"\\(.?)", re.DOTALL)
_REGEX_REMEDY = "RE2 has no look-around and no back-references: https://github.com/google/re2/wiki/Syntax"


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of values."""
    resolvers, objects = (
        catalogue.features.names(category) if catalogue.features is not None else frozenset[str]()
        for category in ("envoy.resolvers", "filter_state.object")
    )
    regexes = RegexChecks()
    return {
        "envoy.config.core.v3.SocketAddress.resolver_name": (_resolver_names(resolvers),) if resolvers else (),
        "envoy.extensions.filters.common.set_filter_state.v3.FilterStateValue": (
            (_object_factories(objects),) if objects else ()
        ),
        "envoy.config.listener.v3.Listener": (_check_listener,),
        "envoy.config.core.v3.BindConfig": (_check_sources,),
        "envoy.config.core.v3.CidrRange": (_check_range,),
        "envoy.config.cluster.v3.Cluster": (_check_cluster,),
        "envoy.config.endpoint.v3.ClusterLoadAssignment": (_check_own_endpoints,),
        "envoy.config.core.v3.DnsResolutionConfig": (_check_resolvers,),
        "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig": (_check_resolvers,),
        "envoy.type.v3.Percent.value": (_check_percent,),
        "google.protobuf.Duration": (_check_duration,),
        "envoy.type.matcher.v3.RegexMatcher": (regexes.check_matcher,),
        "xds.type.matcher.v3.RegexMatcher": (regexes.check_matcher,),
        "envoy.type.matcher.v3.RegexMatchAndSubstitute": (regexes.check_substitution,),
        "envoy.type.matcher.v3.StringMatcher": (_check_case,),
        "xds.type.matcher.v3.StringMatcher": (_check_case,),
        **dict.fromkeys(_VERSIONED, (_check_version,)),
        "envoy.config.core.v3.ConfigSource": (_check_choice,),
        "envoy.config.core.v3.ApiConfigSource": (_check_source, _check_version),
        "envoy.config.cluster.v3.Cluster.EdsClusterConfig": (_check_presence("eds_config"),),
        "envoy.extensions.filters.network.http_connection_manager.v3.Rds": (_check_presence("config_source"),),
        "envoy.config.endpoint.v3.LedsClusterLocalityConfig": (_check_collection,),
    }


def packed_type(packed: DynamicMessage) -> str:
    """Return an Any's type, or ""."""
    name: str = packed.type_url.rpartition("/")[2]
    return name


def inline(source: DynamicMessage) -> bytes | None:
    """Return inline content, or None."""
    chosen = source.WhichOneof("specifier")
    if chosen == "inline_string":
        text: str = source.inline_string
        return text.encode()
    if chosen == "inline_bytes":
        body: bytes = source.inline_bytes
        return body
    return None


def repeated(values: Iterable[Hashable]) -> Iterator[int]:
    """Yield indexes of repeated values."""
    seen: set[Hashable] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield index
        seen.add(value)


def is_longer(first: DynamicMessage, second: DynamicMessage) -> bool:
    """Whether the first Duration is longer."""
    return bool((first.seconds, first.nanos) > (second.seconds, second.nanos))


def address_fault(address: DynamicMessage) -> tuple[str, str, str] | None:
    """Return the fault of an unresolved `envoy.config.core.v3.Address`, or None.

    Returns:
        the field within the address ("" for itself), the fact and the remedy.
    """
    chosen = address.WhichOneof("address")
    if chosen == "socket_address":
        fault = socket_address_fault(address.socket_address)
        return fault and (f"socket_address.{fault[0]}", *fault[1:])
    if chosen == "pipe":
        return pipe_fault(address.pipe)
    if chosen is None:
        return "", "has no address", "give it a socket_address, a pipe or an envoy_internal_address"
    return None


def socket_address_fault(socket: DynamicMessage) -> tuple[str, str, str] | None:
    """Return the fault of an unresolved `envoy.config.core.v3.SocketAddress`, or None."""
    if socket.resolver_name not in {"", "envoy.ip"}:
        return None  # a custom resolver
    if ip_version(socket.address) is None:
        return "address", not_an_ip_address(socket.address), IP_REMEDY
    if socket.WhichOneof("port_specifier") == "named_port":
        return "named_port", "ports cannot be named here", "write the number, as port_value"
    return None


def not_an_ip_address(address: str) -> str:
    """Quote a wrong IP address if it resembles one or a host name."""
    return f'"{address}" is not an IP address' if _HOST_OR_NUMBERS.fullmatch(address) else "is not an IP address"


def pipe_fault(pipe: DynamicMessage) -> tuple[str, str, str] | None:
    """Return the fault of an `envoy.config.core.v3.Pipe`, or None."""
    length = len(pipe.path.encode())
    if length > LONGEST_SOCKET_PATH:
        return "pipe.path", f"must be at most {LONGEST_SOCKET_PATH} bytes, is {length}", "choose a shorter path"
    if pipe.mode and pipe.path.startswith("@"):
        return "pipe.mode", "an abstract socket has no mode", "remove the mode, or the @ in front of the path"
    return None


def _resolver_names(resolvers: frozenset[str]) -> Hook:
    def check_name(name: str, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        # Envoy ignores the resolver of named endpoints.
        if name not in resolvers and "named_endpoints" not in field_path_of(path):
            remedy = f"remove it, or write one of {', '.join(sorted(resolvers))}"
            walk.error(path, "wrong-address", f'"{name}" is no resolver that Envoy has', remedy)

    return check_name


def _object_factories(objects: frozenset[str]) -> Hook:
    def check_factory(value: DynamicMessage, path: Path, walk: Walk) -> None:
        field = "factory_key" if value.factory_key else "object_key"
        name = getattr(value, field)
        if name and name not in objects:
            message = f'"{name}" is no kind of object' + (
                "" if field == "factory_key" else ", and there is no factory_key"
            )
            remedy = f"write a factory_key, such as envoy.string; Envoy has {', '.join(sorted(objects))}"
            walk.error((path, field), "wrong-filter", message, remedy)

    return check_factory


def _report_address(address: DynamicMessage, path: Path, walk: Walk, remedy: str | None = None) -> None:
    fault = address_fault(address)
    if fault is not None:
        where, message, usual_remedy = fault
        for step in where.split(".") if where else ():
            path = (path, step)
        is_name = remedy is not None and where == "socket_address.address"
        walk.error(path, "wrong-address", message, remedy if is_name and remedy else usual_remedy)


def _check_listener(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    if listener.HasField("address"):
        _report_address(listener.address, (path, "address"), walk)
    for index, more in enumerate(listener.additional_addresses):
        if more.HasField("address"):
            _report_address(more.address, (((path, "additional_addresses"), index), "address"), walk)


def _check_range(cidr: DynamicMessage, path: Path, walk: Walk) -> None:
    version = ip_version(cidr.address_prefix)
    if version is None and cidr.address_prefix:
        walk.depend_on_place()
        # Among trusted proxies, Envoy skips the ranges that it cannot read.
        report = walk.warning if "xff_trusted_cidrs" in field_path_of(path) else walk.error
        message = not_an_ip_address(cidr.address_prefix)
        report((path, "address_prefix"), "wrong-address", message, f"{IP_REMEDY}, and the length in prefix_len")


def _check_sources(bind: DynamicMessage, path: Path, walk: Walk) -> None:
    sources: list[tuple[Path, DynamicMessage]] = (
        [((path, "source_address"), bind.source_address)] if bind.HasField("source_address") else []
    )
    for name in ("additional_source_addresses", "extra_source_addresses"):
        for index, more in enumerate(getattr(bind, name)):
            place: Path = ((path, name), index)
            is_extra = more.DESCRIPTOR.name == "ExtraSourceAddress"
            sources.append(((place, "address"), more.address) if is_extra else (place, more))
    for place, source in sources:
        fault = socket_address_fault(source)
        if fault is not None:
            walk.error((place, fault[0]), "wrong-address", *fault[1:])


def _check_resolvers(config: DynamicMessage, path: Path, walk: Walk) -> None:
    for index, address in enumerate(config.resolvers):
        place: Path = ((path, "resolvers"), index)
        if address.WhichOneof("address") in {"pipe", "envoy_internal_address"}:
            walk.error(place, "wrong-address", "a DNS server has an IP address", IP_REMEDY)
        else:
            _report_address(address, place, walk)


def looks_up_names(cluster: DynamicMessage) -> bool:
    """Whether a cluster has its own resolver."""
    if cluster.HasField("cluster_type"):
        return packed_type(cluster.cluster_type.typed_config) == REDIS
    return cluster.type in {_STRICT_DNS, _LOGICAL_DNS}


# The first steps of the settings that choose a resolver.
_RESOLVER_SETTINGS = (("typed_dns_resolver_config", "typed_config"), ("dns_resolution_config",), ("dns_resolvers",))


def _check_cluster(cluster: DynamicMessage, path: Path, walk: Walk) -> Leave | None:
    if cluster.HasField("load_assignment") and not cluster.HasField("cluster_type"):
        place = (path, "load_assignment")
        if cluster.type == _STATIC:
            _check_endpoints(cluster.load_assignment, place, walk, _NAMES_REMEDY)
        elif cluster.type in {_STRICT_DNS, _LOGICAL_DNS}:
            _check_looked_up(cluster.load_assignment, place, walk)
    if looks_up_names(cluster):
        for index, address in enumerate(cluster.dns_resolvers):
            _report_address(address, ((path, "dns_resolvers"), index), walk)
        return None
    is_eds = cluster.type == _EDS and not cluster.HasField("cluster_type")
    unread = (*_RESOLVER_SETTINGS, ("load_assignment",)) if is_eds else _RESOLVER_SETTINGS
    start = len(field_path_of(path))

    def is_unread(fault: Fault) -> bool:
        return fault.rule == "wrong-address" and any(
            fault.field_path[start : start + len(one)] == one for one in unread
        )

    return walk.forgetting(is_unread)


def _check_own_endpoints(assignment: DynamicMessage, path: Path, walk: Walk) -> None:
    """Within a cluster, its type decides."""
    if path is None:
        remedy = "write an IP address: names are looked up only in clusters of DNS types"
        _check_endpoints(assignment, path, walk, remedy)


def _endpoints(assignment: DynamicMessage, path: Path) -> Iterator[tuple[DynamicMessage, Path]]:
    for number, locality in enumerate(assignment.endpoints):
        place: Path = (((path, "endpoints"), number), "lb_endpoints")
        for index, endpoint in enumerate(locality.lb_endpoints):
            yield endpoint, (place, index)


def _is_plain(endpoint: DynamicMessage) -> bool:
    """Just an IP address and a port, as nearly all are; cheap."""
    socket = endpoint.address.socket_address
    return not (
        ip_version(socket.address) is None
        or socket.resolver_name
        or (not socket.port_value and socket.HasField("named_port"))
        or endpoint.additional_addresses
        or endpoint.HasField("health_check_config")
    )


def _check_endpoints(assignment: DynamicMessage, path: Path, walk: Walk, remedy: str) -> None:
    if all(_is_plain(one.endpoint) for locality in assignment.endpoints for one in locality.lb_endpoints):
        return
    for lb_endpoint, place in _endpoints(assignment, path):
        if lb_endpoint.WhichOneof("host_identifier") != "endpoint":
            walk.error(place, "wrong-address", "has no address", "give it an endpoint with an address")
            continue
        _check_endpoint(lb_endpoint.endpoint, (place, "endpoint"), walk, remedy)


def _check_endpoint(endpoint: DynamicMessage, path: Path, walk: Walk, remedy: str) -> None:
    _report_address(endpoint.address, (path, "address"), walk, remedy)
    for index, more in enumerate(endpoint.additional_addresses):
        at: Path = (((path, "additional_addresses"), index), "address")
        _report_address(more.address, at, walk, remedy)
    if not endpoint.HasField("health_check_config"):
        return
    checked, place = endpoint.health_check_config, (path, "health_check_config")
    if checked.HasField("address"):
        _report_address(checked.address, (place, "address"), walk, remedy)
    addresses = [endpoint.address, *([checked.address] if checked.HasField("address") else [])]
    if checked.port_value and any(one.WhichOneof("address") != "socket_address" for one in addresses):
        message = "only an IP address has a port"
        walk.error((place, "port_value"), "wrong-address", message, "remove it: with some addresses Envoy crashes")


def _check_looked_up(assignment: DynamicMessage, path: Path, walk: Walk) -> None:
    for lb_endpoint, place in _endpoints(assignment, path):
        socket = lb_endpoint.endpoint.address.socket_address
        if socket.resolver_name:
            at = ((((place, "endpoint"), "address"), "socket_address"), "resolver_name")
            remedy = "remove it: clusters of DNS types look names up themselves"
            walk.error(at, "wrong-address", "a cluster of this type has no other resolver", remedy)


def _check_duration(duration: DynamicMessage, path: Path, walk: Walk) -> None:
    seconds = duration.seconds
    if 0 <= seconds <= LONGEST_S and duration.nanos >= 0:
        return
    walk.depend_on_place()
    if "endpoint_picking_policy" in field_path_of(path):
        return  # not all settings of a nested policy are read
    if seconds < 0 or duration.nanos < 0:
        walk.error(path, "wrong-duration", "must not be negative", 'write a duration from "0s" on')
    else:
        message = f"must be at most {LONGEST_S}s (292 years), is {seconds}s"
        remedy = "write a shorter duration, or remove the field if its default is no limit"
        walk.error(path, "wrong-duration", message, remedy)


# The percentages that Envoy checks when they are set; in others it accepts NaN.
_LOOKED_AT = frozenset({
    "buffer", "healthy_panic_threshold", "jitter", "min_weight_percent", "overall_sampling", "random_sampling",
    "routing_enabled", "sample_aggregate_percentile",
})  # fmt: skip


def _check_percent(value: FieldValue, path: Path, walk: Walk) -> None:
    if isnan(value) and path is not None and path[0] is not None and path[0][1] in _LOOKED_AT:
        walk.error(path, "out-of-range", "must be a number from 0 to 100", "write such a number")
    elif isnan(value):
        walk.depend_on_place()


class RegexChecks:
    """Compiles each expression once."""

    def __init__(self) -> None:
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.encoding = re2.Options.Encoding.LATIN1  # as in Envoy: program sizes depend on it
        self._compiled: Lru[str, Any] = Lru(_MOST_REMEMBERED)  # a compiled expression, or the reason of the failure

    def compiled(self, regex: str) -> Any:
        """Compile, or return RE2's error."""
        return self._compiled.find(regex, lambda: self._compile(regex))

    def _compile(self, regex: str) -> Any:
        try:
            return re2.compile(regex.encode(), options=self._options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            # After the colon RE2 repeats a part of the expression.
            return words.partition(":")[0]

    def check_matcher(self, matcher: DynamicMessage, path: Path, walk: Walk) -> None:
        """Check an expression and its program size."""
        regex = matcher.regex
        if not regex:
            return
        if len(regex) > _LONGEST_REGEX:
            message = f"is longer than {_LONGEST_REGEX} characters"
            walk.error((path, "regex"), "large-regex", message, "match less at once")
            return
        compiled = self.compiled(regex)
        if isinstance(compiled, str):
            walk.error((path, "regex"), "wrong-regex", f"is not a regular expression of RE2: {compiled}", _REGEX_REMEDY)
            return
        size = compiled.programsize
        limit = next((value for field, value in matcher.google_re2.ListFields() if field.name == _LIMIT), None)
        largest = LARGEST_PROGRAM if limit is None else limit.value
        if size > largest:
            message = f"compiles to a program of size {size}, and Envoy accepts at most {largest}"
            remedy = "match less at once, or raise re2.max_program_size.error_level in the bootstrap's runtime"
            walk.error((path, "regex"), "large-regex", message, remedy)

    def check_substitution(self, rewrite: DynamicMessage, path: Path, walk: Walk) -> None:
        r"""Check `\0`, `\1` ...: Envoy accepts wrong ones, and then rewrites nothing."""
        substitution = rewrite.substitution
        if "\\" not in substitution:
            return
        compiled = self.compiled(rewrite.pattern.regex)
        if isinstance(compiled, str):
            return
        for reference in _GROUP.findall(substitution):
            if reference == "\\":
                continue
            if not (reference.isascii() and reference.isdigit()):
                message = "a backslash has no meaning here; Envoy will not rewrite the text"
                remedy = r'write "\1" for the first group, "\\" for a backslash'
            elif int(reference) > compiled.groups:
                message = f'"\\{reference}" names no group of the pattern; Envoy will not rewrite the text'
                remedy = f"the pattern has {compiled.groups} groups"
            else:
                continue
            walk.warning((path, "substitution"), "wrong-substitution", message, remedy)
            return


def _check_case(matcher: DynamicMessage, path: Path, walk: Walk) -> None:
    if matcher.ignore_case and matcher.WhichOneof("match_pattern") == "safe_regex":
        remedy = 'remove it, and begin the regex with "(?i)"'
        walk.error((path, "ignore_case"), "wrong-regex", "ignore_case has no effect on a safe_regex", remedy)


_REST, _GRPC, _DELTA_GRPC, _AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC = 1, 2, 3, 5, 6
_V2 = 1

# Messages that connect by gRPC and name a protocol version.
_VERSIONED = (
    "envoy.config.ratelimit.v3.RateLimitServiceConfig",
    "envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",
    "envoy.extensions.filters.network.ext_authz.v3.ExtAuthz",
    "envoy.extensions.access_loggers.grpc.v3.CommonGrpcAccessLogConfig",
)
_SHORTEST_DELAY_NS = 1_000_000
_LB_ENDPOINTS = "envoy.config.endpoint.v3.LbEndpoint"
_COLLECTION = re.compile(rf"xdstp://[^/]*/{re.escape(_LB_ENDPOINTS)}/[^#]*")


def _check_presence(field: str) -> Hook:
    def check_presence(message: DynamicMessage, path: Path, walk: Walk) -> None:
        if not message.HasField(field) and not getattr(message, "route_config_name", "").startswith("xdstp:"):
            # With a source for the authority of the name an Envoy does without; by default it rejects that
            # (ENVOY.md E81, E82). `ads: {}` is right for both.
            remedy = "set the source of the resources, such as ads: {}"
            walk.error((path, field), "wrong-config-source", "is missing", remedy)

    return check_presence


def _check_collection(locality: DynamicMessage, path: Path, walk: Walk) -> None:
    """By EDS, Envoy rejects other names."""
    walk.depend_on_place()
    is_served = field_path_of(path)[:1] != ("load_assignment",)
    if is_served and not _COLLECTION.fullmatch(locality.leds_collection_name):
        message = "Envoy asks for endpoints of a locality by names of another form"
        remedy = f"write xdstp://<authority>/{_LB_ENDPOINTS}/<name>/*"
        walk.error((path, "leds_collection_name"), "wrong-config-source", message, remedy)


def _check_choice(source: DynamicMessage, path: Path, walk: Walk) -> None:
    """`self` is for the routes of some listeners."""
    if source.WhichOneof("config_source_specifier") == "self" and _step(path, 0) in {"eds_config", "sds_config"}:
        remedy = "write ads: {} or an api_config_source"
        walk.error((path, "self"), "wrong-config-source", "Envoy does not support it here", remedy)


def _step(path: Path, number: int) -> str | int | None:
    steps = field_path_of(path)
    return steps[-1 - number] if number < len(steps) else None


def _check_source(source: DynamicMessage, path: Path, walk: Walk) -> None:
    walk.depend_on_place()
    if _step(path, 1) == "rds_config_source":
        return  # of scoped routes: read only when a scope names its routes
    if source.api_type == _REST:
        _check_rest(source, path, walk)
    elif source.api_type in {_GRPC, _DELTA_GRPC}:
        if source.cluster_names:
            message = "a gRPC source names its cluster under grpc_services"
            remedy = "write grpc_services with envoy_grpc.cluster_name"
            walk.error((path, "cluster_names"), "wrong-config-source", message, remedy)
        elif len(source.grpc_services) != 1:
            message = f"a gRPC source has one grpc_services, here are {len(source.grpc_services)}"
            remedy = "write one, with envoy_grpc.cluster_name"
            walk.error((path, "grpc_services"), "wrong-config-source", message, remedy)
    elif source.api_type in {_AGGREGATED_GRPC, _AGGREGATED_DELTA_GRPC} and _step(path, 0) == "api_config_source":
        message = "an aggregated source is for config sources with an authority only"
        walk.error((path, "api_type"), "wrong-config-source", message, "write ads: {} in place of api_config_source")


def _check_rest(source: DynamicMessage, path: Path, walk: Walk) -> None:
    if source.grpc_services:
        message = "a REST source has no gRPC services"
        walk.error((path, "grpc_services"), "wrong-config-source", message, "write cluster_names, or api_type: GRPC")
    elif not source.cluster_names or (len(source.cluster_names) > 1 and _step(path, 1) != "sds_config"):
        message = f"a REST source names one cluster, here are {len(source.cluster_names)}"
        walk.error((path, "cluster_names"), "wrong-config-source", message, "name the cluster of the xDS server")
    if not source.HasField("refresh_delay"):
        walk.error((path, "refresh_delay"), "wrong-config-source", "is required for REST", "write one, such as 0.1s")
    elif source.refresh_delay.seconds == 0 and 0 <= source.refresh_delay.nanos < _SHORTEST_DELAY_NS:
        message = "must be at least 1 ms: below that Envoy crashes"
        walk.error((path, "refresh_delay"), "short-refresh-delay", message, "write 0.01s or more")


def _check_version(service: DynamicMessage, path: Path, walk: Walk) -> None:
    is_by_http = service.DESCRIPTOR.name == "ExtAuthz" and not service.HasField("grpc_service")
    if service.transport_api_version == _V2 and not is_by_http:
        message = "version 2 of the protocol exists no more"
        walk.error((path, "transport_api_version"), "wrong-config-source", message, "write transport_api_version: V3")
