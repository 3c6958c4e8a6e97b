"""Matches list items by a unique key, else equal, then similar ones."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from fsxds.model.values import PlainValue

Pair: TypeAlias = tuple[int, int]
"""The index of an item before and after."""

# In a gap with more unmatched items, items are paired by order alone.
_LARGEST_GAP = 200


@dataclass(frozen=True, slots=True)
class Matching:
    """The correspondence of two lists.

    Attributes:
        pairs: indexes of items in both, sorted by the later; content may differ.
        labels_before: names of items, or empty; likewise `labels_after`.
    """

    pairs: tuple[Pair, ...]
    removed: tuple[int, ...]
    added: tuple[int, ...]
    labels_before: Sequence[str] = ()
    labels_after: Sequence[str] = ()
    is_reordered: bool = False


def match_items(before: Sequence[PlainValue], after: Sequence[PlainValue]) -> Matching:
    """Match two lists."""
    for read_key, is_label in _KEYS:
        keys_before, keys_after = _unique_keys(before, read_key), _unique_keys(after, read_key)
        if keys_before is not None and keys_after is not None:
            matching = _by_key(keys_before, keys_after)
            return matching if is_label else replace(matching, labels_before=(), labels_after=())
    return _by_content(before, after)


def canonical(value: PlainValue) -> str:
    """Return equal texts for equal values only."""
    return json.dumps(value, sort_keys=True)


def _text(holder: PlainValue, name: str) -> str | None:
    text = holder.get(name) if isinstance(holder, dict) else None
    return text if isinstance(text, str) else None


def _address(member: Mapping[str, PlainValue]) -> str | None:
    holder: PlainValue = {**member}
    for step in ("endpoint", "address"):
        if isinstance(holder, dict):
            holder = holder.get(step, holder)
    if not isinstance(holder, dict):
        return None
    match holder:
        case {"socket_address": {"address": str(host), "port_value": int(port)}}:
            return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        case {"socket_address": {"address": str(host), "named_port": str(port)}}:
            return f"{host}:{port}"
        case {"pipe": {"path": str(path)}}:
            return path
        case {"envoy_internal_address": {"server_listener_name": str(name)}}:
            return name
    return None


def _locality(member: Mapping[str, PlainValue]) -> str | None:
    if "lb_endpoints" not in member and "locality" not in member:
        return None
    return canonical([member.get("locality", {}), member.get("priority", 0)])


_ReadKey: TypeAlias = Callable[[dict[str, PlainValue]], "str | None"]

# Keys of an item, and whether the key is shown as its name. The first key that all items of both lists have is used.
_KEYS: tuple[tuple[_ReadKey, bool], ...] = (
    (lambda member: _text(member, "name"), True),
    (lambda member: _text(member.get("header", member), "key"), True),
    (_address, True),
    (lambda member: canonical(member["match"]) if isinstance(member.get("match"), dict) else None, False),
    (_locality, False),
)


def _unique_keys(members: Sequence[PlainValue], read_key: _ReadKey) -> dict[str, int] | None:
    keys: dict[str, int] = {}
    for place, member in enumerate(members):
        key = read_key(member) if isinstance(member, dict) else None
        if not key or key in keys:
            return None
        keys[key] = place
    return keys


def _by_key(before: dict[str, int], after: dict[str, int]) -> Matching:
    pairs = tuple((before[key], place) for key, place in after.items() if key in before)
    return Matching(
        pairs,
        removed=tuple(place for key, place in before.items() if key not in after),
        added=tuple(place for key, place in after.items() if key not in before),
        labels_before=tuple(before),
        labels_after=tuple(after),
        is_reordered=any(first[0] > second[0] for first, second in pairwise(pairs)),
    )


def _by_content(before: Sequence[PlainValue], after: Sequence[PlainValue]) -> Matching:
    equals = _by_key(_numbered(before), _numbered(after))
    in_order = _longest_rise(equals.pairs)
    gaps_before = _gaps(equals.removed, [pair[0] for pair in in_order])
    gaps_after = _gaps(equals.added, [pair[1] for pair in in_order])
    alike = [pair for gap in gaps_after for pair in _alike(gaps_before[gap], gaps_after[gap], before, after)]
    paired_before, paired_after = {pair[0] for pair in alike}, {pair[1] for pair in alike}
    return Matching(
        tuple(sorted((*equals.pairs, *alike), key=lambda pair: pair[1])),
        tuple(place for place in equals.removed if place not in paired_before),
        tuple(place for place in equals.added if place not in paired_after),
        is_reordered=equals.is_reordered,
    )


def _numbered(members: Iterable[PlainValue]) -> dict[str, int]:
    seen: Counter[str] = Counter()
    places: dict[str, int] = {}
    for place, member in enumerate(members):
        text = canonical(member)
        seen[text] += 1
        places[f"{seen[text]} {text}"] = place
    return places


def _longest_rise(pairs: Sequence[Pair]) -> list[Pair]:
    """Pairs are given by their second index. difflib finds long runs, not the most pairs, in quadratic time."""
    ends: list[int] = []
    chain: list[tuple[Pair, int]] = []  # each pair, and the index in `chain` of its predecessor
    last: list[int] = []
    for number, pair in enumerate(pairs):
        length = bisect_left(ends, pair[0])
        chain.append((pair, last[length - 1] if length else -1))
        ends[length : length + 1] = [pair[0]]
        last[length : length + 1] = [number]
    rise: list[Pair] = []
    number = last[-1] if last else -1
    while number >= 0:
        pair, number = chain[number]
        rise.append(pair)
    return rise[::-1]


def _gaps(places: Iterable[int], fixed: list[int]) -> defaultdict[int, list[int]]:
    """By the number of fixed indexes before."""
    gaps: defaultdict[int, list[int]] = defaultdict(list)
    for place in places:
        gaps[bisect_left(fixed, place)].append(place)
    return gaps


def _alike(
    places_before: list[int], places_after: list[int], before: Sequence[PlainValue], after: Sequence[PlainValue]
) -> Iterable[Pair]:
    if max(len(places_before), len(places_after)) > _LARGEST_GAP:
        return [
            pair
            for pair in zip(places_before, places_after, strict=False)
            if are_alike(before[pair[0]], after[pair[1]])
        ]
    pairs: list[Pair] = []
    waiting = list(places_before)
    for place in places_after:
        found = next((index for index, other in enumerate(waiting) if are_alike(before[other], after[place])), None)
        if found is not None:
            pairs.append((waiting[found], place))
            del waiting[: found + 1]
    return pairs


def are_alike(before: PlainValue, after: PlainValue) -> bool:
    """Return whether a value may be a change of the other.

    So may scalars of one type, and objects with an equal field, or only one, of the same name.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        shared = before.keys() & after.keys()
        if "@type" in shared and before["@type"] != after["@type"]:
            return False
        return any(before[key] == after[key] for key in shared) or (len(shared) == 1 == len(before) == len(after))
    return type(before) is type(after)
