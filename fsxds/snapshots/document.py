"""One file: its shape, its resources, their names and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.quotes import shown_pointer
from fsxds.formats import Format, MessageDocument, PlainDocument, format_of
from fsxds.formats.documents import MAX_FAULTS
from fsxds.formats.positions import locate_all
from fsxds.resource_types import BY_TYPE_URL, ResourceType, type_from_path
from fsxds.resources import Document, Resource
from fsxds.rules.all_rules import make_field_rules
from fsxds.rules.levels import RuleLevels
from fsxds.snapshots.chunks import SMALLEST_BYTES, ChunkParser
from fsxds.snapshots.parsed import Key, ParsedFile, key_of
from fsxds.snapshots.reader import DocumentReader, Draft, Tools
from fsxds.values import Fault, Problem, Severity, SourceFile

_WEIGHTS = tuple(Severity)


class FileParser:
    """Turns files into documents, or into problems; one catalogue, any number of files.

    Lists of `chunked_from_bytes` and more are parsed by their items when they come again. `levels` are the rules that
    weigh more, less or nothing here.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        unknown_fields: Severity = Severity.ERROR,
        levels: RuleLevels | None = None,
        *,
        chunked_from_bytes: int = SMALLEST_BYTES,
    ) -> None:
        converter = Converter(catalogue, unknown_fields=unknown_fields)
        self._tools = Tools(catalogue, converter, make_field_rules(catalogue), unknown_fields)
        self._levels = levels or RuleLevels()
        self._chunks = ChunkParser(self._tools, chunked_from_bytes)

    def parse(self, file: SourceFile) -> ParsedFile:
        """Parse one file. Every problem in it is reported; bad content never raises."""
        file_format = format_of(file.path)
        if file_format is None:
            problem = _whole_file(file.path, "unknown-format", "no format is known for this suffix", "rename the file")
            return ParsedFile(file.path, file.digest, problems=(problem,))
        hint = type_from_path(file.path)
        document = self._chunks.parse(file, hint)
        if document is not None:
            return ParsedFile(file.path, file.digest, (document,))
        parsed = self._parse_whole(file, file_format, hint)
        if len(parsed.documents) == 1 and not parsed.problems:
            self._chunks.learn(file, hint, parsed.documents[0])
        return parsed

    def _parse_whole(self, file: SourceFile, file_format: Format, hint: ResourceType | None) -> ParsedFile:
        decoded = file_format.decode(file.content, self._tools.catalogue, hint.message_type if hint else None)
        drafts = [
            self._draft(file.path, number, document, hint)
            for number, document in enumerate(decoded.documents)
            if not _is_void(document)
        ]
        faults = [(0, fault) for fault in decoded.faults]
        faults += ((draft.number, fault) for draft in drafts for fault in draft.faults)
        weighed = [(number, fault) for number, found in faults if (fault := self._levels.weigh(found)) is not None]
        problems = list(_problems(file, _bounded(weighed), self._tools.catalogue))
        if not drafts and not problems:
            problems.append(_void_file(file.path))
        documents = tuple(_finished(file.path, draft) for draft in drafts)
        repeated = map(self._levels.weigh, islice(_same_names(documents), MAX_FAULTS))
        problems += (problem for problem in repeated if problem is not None)
        return ParsedFile(file.path, file.digest, documents, tuple(sorted(problems)))

    def _draft(
        self, path: PurePosixPath, number: int, document: PlainDocument | MessageDocument, hint: ResourceType | None
    ) -> Draft:
        reader = DocumentReader(self._tools, path, document, hint)
        return reader.read(number)


def _is_void(document: PlainDocument | MessageDocument) -> bool:
    return isinstance(document, PlainDocument) and document.value is None


def _finished(path: PurePosixPath, draft: Draft) -> Document:
    return Document(path, tuple(draft.resources), frozenset(draft.declared), draft.version_info)


def _bounded(faults: list[tuple[int, Fault]]) -> list[tuple[int, Fault]]:
    """Return no more faults than anybody reads, with errors before all others."""
    if len(faults) <= MAX_FAULTS:
        return faults
    kept = sorted(faults, key=lambda numbered: _WEIGHTS.index(numbered[1].severity))[:MAX_FAULTS]
    number, last = kept[-1]
    fact = f"this file has more problems than the {MAX_FAULTS} that are told"
    return [*kept, (number, replace(last, rule="too-many-problems", message=fact, remedy="mend those first"))]


def _problems(file: SourceFile, faults: list[tuple[int, Fault]], catalogue: Catalogue) -> Iterator[Problem]:
    """Put faults, each with the number of its document, to their places; a text is searched once for all of them."""
    row = format_of(file.path)
    wanted = {(number, fault.field_path) for number, fault in faults if fault.line is None}
    places = (
        locate_all(file.content, wanted, is_textproto=row is not None and row.name == "textproto") if wanted else {}
    )
    for number, fault in faults:
        line, column = (fault.line, fault.column) if fault.line else places[number, fault.field_path]
        pointer = shown_pointer(fault.field_path, fault.message, catalogue)
        yield Problem(file.path, line, column or 1, pointer, fault.rule, fault.message, fault.remedy, fault.severity)


def _whole_file(path: PurePosixPath, rule: str, message: str, remedy: str) -> Problem:
    return Problem(path, 1, 1, "", rule, message, remedy)


def _void_file(path: PurePosixPath) -> Problem:
    return _whole_file(
        path, "empty-file", "the file is empty", "write `resources: []` to serve none on purpose, or delete the file"
    )


def _same_names(documents: Iterable[Document]) -> Iterable[Problem]:
    seen: dict[Key, Resource] = {}
    for document in documents:
        for resource in document.resources:
            first = seen.setdefault(key_of(resource), resource)
            if first is not resource:
                yield replace(duplicate_name(resource, first), severity=_weight_of_repeat(resource, first))


def _weight_of_repeat(resource: Resource, first: Resource) -> Severity:
    # Generated files repeat what several others use. An Envoy that asks by name gets one of the equals; one that gets
    # all of a type refuses them (ENVOY.md A2).
    is_harmless = resource.version == first.version and not BY_TYPE_URL[resource.type_url].full_state_in_sotw
    return Severity.WARNING if is_harmless else Severity.ERROR


def duplicate_name(resource: Resource, first: Resource) -> Problem:
    """Say that a name stands twice in one type; the problem is put to `resource`, and names both places."""
    noun = BY_TYPE_URL[resource.type_url].message_type.rpartition(".")[2]
    return Problem(
        resource.origin.path,
        resource.origin.line,
        1,
        "",
        "duplicate-name",
        f'{noun} "{resource.name}" is already defined at {first.origin}',
        "rename or remove one of the two",
    )
