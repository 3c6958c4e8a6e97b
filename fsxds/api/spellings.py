"""The names of a message's fields, and what a wrong name probably means."""

from __future__ import annotations

import difflib

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import exclusive_groups, fields_by_spelling
from fsxds.api.quotes import may_quote_field

_LONGEST_LIST_OF_FIELDS = 8
_LONGEST_NAME = 60
_MOST_ADVICE = 1000
_LIKENESS = 0.55  # low enough to find "connect_timeout" for "conect"


class Spellings:
    """Looks fields up by snake_case and camelCase names; remembers the tables."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._fields: dict[str, dict[str, FieldDescriptor]] = {}
        self._groups: dict[str, dict[str, int]] = {}
        self._advice: dict[tuple[str, str], str] = {}

    def find(self, descriptor: Descriptor, name: str) -> FieldDescriptor | None:
        """Return the field of this name, None when there is none."""
        return self._table(descriptor).get(name)

    def groups(self, descriptor: Descriptor) -> dict[str, int]:
        """Return, for the members of each oneof of two or more, the number of their oneof."""
        known = self._groups.get(descriptor.full_name)
        if known is None:
            known = self._groups[descriptor.full_name] = exclusive_groups(descriptor)
        return known

    def unknown(self, descriptor: Descriptor, name: str, *, is_advised: bool = True) -> tuple[str, str]:
        """Return what is wrong with a name that is none of the message's, and what to do; advice takes long."""
        advice = self._advice_on(descriptor, name) if is_advised else "remove it"
        if may_quote_field(name, self._catalogue, advice):
            return f'{descriptor.full_name} has no field "{shortened(name)}"', advice
        return f"{descriptor.full_name} has no such field", advice

    def _advice_on(self, descriptor: Descriptor, name: str) -> str:
        """Return what to do about a name that is none of the message's."""
        key = descriptor.full_name, name[:_LONGEST_NAME]
        known = self._advice.get(key)
        if known is None:
            if len(self._advice) >= _MOST_ADVICE:
                self._advice.clear()
            known = self._advice[key] = _advice(descriptor, name[:_LONGEST_NAME])
        return known

    def _table(self, descriptor: Descriptor) -> dict[str, FieldDescriptor]:
        known = self._fields.get(descriptor.full_name)
        if known is None:
            known = self._fields[descriptor.full_name] = fields_by_spelling(descriptor)
        return known


def _advice(descriptor: Descriptor, wanted: str) -> str:
    is_camel_case = "_" not in wanted and wanted.lower() != wanted
    known = [field.json_name if is_camel_case else field.name for field in descriptor.fields]
    near = difflib.get_close_matches(wanted, known, n=1, cutoff=_LIKENESS) or difflib.get_close_matches(
        wanted.lower().replace("-", "_"), [field.name for field in descriptor.fields], n=1, cutoff=_LIKENESS
    )
    if near:
        return f'did you mean "{near[0]}"?'
    names = [field.name for field in descriptor.fields]
    if names and len(names) <= _LONGEST_LIST_OF_FIELDS:
        return f"remove it; the fields are {', '.join(names)}"
    return "remove it" if names else f"remove it; {descriptor.full_name} has no fields"


def shortened(name: str) -> str:
    """Return a name as a message may hold it: cut where it is too long, and without what cannot be encoded."""
    short = name if len(name) <= _LONGEST_NAME else name[:_LONGEST_NAME] + "…"
    return short.encode(errors="backslashreplace").decode()
