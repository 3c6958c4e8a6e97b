"""Routes: virtual hosts, path templates, and header changes."""

from __future__ import annotations

import re
from functools import partial

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hooks, Leave, Path, Walk, field_path_of
from fsxds.lint.field_values import inline, is_longer, packed_type, repeated
from fsxds.model.resource_types import lowered

_LARGEST_BODY = 4096
_LARGEST_WEIGHT = 4_294_967_295
_DELTA_TYPES = frozenset({3, 6})  # DELTA_GRPC, AGGREGATED_DELTA_GRPC
_WITH_REMOVALS = ("core.v3.HealthCheck.HttpHealthCheck", "route.v3.RouteConfiguration", "route.v3.VirtualHost",
    "route.v3.Route", "route.v3.WeightedCluster.ClusterWeight")  # fmt: skip


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of route configurations."""
    context, templates = _RouteContext(), _PathTemplates(catalogue)
    removals = (
        f"envoy.config.{one}.{side}_headers_to_remove" for one in _WITH_REMOVALS for side in ("request", "response")
    )
    return {
        **dict.fromkeys(removals, (partial(_check_names, fact="cannot be removed"),)),
        "envoy.config.route.v3.RouteConfiguration": (context.enter_config, _check_domains, _check_vhds),
        "envoy.config.route.v3.ScopedRouteConfiguration": (_check_scope,),
        "envoy.config.route.v3.VirtualHost": (_check_host,),
        "envoy.config.route.v3.DirectResponseAction": (context.check_body,),
        "envoy.config.route.v3.RouteMatch.path_match_policy": (templates.check_match,),
        "envoy.config.route.v3.RouteAction.path_rewrite_policy": (templates.check_rewrite,),
        "envoy.config.route.v3.RouteAction": (_check_rewrites,),
        "envoy.config.route.v3.RouteAction.upgrade_configs": (_check_upgrades,),
        "envoy.config.route.v3.RouteAction.cluster_specifier_plugin": (context.check_plugin,),
        "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": (partial(_check_name, field="cluster"),),
        "envoy.config.route.v3.WeightedCluster": (_check_weights,),
        "envoy.config.route.v3.RetryPolicy.RetryBackOff": (_check_back_off,),
        "envoy.config.cluster.v3.Cluster.RefreshRate": (_check_back_off,),
        "envoy.config.core.v3.BackoffStrategy": (_check_core_back_off,),
        _MATCH: (_check_template,),
        "envoy.config.route.v3.RedirectAction.prefix_rewrite": (templates.check_prefix,),
        "envoy.config.route.v3.RouteAction.prefix_rewrite": (templates.check_prefix,),
        "envoy.config.core.v3.HeaderValueOption": (_check_addition,),
        "envoy.config.route.v3.InternalRedirectPolicy.response_headers_to_copy": (
            partial(_check_names, fact="cannot be copied"),
        ),
        "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest.headers_to_add": (_check_added,),
    }


def _check_domains(config: DynamicMessage, path: Path, walk: Walk) -> None:
    owners: dict[str, str] = {}
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            asked = lowered(domain)
            if asked in owners:
                place = ((((path, "virtual_hosts"), number), "domains"), index)
                _report_duplicate(domain, owners[asked], place, walk)
            else:
                owners[asked] = host.name


def _check_host(host: DynamicMessage, path: Path, walk: Walk) -> None:
    if path is None and len(host.domains) > 1:
        for index in repeated(map(lowered, host.domains)):
            _report_duplicate(host.domains[index], host.name, ((path, "domains"), index), walk)
    if host.HasField("matcher") and host.routes:
        message = "a virtual host has routes or a matcher, not both"
        walk.error((path, "matcher"), "wrong-route", message, "move the routes into the matcher, or remove it")
    for index, cluster in enumerate(host.virtual_clusters):
        if not cluster.headers:
            place = (((path, "virtual_clusters"), index), "headers")
            message = "a virtual cluster needs headers to match"
            walk.error(place, "wrong-route", message, "set which requests belong to it")


def _report_duplicate(domain: str, owner: str, path: Path, walk: Walk) -> None:
    message = f'"{domain}" is already a domain of virtual host "{owner}"'
    remedy = "let one virtual host have the domain"
    walk.error(path, "duplicate-domain", f"{message}; letter case does not count", remedy)


def _check_vhds(config: DynamicMessage, path: Path, walk: Walk) -> None:
    if not config.HasField("vhds"):
        return
    source = config.vhds.config_source
    if source.WhichOneof("config_source_specifier") in {"path", "path_config_source"} or (
        source.WhichOneof("config_source_specifier") == "api_config_source"
        and source.api_config_source.api_type not in _DELTA_TYPES
    ):
        message = "virtual hosts can be discovered only by delta gRPC or over the aggregated stream"
        walk.error(((path, "vhds"), "config_source"), "wrong-config-source", message, "write ads: {} or DELTA_GRPC")


class _RouteContext:
    """The plugins and body limit of a walked configuration."""

    def __init__(self) -> None:
        self._largest: int | None = None
        self._plugins: frozenset[str] | None = None

    def enter_config(self, config: DynamicMessage, path: Path, walk: Walk) -> Leave:
        outer = self._largest, self._plugins
        has_limit = config.HasField("max_direct_response_body_size_bytes")
        self._largest = config.max_direct_response_body_size_bytes.value if has_limit else _LARGEST_BODY
        self._plugins = frozenset(plugin.extension.name for plugin in config.cluster_specifier_plugins)

        def leave() -> None:
            self._largest, self._plugins = outer

        return leave

    def check_body(self, action: DynamicMessage, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        if self._largest is None or not action.HasField("body"):
            return
        body = inline(action.body)
        if body is not None and len(body) > self._largest:
            message = f"must be at most {self._largest} bytes, is {len(body)}"
            remedy = "shorten it, or raise max_direct_response_body_size_bytes of the route configuration"
            walk.error(((path, "body"), action.body.WhichOneof("specifier")), "wrong-route", message, remedy)

    def check_plugin(self, name: FieldValue, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        if self._plugins is not None and name not in self._plugins:
            message = f'"{name}" is not among the cluster_specifier_plugins of this route configuration'
            walk.error(path, "wrong-route", message, "add the plugin there, or correct the name")


def _check_rewrites(action: DynamicMessage, path: Path, walk: Walk) -> None:
    # Most routes end here.
    is_text = not action.HasField("regex_rewrite") and not action.HasField("path_rewrite_policy")
    if is_text and not (action.prefix_rewrite and getattr(action, "path_rewrite", "")):
        return
    present = [name for name in ("prefix_rewrite", "path_rewrite") if getattr(action, name, "")]
    present += [name for name in ("regex_rewrite", "path_rewrite_policy") if action.HasField(name)]
    if len(present) > 1:
        message = f"{' and '.join(present)} exclude each other"
        walk.error((path, present[1]), "wrong-route", message, "a path is rewritten in one way: keep one of them")


def _check_upgrades(configs: FieldValue, path: Path, walk: Walk) -> None:
    names = [config.upgrade_type.lower() for config in configs]
    for index in repeated(names):
        walk.error(((path, index), "upgrade_type"), "wrong-route", "is duplicated", "keep one of them")
    for index, config in enumerate(configs):
        if config.HasField("connect_config") and not names[index].startswith("connect"):
            message, remedy = "connect_config has no meaning for this type of upgrade", "write upgrade_type: CONNECT"
            walk.error(((path, index), "connect_config"), "wrong-route", message, f"remove it, or {remedy}")


def _check_weights(weighted: DynamicMessage, path: Path, walk: Walk) -> None:
    total = 0
    for index, cluster in enumerate(weighted.clusters):
        place: Path = ((path, "clusters"), index)
        if not cluster.HasField("weight"):
            walk.error((place, "weight"), "wrong-route", "is missing", "give every one of the clusters a weight")
            return
        total += cluster.weight.value
        _check_name(cluster, place, walk, field="name")
    if weighted.clusters and not total:
        remedy = "give one of them a weight above 0"
        walk.error((path, "clusters"), "wrong-route", "the sum of the weights is 0", remedy)
    elif total > _LARGEST_WEIGHT:
        message = f"the sum of the weights must be at most {_LARGEST_WEIGHT}, is {total}"
        walk.error((path, "clusters"), "wrong-route", message, "write smaller weights")


def _check_name(cluster: DynamicMessage, path: Path, walk: Walk, *, field: str) -> None:
    if bool(name := getattr(cluster, field)) == bool(cluster.cluster_header):
        fact = f"has both {field} and cluster_header" if name else f"has neither {field} nor cluster_header"
        walk.error(path, "wrong-route", fact, "write one of the two")


def _check_back_off(back_off: DynamicMessage, path: Path, walk: Walk) -> None:
    has_both = back_off.HasField("max_interval") and back_off.HasField("base_interval")
    if has_both and is_longer(back_off.base_interval, back_off.max_interval):
        message = "max_interval is shorter than base_interval"
        walk.error((path, "max_interval"), "wrong-duration", message, "make it at least as long")


def _check_core_back_off(back_off: DynamicMessage, path: Path, walk: Walk) -> None:
    """Of such retries, Envoy compares only those for the keys of tokens."""
    steps = field_path_of(path)
    if steps[-2:] == ("retry_policy", "retry_back_off"):
        walk.depend_on_place()
    if steps[-2:] != ("retry_policy", "retry_back_off") or "remote_jwks" in steps:
        _check_back_off(back_off, path, walk)


def _check_scope(scope: DynamicMessage, path: Path, walk: Walk) -> None:
    if path is None and not scope.route_configuration_name and not scope.HasField("route_configuration"):
        remedy = "name the route configuration of this scope, or write it into route_configuration"
        walk.error((path, "route_configuration_name"), "wrong-route", "is missing", remedy)


_MATCH = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
_REWRITE = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\{([^{}=]*)(=[^{}]*)?\}")
_MOST_VARIABLES, _LONGEST_NAME = 5, 16


class _PathTemplates:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        # The last route with a template, and its template.
        self._matched: tuple[Path, DynamicMessage] = None, None

    def check_match(self, policy: DynamicMessage, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        self._matched = _route_of(path), self._content(policy, _MATCH)

    def _content(self, policy: DynamicMessage, name: str) -> DynamicMessage:
        return self._catalogue.unpacked(policy.typed_config) if packed_type(policy.typed_config) == name else None

    def check_prefix(self, _: FieldValue, path: Path, walk: Walk) -> None:
        """A template has no prefix to rewrite."""
        walk.depend_on_place()
        if _route_of(path) is not None and _route_of(path) is self._matched[0]:
            message = "a route that matches by a path template has no prefix"
            walk.error(path, "wrong-path-template", message, "use path_rewrite_policy, or match by a prefix")

    def check_rewrite(self, policy: DynamicMessage, path: Path, walk: Walk) -> None:
        walk.depend_on_place()
        rewrite = self._content(policy, _REWRITE)
        if rewrite is None:
            return
        place = (path, "typed_config")
        route, pattern = self._matched
        if route is not None and route is _route_of(path):
            _check_rewrite(rewrite.path_template_rewrite, pattern, (place, "path_template_rewrite"), walk)
        else:
            message = "a route that does not match by a path template cannot rewrite by one"
            remedy = "match by a path template too, or rewrite with prefix_rewrite or regex_rewrite"
            walk.error(place, "wrong-path-template", message, remedy)


def _route_of(path: Path) -> Path:
    return path[0][0] if path and path[0] else None


def _check_template(config: DynamicMessage, path: Path, walk: Walk) -> None:
    pattern, fault = config.path_template, None
    names = [match[1] for match in _VARIABLE.finditer(pattern)]
    if not pattern.startswith("/"):
        fault = "must begin with a slash"
    elif len(names) > _MOST_VARIABLES:
        fault = f"must have at most {_MOST_VARIABLES} variables, has {len(names)}"
    elif len(set(names)) < len(names):
        fault = "names a variable twice"
    elif pattern.count("{") != len(names) or pattern.count("}") != len(names):
        fault = "has a brace without its partner"
    elif not all(map(_NAME.fullmatch, names)):
        fault = "has a name that a variable cannot have"
    elif any(len(name) > _LONGEST_NAME for name in names):
        fault = f"has a variable with a name of more than {_LONGEST_NAME} characters"
    if fault is not None:
        remedy = 'write it such as "/users/{id}/*": variables in braces, * for one segment, ** for the rest'
        walk.error((path, "path_template"), "wrong-path-template", fault, remedy)


def _check_rewrite(rewrite: str, pattern: DynamicMessage, path: Path, walk: Walk) -> None:
    if rewrite and not rewrite.startswith("/"):
        walk.error(path, "wrong-path-template", "must begin with a slash", 'write it such as "/people/{id}"')
    elif pattern is not None:
        known = {match[1] for match in _VARIABLE.finditer(pattern.path_template)}
        for match in _VARIABLE.finditer(rewrite):
            if match[2] is None and match[1] not in known:
                message = "has a variable that the path template does not have"
                walk.error(path, "wrong-path-template", message, "write the variables of the path template alone")
                return


_RESERVED_REMEDY = "change the path by a rewrite, the host by host_rewrite_literal; others of these stay as they are"


def is_reserved(name: str) -> bool:
    """Whether a header is fixed: HTTP/2's own, or the host."""
    return name[:1] == ":" or (len(name) == 4 and name.lower() == "host")


def _check_names(names: FieldValue, path: Path, walk: Walk, *, fact: str) -> None:
    for index, name in enumerate(names):
        if is_reserved(name):
            walk.error((path, index), "wrong-header", f"this header {fact}", _RESERVED_REMEDY)


def _check_addition(option: DynamicMessage, path: Path, walk: Walk) -> None:
    if is_reserved(option.header.key):
        message = "this header cannot be added or changed here"
        walk.error(((path, "header"), "key"), "wrong-header", message, _RESERVED_REMEDY)
    if option.append_action and option.HasField("append"):
        message = "append and append_action cannot both be set"
        walk.error((path, "append"), "wrong-header", message, "keep append_action alone: append is deprecated")


def _check_added(headers: FieldValue, path: Path, walk: Walk) -> None:
    for index, header in enumerate(headers):
        if is_reserved(header.key):
            walk.error(((path, index), "key"), "wrong-header", "this header cannot be added here", _RESERVED_REMEDY)
