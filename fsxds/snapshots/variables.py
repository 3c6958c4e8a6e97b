"""Substitutes variables in files whose first line is `# fsxds: variables`.

`${NAME}` is replaced within scalars, not in keys, after the file is parsed, so that no value can change the structure.
An unquoted scalar of one variable is typed like its value, unquoted; all others are text. `$${` stands for `${`.

Problems never show a value: it may be a secret from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fsxds.formats.yaml_blocks import resolve_plain
from fsxds.model.values import Fault, FieldPath, PlainText, PlainValue
from fsxds.settings.view_rules import Variables

_FOUND = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{")


@dataclass(slots=True)
class Substitution:
    """The substitution in one document."""

    variables: Variables
    faults: list[Fault] = field(default_factory=list)
    _used: dict[FieldPath, set[str]] = field(default_factory=dict)
    # An alias is the same object as its anchor, and must stay so.
    _known: dict[int, PlainValue] = field(default_factory=dict)

    def replaced(self, value: PlainValue, path: FieldPath = ()) -> PlainValue:
        """Replace all variables; undefined ones stay as written."""
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if not isinstance(value, dict | list):
            return value
        if id(value) not in self._known:
            if isinstance(value, dict):
                made: PlainValue = {key: self.replaced(member, (*path, key)) for key, member in value.items()}
            else:
                made = [self.replaced(member, (*path, index)) for index, member in enumerate(value)]
            self._known[id(value)] = made
        return self._known[id(value)]

    def without_values(self, fault: Fault) -> Fault:
        """Replace values in a message, from its place or below, by variable names."""
        length = len(fault.field_path)
        names = {name for path, used in self._used.items() if path[:length] == fault.field_path for name in used}
        message = fault.message
        for name in sorted(names):
            text = self.variables.texts[name]
            message = re.sub(rf"(?<!\w){re.escape(text)}(?!\w)", f"${{{name}}}", message) if text else message
        return fault if message == fault.message else replace(fault, message=message)

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


def _undefined(name: str | None, unset: Mapping[str, str], path: FieldPath) -> Fault:
    if name is None:
        fact, remedy = "`${` begins no variable", "write `${NAME}`, or `$${` for the two characters"
    elif name in unset:
        fact = f"the variable {name} has no value: the environment has no {unset[name]}"
        remedy = f"start fsxds with {unset[name]}, or give {name} a value in the settings"
    else:
        fact, remedy = (
            f"the variable {name} is not defined",
            "define it by `variables:` in the settings, or write `$${`",
        )
    return Fault("undefined-variable", fact, remedy, path)
