"""What the parts of a route must be to one another."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Leave, Path, Walk
from fsxds.rules.path_templates import PathTemplates

_RULE = "wrong-route"
_LARGEST_BODY = 4096
_LARGEST_WEIGHT = 4_294_967_295


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over routes."""
    bodies, templates = _Bodies(), PathTemplates(catalogue)
    return {
        "envoy.config.route.v3.RouteConfiguration": (bodies.enter_config,),
        "envoy.config.route.v3.ScopedRouteConfiguration": (_check_scope,),
        "envoy.config.route.v3.DirectResponseAction": (bodies.check_body,),
        "envoy.config.route.v3.RouteMatch.path_match_policy": (templates.check_match,),
        "envoy.config.route.v3.RouteAction.path_rewrite_policy": (templates.check_rewrite,),
        "envoy.config.route.v3.RouteAction": (_check_rewrites,),
        "envoy.config.route.v3.RouteAction.upgrade_configs": (_check_upgrades,),
        "envoy.config.route.v3.RouteAction.cluster_specifier_plugin": (bodies.check_plugin,),
        "envoy.config.route.v3.WeightedCluster": (_check_weights,),
        "envoy.config.route.v3.RetryPolicy.RetryBackOff": (_check_back_off,),
        "envoy.config.core.v3.BackoffStrategy": (_check_back_off,),
        "envoy.config.route.v3.RouteAction.RequestMirrorPolicy": (_check_mirror,),
    }


class _Bodies:
    """Knows, while a route configuration is walked, what its routes may refer to and how large a body may be."""

    def __init__(self) -> None:
        self._largest: int | None = None
        self._plugins: frozenset[str] | None = None

    def enter_config(self, config: Any, path: Path, walk: Walk) -> Leave:
        """Remember what the configuration says for all its routes."""
        outer = self._largest, self._plugins
        has_limit = config.HasField("max_direct_response_body_size_bytes")
        self._largest = config.max_direct_response_body_size_bytes.value if has_limit else _LARGEST_BODY
        self._plugins = frozenset(plugin.extension.name for plugin in config.cluster_specifier_plugins)

        def leave() -> None:
            self._largest, self._plugins = outer

        return leave

    def check_body(self, action: Any, path: Path, walk: Walk) -> None:
        """Check the size of a body that is written in the configuration."""
        if self._largest is None or not action.HasField("body"):
            return
        chosen = action.body.WhichOneof("specifier")
        if chosen not in {"inline_string", "inline_bytes"}:
            return
        body = getattr(action.body, chosen)
        size = len(body.encode() if isinstance(body, str) else body)
        if size > self._largest:
            message = f"must be at most {self._largest} bytes, is {size}"
            remedy = "shorten it, or raise max_direct_response_body_size_bytes of the route configuration"
            walk.tell(((path, "body"), chosen), _RULE, message, remedy)

    def check_plugin(self, name: Any, path: Path, walk: Walk) -> None:
        """Check that the plugin that a route names is one of its configuration's."""
        if self._plugins is not None and name not in self._plugins:
            message = f'"{name}" is not among the cluster_specifier_plugins of this route configuration'
            walk.tell(path, _RULE, message, "add the plugin there, or correct the name")


def _check_rewrites(action: Any, path: Path, walk: Walk) -> None:
    # Of most routes this is all there is to look at.
    is_text = not action.HasField("regex_rewrite") and not action.HasField("path_rewrite_policy")
    if is_text and not (action.prefix_rewrite and getattr(action, "path_rewrite", "")):
        return
    present = [name for name in ("prefix_rewrite", "path_rewrite") if getattr(action, name, "")]
    present += [name for name in ("regex_rewrite", "path_rewrite_policy") if action.HasField(name)]
    if len(present) > 1:
        message = f"{' and '.join(present)} cannot stand together"
        walk.tell((path, present[1]), _RULE, message, "a path is rewritten in one way: keep one of them")


def _check_upgrades(configs: Any, path: Path, walk: Walk) -> None:
    seen: set[str] = set()
    for index, config in enumerate(configs):
        place: Path = (path, index)
        name = config.upgrade_type.lower()
        if name in seen:
            walk.tell((place, "upgrade_type"), _RULE, "is here twice", "keep one of them")
        seen.add(name)
        if config.HasField("connect_config") and not name.startswith("connect"):
            message = "connect_config has no meaning for this type of upgrade"
            walk.tell((place, "connect_config"), _RULE, message, "remove it, or write upgrade_type: CONNECT")


def _check_weights(weighted: Any, path: Path, walk: Walk) -> None:
    total = 0
    for index, cluster in enumerate(weighted.clusters):
        place: Path = ((path, "clusters"), index)
        if not cluster.HasField("weight"):
            walk.tell((place, "weight"), _RULE, "is missing", "give every one of the clusters a weight")
            return
        total += cluster.weight.value
        if bool(cluster.name) == bool(cluster.cluster_header):
            fact = "has both name and cluster_header" if cluster.name else "has neither name nor cluster_header"
            walk.tell(place, _RULE, fact, "write one of the two")
    if weighted.clusters and not total:
        walk.tell((path, "clusters"), _RULE, "the sum of the weights is 0", "give one of them a weight above 0")
    elif total > _LARGEST_WEIGHT:
        message = f"the sum of the weights must be at most {_LARGEST_WEIGHT}, is {total}"
        walk.tell((path, "clusters"), _RULE, message, "write smaller weights")


def _check_back_off(back_off: Any, path: Path, walk: Walk) -> None:
    if back_off.HasField("max_interval") and back_off.HasField("base_interval"):
        longest, base = back_off.max_interval, back_off.base_interval
        if (longest.seconds, longest.nanos) < (base.seconds, base.nanos):
            message = "max_interval is shorter than base_interval"
            walk.tell((path, "max_interval"), "wrong-duration", message, "make it at least as long")


def _check_scope(scope: Any, path: Path, walk: Walk) -> None:
    if path is None and not scope.route_configuration_name and not scope.HasField("route_configuration"):
        remedy = "name the route configuration of this scope, or write it into route_configuration"
        walk.tell((path, "route_configuration_name"), _RULE, "is missing", remedy)


def _check_mirror(policy: Any, path: Path, walk: Walk) -> None:
    if bool(policy.cluster) == bool(policy.cluster_header):
        fact = "has both cluster and cluster_header" if policy.cluster else "has neither cluster nor cluster_header"
        walk.tell(path, _RULE, fact, "write one of the two")
