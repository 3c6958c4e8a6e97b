"""Which field of a resource a validating Envoy speaks of (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from fsxds.local_envoy.judge_words import as_if_served, constraint_chain
from fsxds.values import FieldPath, PlainValue

_STEP = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
# What may be a value or a name: texts in quotes, and words.
_QUOTED = re.compile(r"(?<!\w)'([^']+)'|\"([^\"]+)\"|<([^>]+)>")
_WORD = re.compile(r"[^\s'\"]+")
_SHORTEST_WORD = 3
_HINTS = tuple(
    (re.compile(reason), re.compile(value))
    for reason, value in (
        ("single wildcard domain", r"\*$"),
        ("Invalid duration", r"-\d|\d{12,}"),
        ("may not be (?:removed|modified)", "(?i)(?::|host$)"),
    )
)
_Places: TypeAlias = tuple[tuple[FieldPath, PlainValue], ...]
_REPEATED = re.compile("[Dd]uplicate|[Oo]nly unique|already|[Mm]ore than one")


def field_named(reason: str, plain: PlainValue, message_type: str) -> FieldPath:
    """Return the path of the field that a reason speaks of, as far as it leads; empty where it names none.

    Args:
        reason: in Envoy's words, whole.
        plain: the resource as snake_case JSON.
        message_type: the full name of its type.
    """
    chain = constraint_chain(reason)
    if chain:
        return _follow(chain, plain, message_type)
    words, parts = as_if_served(reason), tuple(_parts(plain, ()))
    return _of_hint(words, parts) or _of_value(words, parts) or _of_key(words, parts)


def _follow(chain: tuple[tuple[str, str], ...], plain: PlainValue, message_type: str) -> FieldPath:
    """Follow the way to a broken rule from where it enters the resource, or something packed in it."""
    own_name = message_type.rpartition(".")[2]
    starts = [number for number, (owner, _) in enumerate(chain) if owner == own_name]
    if starts:
        return _steps(chain[starts[0] :], plain, ())
    found = [
        _steps(chain, part, path)
        for path, part in _parts(plain, ())
        if isinstance(part, dict) and str(part.get("@type", "")).endswith(f".{chain[0][0].replace('_', '.')}")
    ]
    return max(found, key=len, default=())


def _steps(chain: tuple[tuple[str, str], ...], part: PlainValue, path: FieldPath) -> FieldPath:
    for _, written in chain:
        match = _STEP.match(written)
        if match is None or not isinstance(part, dict):
            return path
        key = next((key for key in part if key.replace("_", "").lower() == match[1].lower()), None)
        if key is None:
            return (*path, _snake(match[1]))
        path, part = (*path, key), part[key]
        if match[2] is None:
            continue
        if isinstance(part, list) and match[2].isdigit() and int(match[2]) < len(part):
            path, part = (*path, int(match[2])), part[int(match[2])]
        elif isinstance(part, dict) and match[2] in part:
            path, part = (*path, match[2]), part[match[2]]
    return path


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _of_hint(reason: str, parts: _Places) -> FieldPath:
    """Return the path of the last value of the sort that a reason speaks of without quoting it."""
    for pattern, value in _HINTS:
        if pattern.search(reason):
            return next((path for path, part in reversed(parts) if isinstance(part, str) and value.match(part)), ())
    return ()


def _of_value(reason: str, parts: _Places) -> FieldPath:
    """Return the path of a value or a key that is quoted: the first such, or the last of those that stand twice."""
    places: dict[str, list[FieldPath]] = {}
    quoted = set(_quoted(reason))
    for path, part in parts:
        if not path or path == ("name",):
            continue
        if isinstance(part, str | int | float) and not isinstance(part, bool):
            text = str(part)
            for known in {text, text.rpartition("/")[2] if path[-1] == "@type" else text}:
                places.setdefault(known, []).append(path)
        if isinstance(part, dict) and str(path[-1]) in quoted:
            places.setdefault(str(path[-1]), []).append(path)
    for piece in _pieces(reason):
        if piece in places:
            return places[piece][-1 if _REPEATED.search(reason) else 0]
    return ()


def _of_key(reason: str, parts: _Places) -> FieldPath:
    """Return the path of a field whose name stands in the reason, or of a text that such a name is a part of."""
    words = " ".join(re.findall(r"\w+", reason)).lower()
    for path, _ in parts:
        if path and isinstance(path[-1], str) and "_" in path[-1]:
            name = path[-1].removesuffix("s")
            if name in words or name.replace("_", " ") in words:
                return path
    commands = set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", reason))
    named = (path for path, part in parts if isinstance(part, str) and any(f"%{word}" in part for word in commands))
    return next(named, ())


def _pieces(reason: str) -> Iterator[str]:
    """Yield what may be a value, that in quotes before bare words."""
    quoted = _quoted(reason)
    yield from quoted
    # What is quoted without quotes, after a colon: `missing ): (a`.
    yield from (reason[match.end() :] for match in re.finditer(": ", reason))
    for text in quoted:
        yield text.rpartition(":")[0]
        yield text.rpartition(":")[2]
    for word in _WORD.findall(reason):
        bare = word.strip(".,;:()[]")
        for piece in (
            word.rstrip(".,;"),
            bare,
            bare.rpartition(":")[0],
            bare.rpartition(":")[2],
            bare.partition("=")[2],
        ):
            if len(piece) >= _SHORTEST_WORD:
                yield piece


def _quoted(reason: str) -> list[str]:
    return [next(filter(None, groups)) for groups in _QUOTED.findall(reason)]


def _parts(value: PlainValue, path: FieldPath) -> Iterator[tuple[FieldPath, PlainValue]]:
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _parts(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _parts(member, (*path, index))
