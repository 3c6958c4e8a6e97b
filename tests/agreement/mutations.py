"""The classes of mutations: where each can be made, and what it makes of the place."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from tests.agreement.edits import Add, Drop, Edit, Put, Rename, edited
from tests.agreement.mutation_values import (
    ADDRESSES,
    CIDRS,
    DURATIONS,
    ENUM_GARBAGE,
    ENVIRONMENT,
    FORMATS,
    HEADERS,
    LONG,
    NUMBERS,
    PEMS,
    PORTS,
    REGEXES,
    STRINGS,
    TYPE_URLS,
    camel_case,
    generated,
)
from tests.agreement.places import Place, is_map

SCALARS = {"string", "bytes", "number", "bool", "enum", "duration"}


@dataclass(slots=True)
class Pool:
    """Values seen anywhere, by the full name of their field and of their message, and what is packed in Any."""

    by_field: dict[str, list[Any]] = field(default_factory=dict)
    by_message: dict[str, list[Any]] = field(default_factory=dict)
    packed: list[dict[str, Any]] = field(default_factory=list)
    type_urls: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a mutation may look at: the place, what was seen elsewhere, the places of a changed resource, and the dice."""

    rng: random.Random
    place: Place
    pool: Pool
    places_of: Callable[[Any], list[Place]]


@dataclass(frozen=True, slots=True)
class Mutation:
    """One class of mutations; `change` returns None where it finds nothing to do after all."""

    name: str
    fits: Callable[[Place], bool]
    change: Callable[[Scene], Edit | None]
    kind: str = "one value"


def _is_field(place: Place) -> bool:
    return bool(place.path) and not place.is_member


def _has_form(*forms: str) -> Callable[[Place], bool]:
    return lambda place: place.form in forms and bool(place.path)


def _named(*names: str, forms: tuple[str, ...] = ("string",)) -> Callable[[Place], bool]:
    return lambda place: place.form in forms and place.field_name in names


def _one_of(values: tuple[Any, ...]) -> Callable[[Scene], Edit | None]:
    return lambda scene: Put(scene.rng.choice(values))


def _retyped(scene: Scene) -> Edit:
    others: list[Any] = [5, "text", True, 1.5, ["text"], {"key": "value"}, [], {}, "5", "true"]
    return Put(scene.rng.choice([one for one in others if type(one) is not type(scene.place.value)]))


def _emptied(scene: Scene) -> Edit | None:
    if not isinstance(scene.place.value, str | list | dict) or not scene.place.value:
        return None
    if isinstance(scene.place.value, dict) and "@type" in scene.place.value:
        return Put({"@type": scene.place.value["@type"]})
    return Put(type(scene.place.value)())


def _renamed(scene: Scene) -> Edit:
    name = str(scene.place.path[-1])
    return Rename(
        scene.rng.choice([name + "s", name[:-1] or "x", "no_such_field", "x_" + name, name.upper(), name + " "])
    )


def _camel_cased(scene: Scene) -> Edit | None:
    name = camel_case(str(scene.place.path[-1]))
    return Rename(name) if name != scene.place.path[-1] else None


def _doubled(scene: Scene) -> Edit | None:
    if not scene.place.value:
        return None
    at = scene.rng.randrange(len(scene.place.value))
    return Put(
        [*scene.place.value, scene.place.value[at]]
        if scene.rng.random() < 0.5
        else [scene.place.value[at], *scene.place.value]
    )


def _same_name(scene: Scene) -> Edit | None:
    members = scene.place.value
    keys = [
        key
        for key in ("name", "category", "domains", "prefix")
        if all(isinstance(m, dict) and key in m for m in members)
    ]
    if not members or not keys:
        return None
    key = scene.rng.choice(keys)
    if len(members) == 1:
        return Put([members[0], {**members[0]}])
    first, second = scene.rng.sample(range(len(members)), 2)
    changed = list(members)
    changed[second] = {**changed[second], key: changed[first][key]}
    return Put(changed)


def _reordered(scene: Scene) -> Edit | None:
    if len(scene.place.value) < 2:
        return None
    return Put(
        scene.rng.choice(
            [
                scene.place.value[::-1],
                scene.place.value[1:] + scene.place.value[:1],
                scene.rng.sample(scene.place.value, len(scene.place.value)),
            ]
        )
    )


def _unknown_type(scene: Scene) -> Edit | None:
    if "@type" not in scene.place.value:
        return None
    changed = dict(scene.place.value)
    replacement = scene.rng.choice(TYPE_URLS)
    if replacement is None:
        del changed["@type"]
    else:
        changed["@type"] = replacement
    return Put(changed)


def _other_type(scene: Scene) -> Edit:
    url = scene.rng.choice(scene.pool.type_urls)
    return Put({"@type": url} if scene.rng.random() < 0.7 else {**scene.place.value, "@type": url})


def _choices(place: Place) -> list[FieldDescriptor]:
    """Return the members of oneofs that a message could have instead of the one that it has."""
    if place.message is None or not isinstance(place.value, dict):
        return []
    return [
        other
        for oneof in place.message.oneofs
        if any(member.name in place.value for member in oneof.fields)
        for other in oneof.fields
        if other.name not in place.value and other.name not in ENVIRONMENT
    ]


def _value_for(rng: random.Random, target: FieldDescriptor, pool: Pool) -> Any:
    seen = pool.by_field.get(target.full_name)
    return rng.choice(seen) if seen and rng.random() < 0.7 else generated(rng, target)


def fellows(chosen: FieldDescriptor) -> list[FieldDescriptor]:
    """Return the members of the oneof of a field."""
    return list(chosen.containing_oneof.fields) if chosen.containing_oneof else []


def _other_choice(scene: Scene) -> Edit | None:
    choices = _choices(scene.place)
    if not choices:
        return None
    chosen = scene.rng.choice(choices)
    gone = {member.name for member in fellows(chosen)}
    rest = {key: value for key, value in scene.place.value.items() if key not in gone}
    return Put({**rest, chosen.name: _value_for(scene.rng, chosen, scene.pool)})


def _both_choices(scene: Scene) -> Edit | None:
    choices = _choices(scene.place)
    if not choices:
        return None
    chosen = scene.rng.choice(choices)
    return Add(chosen.name, _value_for(scene.rng, chosen, scene.pool))


def _absent(place: Place) -> list[FieldDescriptor]:
    if place.message is None or not isinstance(place.value, dict) or (place.form == "any" and "value" in place.value):
        return []
    taken = {oneof.full_name for oneof in place.message.oneofs if any(m.name in place.value for m in oneof.fields)}
    return [
        one
        for one in place.message.fields
        if one.name not in place.value
        and one.name not in ENVIRONMENT
        and (one.containing_oneof is None or one.containing_oneof.full_name not in taken)
    ]


def _added(scene: Scene) -> Edit | None:
    absent = _absent(scene.place)
    if not absent:
        return None
    chosen = scene.rng.choice(absent)
    return Add(chosen.name, generated(scene.rng, chosen))


def _grafted(scene: Scene) -> Edit | None:
    absent = [one for one in _absent(scene.place) if one.full_name in scene.pool.by_field]
    if not absent:
        return None
    chosen = scene.rng.choice(absent)
    return Add(chosen.name, scene.rng.choice(scene.pool.by_field[chosen.full_name]))


def _exchanged(scene: Scene) -> Edit | None:
    if scene.place.field is None or scene.place.is_member:
        return None
    others = [one for one in scene.pool.by_field.get(scene.place.field.full_name, ()) if one != scene.place.value]
    return Put(scene.rng.choice(others)) if others else None


def _other_value(scene: Scene) -> Edit | None:
    """Put in a value that stands a good chance of being right."""
    if scene.place.form == "enum" and scene.place.field is not None and scene.place.field.enum_type is not None:
        return Put(scene.rng.choice([one.name for one in scene.place.field.enum_type.values]))
    if scene.place.form == "bool":
        return Put(scene.rng.choice([not scene.place.value, "true", "false"]))
    if scene.place.form == "number":
        return Put(scene.rng.choice([1, 2, 3, 10, 50, 100, 1000, 1024, 65535, "7"]))
    if scene.place.form == "duration":
        return Put(scene.rng.choice(["1s", "0.5s", "60s", "0.001s", "10.000000001s"]))
    return None


def _wrapped_in_list(scene: Scene) -> Edit | None:
    if scene.place.form == "list":
        return Put(scene.place.value[0]) if scene.place.value else None
    return Put([scene.place.value]) if _is_field(scene.place) else None


def _moved_extension(scene: Scene) -> Edit | None:
    """Put what is packed elsewhere here, with all its settings."""
    others = [one for one in scene.pool.packed if one.get("@type") != scene.place.value.get("@type")]
    return Put(scene.rng.choice(others)) if others else None


def _exchanged_within(scene: Scene) -> Edit | None:
    """Let two extensions of a resource change places, unless one is within the other."""
    packed = [place for place in scene.places_of(scene.place.value) if place.form == "any" and place.path]
    pairs = [
        (one, other)
        for one in packed
        for other in packed
        if one.path < other.path and other.path[: len(one.path)] != one.path and one.value != other.value
    ]
    if not pairs:
        return None
    one, other = scene.rng.choice(pairs)
    changed = edited(scene.place.value, one.path, Put(other.value))
    return Put(edited(changed, other.path, Put(one.value)))


def _of_same_message(scene: Scene) -> Edit | None:
    """Put in a message of the same type that stands somewhere else."""
    assert scene.place.message is not None
    seen = scene.pool.by_message.get(scene.place.message.full_name, ())
    others = [one for one in seen if one != scene.place.value]
    return Put(scene.rng.choice(others)) if others else None


def _several(scene: Scene) -> Edit | None:
    """Make a few changes, each in what the ones before it left."""
    changed = scene.place.value
    for _ in range(scene.rng.choice([2, 2, 3, 4])):
        places = [place for place in scene.places_of(changed) if place.path]
        fitting = [(place, one) for place in places for one in GENTLE if one.fits(place)]
        if not fitting:
            return None
        place, mutation = scene.rng.choice(fitting)
        edit = mutation.change(replace(scene, place=place))
        if edit is not None:
            changed = edited(changed, place.path, edit)
    return Put(changed) if changed != scene.place.value else None


def _is_top(place: Place) -> bool:
    return not place.path


def _is_message(place: Place) -> bool:
    return place.form == "message" and place.message is not None and bool(place.path)


def _regex_place(place: Place) -> bool:
    return place.form == "string" and place.field_name in {"regex", "substitution", "path_template"}


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("drop-field", _is_field, lambda _: Drop()),
    Mutation("drop-member", lambda place: place.is_member, lambda _: Drop()),
    Mutation("retype", lambda place: bool(place.path), _retyped),
    Mutation("null", lambda place: bool(place.path), lambda _: Put(None)),
    Mutation("number", _has_form("number"), _one_of(NUMBERS)),
    Mutation("empty", lambda place: bool(place.path), _emptied),
    Mutation("long-string", _has_form("string", "bytes"), _one_of(LONG)),
    Mutation("odd-string", _has_form("string", "bytes"), _one_of(STRINGS)),
    Mutation("unknown-field", _is_field, _renamed),
    Mutation("camel-case", _is_field, _camel_cased),
    Mutation("double-member", _has_form("list"), _doubled),
    Mutation("same-name", _has_form("list"), _same_name),
    Mutation("bad-address", _named("address", "address_prefix"), _one_of((*ADDRESSES, *CIDRS))),
    Mutation("bad-port", _named("port_value", "destination_port", "prefix_len", forms=("number",)), _one_of(PORTS)),
    Mutation("bad-duration", _has_form("duration"), _one_of(DURATIONS)),
    Mutation("bad-regex", _regex_place, _one_of(REGEXES)),
    Mutation("unknown-enum", _has_form("enum"), _one_of(ENUM_GARBAGE)),
    Mutation("unknown-type", _has_form("any"), _unknown_type),
    Mutation("other-type", _has_form("any"), _other_type),
    Mutation("order", _has_form("list"), _reordered),
    Mutation("other-choice", lambda place: bool(_choices(place)), _other_choice),
    Mutation("both-choices", lambda place: bool(_choices(place)), _both_choices),
    Mutation(
        "bad-header",
        lambda place: place.form == "string" and ("header" in place.field_name or place.path[-1:] == ("key",)),
        _one_of(HEADERS),
    ),
    Mutation("bad-format", lambda place: place.form == "string" and "%" in str(place.value), _one_of(FORMATS)),
    Mutation("bad-pem", lambda place: "-----" in str(place.value) and place.form == "string", _one_of(PEMS)),
    Mutation("list-or-one", lambda place: bool(place.path), _wrapped_in_list),
    Mutation("add-field", lambda place: place.message is not None, _added),
    Mutation("graft", lambda place: place.message is not None, _grafted),
    Mutation("exchange", _is_field, _exchanged),
    Mutation("other-value", lambda place: place.form in SCALARS, _other_value),
)

# Those that leave most resources right, so that several of them together are not refused for the first alone. A field in
# both spellings, which is refused on purpose, would come of "camel-case".
GENTLE = tuple(
    one
    for one in MUTATIONS
    if one.name in {"drop-field", "drop-member", "double-member", "other-choice", "graft", "exchange"}
    or one.name in {"add-field", "other-value", "order", "same-name", "number", "other-type"}
)
EXTENSIONS, MESSAGES, SEVERAL = "types at other places", "messages of other resources", "several edits"
COMPOUND = (
    Mutation("move-extension", _has_form("any"), _moved_extension, EXTENSIONS),
    Mutation("swap-extensions", _is_top, _exchanged_within, EXTENSIONS),
    Mutation("same-message", _is_message, _of_same_message, MESSAGES),
    Mutation("several", _is_top, _several, SEVERAL),
)


def holds_place(pool: Pool, place: Place) -> None:
    """Remember what stands in a place."""
    if place.field is not None and not place.is_member and not is_map(place.field):
        pool.by_field.setdefault(place.field.full_name, []).append(place.value)
    if _is_message(place) and place.message is not None:
        pool.by_message.setdefault(place.message.full_name, []).append(place.value)
    if place.form == "any" and isinstance(place.value, dict):
        pool.packed.append(place.value)
    if place.form == "any" and isinstance(place.value, dict) and place.value.get("@type") not in pool.type_urls:
        pool.type_urls.append(place.value["@type"])
