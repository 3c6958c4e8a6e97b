"""A decimal number that remembers how its author spelled it."""

from __future__ import annotations

from typing import Self


class SpelledFloat(float):
    """A float with the text it was read from.

    Envoy 1.40 keeps YAML's plain decimals as text: `version_info: 1.0` is the string "1.0", and so is a `1.0` within a
    Struct (ENVOY.md H). A number field takes the number, everything else the text.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str, value: float) -> Self:
        """Make the number `value`, spelled `text`."""
        spelled = super().__new__(cls, value)
        spelled.text = text
        return spelled

    def __reduce__(self) -> tuple[type[SpelledFloat], tuple[str, float]]:
        """Copy and pickle with the text."""
        return SpelledFloat, (self.text, float(self))
