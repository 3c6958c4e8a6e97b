"""Matchers (`xds.type.matcher.v3.Matcher`): allowed inputs and actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hooks, Path, Walk
from fsxds.lint.extensions import ExtensionTypes
from fsxds.lint.field_values import packed_type
from fsxds.snapshots.references import TYPED_STRUCTS

_COMMON = "envoy.matching.common_inputs"
_HTTP, _NETWORK = "envoy.matching.http.input", "envoy.matching.network.input"
_SOCKET = "envoy.matching.transport_socket.input"
_NETWORK_INPUTS = "envoy.extensions.matching.common_inputs.network.v3."
_HEADER = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"


class Context(NamedTuple):
    """A field's allowed inputs and actions.

    Attributes:
        stops: the first match decides; `keep_matching` is rejected.
        only_inputs: the only allowed types of the category; empty for all.
        no_inputs: beginnings of types that are not allowed, except `_HEADER`.
    """

    inputs: str
    actions: frozenset[str] | str
    stops: bool = False
    only_inputs: tuple[str, ...] = ()
    no_inputs: tuple[str, ...] = ()
    takes_structs: bool = True


_RBAC = frozenset({"envoy.config.rbac.v3.Action"})
_OF_CONNECTIONS = ("ApplicationProtocolInput", "SourceTypeInput", "TransportProtocolInput")
_OF_PACKETS = (
    "DestinationIPInput",
    "DestinationPortInput",
    "NetworkNamespaceInput",
    "SourceIPInput",
    "SourcePortInput",
)
_HTTP_RBAC = Context(
    _HTTP,
    _RBAC,
    stops=True,
    no_inputs=("envoy.type.matcher.v3.", f"{_NETWORK_INPUTS}SourceTypeInput"),
    takes_structs=False,
)
_NETWORK_RBAC = Context(
    _NETWORK, _RBAC, no_inputs=tuple(f"{_NETWORK_INPUTS}{name}" for name in _OF_CONNECTIONS), takes_structs=False
)
_BUCKETS = Context(_HTTP, frozenset({"envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings"}))
_ROUTES = frozenset({"envoy.config.route.v3.Route", "envoy.config.route.v3.RouteList"})

# Found by asking Envoy 1.40, for each input and action in each field.
CONTEXTS: dict[str, Context] = {
    "envoy.config.listener.v3.Listener.filter_chain_matcher": Context(
        _NETWORK, frozenset({"google.protobuf.StringValue"})
    ),
    "envoy.config.cluster.v3.Cluster.transport_socket_matcher": Context(_SOCKET, "envoy.matching.action"),
    "envoy.config.route.v3.VirtualHost.matcher": Context(
        _HTTP, _ROUTES, stops=True, only_inputs=(_HEADER, f"{_NETWORK_INPUTS}FilterStateInput"), takes_structs=False
    ),
    "envoy.extensions.filters.http.rbac.v3.RBAC.matcher": _HTTP_RBAC,
    "envoy.extensions.filters.http.rbac.v3.RBAC.shadow_matcher": _HTTP_RBAC,
    "envoy.extensions.filters.network.rbac.v3.RBAC.matcher": _NETWORK_RBAC,
    "envoy.extensions.filters.network.rbac.v3.RBAC.shadow_matcher": _NETWORK_RBAC,
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher.xds_matcher": Context(
        _HTTP,
        frozenset(
            {
                "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
                "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
            }
        ),
    ),
    "envoy.extensions.filters.http.custom_response.v3.CustomResponse.custom_response_matcher": Context(
        _HTTP, "envoy.http.custom_response"
    ),
    "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig.bucket_matchers": _BUCKETS,
    "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaOverride.bucket_matchers": _BUCKETS,
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig.matcher": Context(
        _NETWORK,
        frozenset({"envoy.extensions.filters.udp.udp_proxy.v3.Route"}),
        only_inputs=tuple(f"{_NETWORK_INPUTS}{name}" for name in _OF_PACKETS),
    ),
}

# Types that are actions in some field, and can therefore be reported in others.
ACTIONS = frozenset().union(*(one.actions for one in CONTEXTS.values() if not isinstance(one.actions, str)))

# Inputs that are not text, and the one matcher for each.
_PAIRS = {
    "xds.type.matcher.v3.HttpAttributesCelMatchInput": "xds.type.matcher.v3.CelMatcher",
    "envoy.extensions.matching.http.dynamic_modules.v3.HttpDynamicModuleMatchInput": (
        "envoy.extensions.matching.input_matchers.dynamic_modules.v3.DynamicModuleMatcher"
    ),
}


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the rules for matchers."""
    types = ExtensionTypes(catalogue)
    return {field: (_MatcherChecks(context, types).check,) for field, context in CONTEXTS.items()}


class _MatcherChecks:
    def __init__(self, context: Context, types: ExtensionTypes) -> None:
        self._context = context
        self._types = types
        actions = context.actions
        self._actions = types.of(actions) if isinstance(actions, str) else actions

    def check(self, matcher: FieldValue, path: Path, walk: Walk) -> None:
        for on_match, place in _outcomes(matcher, path):
            is_kept = getattr(on_match, "keep_matching", False)
            if self._context.stops and is_kept:
                walk.error((place, "keep_matching"), "wrong-extension", "the first match decides here", "remove it")
            chosen = on_match.WhichOneof("on_match")
            if chosen == "matcher":
                self.check(on_match.matcher, (place, "matcher"), walk)
            elif chosen == "action" and not is_kept:  # else Envoy does not read the action
                name, known = _type_of(on_match.action), self._actions
                if name and known and name not in known and (name in ACTIONS or not self._types.fits(name, ())):
                    at, message = ((place, "action"), "typed_config"), f"{name} is not an action of this matcher"
                    walk.error(at, "wrong-extension", message, f"write {' or '.join(sorted(known))}")
        for source, place, test in _inputs(matcher, path):
            self._check_input(_type_of(source), (place, "input"), walk)
            self._check_pair(_type_of(source), test, place, walk)
        category = f"{self._context.inputs.removesuffix('.input')}.custom_matchers"
        custom = _type_of(matcher.matcher_tree.custom_match)
        if custom and self._types.of(category) and not self._types.fits(custom, (category,)):
            place, message = ((path, "matcher_tree"), "custom_match"), f"{custom} is no tree of matchers"
            walk.error(place, "wrong-extension", message, f"write a type of {category}")

    def _check_input(self, name: str, path: Path, walk: Walk) -> None:
        context = self._context
        if not name or (name in TYPED_STRUCTS and context.takes_structs):
            return
        fits = name not in TYPED_STRUCTS and self._types.fits(name, (context.inputs, _COMMON))
        if context.no_inputs and name != _HEADER and name.startswith(context.no_inputs):
            fits = False
        if context.only_inputs and name in self._types.of(context.inputs):
            fits = name in context.only_inputs
        if not fits:
            message = f"{name} is not an input of this matcher"
            remedy = f"write {' or '.join(context.only_inputs) or f'a type of {context.inputs}'}"
            walk.error((path, "typed_config"), "wrong-extension", message, remedy)

    def _check_pair(self, name: str, test: DynamicMessage, path: Path, walk: Walk) -> None:
        custom = _type_of(test.custom_match) if test is not None and test.HasField("custom_match") else ""
        wanted = _PAIRS.get(name)
        if wanted is not None and custom != wanted and custom not in TYPED_STRUCTS:
            walk.error(path, "wrong-extension", f"{name} needs a matcher of its own", f"write custom_match: {wanted}")
        elif name and wanted is None and custom in _PAIRS.values() and name not in TYPED_STRUCTS:
            message = f"{custom} does not take {name}"
            walk.error((path, "custom_match"), "wrong-extension", message, "write value_match, or its own input")
        elif custom and not self._types.fits(custom, ("envoy.matching.input_matchers",)):
            message = f"{custom} is no matcher of inputs"
            walk.error((path, "custom_match"), "wrong-extension", message, "write value_match, or a type that is one")


def _type_of(extension: DynamicMessage) -> str:
    return packed_type(extension.typed_config)


def _outcomes(matcher: DynamicMessage, path: Path) -> Iterator[tuple[DynamicMessage, Path]]:
    if matcher.HasField("on_no_match"):
        yield matcher.on_no_match, (path, "on_no_match")
    for index, one in enumerate(matcher.matcher_list.matchers):
        yield one.on_match, ((((path, "matcher_list"), "matchers"), index), "on_match")
    chosen = matcher.matcher_tree.WhichOneof("tree_type")
    if chosen in {"exact_match_map", "prefix_match_map"}:
        for key, on_match in getattr(matcher.matcher_tree, chosen).map.items():
            yield on_match, ((((path, "matcher_tree"), chosen), "map"), key)


def _inputs(matcher: DynamicMessage, path: Path) -> Iterator[tuple[DynamicMessage, Path, DynamicMessage | None]]:
    if matcher.WhichOneof("matcher_type") == "matcher_tree":
        yield matcher.matcher_tree.input, (path, "matcher_tree"), None
    for index, one in enumerate(matcher.matcher_list.matchers):
        place: Path = ((((path, "matcher_list"), "matchers"), index), "predicate")
        yield from _predicate_inputs(one.predicate, place)


def _predicate_inputs(
    predicate: DynamicMessage, path: Path
) -> Iterator[tuple[DynamicMessage, Path, DynamicMessage | None]]:
    chosen = predicate.WhichOneof("match_type")
    if chosen == "single_predicate":
        yield predicate.single_predicate.input, (path, chosen), predicate.single_predicate
    elif chosen == "not_matcher":
        yield from _predicate_inputs(predicate.not_matcher, (path, chosen))
    elif chosen is not None:
        for index, inner in enumerate(getattr(predicate, chosen).predicate):
            yield from _predicate_inputs(inner, (((path, chosen), "predicate"), index))
