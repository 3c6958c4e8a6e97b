"""Parses a file, substitutes its variables, and finds all problems in it.

Most of the cost of a large YAML list is in unchanged items, so it is parsed again by its new items, if it stands at the
left margin, bare or under `resources:`. The cut is proved: every piece must parse alone, to exactly one good resource.
Anything else (an anchor used across items, any fault) makes the file parse as a whole.

Files whose first line is `# fsxds: variables` have variables. `${NAME}` is replaced within scalars, not in keys, after
parsing, so that no value can change the structure. An unquoted scalar of one variable is typed like its value,
unquoted; all others are text. `$${` stands for `${`. Problems never show a value: it may be a secret from the
environment.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.api.fields import shown_pointer
from fsxds.api.walk import merge_hooks
from fsxds.formats import Format, format_of
from fsxds.formats.decoded import MAX_FAULTS, MessageDocument, PlainDocument
from fsxds.formats.positions import Found, Locate
from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.model.memo import Lru
from fsxds.model.resource_types import ResourceType, type_from_path
from fsxds.model.resources import Document, LayerEdit, Origin, ParsedFile, Resource
from fsxds.model.values import Fault, FieldPath, PlainText, PlainValue, Problem, Severity, SourceFile, Tree, VariedFile
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.settings.view_rules import Variables
from fsxds.snapshots import references
from fsxds.snapshots.document import DocumentDraft, DocumentReader, Tools
from fsxds.snapshots.names import repeated_names
from fsxds.snapshots.proposals import Check, NoCheck

# Below this size the time to parse a file is not noticeable.
SMALLEST_BYTES = 100_000

# The maximum number of remembered items of all files; the snapshot holds most of them anyway.
MOST_REMEMBERED = 200_000

_ITEM = b"\n- "

# The ends of lines in YAML beside the line feed, which is counted.
_OTHER_BREAKS = (b"\r", "\x85".encode(), "\u2028".encode(), "\u2029".encode())

# The line before a list under `resources:`; with a value or another key there, the file is parsed as a whole.
_OPENS_LIST = re.compile(rb"resources:[ \t]*(#.*)?")

# An item that matches may refer to another item.
_ALIAS = re.compile(rb"[\s\[{,]\*[^\s\"',\]}]")


class FileParser:
    """Turns files into documents, or into problems; one catalogue, any number of files.

    Known lists of at least `chunked_from_bytes` are parsed by items. `variables` are for views without any.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        unknown_fields: Severity = Severity.ERROR,
        check: Check | None = None,
        *,
        chunked_from_bytes: int = SMALLEST_BYTES,
    ) -> None:
        self._check = check or NoCheck()
        self.variables = Variables()
        self._tools = tools_for(catalogue, unknown_fields, self._check)
        self._chunks = ChunkParser(self._tools, chunked_from_bytes)

    def name_by(self, rules: NamingRules) -> None:
        """Set the naming rules, before anything is parsed."""
        self._tools = replace(self._tools, naming=rules)
        self._chunks.tools = self._tools

    def parse(self, file: SourceFile) -> ParsedFile:
        """Parse one file; bad content never raises."""
        file_format = format_of(file.path)
        if file_format is None:
            fact = "no format is known for this suffix"
            problem = Problem.of_file(file.path, "unknown-format", fact, "rename the file")
            return ParsedFile(file.path, file.digest, problems=(problem,))
        hint = type_from_path(file.path)
        document = None if file.has_variables else self._chunks.parse(file, hint)
        if document is not None:
            return ParsedFile(file.path, file.digest, (document,))
        parsed = self._parse_whole(file, file_format, hint)
        self.learn(file, parsed)
        return parsed

    def parse_edit(self, file: SourceFile, most_bytes: int) -> ParsedFile | None:
        """Parse a file with at most `most_bytes` new, else None."""
        if file.has_variables:
            return None
        document = self._chunks.parse_edit(file, type_from_path(file.path), most_bytes)
        return None if document is None else ParsedFile(file.path, file.digest, (document,))

    def learn(self, file: SourceFile, parsed: ParsedFile) -> None:
        """Remember content, so that the next edit costs only the change."""
        if len(parsed.documents) == 1 and not parsed.problems and not file.has_variables:
            self._chunks.learn(file, type_from_path(file.path), parsed.documents[0])

    def forget_gone(self, tree: Tree) -> None:
        """Forget files not in a tree."""
        self._chunks.forget_gone(tree)

    def _parse_whole(self, file: SourceFile, file_format: Format, hint: ResourceType | None) -> ParsedFile:
        decoded = file_format.decode(file.content, self._tools.catalogue, hint.message_type if hint else None)
        drafts = [
            self._draft(file, document, hint, number)
            for number, document in enumerate(decoded.documents)
            if not (isinstance(document, PlainDocument) and document.value is None)
        ]
        found = [(0, fault) for fault in decoded.faults]
        found += ((draft.number, fault) for draft in drafts for fault in draft.faults)
        faults = [(number, fault) for number, each in found if (fault := self._check.adjusted(each)) is not None]
        problems = list(problems_of(file, file_format.locate, _bounded(faults), self._tools.catalogue))
        if not drafts and not problems:
            remedy = "write `resources: []` to serve an empty list, or delete the file"
            problems.append(Problem.of_file(file.path, "empty-file", "the file is empty", remedy))
        edits = _placed_edits(file, file_format.locate, drafts)
        documents = tuple(
            Document(
                *(file.path, tuple(draft.resources), frozenset(draft.declared), draft.version_info),
                *(tuple(draft.unread), edits.get(draft.number, ())),
            )
            for draft in drafts
        )
        repeated = map(self._check.adjusted, islice(repeated_names(documents), MAX_FAULTS))
        problems += (problem for problem in repeated if problem is not None)
        return ParsedFile(file.path, file.digest, documents, tuple(sorted(problems)))

    def _draft(
        self, file: SourceFile, document: PlainDocument | MessageDocument, hint: ResourceType | None, number: int
    ) -> DocumentDraft:
        if not file.has_variables or not isinstance(document, PlainDocument):
            return DocumentReader(self._tools, file.path, document, hint).read(number)
        substitution = Substitution(variables_of(file, self.variables))
        document = replace(document, value=substitution.replaced(document.value))
        draft = DocumentReader(self._tools, file.path, document, hint).read(number)
        undefined = {fault.field_path for fault in substitution.faults}
        others = (fault for fault in draft.faults if fault.field_path not in undefined)
        draft.faults = [*substitution.faults, *map(substitution.without_values, others)]
        return draft


def variables_of(file: SourceFile, others: Variables) -> Variables:
    """Return a file's variables, else `others`."""
    return Variables(file.texts, file.unset) if isinstance(file, VariedFile) else others


def tools_for(catalogue: Catalogue, unknown_fields: Severity, check: Check, naming: NamingRules = NO_RULES) -> Tools:
    """Make the tools of document readers. Raises ApiError, as `field_rules`."""
    converter = Converter(catalogue, unknown_fields=unknown_fields)
    return Tools(catalogue, converter, field_rules(catalogue, check), unknown_fields, naming)


def field_rules(catalogue: Catalogue, check: Check) -> FieldRules:
    """Compile the rules for each message. ApiError: the catalogue has an unknown field rule."""
    return FieldRules(catalogue, merge_hooks(check.message_hooks(catalogue), references.hooks(catalogue)))


def _placed_edits(
    file: SourceFile, locate: Locate | None, drafts: Iterable[DocumentDraft]
) -> Mapping[int, tuple[LayerEdit, ...]]:
    found = {draft.number: draft.edits for draft in drafts if draft.edits}
    if not found or locate is None:
        return found
    places = locate(file.content, {(n, edit.origin.field_path) for n, edits in found.items() for edit in edits})
    placed: dict[int, tuple[LayerEdit, ...]] = {}
    for number, edits in found.items():
        at = ((edit, *places[number, edit.origin.field_path]) for edit in edits)
        placed[number] = tuple(replace(edit, origin=replace(edit.origin, line=line), column=c) for edit, line, c in at)
    return placed


def _bounded(faults: list[tuple[int, Fault]]) -> list[tuple[int, Fault]]:
    if len(faults) <= MAX_FAULTS:
        return faults
    severities = tuple(Severity)
    kept = sorted(faults, key=lambda numbered: severities.index(numbered[1].severity))[:MAX_FAULTS]
    number, last = kept[-1]
    fact = f"this file has more problems than the {MAX_FAULTS} that are reported"
    return [
        *kept,
        (number, replace(last, rule="too-many-problems", message=fact, remedy="fix the reported problems first")),
    ]


def problems_of(
    file: SourceFile, locate: Locate | None, faults: Collection[tuple[int, Fault]], catalogue: Catalogue
) -> Iterator[Problem]:
    """Yield faults, with their documents' numbers, as problems."""
    wanted = {(number, fault.field_path) for number, fault in faults if fault.line is None}
    places: Found = dict.fromkeys(wanted, (1, 1))
    if wanted and locate is not None:
        places = locate(file.content, wanted)
    for number, fault in faults:
        line, column = (fault.line, fault.column) if fault.line else places[number, fault.field_path]
        pointer = shown_pointer(fault.field_path, fault.message, catalogue)
        yield Problem(file.path, line, column or 1, pointer, fault.rule, fault.message, fault.remedy, fault.severity)


# Lists by their items


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Items lack the `_ITEM` that begins each."""

    head: bytes
    is_envelope: bool
    items: list[bytes]


@dataclass(frozen=True, slots=True)
class _Known:
    """The last parsed content of a file.

    `context` has the types of file name and envelope; `items` maps digests of text to a resource and its number of lines.
    """

    context: tuple[str, str]
    items: dict[bytes, tuple[Resource, int]]

    def __len__(self) -> int:
        return len(self.items)


class ChunkParser:
    """Remembers the items of large lists."""

    def __init__(
        self, tools: Tools, smallest_bytes: int = SMALLEST_BYTES, most_remembered: int = MOST_REMEMBERED
    ) -> None:
        self.tools = tools
        self._smallest_bytes = smallest_bytes
        self._known: Lru[PurePosixPath, _Known] = Lru(most_remembered, len, most_remembered)

    def parse(self, file: SourceFile, hint: ResourceType | None) -> Document | None:
        """Return a file's one document; None if it must be parsed whole, as at first."""
        if file.path not in self._known:
            return None
        pieces = _split_items(file.content) if self._is_large_list(file) else None
        document = None if pieces is None else self._read(file.path, pieces, hint)
        if document is None:
            self._known.pop(file.path)
        return document

    def parse_edit(self, file: SourceFile, hint: ResourceType | None, most_bytes: int) -> Document | None:
        """Return a file's one document, or None if more than `most_bytes` are new.

        If None, the file stays remembered, and hardly more than `most_bytes` were parsed.
        """
        known = self._known.get(file.path)
        if known is None or not self._is_large_list(file):
            return None
        content = file.content
        # The size and number of pieces are bounded before the cut.
        if content.find(_ITEM) > most_bytes or content.count(_ITEM) > len(known) + most_bytes // len(_ITEM):
            return None
        pieces = _split_items(content)
        return None if pieces is None else self._read(file.path, pieces, hint, most_bytes)

    def learn(self, file: SourceFile, hint: ResourceType | None, document: Document) -> None:
        """Remember the items of a faultless document."""
        if not self._is_large_list(file):
            return
        pieces = _split_items(file.content)
        if pieces is None or (b"*" in file.content and _ALIAS.search(file.content)):
            return
        envelope = self._envelope(pieces)
        if envelope is None or len(pieces.items) != len(document.resources):
            return
        line, items = _first_line(pieces), {}
        for text, resource in zip(pieces.items, document.resources, strict=True):
            # If the lines of items and pieces agree, each piece is one whole item.
            if resource.origin.line != line:
                return
            lines = text.count(b"\n") + 1
            items[_digest(text)] = resource, lines
            line += lines
        self._known.put(file.path, _Known(_context(hint, envelope), items))

    def forget_gone(self, tree: Tree) -> None:
        """Forget files not in a tree."""
        for path in [path for path in self._known if tree.file_at(path) is None]:
            self._known.pop(path)

    def _is_large_list(self, file: SourceFile) -> bool:
        if len(file.content) < self._smallest_bytes:
            return False
        row = format_of(file.path)
        return row is not None and row.name == "yaml"

    def _read(
        self, path: PurePosixPath, pieces: _Pieces, hint: ResourceType | None, most_bytes: float = math.inf
    ) -> Document | None:
        envelope = self._envelope(pieces)
        if envelope is None:
            return None
        known, context = self._known.get(path), _context(hint, envelope)
        before = known.items if known is not None and known.context == context else {}
        keys = [_digest(text) for text in pieces.items]
        unknown_bytes = sum(len(text) for key, text in zip(keys, pieces.items, strict=True) if key not in before)
        if unknown_bytes > most_bytes:
            return None
        now, resources, line = {}, [], _first_line(pieces)
        list_path: FieldPath = ("resources",) if pieces.is_envelope else ()
        for index, (key, text) in enumerate(zip(keys, pieces.items, strict=True)):
            found = before.get(key) or self._read_item(path, text, envelope, hint)
            if found is None:
                return None
            resource, lines = _at(found[0], line, list_path, index), found[1]
            now[key] = resource, lines
            resources.append(resource)
            line += lines
        if len({(resource.type_url, resource.name) for resource in resources}) < len(resources):
            return None
        self._known.put(path, _Known(context, now))
        version_info = envelope.get("version_info")
        declared = frozenset(resource.type_url for resource in resources)
        return Document(path, tuple(resources), declared, version_info if isinstance(version_info, str) else None)

    def _envelope(self, pieces: _Pieces) -> dict[str, PlainValue] | None:
        value = self._plain(pieces.head)
        if value is None:
            return {} if not pieces.is_envelope else None
        if not pieces.is_envelope or not isinstance(value, dict) or "resources" not in value:
            return None
        texts: dict[str, PlainValue] = {key: text for key, text in value.items() if isinstance(text, str)}
        is_plain = value["resources"] is None and texts.keys() == value.keys() - {"resources"}
        return texts if is_plain and texts.keys() <= {"version_info", "type_url"} else None

    def _read_item(
        self, path: PurePosixPath, text: bytes, envelope: dict[str, PlainValue], hint: ResourceType | None
    ) -> tuple[Resource, int] | None:
        value = self._plain(_ITEM[1:] + text)
        if not isinstance(value, list) or len(value) != 1:
            return None
        document = PlainDocument({"type_url": envelope.get("type_url"), "resources": value}, 1)
        draft = DocumentReader(self.tools, path, document, hint).read(0)
        if len(draft.resources) != 1 or draft.faults:
            return None
        return draft.resources[0], text.count(b"\n") + 1

    def _plain(self, content: bytes) -> PlainValue:
        yaml = format_of(PurePosixPath("a.yaml"))
        if yaml is None:
            return None
        decoded = yaml.decode(content, self.tools.catalogue, None)
        if decoded.faults or len(decoded.documents) != 1:
            return None
        document = decoded.documents[0]
        return document.value if isinstance(document, PlainDocument) else None


def _context(hint: ResourceType | None, envelope: dict[str, PlainValue]) -> tuple[str, str]:
    return hint.short_name if hint else "", str(envelope.get("type_url"))


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).digest()


def _first_line(pieces: _Pieces) -> int:
    return pieces.head.count(b"\n") + 1


def _split_items(content: bytes) -> _Pieces | None:
    """Cut before each `- ` at the left margin, unless that might cut more than one list."""
    content = b"\n" + content
    first = content.find(_ITEM)
    marks = _OTHER_BREAKS[:1] if content.isascii() else _OTHER_BREAKS
    if first < 0 or any(mark in content for mark in marks):
        return None
    head, items = content[1 : first + 1], content[first:].split(_ITEM)[1:]
    lines = [line for line in head.splitlines() if line.strip() and not line.lstrip().startswith(b"#")]
    if lines and not _OPENS_LIST.fullmatch(lines[-1]):
        return None
    return _Pieces(head, bool(lines), items)


def _at(resource: Resource, line: int, list_path: FieldPath, index: int) -> Resource:
    origin, place = resource.origin, len(list_path)
    if origin.line == line and origin.field_path[place : place + 1] == (index,):
        return resource
    start = next(number for number, step in enumerate(origin.field_path, 1) if isinstance(step, int))
    return replace(resource, origin=Origin(origin.path, line, 0, (*list_path, index, *origin.field_path[start:])))


# Values from this length on are replaced in problems within words, too.
_SHORTEST_SECRET = 4

_FOUND = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


@dataclass(slots=True)
class Substitution:
    """The substitution in one document."""

    variables: Variables
    faults: list[Fault] = field(default_factory=list)
    _used: dict[FieldPath, set[str]] = field(default_factory=dict)
    # An alias is the same object as its anchor, and must stay so.
    _known: dict[int, tuple[PlainValue, FieldPath]] = field(default_factory=dict)
    # {place of an alias: the first place of its value}
    _aliases: dict[FieldPath, FieldPath] = field(default_factory=dict)

    def replaced(self, value: PlainValue, path: FieldPath = ()) -> PlainValue:
        """Replace all variables; undefined ones stay as written."""
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if not isinstance(value, dict | list):
            return value
        if id(value) in self._known:
            made, self._aliases[path] = self._known[id(value)]
            return made
        if isinstance(value, dict):
            made = {key: self.replaced(member, (*path, key)) for key, member in value.items()}
        else:
            made = [self.replaced(member, (*path, index)) for index, member in enumerate(value)]
        self._known[id(value)] = made, path
        return made

    def without_values(self, fault: Fault) -> Fault:
        """Replace values in a fault's texts by names of variables used at its place or below."""
        texts = [fault.message, fault.remedy]
        for name in sorted(self._names_at(fault.field_path)):
            value = self.variables.texts[name]
            # A short value may be a part of any word.
            pattern = re.escape(value) if len(value) >= _SHORTEST_SECRET else rf"(?<!\w){re.escape(value)}(?!\w)"
            texts = [re.sub(pattern, f"${{{name}}}", text) if value else text for text in texts]
        return replace(fault, message=texts[0], remedy=texts[1])

    def _names_at(self, place: FieldPath) -> set[str]:
        names: set[str] = set()
        pending, seen = [place], {place}
        while pending:
            place = pending.pop()
            names.update(name for path, used in self._used.items() if _is_below(path, place) for name in used)
            found = [first for alias, first in self._aliases.items() if _is_below(alias, place)]
            ends = (end for end in range(len(place)) if place[:end] in self._aliases)
            found += [self._aliases[place[:end]] + place[end:] for end in ends]
            pending += [one for one in dict.fromkeys(found) if one not in seen]
            seen.update(found)
        return names

    def _text(self, text: str, path: FieldPath) -> PlainValue:
        def value_of(found: re.Match[str]) -> str:
            name = found[1]
            if found[0] == "$${":
                return "${"
            known = None if name is None else self.variables.texts.get(name)
            if known is None:
                self.faults.append(_undefined(name, self.variables.unset, path))
                return found[0]
            self._used.setdefault(path, set()).add(name)
            return known

        is_whole = (
            isinstance(text, PlainText) and (found := _FOUND.fullmatch(text)) is not None and found[1] is not None
        )
        made = _FOUND.sub(value_of, text)
        return resolve_plain(made) if is_whole else made


def _is_below(path: FieldPath, place: FieldPath) -> bool:
    return path[: len(place)] == place


def _undefined(name: str | None, unset: Mapping[str, str], path: FieldPath) -> Fault:
    if name is None:
        fact, remedy = "`${` begins no variable", "write `${NAME}`, or `$${` for the two characters"
    elif name in unset:
        fact = f"the variable {name} has no value: the environment has no {unset[name]}"
        remedy = f"start fsxds with {unset[name]}, or give {name} a value in the settings"
    else:
        fact = f"the variable {name} is not defined"
        remedy = "define it by `variables:` in the settings, or write `$${`"
    return Fault("undefined-variable", fact, remedy, path)
