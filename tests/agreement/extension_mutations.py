"""Mutations of what extensions are written in: TypedStruct, settings of routes for filters, and matchers."""

from __future__ import annotations

import random
from typing import Any

from fsxds.lint.extensions import extension_facts
from fsxds.lint.matchers import CONTEXTS, Context
from fsxds.source.envoy_api import packaged_features
from tests.agreement.edits import Add, Edit, Put, edited
from tests.agreement.mutations import COMPOUND, MUTATIONS, Mutation, Scene
from tests.agreement.places import Place

TYPE = "type.googleapis.com/"
STRUCTS = ("xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct")
WRAPPER = f"{TYPE}envoy.config.route.v3.FilterConfig"
OF_ROUTES = "typed_per_filter_config"
# Changes that fit a place in a struct as they fit one in a message.
WITHIN = tuple(
    one for one in MUTATIONS if one.name in {"drop-field", "retype", "unknown-field", "number", "null", "empty"}
)

_INPUTS = tuple(
    sorted(
        one
        for category, named in packaged_features().extensions.items()
        if category.startswith("envoy.matching.") and category.endswith(("input", "common_inputs"))
        for types in named.values()
        for one in types
    )
)
# How often what fits is chosen.
MOSTLY = 0.8
_PATH = {"path": [{"key": "a"}]}
# What inputs need, by how their names end.
_NEEDED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("HeaderMatchInput", {"header_name": "x"}),
    ("TrailerMatchInput", {"header_name": "x"}),
    ("QueryParamMatchInput", {"query_param": "x"}),
    ("FilterStateInput", {"key": "x"}),
    ("DynamicMetadataInput", {"filter": "x", **_PATH}),
    ("EndpointMetadataInput", _PATH),
    ("LocalityMetadataInput", _PATH),
    ("environment_variable.v3.Config", {"name": "X"}),
    ("PropertyMatchInput", {"property_name": "x"}),
)
_LOCAL_RESPONSE = "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy"
_SOCKET = "envoy.extensions.matching.common_inputs.transport_socket.v3.TransportSocketNameAction"
_BUCKET = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings"
_ACTIONS: tuple[dict[str, Any], ...] = (
    {"@type": f"{TYPE}envoy.config.rbac.v3.Action", "name": "a"},
    {"@type": f"{TYPE}envoy.config.route.v3.Route", "match": {"prefix": "/"}, "direct_response": {"status": 200}},
    {"@type": f"{TYPE}google.protobuf.StringValue", "value": "a"},
    {"@type": f"{TYPE}envoy.extensions.filters.common.matcher.action.v3.SkipFilter"},
    {"@type": f"{TYPE}envoy.extensions.filters.udp.udp_proxy.v3.Route", "cluster": "backend"},
    {"@type": f"{TYPE}envoy.config.core.v3.SubstitutionFormatString", "text_format_source": {"inline_string": "a"}},
    {"@type": f"{TYPE}{_SOCKET}", "name": "a"},
    {"@type": f"{TYPE}{_LOCAL_RESPONSE}"},
    {"@type": f"{TYPE}{_BUCKET}", "reporting_interval": "60s"},
)
_CEL = {"cel_expr_parsed": {"expr": {"id": 1, "const_expr": {"bool_value": True}}}}
_TESTS: tuple[dict[str, Any], ...] = (
    *({"value_match": {"exact": "a"}},) * 4,
    {"custom_match": {"name": "x", "typed_config": {"@type": f"{TYPE}xds.type.matcher.v3.CelMatcher", "expr_match": _CEL}}},
    {"custom_match": {"name": "x", "typed_config": {
        "@type": f"{TYPE}envoy.extensions.matching.input_matchers.ip.v3.Ip",
        "stat_prefix": "x", "cidr_ranges": [{"address_prefix": "10.0.0.0", "prefix_len": 8}],
    }}},
)  # fmt: skip


def _as_struct(scene: Scene) -> Edit | None:
    """Write one extension as a TypedStruct, mostly with a change in it."""
    all_places = scene.places_of(scene.place.value)
    packed = [one for one in all_places if one.form == "any" and one.path and one.message and "value" not in one.value]
    if not packed:
        return None
    chosen, changed = scene.rng.choice(packed), scene.place.value
    within = [one for one in all_places if one.path[: len(chosen.path)] == chosen.path and one.path != chosen.path]
    fitting = [(place, one) for place in within for one in WITHIN if one.fits(place)]
    if fitting and scene.rng.random() < 0.8:
        place, mutation = scene.rng.choice(fitting)
        edit = mutation.change(Scene(scene.rng, place, scene.pool, scene.places_of))
        changed = changed if edit is None else edited(changed, place.path, edit)
    held = changed
    for step in chosen.path:
        held = held[step]
    value = {key: member for key, member in held.items() if key != "@type"}
    struct = {"@type": f"{TYPE}{scene.rng.choice(STRUCTS)}", "type_url": held["@type"], "value": value}
    return Put(edited(changed, chosen.path, Put(struct)))


def _may_configure_filters(place: Place) -> bool:
    return place.message is not None and OF_ROUTES in place.message.fields_by_name and place.form == "message"


def _settings(scene: Scene) -> dict[str, Any]:
    """Return settings of a route for a filter: of any type, alone or in a FilterConfig."""
    facts = extension_facts()
    names = (*facts.for_routes, *facts.for_routes.values(), *sorted(facts.not_for_routes))
    settings = scene.rng.choice([{"@type": TYPE + scene.rng.choice(names)}, scene.rng.choice(scene.pool.packed)])
    wrapped: list[dict[str, Any]] = [
        settings,
        {"@type": WRAPPER, "config": settings},
        {"@type": WRAPPER, "config": settings, "is_optional": True},
        {"@type": WRAPPER, "disabled": scene.rng.random() < 0.5},
    ]
    return scene.rng.choice(wrapped)


def _configured(scene: Scene) -> Edit:
    names = ("envoy.filters.http.rbac", "other", "")
    others = scene.place.value.get(OF_ROUTES, {})
    return Add(OF_ROUTES, {**others, scene.rng.choice(names): _settings(scene)})


def _input(rng: random.Random, context: Context) -> dict[str, Any]:
    """Return an input, mostly one of the category that is asked for."""
    fitting = sorted(packaged_features().types(context.inputs))
    name = rng.choice(fitting if rng.random() < MOSTLY else _INPUTS)
    needed = next((fields for end, fields in _NEEDED if name.endswith(end)), {})
    return {"name": "input", "typed_config": {"@type": TYPE + name, **needed}}


def _action(rng: random.Random, context: Context) -> dict[str, Any]:
    """Return an action, mostly one that fits."""
    types = packaged_features().types(context.actions) if isinstance(context.actions, str) else context.actions
    fitting = [one for one in _ACTIONS if one["@type"].removeprefix(TYPE) in types]
    chosen = rng.choice(fitting if fitting and rng.random() < MOSTLY else _ACTIONS)
    return {"action": {"name": "action", "typed_config": chosen}}


def _matches(place: Place) -> bool:
    return place.message is not None and any(
        f"{place.message.full_name}.{field.name}" in CONTEXTS for field in place.message.fields
    )


def _matched(scene: Scene) -> Edit:
    """Put a matcher of any input, test and action where one may stand."""
    assert scene.place.message is not None
    message = scene.place.message
    field = scene.rng.choice([one.name for one in message.fields if f"{message.full_name}.{one.name}" in CONTEXTS])
    context = CONTEXTS[f"{message.full_name}.{field}"]
    action, source = _action(scene.rng, context), _input(scene.rng, context)
    predicate = {"single_predicate": {"input": source, **scene.rng.choice(_TESTS)}}
    listed = {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": action}]}}
    tree = {"matcher_tree": {"input": source, "exact_match_map": {"map": {"a": action}}}}
    matcher = scene.rng.choice([listed, listed, tree, {"on_no_match": action}])
    return Put({**scene.place.value, field: matcher})


EXTENDED = (
    Mutation("typed-struct", lambda place: not place.path, _as_struct, "extensions as TypedStruct"),
    Mutation("filter-settings", _may_configure_filters, _configured, "settings of routes for filters"),
    Mutation("matcher", _matches, _matched, "matchers"),
)
ALL = MUTATIONS + COMPOUND + EXTENDED
"""Every class of mutations."""
