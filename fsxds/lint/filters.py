"""Filters: order, settings, and choices of fields that the API does not state."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hook, Hooks, Leave, Path, Walk, merge_hooks
from fsxds.lint.clusters import statuses_check
from fsxds.lint.extensions import extension_facts
from fsxds.lint.field_values import inline, packed_type, repeated

_HTTP = "envoy.extensions.filters.http."
_MANAGERS = "envoy.extensions.filters.network.http_connection_manager.v3."
_MANAGER = f"{_MANAGERS}HttpConnectionManager"
_CODEC = _HTTP + "upstream_codec.v3.UpstreamCodec"
_NETWORK_RBAC = "envoy.extensions.filters.network.rbac.v3.RBAC"
_SHORTEST_FILL_NS = 50_000_000
_SHA_LENGTH = len("{SHA}") + 28
_HIGHEST_PORT = 65_536
_HIGHEST_GRPC_CODE = 16
_COLONS_OF_ARN = 6
_TLS_CLIENT_AUTH = 2  # OAuth2Config.AuthType
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/?#]+([/?#][!-~]*)?", re.ASCII)


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of filters."""
    order, rbac = _FilterOrder(catalogue), _NetworkRbac()
    keys = _check_unique("key", "another credential has the same key", "give each client a key of its own")
    found: Hooks = {
        "envoy.config.listener.v3.FilterChain": (order.filters("filters", "tcp_proxy"),),
        _MANAGER: (order.filters("http_filters", "envoy.filters.http.router"),),
        _MANAGER + ".UpgradeConfig": (order.filters("filters", "envoy.filters.http.router"),),
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": (order.upstream_filters("http_filters"),),
        _HTTP + "router.v3.Router": (order.upstream_filters("upstream_http_filters"),),
        _HTTP + "local_ratelimit.v3.LocalRateLimit": (_check_rate_limits,),
        _HTTP + "local_ratelimit.v3.LocalRateLimit.descriptors": (_check_descriptors,),
        _HTTP + "local_ratelimit.v3.LocalRateLimit.token_bucket": (_check_bucket,),
        "envoy.extensions.common.ratelimit.v3.LocalRateLimitDescriptor.token_bucket": (_check_bucket,),
        _HTTP + "ratelimit.v3.RateLimit": (_check_rate_limits,),
        _HTTP + "jwt_authn.v3.JwtAuthentication": (_check_requirements,),
        _HTTP + "jwt_authn.v3.JwtProvider": (_check_keys,),
        _HTTP + "jwt_authn.v3.RemoteJwks": (_check_key_server,),
        _HTTP + "oauth2.v3.OAuth2Config": (_check_token_secret,),
        _HTTP + "oauth2.v3.OAuth2Config.authorization_endpoint": (_check_url,),
        _HTTP + "admission_control.v3.AdmissionControl.SuccessCriteria.HttpCriteria.http_success_status": (
            statuses_check("wrong-filter", may_be_empty=True),
        ),
        _HTTP + "admission_control.v3.AdmissionControl.SuccessCriteria.GrpcCriteria.grpc_success_status": (
            _check_grpc_codes,
        ),
        _HTTP + "aws_lambda.v3.Config.arn": (_check_arn,),
        _HTTP + "aws_request_signing.v3.AwsRequestSigning": (_check_region,),
        _HTTP + "proto_message_extraction.v3.ProtoMessageExtractionConfig": (
            partial(_check_files, field="data_source"),
        ),
        _HTTP + "grpc_field_extraction.v3.GrpcFieldExtractionConfig": (partial(_check_files, field="descriptor_set"),),
        _HTTP + "proto_api_scrubber.v3.DescriptorSet": (partial(_check_files, field="data_source"),),
        "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.PrefixRoutes.routes": (
            _check_unique("prefix", "another route has the same prefix", "keep one of the two"),
        ),
        _HTTP + "ext_proc.v3.ExternalProcessor.request_attributes": (_check_attributes,),
        _HTTP + "ext_proc.v3.ExternalProcessor.response_attributes": (_check_attributes,),
        _NETWORK_RBAC: (rbac.enter,),
        "envoy.config.rbac.v3.Permission.header": (rbac.check_header,),
        "envoy.config.rbac.v3.Principal.header": (rbac.check_header,),
        _HTTP + "health_check.v3.HealthCheck": (_check_cache,),
        _HTTP + "header_to_metadata.v3.Config.Rule": (_check_metadata_rule,),
        f"{_MANAGER}.upgrade_configs": (_check_upgrades,),
        _HTTP + "ext_authz.v3.HttpService": (_check_prefix,),
        _HTTP + "basic_auth.v3.BasicAuth": (_check_users,),
        _HTTP + "basic_auth.v3.BasicAuthPerRoute": (_check_users,),
        _HTTP + "api_key_auth.v3.ApiKeyAuth.credentials": (keys,),
        _HTTP + "api_key_auth.v3.ApiKeyAuthPerRoute.credentials": (keys,),
        "envoy.config.rbac.v3.Permission": (_check_ports,),
        "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig.source_code": (_script_check("envoy_on_route"),),
        "envoy.extensions.string_matcher.lua.v3.Lua.source_code": (_script_check("envoy_match"),),
        **{
            f"{_HTTP}lua.v3.{field}": (_script_check(),)
            for field in ("Lua.inline_code", "Lua.default_source_code", "Lua.source_codes", "LuaPerRoute.source_code")
        },
    }
    return merge_hooks(found, {message_type: (_choices_check(choices),) for message_type, choices in CHOICES.items()})


class _FilterOrder:
    def __init__(self, catalogue: Catalogue) -> None:
        features = catalogue.features
        # Unknown filters are not reported.
        self._terminal = dict(extension_facts().is_terminal)
        self._http = self._upstream = frozenset[str]()
        if features is not None:
            self._http = features.types("envoy.filters.http")
            self._terminal |= features.terminal
            self._upstream = features.types("envoy.filters.http.upstream")

    def filters(self, field: str, example: str) -> Hook:
        def check_filters(message: DynamicMessage, path: Path, walk: Walk) -> None:
            filters = getattr(message, field)
            self._check_order(filters, (path, field), walk, example)
            if field == "http_filters" and filters and filters[-1].disabled:
                place = (((path, field), len(filters) - 1), "disabled")
                walk.error(place, "filter-order", "the last filter cannot be disabled", "remove it")

        return check_filters

    def upstream_filters(self, field: str) -> Hook:
        """Only the last one is the codec."""

        def check_upstream_filters(message: DynamicMessage, path: Path, walk: Walk) -> None:
            filters = getattr(message, field)
            last = len(filters) - 1
            for index, one in enumerate(filters):
                name = packed_type(one.typed_config)
                place: Path = ((path, field), index)
                if index == last and name != _CODEC and name in self._upstream:
                    message_text = "the last filter towards an upstream must be the codec"
                    walk.error(place, "filter-order", message_text, f"add one of {_CODEC} behind it")
                elif index == last and one.disabled:
                    walk.error((place, "disabled"), "filter-order", "the last filter cannot be disabled", "remove it")
                elif index < last and name == _CODEC:
                    remedy = "move it to the end, and keep one of it"
                    walk.error(place, "filter-order", "no filter may follow the codec", remedy)

        return check_upstream_filters

    def _check_order(self, filters: DynamicMessage, path: Path, walk: Walk, example: str) -> None:
        for index, one in enumerate(filters):
            name = packed_type(one.typed_config)
            place: Path = (path, index)
            is_skipped = getattr(one, "is_optional", False) and name not in self._http
            is_terminal = None if is_skipped else self._terminal.get(name)
            if index < len(filters) - 1:
                if is_terminal:
                    message = f'"{one.name}" answers by itself: no filter may follow it'
                    walk.error(place, "filter-order", message, "move it to the end, and keep one such filter")
                continue
            if is_terminal is None and one.DESCRIPTOR.name == "HttpFilter" and one.HasField("config_discovery"):
                is_terminal = self._terminal.get(packed_type(one.config_discovery.default_config))
                place = ((place, "config_discovery"), "default_config")
            if is_terminal is False:
                message = f'"{one.name}" only passes on: it cannot be the last filter'
                walk.error(place, "filter-order", message, f"end with a filter that answers, such as {example}")


def _check_descriptors(descriptors: FieldValue, path: Path, walk: Walk) -> None:
    contents = (b"\0".join(one.SerializeToString(deterministic=True) for one in row.entries) for row in descriptors)
    for index in repeated(contents):
        walk.error((path, index), "wrong-filter", "another descriptor has the same entries", "keep one of the two")


def _check_bucket(bucket: DynamicMessage, path: Path, walk: Walk) -> None:
    interval = bucket.fill_interval
    # Envoy counts milliseconds; less than one counts as none.
    if interval.seconds == 0 and 1_000_000 <= interval.nanos < _SHORTEST_FILL_NS:
        walk.error((path, "fill_interval"), "wrong-filter", "must be at least 0.05s", "fill more tokens at a time")


def _check_rate_limits(config: DynamicMessage, path: Path, walk: Walk) -> None:
    """Selectors of routes' limits mean nothing in a filter's own."""
    for index, limit in enumerate(getattr(config, "rate_limits", ())):
        for field in ("stage", "disable_key"):
            if limit.HasField(field) if field == "stage" else getattr(limit, field):
                place = ((((path, "rate_limits"), index)), field)
                walk.error(place, "wrong-filter", "is for the limits of routes", "remove it")
        if limit.HasField("limit") and config.DESCRIPTOR.name == "LocalRateLimit":
            place = ((((path, "rate_limits"), index)), "limit")
            walk.error(place, "wrong-filter", "is for a rate limit service", "write a descriptor with a token_bucket")


def _check_requirements(config: DynamicMessage, path: Path, walk: Walk) -> None:
    for index, rule in enumerate(config.rules):
        place: Path = ((path, "rules"), index)
        chosen = rule.WhichOneof("requirement_type")
        if chosen == "requirement_name" and rule.requirement_name not in config.requirement_map:
            message = f'"{rule.requirement_name}" is not in requirement_map'
            walk.error((place, chosen), "wrong-filter", message, "correct the name, or add it to requirement_map")
        elif chosen == "requires":
            _check_requirement(rule.requires, (place, chosen), walk, config.providers)
    for name, requirement in config.requirement_map.items():
        _check_requirement(requirement, ((path, "requirement_map"), name), walk, config.providers)
    for name, requirement in config.filter_state_rules.requires.items():
        place = (((path, "filter_state_rules"), "requires"), name)
        _check_requirement(requirement, place, walk, config.providers)


def _check_requirement(requirement: DynamicMessage, path: Path, walk: Walk, providers: FieldValue) -> None:
    chosen = requirement.WhichOneof("requires_type")
    if chosen == "provider_name":
        name, place = requirement.provider_name, (path, chosen)
    elif chosen == "provider_and_audiences":
        name, place = requirement.provider_and_audiences.provider_name, ((path, chosen), "provider_name")
    elif chosen in {"requires_any", "requires_all"}:
        for index, part in enumerate(getattr(requirement, chosen).requirements):
            _check_requirement(part, (((path, chosen), "requirements"), index), walk, providers)
        return
    else:
        return
    if name not in providers:
        remedy = f"write one of {', '.join(sorted(providers))}" if providers else "no provider is defined: add it"
        walk.error(place, "wrong-filter", f'"{name}" is not among the providers', remedy)


def _check_keys(provider: DynamicMessage, path: Path, walk: Walk) -> None:
    if provider.WhichOneof("jwks_source_specifier") != "local_jwks":
        return
    text, remedy = inline(provider.local_jwks), 'write a key set: {"keys": [...]}'
    try:
        keys = json.loads(text or b"")
    except (ValueError, RecursionError):
        # Envoy's reader is looser than JSON; it may accept single quotes.
        if text is not None and b"'" not in text:
            walk.error((path, "local_jwks"), "wrong-filter", "is not JSON", remedy)
        return
    if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list) or not keys["keys"]:
        walk.error((path, "local_jwks"), "wrong-filter", "holds no keys", remedy)


def _check_key_server(remote: DynamicMessage, path: Path, walk: Walk) -> None:
    if remote.HasField("http_uri"):
        _check_url(remote.http_uri.uri, ((path, "http_uri"), "uri"), walk)


def _check_url(url: str, path: Path, walk: Walk) -> None:
    if _URL.fullmatch(url) is None:
        walk.error(path, "wrong-filter", "is not a URL with a host", "write such as https://example.com/path")


def _check_token_secret(config: DynamicMessage, path: Path, walk: Walk) -> None:
    if config.auth_type != _TLS_CLIENT_AUTH and not config.credentials.HasField("token_secret"):
        place = ((path, "credentials"), "token_secret")
        walk.error(place, "wrong-filter", "is missing", "name the secret, or write auth_type: TLS_CLIENT_AUTH")


def _check_grpc_codes(codes: FieldValue, path: Path, walk: Walk) -> None:
    for index, code in enumerate(codes):
        if code > _HIGHEST_GRPC_CODE:
            message = f"must be at most {_HIGHEST_GRPC_CODE}, is {code}"
            walk.error((path, index), "wrong-filter", message, "write the code of a gRPC status")


def _check_arn(arn: FieldValue, path: Path, walk: Walk) -> None:
    if not arn.startswith("arn:") or arn.count(":") < _COLONS_OF_ARN:
        walk.error(path, "wrong-filter", "is no ARN of a function", "write arn:aws:lambda:REGION:ACCOUNT:function:NAME")


def _check_region(config: DynamicMessage, path: Path, walk: Walk) -> None:
    """AWS_SIGV4, the default, signs for one region."""
    if config.signing_algorithm == 0 and any(mark in config.region for mark in "*,"):
        remedy = "write one region, or signing_algorithm: AWS_SIGV4A"
        walk.error((path, "region"), "wrong-filter", "AWS_SIGV4 signs for one region", remedy)


def _check_files(config: DynamicMessage, path: Path, walk: Walk, *, field: str) -> None:
    if getattr(config, field).WhichOneof("specifier") not in {"filename", "inline_bytes"}:
        message = "descriptors come from a filename or inline_bytes"
        walk.error((path, field), "wrong-filter", message, "write one of these")


# Blanks and comments of Lua, and the beginnings of its statements: a keyword, or a name with a part of its expression.
_LUA_BLANK = re.compile(rb"(?:\s|--\[(=*)\[.*?\]\1\]|--(?!\[=*\[)[^\n]*)*+", re.DOTALL)
_LUA_NAME = r"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*+"
_LUA_STATEMENT = re.compile(
    r"(?:break|do|for|function|goto|if|local|repeat|return|while)\b|[(;#\x1b\xef]|::"
    rf"|{_LUA_NAME}(?:\s*+\.\s*+{_LUA_NAME})*+\s*+(?:--|[:,=\[({{\"'])".encode("latin-1")
)


def _script_check(name: str = "") -> Hook:
    """Check the beginning, and for this function; only Envoy can compile Lua."""

    def check_script(script: FieldValue, path: Path, walk: Walk) -> None:
        if isinstance(script, Mapping):
            for key, one in script.items():
                check_script(one, (path, key), walk)
            return
        code = script.encode() if isinstance(script, str) else inline(script)
        if code is None:
            return
        begin = _LUA_BLANK.match(code)
        if begin is not None and begin.end() < len(code) and not _LUA_STATEMENT.match(code, begin.end()):
            walk.error(path, "wrong-filter", "is no Lua: it begins with no statement", "write a script")
        elif name.encode() not in code:
            walk.error(path, "wrong-filter", f"defines no function {name}", "define it")

    return check_script


def _check_cache(config: DynamicMessage, path: Path, walk: Walk) -> None:
    has_cache = config.cache_time.seconds > 0 or config.cache_time.nanos >= 1_000_000
    if has_cache and config.HasField("pass_through_mode") and not config.pass_through_mode.value:
        message = "has a meaning only with pass_through_mode: true"
        walk.error((path, "cache_time"), "wrong-filter", message, "remove it")


def _check_metadata_rule(rule: DynamicMessage, path: Path, walk: Walk) -> None:
    fact = None
    if rule.header and rule.cookie:
        fact = "a rule reads a header or a cookie, not both"
    elif not (rule.header or rule.cookie):
        fact = "a rule needs a header or a cookie to read, and names neither"
    elif not (rule.HasField("on_header_present") or rule.HasField("on_header_missing")):
        fact = "a rule needs on_header_present or on_header_missing"
    elif rule.cookie and rule.remove:
        fact = "a cookie cannot be removed"
    elif rule.HasField("on_header_missing") and not rule.on_header_missing.value:
        fact = "on_header_missing needs a value"
    elif rule.on_header_present.value and rule.on_header_present.HasField("regex_value_rewrite"):
        fact = "on_header_present has both value and regex_value_rewrite"
    if fact is not None:
        walk.error(path, "wrong-filter", fact, "write one source, and one action for it")


def _check_prefix(service: DynamicMessage, path: Path, walk: Walk) -> None:
    for field in ("path_prefix", "path_override"):
        if getattr(service, field, "")[:1] not in {"", "/"}:
            walk.error((path, field), "wrong-filter", "must begin with a slash", "write a slash before it")


class _NetworkRbac:
    """Whether the walked rules are about connections, which have no headers."""

    def __init__(self) -> None:
        self._is_inside = False

    def enter(self, _: DynamicMessage, path: Path, walk: Walk) -> Leave:
        self._is_inside = True
        return self._leave

    def _leave(self) -> None:
        self._is_inside = False

    def check_header(self, _: FieldValue, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        if self._is_inside:
            walk.error(path, "wrong-filter", "a connection has no headers", "remove it, or use the filter of HTTP")


def _check_attributes(expressions: FieldValue, path: Path, walk: Walk) -> None:
    for index, expression in enumerate(expressions):
        if not expression.strip():
            walk.error((path, index), "wrong-filter", "holds no expression", "write such as request.path")


def _check_users(config: DynamicMessage, path: Path, walk: Walk) -> None:
    """As `htpasswd -s` writes it; its content is not shown."""
    text = inline(config.users) or b""
    seen: set[str] = set()
    for number, line in enumerate(text.decode("utf-8", "replace").split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        user, _, password = line.partition(":")
        fact = None
        if not user or not password:
            fact = "has no user or no password"
        elif not password.startswith("{SHA}"):
            fact = "is not written with {SHA}"
        elif len(password) != _SHA_LENGTH:
            fact = "has no SHA-1 in base64 behind {SHA}"
        elif user in seen:
            fact = "has a user that an earlier line has"
        seen.add(user)
        if fact is not None:
            remedy = "write lines as `htpasswd -s` does, user:{SHA}…"
            walk.error((path, "users"), "wrong-filter", f"line {number} {fact}", remedy)
            return


def _check_upgrades(configs: FieldValue, path: Path, walk: Walk) -> None:
    for index in repeated(config.upgrade_type.lower() for config in configs):
        walk.error(((path, index), "upgrade_type"), "wrong-filter", "is duplicated", "keep one of them")


def _check_unique(field: str, fact: str, remedy: str) -> Hook:
    def check_unique(parts: FieldValue, path: Path, walk: Walk) -> None:
        for index in repeated(getattr(part, field) for part in parts):
            walk.error(((path, index), field), "wrong-filter", fact, remedy)

    return check_unique


def _check_ports(permission: DynamicMessage, path: Path, walk: Walk) -> None:
    if permission.WhichOneof("rule") != "destination_port_range":
        return
    ports = permission.destination_port_range
    place = (path, "destination_port_range")
    if not 0 <= ports.start <= _HIGHEST_PORT or not 0 <= ports.end <= _HIGHEST_PORT:
        walk.error(place, "wrong-filter", f"must lie within 0 and {_HIGHEST_PORT}", "correct the numbers")
    elif ports.start >= ports.end:
        message = f"start ({ports.start}) must be below end ({ports.end}), which does not belong to it"
        walk.error(place, "wrong-filter", message, "write such as {start: 80, end: 81} for one port")


class Choice(NamedTuple):
    """At most one field, if they exclude one another; at least one if `is_needed`. Inner fields have dots."""

    fields: tuple[str, ...]
    is_needed: bool = False
    excludes: bool = True


CHOICES: Mapping[str, tuple[Choice, ...]] = {
    "envoy.config.core.v3.KeyValueMutation": (Choice(("append", "remove"), is_needed=True),),
    "envoy.config.trace.v3.OpenTelemetryConfig": (
        Choice(("grpc_service", "http_service", "exporter"), is_needed=True),
    ),
    "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig": (
        Choice(("grpc_service", "http_service", "common_config.grpc_service"), is_needed=True),
    ),
    f"{_HTTP}ext_proc.v3.ExternalProcessor": (Choice(("grpc_service", "http_service"), is_needed=True),),
    f"{_HTTP}jwt_authn.v3.JwtClaimToHeader": (Choice(("claim_name", "claim_path"), is_needed=True),),
    f"{_HTTP}ip_tagging.v3.IPTagging": (Choice(("ip_tags", "ip_tags_datasource"), is_needed=True, excludes=False),),
    f"{_HTTP}lua.v3.Lua": (Choice(("inline_code", "default_source_code")),),
    f"{_HTTP}adaptive_concurrency.v3.GradientControllerConfig.MinimumRTTCalculationParams": (
        Choice(("interval", "fixed_value"), is_needed=True, excludes=False),
    ),
    f"{_HTTP}composite.v3.ExecuteFilterAction": (
        Choice(("typed_config", "dynamic_config", "filter_chain", "filter_chain_name"), is_needed=True, excludes=False),
    ),
    f"{_HTTP}aws_lambda.v3.PerRouteConfig": (Choice(("invoke_config",), is_needed=True),),
    "envoy.extensions.filters.network.connection_limit.v3.ConnectionLimit": (
        Choice(("max_connections",), is_needed=True),
    ),
    "envoy.extensions.filters.network.thrift_proxy.v3.WeightedCluster.ClusterWeight": (
        Choice(("weight",), is_needed=True),
    ),
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy": (
        Choice(("prefix_routes.routes", "prefix_routes.catch_all_route"), is_needed=True, excludes=False),
    ),
    _MANAGER: (
        Choice(("strip_matching_host_port", "strip_any_host_port")),
        Choice(("original_ip_detection_extensions", "use_remote_address")),
        Choice(("original_ip_detection_extensions", "xff_num_trusted_hops")),
        Choice(("access_log_options", "access_log_flush_interval")),
        Choice(("access_log_options", "flush_access_log_on_new_request")),
    ),
    f"{_MANAGERS}ScopedRoutes.ScopeKeyBuilder.FragmentBuilder.HeaderValueExtractor": (
        Choice(("index", "element"), is_needed=True),
    ),
}


def _choices_check(choices: tuple[Choice, ...]) -> Hook:
    def check_choices(message: DynamicMessage, path: Path, walk: Walk) -> None:
        for fields, is_needed, excludes in choices:
            present = [field for field in fields if _is_set(message, field)]
            if excludes and len(present) > 1:
                place = path
                for step in present[1].split("."):
                    place = (place, step)
                walk.error(place, "wrong-filter", f"cannot be set with {present[0]}", "keep one of the two")
            elif is_needed and not present:
                walk.error(path, "wrong-filter", f"needs {' or '.join(fields)}", "add it")

    return check_choices


def _is_set(message: DynamicMessage, field: str) -> bool:
    name, _, inner = field.partition(".")
    descriptor = message.DESCRIPTOR.fields_by_name.get(name)
    if descriptor is None or (descriptor.has_presence and not message.HasField(name)):
        return False
    value = getattr(message, name)
    if inner:
        return _is_set(value, inner)
    if descriptor.message_type is not None and descriptor.message_type.full_name == "google.protobuf.BoolValue":
        return bool(value.value)
    return descriptor.has_presence or bool(value)
