"""A bootstrap as its author wrote it: read, checked field by field, and able to tell where a field stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.field_rules import FieldRules
from fsxds.doctor.placing import Written, one_of_each
from fsxds.formats import FORMATS, MessageDocument, PlainDocument, format_of
from fsxds.values import Fault, PlainValue, Problem

BOOTSTRAP = "envoy.config.bootstrap.v3.Bootstrap"


@dataclass(frozen=True, slots=True)
class BootstrapFile:
    """What came out of the file.

    Attributes:
        message: the bootstrap; None where a mistake leaves none.
        problems: what is wrong with its text and its fields.
        written: finds the places of fields.
    """

    message: Message | None
    problems: tuple[Problem, ...]
    written: Written

    def problems_of(self, faults: Iterable[Fault]) -> Iterator[Problem]:
        """Put faults of the message, with the API's paths, to their places."""
        return self.written.problems(one_of_each(self.written.authored(fault) for fault in faults))


def read_bootstrap(path: PurePosixPath, content: bytes, catalogue: Catalogue, rules: FieldRules) -> BootstrapFile:
    """Read a bootstrap as Envoy does, which refuses unknown fields there.

    Args:
        path: of the file, as it is told; a suffix that no format claims is taken for YAML.
        content: of the file.
        catalogue: the message types that exist.
        rules: what is asked of the fields.
    """
    file_format = format_of(path) or FORMATS[0]
    written = Written(catalogue, path, content, file_format.name)
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
            faults += (_void(),) if written.value is None else converted.faults
    if message is not None:
        faults += (written.authored(fault) for fault in rules.check(message).faults)
    return BootstrapFile(message, tuple(written.problems(faults)), written)


def _value_of(document: PlainDocument | MessageDocument) -> PlainValue:
    value = document.value if isinstance(document, PlainDocument) else None
    # A text format document names its type, as a resource does.
    return {key: element for key, element in value.items() if key != "@type"} if isinstance(value, dict) else value


def _unpack(content: bytes, catalogue: Catalogue) -> tuple[Message | None, list[Fault]]:
    try:
        return catalogue.message_class(BOOTSTRAP).FromString(content), []
    except DecodeError:
        return None, [Fault("broken-message", f"the bytes are no {BOOTSTRAP}", "write the file again")]


def _void() -> Fault:
    return Fault("empty-file", "the file is empty", "`fsxds bootstrap` prints a bootstrap")
