"""The settings of single HTTP filters, as far as their parts must fit one another."""

from __future__ import annotations

import json
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_HTTP = "envoy.extensions.filters.http."
_RULE = "wrong-filter"
_SHORTEST_FILL_NS = 50_000_000
_SHA_LENGTH = len("{SHA}") + 28
_HIGHEST_PORT = 65_536


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over the settings of HTTP filters."""
    return {
        _HTTP + "local_ratelimit.v3.LocalRateLimit": (_check_local_rate_limit, _check_rate_limits),
        _HTTP + "ratelimit.v3.RateLimit": (_check_rate_limits,),
        _HTTP + "jwt_authn.v3.JwtAuthentication": (_check_requirements,),
        _HTTP + "jwt_authn.v3.JwtProvider": (_check_keys, _check_claims),
        _HTTP + "health_check.v3.HealthCheck": (_check_cache,),
        _HTTP + "header_to_metadata.v3.Config.Rule": (_check_metadata_rule,),
        _HTTP + "lua.v3.Lua": (_check_script,),
        _HTTP + "ext_authz.v3.HttpService": (_check_prefix,),
        _HTTP + "basic_auth.v3.BasicAuth": (_check_users,),
        _HTTP + "basic_auth.v3.BasicAuthPerRoute": (_check_users,),
        _HTTP + "api_key_auth.v3.ApiKeyAuth": (_check_api_keys,),
        _HTTP + "api_key_auth.v3.ApiKeyAuthPerRoute": (_check_api_keys,),
        _HTTP + "ext_proc.v3.ExternalProcessor": (_check_processor,),
        _HTTP + "ip_tagging.v3.IPTagging": (_check_tags,),
        "envoy.config.rbac.v3.Permission": (_check_ports,),
    }


def _check_local_rate_limit(config: Any, path: Path, walk: Walk) -> None:
    buckets = [(config.token_bucket, (path, "token_bucket"))] if config.HasField("token_bucket") else []
    seen: set[bytes] = set()
    for index, descriptor in enumerate(config.descriptors):
        place: Path = ((path, "descriptors"), index)
        if descriptor.HasField("token_bucket"):
            buckets.append((descriptor.token_bucket, (place, "token_bucket")))
        entries = b"\0".join(one.SerializeToString(deterministic=True) for one in descriptor.entries)
        if entries in seen:
            walk.tell(place, _RULE, "another descriptor has the same entries", "keep one of the two")
        seen.add(entries)
    for bucket, at in buckets:
        interval = bucket.fill_interval
        # Envoy counts milliseconds; what is below one of them passes for none.
        if interval.seconds == 0 and 1_000_000 <= interval.nanos < _SHORTEST_FILL_NS:
            walk.tell((at, "fill_interval"), _RULE, "must be at least 0.05s", "fill more tokens at a time")


def _check_rate_limits(config: Any, path: Path, walk: Walk) -> None:
    """Check the limits that a filter has of its own: what tells those of routes apart has no meaning there."""
    for index, limit in enumerate(getattr(config, "rate_limits", ())):
        for field in ("stage", "disable_key"):
            if limit.HasField(field) if field == "stage" else getattr(limit, field):
                place = ((((path, "rate_limits"), index)), field)
                walk.tell(place, _RULE, "is for the limits of routes", "remove it")
        if limit.HasField("limit") and config.DESCRIPTOR.name == "LocalRateLimit":
            place = ((((path, "rate_limits"), index)), "limit")
            walk.tell(place, _RULE, "is for a rate limit service", "write a descriptor with a token_bucket")


def _check_requirements(config: Any, path: Path, walk: Walk) -> None:
    for index, rule in enumerate(config.rules):
        place: Path = ((path, "rules"), index)
        chosen = rule.WhichOneof("requirement_type")
        if chosen == "requirement_name" and rule.requirement_name not in config.requirement_map:
            message = f'"{rule.requirement_name}" is not in requirement_map'
            walk.tell((place, chosen), _RULE, message, _listing(config.requirement_map))
        elif chosen == "requires":
            _check_requirement(rule.requires, (place, chosen), walk, config.providers)
    for name, requirement in config.requirement_map.items():
        _check_requirement(requirement, ((path, "requirement_map"), name), walk, config.providers)
    for name, requirement in config.filter_state_rules.requires.items():
        place = (((path, "filter_state_rules"), "requires"), name)
        _check_requirement(requirement, place, walk, config.providers)


def _check_requirement(requirement: Any, path: Path, walk: Walk, providers: Any) -> None:
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
        walk.tell(place, _RULE, f'"{name}" is not among the providers', _listing(providers))


def _listing(names: Any) -> str:
    return f"write one of {', '.join(sorted(names))}" if names else "there is none: add it"


def _check_keys(provider: Any, path: Path, walk: Walk) -> None:
    if provider.WhichOneof("jwks_source_specifier") != "local_jwks":
        return
    source = provider.local_jwks
    chosen = source.WhichOneof("specifier")
    if chosen not in {"inline_string", "inline_bytes"}:
        return
    text = getattr(source, chosen)
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        if b"'" in (text.encode() if isinstance(text, str) else text):
            return  # Envoy's reader is looser than JSON; it may take this one
        walk.tell((path, "local_jwks"), _RULE, "is not JSON", 'write a key set: {"keys": [...]}')
        return
    if not isinstance(keys, dict) or not isinstance(keys.get("keys"), list) or not keys["keys"]:
        walk.tell((path, "local_jwks"), _RULE, "holds no keys", 'write a key set: {"keys": [...]}')


def _check_claims(provider: Any, path: Path, walk: Walk) -> None:
    for index, claim in enumerate(provider.claim_to_headers):
        has_path = bool(getattr(claim, "claim_path", ()))
        if claim.claim_name and has_path:
            place: Path = ((path, "claim_to_headers"), index)
            walk.tell(place, _RULE, "has both claim_name and claim_path", "keep one of the two")


def _check_cache(config: Any, path: Path, walk: Walk) -> None:
    has_cache = config.cache_time.seconds > 0 or config.cache_time.nanos >= 1_000_000
    if has_cache and config.HasField("pass_through_mode") and not config.pass_through_mode.value:
        message = "has a meaning only with pass_through_mode: true"
        walk.tell((path, "cache_time"), _RULE, message, "remove it")


def _check_metadata_rule(rule: Any, path: Path, walk: Walk) -> None:
    fact = None
    if rule.header and rule.cookie:
        fact = "a rule reads a header or a cookie, not both"
    elif not (rule.header or rule.cookie):
        fact = "a rule reads a header or a cookie, and names none"
    elif not (rule.HasField("on_header_present") or rule.HasField("on_header_missing")):
        fact = "a rule needs on_header_present or on_header_missing"
    elif rule.cookie and rule.remove:
        fact = "a cookie cannot be removed"
    elif rule.HasField("on_header_missing") and not rule.on_header_missing.value:
        fact = "on_header_missing needs a value"
    elif rule.on_header_present.value and rule.on_header_present.HasField("regex_value_rewrite"):
        fact = "on_header_present has both value and regex_value_rewrite"
    if fact is not None:
        walk.tell(path, _RULE, fact, "write one source, and what to do with it")


def _check_script(config: Any, path: Path, walk: Walk) -> None:
    if config.inline_code and config.HasField("default_source_code"):
        message = "cannot stand beside inline_code"
        walk.tell((path, "default_source_code"), _RULE, message, "keep default_source_code alone")


def _check_prefix(service: Any, path: Path, walk: Walk) -> None:
    if service.path_prefix and not service.path_prefix.startswith("/"):
        walk.tell((path, "path_prefix"), _RULE, "must begin with a slash", "write a slash before it")
    override = getattr(service, "path_override", "")
    if override and not override.startswith("/"):
        walk.tell((path, "path_override"), _RULE, "must begin with a slash", "write a slash before it")


def _check_users(config: Any, path: Path, walk: Walk) -> None:
    """Check a file of users as `htpasswd -s` writes it; what is in it is not shown."""
    if config.users.WhichOneof("specifier") not in {"inline_string", "inline_bytes"}:
        return
    text = config.users.inline_string or config.users.inline_bytes.decode("utf-8", "replace")
    seen: set[str] = set()
    for number, line in enumerate(text.split("\n"), 1):
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
            walk.tell((path, "users"), _RULE, f"line {number} {fact}", "write lines as `htpasswd -s` does, user:{SHA}…")
            return


def _check_api_keys(config: Any, path: Path, walk: Walk) -> None:
    seen: set[str] = set()
    for index, credential in enumerate(config.credentials):
        if credential.key in seen:
            place = (((path, "credentials"), index), "key")
            walk.tell(place, _RULE, "another credential has the same key", "give each client a key of its own")
        seen.add(credential.key)


def _check_processor(config: Any, path: Path, walk: Walk) -> None:
    if config.HasField("grpc_service") == config.HasField("http_service"):
        fact = "has both grpc_service and http_service" if config.HasField("grpc_service") else "has no grpc_service"
        walk.tell(path, _RULE, fact, "write grpc_service, or http_service in its place")


def _check_tags(config: Any, path: Path, walk: Walk) -> None:
    if {field.name for field, _ in config.ListFields()} <= {"request_type"}:
        walk.tell((path, "ip_tags"), _RULE, "is missing", "say which addresses have which tags")


def _check_ports(permission: Any, path: Path, walk: Walk) -> None:
    if permission.WhichOneof("rule") != "destination_port_range":
        return
    ports = permission.destination_port_range
    place = (path, "destination_port_range")
    if not 0 <= ports.start <= _HIGHEST_PORT or not 0 <= ports.end <= _HIGHEST_PORT:
        walk.tell(place, _RULE, f"must lie within 0 and {_HIGHEST_PORT}", "correct the numbers")
    elif ports.start >= ports.end:
        message = f"start ({ports.start}) must be below end ({ports.end}), which does not belong to it"
        walk.tell(place, _RULE, message, "write such as {start: 80, end: 81} for one port")
