"""Reads lists and mappings, and collects all mistakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import PurePosixPath
from typing import TypeVar

from fsxds.model.values import FieldPath, scalar_text
from fsxds.settings.forms import OptionForm, Schema

Value = TypeVar("Value")

# Metadata of nodes may be nested to any depth; a YAML alias may make it endless.
DEEPEST = 16

_TYPE_NAMES = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    int: "a number",
    float: "a number",
    bool: "a truth value",
    type(None): "nothing",
}


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake: its path, and the fact with its remedy."""

    path: FieldPath
    fact: str


class MistakesFound(ValueError):  # noqa: N818 - as other settings that cannot be read, it is a ValueError
    """The mistakes of one setting."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("; ".join(mistake.fact for mistake in mistakes))
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True, slots=True)
class SettingPart:
    """A value within a setting. After a mistake, reading goes on with a harmless value."""

    written: object
    path: FieldPath = ()
    mistakes: list[Mistake] = field(default_factory=list)

    def reject(self, fact: str) -> None:
        """Record a mistake."""
        self.mistakes.append(Mistake(self.path, fact))

    def members(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, SettingPart]:
        """Return non-empty members with these keys."""
        members = self.any_members()
        for key in members.keys() - set(known):
            near = get_close_matches(key, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(known)}"
            members[key].reject(f"there is no such key; {hint}")
        if isinstance(self.written, dict):
            for key in required:
                if key not in members:
                    self.reject(f"has no {key}; add it")
        return {key: part for key, part in members.items() if key in known}

    def any_members(self) -> dict[str, SettingPart]:
        """Return non-empty members with any keys."""
        if not isinstance(self.written, dict):
            self._reject_type("a mapping")
            return {}
        return {str(key): self._at(str(key), value) for key, value in self.written.items() if value is not None}

    def list_members(self) -> tuple[SettingPart, ...]:
        """Return a list's members; it must not be empty."""
        if not isinstance(self.written, list):
            self._reject_type("a list")
            return ()
        if not self.written:
            self.reject("is empty; give a value, or remove the key")
        return tuple(self._at(index, value) for index, value in enumerate(self.written))

    def one_or_more(self) -> tuple[SettingPart, ...]:
        """Return a list's members, or this part."""
        return self.list_members() if isinstance(self.written, list) else (self,)

    def text(self) -> str:
        """Return a non-empty text."""
        if not isinstance(self.written, str):
            self._reject_type("a text" if isinstance(self.written, dict | list) else "a text, in quotes")
        elif not self.written or "\0" in self.written:
            self.reject("is empty, or has a NUL character; write a text")
        else:
            return self.written
        return ""

    def scalar(self) -> str:
        """Like `text`; numbers and truth values are as in JSON."""
        text = scalar_text(self.written)
        return self.text() if text is None or isinstance(self.written, str) else text

    def of_form(self, form: OptionForm[Value]) -> Value | None:
        """Return a value in an option's form, or None."""
        try:
            return form.read(self.written)
        except ValueError:
            self.reject(f"{self.written!r} is not {form.demand}")
            return None

    def _at(self, step: str | int, value: object) -> SettingPart:
        return SettingPart(value, (*self.path, step), self.mistakes)

    def _reject_type(self, demand: str) -> None:
        self.reject(f"is {_TYPE_NAMES.get(type(self.written), 'of another type')}; write {demand}")


def is_folder(text: str) -> bool:
    """Whether a text is a canonical path from the top of the tree."""
    return str(PurePosixPath(text)) == text and not text.startswith("/") and {".", ".."}.isdisjoint(text.split("/"))


def structured(read: Callable[[SettingPart], Value], schema: Schema) -> OptionForm[Value]:
    """Create a form for files only; `read` records mistakes."""

    def read_whole(written: object) -> Value:
        part = SettingPart(written)
        value = read(part)
        if part.mistakes:
            raise MistakesFound(part.mistakes)
        return value

    return OptionForm("", "", read_whole, schema, in_file_only=True)


def object_schema(properties: Mapping[str, object], required: Sequence[str] = ()) -> Schema:
    """Return a closed mapping's schema."""
    return {
        "type": "object",
        "properties": {**properties},
        "required": [*required],
        "additionalProperties": False,
    }
