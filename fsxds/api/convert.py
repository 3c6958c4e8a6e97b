"""Plain values to messages: fast where a value is in proper form, carefully where it is odd."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from fsxds.api.careful import CarefulReader
from fsxds.api.catalogue import Catalogue
from fsxds.api.compiled import CompiledConverter
from fsxds.api.fields import descriptor_of
from fsxds.values import Fault, PlainValue, Severity


@dataclass(frozen=True, slots=True)
class Converted:
    """What became of a value: its message, and its faults. The message is None exactly when a fault is an ERROR."""

    message: Message | None
    faults: tuple[Fault, ...] = ()


class Converter:
    """Turns plain values into messages of a catalogue, as Envoy's own JSON reader would.

    It never raises for a plain value, and tells all faults of a value at once. Equal values give equal bytes.
    """

    def __init__(self, catalogue: Catalogue, *, unknown_fields: Severity = Severity.ERROR) -> None:
        """Convert to messages of `catalogue`; with a milder `unknown_fields`, they are dropped, with a fault each."""
        self._catalogue = catalogue
        self._classes: dict[str, type[Message]] = {}
        self._compiled = CompiledConverter(catalogue)
        self._careful = CarefulReader(catalogue, unknown_fields)

    def convert(self, value: PlainValue, message_type: str) -> Converted:
        """Turn a value into a message of this full name; KeyError when the catalogue does not know it."""
        message_class = self._classes.get(message_type)
        if message_class is None:
            message_class = self._classes[message_type] = self._catalogue.message_class(message_type)
        message = self._compiled.build(value, message_class)
        if message is not None:
            return Converted(message)
        normal, faults = self._careful.read(value, descriptor_of(message_class))
        if not _are_harmless(faults):
            return Converted(None, faults)
        return _built(self._compiled.build(normal, message_class), faults)

    def convert_any(self, value: PlainValue) -> Converted:
        """Turn a value into a message of the type that its "@type" names."""
        message = self._compiled.build_any(value)
        if message is not None:
            return Converted(message)
        normal, faults = self._careful.read_any(value)
        if not _are_harmless(faults):
            return Converted(None, faults)
        return _built(self._compiled.build_any(normal), faults)


def _are_harmless(faults: tuple[Fault, ...]) -> bool:
    return all(fault.severity is not Severity.ERROR for fault in faults)


def _built(message: Message | None, faults: tuple[Fault, ...]) -> Converted:
    """Return the message made of what the careful path left.

    No value is known that the careful path takes and the fast path then refuses; the fuzz test looks for one. Should
    there be one, it is refused rather than guessed at.
    """
    if message is not None:
        return Converted(message, faults)
    unexplained = Fault("wrong-value", "protobuf refuses a value in here", "compare it with the API's documentation")
    return Converted(None, (*faults, unexplained))
