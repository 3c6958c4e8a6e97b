"""Reads a bootstrap, and positions faults."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.converter import Converter
from fsxds.formats import FORMATS, format_of
from fsxds.formats.decoded import MessageDocument, PlainDocument
from fsxds.formats.positions import Locate
from fsxds.model.resource_types import type_from_path
from fsxds.model.resources import Resource
from fsxds.model.values import Fault, FieldPath, PlainValue, Problem, SourceFile
from fsxds.snapshots.document import authored_path
from fsxds.snapshots.parse import problems_of


@dataclass(frozen=True, slots=True)
class Written:
    """One document as authored; `value` is None if it is no plain value."""

    catalogue: Catalogue
    file: SourceFile
    locate: Locate | None
    document: int = 0
    value: PlainValue = None

    def authored(self, fault: Fault) -> Fault:
        """Return the fault with the author's path."""
        return replace(fault, field_path=authored_path(self.value, fault.field_path))

    def problems(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield faults with authored paths as problems."""
        return problems_of(self.file, self.locate, [(self.document, fault) for fault in faults], self.catalogue)


def resource_problems(
    findings: Iterable[tuple[Resource, Fault]], catalogue: Catalogue, sources: Mapping[PurePosixPath, bytes]
) -> Iterator[Problem]:
    """Yield the faults of resources as problems; paths have the API's names, from the resource on."""
    by_file: defaultdict[PurePosixPath, defaultdict[int, list[tuple[Resource, Fault]]]]
    by_file = defaultdict(lambda: defaultdict(list))
    for resource, fault in findings:
        by_file[resource.origin.path][resource.origin.document].append((resource, fault))
    for path, by_document in by_file.items():
        for number, found in by_document.items():
            written = _written(path, sources.get(path, b""), number, catalogue)
            yield from written.problems(one_of_each(_within(written, resource, fault) for resource, fault in found))


def one_of_each(faults: Iterable[Fault]) -> Iterator[Fault]:
    """Yield the first of equal faults, with their number: generated files repeat faults."""
    alike: defaultdict[tuple[str, str], list[Fault]] = defaultdict(list)
    for fault in faults:
        alike[fault.rule, fault.message].append(fault)
    for first, *others in alike.values():
        more = f" (and {len(others)} more like this here)" if others else ""
        yield replace(first, message=first.message + more)


def _written(path: PurePosixPath, content: bytes, number: int, catalogue: Catalogue) -> Written:
    file, file_format = SourceFile.of(path, content), format_of(path)
    if file_format is None or file_format.name == "binary":
        return Written(catalogue, file, None, number)
    hint = type_from_path(path)
    documents = file_format.decode(content, catalogue, hint.message_type if hint else None).documents
    document = documents[number] if number < len(documents) else None
    value = document.value if isinstance(document, PlainDocument) else None
    return Written(catalogue, file, file_format.locate, number, value)


def _within(written: Written, resource: Resource, fault: Fault) -> Fault:
    start = resource.origin.field_path
    inner = authored_path(_value_at(written.value, start), fault.field_path)
    return replace(fault, field_path=(*start, *inner))


def _value_at(value: PlainValue, field_path: FieldPath) -> PlainValue:
    for step in field_path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """A read bootstrap; `message` is None if a mistake leaves none."""

    message: Message | None
    problems: tuple[Problem, ...]
    written: Written

    def problems_of(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Yield problems of faults with the API's paths."""
        return self.written.problems(one_of_each(self.written.authored(fault) for fault in faults))


def read_bootstrap(path: PurePosixPath, content: bytes, catalogue: Catalogue, rules: FieldRules) -> BootstrapFile:
    """Read a bootstrap as Envoy does, rejecting unknown fields; an unknown suffix means YAML."""
    file_format = format_of(path) or FORMATS[0]
    written = Written(catalogue, SourceFile.of(path, content), file_format.locate)
    faults: list[Fault]
    if file_format.name == "binary":
        message, faults = _unpack(content, catalogue)
    else:
        decoded = file_format.decode(content, catalogue, BOOTSTRAP)
        message, faults = None, list(decoded.faults)
        if decoded.documents:
            written = replace(written, value=_value_of(decoded.documents[0]))
            converted = Converter(catalogue).convert(written.value, BOOTSTRAP)
            message = None if written.value is None else converted.message
            faults += (_empty(),) if written.value is None else converted.faults
    if message is not None:
        faults += (written.authored(fault) for fault in rules.check(message).faults)
    return BootstrapFile(message, tuple(written.problems(faults)), written)


def _value_of(document: PlainDocument | MessageDocument) -> PlainValue:
    value = document.value if isinstance(document, PlainDocument) else None
    # A document in text format has an `@type`, like a resource.
    return {key: element for key, element in value.items() if key != "@type"} if isinstance(value, dict) else value


def _unpack(content: bytes, catalogue: Catalogue) -> tuple[Message | None, list[Fault]]:
    try:
        return catalogue.message_class(BOOTSTRAP).FromString(content), []
    except DecodeError:
        return None, [Fault("broken-message", f"the bytes are no {BOOTSTRAP}", "write the file again")]


def _empty() -> Fault:
    return Fault("empty-file", "the file is empty", "`fsxds bootstrap` prints a bootstrap")
