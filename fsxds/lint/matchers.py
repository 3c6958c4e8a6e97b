"""Matchers (`xds.type.matcher.v3.Matcher`): the inputs and actions allowed in each place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hook, Hooks, Path, Walk
from fsxds.lint.extensions import ExtensionTypes
from fsxds.lint.field_values import packed_type

_COMMON = "envoy.matching.common_inputs"
_HTTP, _NETWORK = "envoy.matching.http.input", "envoy.matching.network.input"


class Context(NamedTuple):
    """A field with a matcher: the category of its inputs, the types of its actions, and whether one match ends it."""

    field: str
    inputs: str
    actions: frozenset[str]
    stops: bool = False


_RBAC_ACTIONS = frozenset({"envoy.config.rbac.v3.Action"})
_EXTENSION_ACTIONS = frozenset({
    "envoy.extensions.filters.common.matcher.action.v3.SkipFilter",
    "envoy.extensions.filters.http.composite.v3.ExecuteFilterAction",
})  # fmt: skip
_ROUTES = frozenset({"envoy.config.route.v3.Route", "envoy.config.route.v3.RouteList"})
_CHAIN_ACTIONS = frozenset({"google.protobuf.StringValue", "envoy.config.core.v3.SubstitutionFormatString"})

CONTEXTS: dict[str, tuple[Context, ...]] = {
    "envoy.config.listener.v3.Listener": (Context("filter_chain_matcher", _NETWORK, _CHAIN_ACTIONS),),
    "envoy.config.route.v3.VirtualHost": (Context("matcher", _HTTP, _ROUTES, stops=True),),
    "envoy.extensions.filters.http.rbac.v3.RBAC": (
        Context("matcher", _HTTP, _RBAC_ACTIONS, stops=True),
        Context("shadow_matcher", _HTTP, _RBAC_ACTIONS, stops=True),
    ),
    "envoy.extensions.filters.network.rbac.v3.RBAC": (
        Context("matcher", _NETWORK, _RBAC_ACTIONS),
        Context("shadow_matcher", _NETWORK, _RBAC_ACTIONS),
    ),
    "envoy.extensions.common.matching.v3.ExtensionWithMatcher": (Context("xds_matcher", _HTTP, _EXTENSION_ACTIONS),),
    "envoy.extensions.filters.udp.udp_proxy.v3.UdpProxyConfig": (
        Context("matcher", _NETWORK, frozenset({"envoy.extensions.filters.udp.udp_proxy.v3.Route"})),
    ),
}

# Types that are actions in some place, and can therefore be reported in others.
_ACTIONS = frozenset().union(*(context.actions for contexts in CONTEXTS.values() for context in contexts))


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the rules for matchers."""
    types = ExtensionTypes(catalogue)
    return {message_type: (_rule(contexts, types),) for message_type, contexts in CONTEXTS.items()}


def _rule(contexts: tuple[Context, ...], types: ExtensionTypes) -> Hook:
    def check_matchers(message: DynamicMessage, path: Path, walk: Walk) -> None:
        for context in contexts:
            if message.HasField(context.field):
                _check_matcher(getattr(message, context.field), (path, context.field), walk, context, types)

    return check_matchers


def _check_matcher(matcher: DynamicMessage, path: Path, walk: Walk, context: Context, types: ExtensionTypes) -> None:
    for on_match, place in _outcomes(matcher, path):
        chosen = on_match.WhichOneof("on_match")
        if context.stops and getattr(on_match, "keep_matching", False):
            walk.error((place, "keep_matching"), "wrong-extension", "the first match decides here", "remove it")
        if chosen == "matcher":
            _check_matcher(on_match.matcher, (place, "matcher"), walk, context, types)
        elif chosen == "action":
            name = _type_of(on_match.action)
            # With keep_matching, Envoy does not read the action.
            is_done = not getattr(on_match, "keep_matching", False)
            if is_done and name and name not in context.actions and (name in _ACTIONS or not types.fits(name, ())):
                message = f"{name} is nothing that can be done here"
                remedy = f"write {' or '.join(sorted(context.actions))}"
                walk.error(((place, "action"), "typed_config"), "wrong-extension", message, remedy)
    for source, place in _inputs(matcher, path):
        name = _type_of(source)
        if name and not types.fits(name, (context.inputs, _COMMON)) and not _is_inner(name):
            message = f"{name} is nothing that can be asked for here"
            walk.error((place, "typed_config"), "wrong-extension", message, f"write a type of {context.inputs}")


def _is_inner(name: str) -> bool:
    return name.endswith(".TypedStruct") or name == "xds.type.matcher.v3.HttpAttributesCelMatchInput"


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


def _inputs(matcher: DynamicMessage, path: Path) -> Iterator[tuple[DynamicMessage, Path]]:
    if matcher.WhichOneof("matcher_type") == "matcher_tree":
        yield matcher.matcher_tree.input, ((path, "matcher_tree"), "input")
    for index, one in enumerate(matcher.matcher_list.matchers):
        place: Path = ((((path, "matcher_list"), "matchers"), index), "predicate")
        yield from _predicate_inputs(one.predicate, place)


def _predicate_inputs(predicate: DynamicMessage, path: Path) -> Iterator[tuple[DynamicMessage, Path]]:
    chosen = predicate.WhichOneof("match_type")
    if chosen == "single_predicate":
        yield predicate.single_predicate.input, ((path, chosen), "input")
    elif chosen == "not_matcher":
        yield from _predicate_inputs(predicate.not_matcher, (path, chosen))
    elif chosen is not None:
        for index, inner in enumerate(getattr(predicate, chosen).predicate):
            yield from _predicate_inputs(inner, (((path, chosen), "predicate"), index))
