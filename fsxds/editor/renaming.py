"""Renames a resource and its mentions, or rejects an uncertain request.

The tree with the edits is tried: it must have no new problem.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from fsxds.editor.mentions_of_names import NamePlace, name_trails, span_of
from fsxds.editor.navigation import NameAt, Navigator
from fsxds.editor.outline import Form, Trail
from fsxds.editor.text_positions import Span
from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.model.resource_names import MalformedName, ResourceName, is_structured
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import Problem, Severity
from fsxds.snapshots.references import ANY, CLUSTER, ENDPOINTS, ROUTES, SECRET, VIRTUAL_HOST

Edits = Mapping[PurePosixPath, Mapping[Span, str]]
"""Replacements, by file."""

Try = Callable[[Mapping[PurePosixPath, str]], Iterable[Problem]]
"""Returns the problems with these texts of files."""

_TEXT_FORMATS = (".yaml", ".yml", ".json")
_RENAMED = frozenset({CLUSTER, ENDPOINTS, ROUTES, SECRET})
_PLAIN = re.compile(r"[A-Za-z0-9_./]([\w./ +@:-]*[\w./+@-])?")


class UncertainRenameError(Exception):
    """A resource cannot be renamed with certainty."""


@dataclass(frozen=True, slots=True)
class _Written:
    path: PurePosixPath
    span: Span
    quote: str
    is_definition: bool


def renameable(navigator: Navigator, path: PurePosixPath, index: int) -> NameAt:
    """Return a name that can be renamed, or raise UncertainRenameError."""
    found = navigator.name_at(path, index)
    if found is None:
        raise UncertainRenameError("there is no name of a resource here")
    for type_url, _ in found.keys:
        if type_url not in _RENAMED:
            raise UncertainRenameError(
                f"{BY_TYPE_URL[type_url].noun} cannot be renamed: files outside of the tree may name them"
            )
    return found


def rename(navigator: Navigator, found: NameAt, new_name: str, attempt: Try) -> Edits:
    """Return a resource's renaming; `attempt` loads the tree with other texts.

    Raises:
        UncertainRenameError: occurrences may be missing, or the tree would have a new problem.
    """
    if not new_name.strip() or new_name != new_name.strip() or not new_name.isprintable():
        raise UncertainRenameError("write a name of printable characters, without blanks around it")
    if new_name == ANY:
        raise UncertainRenameError('"*" is no name')
    _require_form(found.keys[0], new_name)
    _require_whole_tree(navigator)
    written = _everywhere(navigator, found.keys, new_name)
    edits: defaultdict[PurePosixPath, dict[Span, str]] = defaultdict(dict)
    named = _named(navigator, found.keys[0], new_name)
    # Mentions have the name of the definition, unless the definition's folder extends it.
    is_same = named == navigator.names_in(PurePosixPath()).reference(new_name)
    mentioned = named if found.is_definition and not is_same else new_name
    for one in written:
        edits[one.path][one.span] = _as_written(new_name if one.is_definition else mentioned, one)
    texts = {path: edited(navigator.text(path), parts) for path, parts in edits.items()}
    before = Counter(map(_essence, navigator.view.problems))
    more = [problem for problem in attempt(texts) if not before[_essence(problem)]]
    if more:
        worst = min(more, key=lambda problem: tuple(Severity).index(problem.severity))
        raise UncertainRenameError(f"with this name, {worst.path}:{worst.line} would be wrong: {worst.rule}")
    return edits


def edited(text: str, parts: Mapping[Span, str]) -> str:
    """Return a text with spans replaced."""
    for (start, end), new in sorted(parts.items(), reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _essence(problem: Problem) -> tuple[str, str, str]:
    return str(problem.path), problem.rule, problem.pointer


def _require_form(key: Key, name: str) -> None:
    if not is_structured(name):
        return
    try:
        structured = ResourceName.parse(name)
    except MalformedName as error:
        raise UncertainRenameError(f"the name {error}") from error
    if structured.type_url != key[0] or structured.is_glob:
        raise UncertainRenameError(f"write the name of one resource of {key[0].rpartition('/')[2]}")


def _require_whole_tree(navigator: Navigator) -> None:
    """Unread files may mention the name."""
    for path, parsed in navigator.view.parsed.items():
        wrong = next((problem for problem in parsed.problems if problem.severity is Severity.ERROR), None)
        if wrong is not None:
            raise UncertainRenameError(f"{path}:{wrong.line} has an error, and may mention the name; fix it first")
    missing = next((one for one in navigator.view.problems if one.path not in navigator.view.parsed), None)
    if missing is not None and missing.severity is Severity.ERROR:
        raise UncertainRenameError(f"{missing.path} cannot be read, and may mention the name")


def _everywhere(navigator: Navigator, keys: Iterable[Key], new_name: str) -> set[_Written]:
    """Resources that share an occurrence are included."""
    names, waiting, done = navigator.view.names, list(keys), set[Key]()
    by_place = _keys_by_place(navigator)
    found: dict[tuple[PurePosixPath, Span], _Written] = {}
    while waiting:
        key = waiting.pop()
        if key in done:
            continue
        done.add(key)
        _require_certain(navigator, key, new_name)
        definitions = names.definitions.get(key, ())
        written = [
            _written(navigator, place, trail)
            for place in definitions
            for place, trail in _definition(navigator, key, place)
        ]
        for place in names.mentions.get(key, ()):
            trail = _trail(navigator, place)
            # In a reference with alternatives, a name is only a part.
            is_whole = trail is not None and navigator.mentioned(key[0], place, trail) == key[1]
            written.append(_written(navigator, place, trail if is_whole else None, is_definition=False))
        for one in written:
            found.setdefault((one.path, one.span), one)
            waiting += by_place.get((one.path, one.span), ())
    _require_no_other_words(navigator, done, set(found.values()))
    return set(found.values())


def _definition(navigator: Navigator, key: Key, place: NamePlace) -> list[tuple[NamePlace, Trail | None]]:
    found = name_trails(navigator.outline(place.path), key, place, navigator.names_in(place.path))
    return [(place, trail) for trail in found] or [(place, None)]


def _keys_by_place(navigator: Navigator) -> Mapping[tuple[PurePosixPath, Span], list[Key]]:
    """A name may be both a cluster's and its endpoints'."""
    by_place: defaultdict[tuple[PurePosixPath, Span], list[Key]] = defaultdict(list)
    names = navigator.view.names
    for key, places in names.mentions.items():
        if key[0] != ENDPOINTS:
            continue
        for place in places:
            trail = _trail(navigator, place)
            if trail is not None and (CLUSTER, key[1]) in names.definitions:
                is_own = place.field_path == (*place.resource_path, "name")
                by_place[place.path, span_of(trail)] += [key, (CLUSTER, key[1])] if is_own else [key]
    return by_place


def _trail(navigator: Navigator, place: NamePlace) -> Trail | None:
    return navigator.outline(place.path).follow(place.document, place.field_path)


def _require_certain(navigator: Navigator, key: Key, new_name: str) -> None:
    names, (type_url, name) = navigator.view.names, key
    new_name = _named(navigator, key, new_name)
    noun = BY_TYPE_URL[type_url].noun
    definitions = names.definitions.get(key, ())
    if len(definitions) > 1:
        raise UncertainRenameError(f"{noun}: the name is defined {len(definitions)} times")
    if type_url == CLUSTER and name in navigator.view.static_clusters:
        raise UncertainRenameError("the bootstrap defines a cluster of this name, which is not renamed here")
    if not definitions and type_url != ENDPOINTS:
        raise UncertainRenameError(f"{noun}: no file of this tree defines the name")
    if (type_url, new_name) in names.definitions or new_name in navigator.view.static_clusters:
        raise UncertainRenameError(f"{noun}: the name is taken already")
    if type_url == ROUTES and (VIRTUAL_HOST, f"{name}/{ANY}") in names.mentions:
        raise UncertainRenameError("virtual hosts are found by the name of this route configuration")
    for place in names.mentions.get(key, ()):
        if place.is_static:
            raise UncertainRenameError(f"{place.path} means a resource of the bootstrap by this name")


def _named(navigator: Navigator, key: Key, new_name: str) -> str:
    place = next(iter(navigator.view.names.definitions.get(key, ())), None)
    return new_name if place is None else navigator.canonical(place.path, new_name, BY_TYPE_URL[key[0]])


def _written(navigator: Navigator, place: NamePlace, trail: Trail | None, *, is_definition: bool = True) -> _Written:
    node = trail.value if trail is not None else None
    if node is None or node.form is not Form.SCALAR:
        raise UncertainRenameError(f"{place.path}: a place that names it cannot be found; is it written by an alias?")
    text = navigator.text(place.path)[node.start : node.end]
    if place.path.suffix.lower() not in _TEXT_FORMATS or node.quote in ("|", ">") or len(text.splitlines()) != 1:
        raise UncertainRenameError(f"{place.path}: a place that names it is in a form that is not edited")
    return _Written(place.path, (node.start, node.end), node.quote, is_definition)


def _require_no_other_words(navigator: Navigator, keys: Iterable[Key], found: set[_Written]) -> None:
    """Files that may use any name, as by Lua, must have no other occurrence."""
    spans = {(one.path, one.span[0]) for one in found}
    for type_url, name in keys:
        word = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        for path in sorted({place.path for place in navigator.view.names.mentions.get((type_url, ANY), ())}):
            text = navigator.text(path)
            starts = (match.start() for match in word.finditer(text))
            if any((path, start) not in spans and (path, start - 1) not in spans for start in starts):
                raise UncertainRenameError(f"{path} may use it by its name in code or in a text")


def _as_written(name: str, place: _Written) -> str:
    if place.quote == "'":
        return "'" + name.replace("'", "''") + "'"
    is_plain = _PLAIN.fullmatch(name) and resolve_plain(name) == name and ": " not in name
    if place.quote == '"' or place.path.suffix.lower() == ".json" or not is_plain:
        return json.dumps(name, ensure_ascii=False)
    return name
