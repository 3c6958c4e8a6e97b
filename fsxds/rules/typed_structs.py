"""TypedStructs: messages that are written as plain values, looked at as what they stand for."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.printing import Printer
from fsxds.api.walk import Hook, Path, Walk
from fsxds.errors import ApiError
from fsxds.rules.extensions import TYPED_STRUCTS
from fsxds.values import Severity


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rule over TypedStructs."""
    rule = TypedStructs(catalogue)
    return dict.fromkeys(TYPED_STRUCTS, (rule.check,))


class TypedStructs:
    """Turns the content of a TypedStruct into its message, and has that walked."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._converter = Converter(catalogue, unknown_fields=Severity.WARNING)
        self._printer = Printer(catalogue)

    def check(self, struct: Any, path: Path, walk: Walk) -> None:
        """Check the content; one of a type that is not known is left to whoever reads it."""
        message_type = struct.type_url.rpartition("/")[2]
        if not struct.HasField("value") or not self._catalogue.knows(message_type):
            return
        try:
            plain = self._printer.to_plain(struct.value)
        except ApiError:
            return  # told elsewhere
        place: Path = (path, "value")
        converted = self._converter.convert(plain, message_type)
        if converted.message is not None:
            walk.enter(converted.message, place)
            return
        for fault in converted.faults:
            if fault.severity is Severity.ERROR:
                at = place
                for step in fault.field_path:
                    at = (at, step)
                walk.tell(at, "wrong-typed-struct", fault.message, fault.remedy)
