"""How the weights of rules are written among the settings: `unused-cluster=off`, or a mapping in the settings file."""

from __future__ import annotations

from difflib import get_close_matches

from fsxds.errors import UsageError
from fsxds.option_forms import Form
from fsxds.rules.levels import RuleLevels
from fsxds.values import Severity

OFF = "off"
LEVELS = (*(severity.value for severity in Severity), OFF)


def _read_levels(written: object) -> RuleLevels:
    return RuleLevels({name: _read_level(name, word) for name, word in _pairs(written).items()})


def _pairs(written: object) -> dict[str, object]:
    """Return the levels by rule as they were written."""
    if isinstance(written, dict):
        # YAML takes an unquoted `off` for false.
        return {str(name): OFF if word is False else word for name, word in written.items()}
    pairs: dict[str, object] = {}
    for part in str(written).split(","):
        name, equals, word = part.partition("=")
        if not equals:
            raise ValueError(written)
        pairs[name.strip()] = word.strip()
    return pairs


def _read_level(name: str, word: object) -> Severity | None:
    # The pages of all rules, which only this needs.
    from fsxds.rules.book import rules

    rule = rules().get(name)
    if rule is None:
        near = get_close_matches(name, rules(), 1)
        hint = f"did you mean {near[0]}?" if near else "`fsxds explain` lists the rules"
        raise UsageError(f"rules: there is no rule {name}; {hint}")
    if word not in LEVELS:
        raise UsageError(f"rules: {name}: {word!r} is not one of {', '.join(LEVELS)}")
    if rule.is_fixed:
        raise UsageError(f"rules: {name}: nothing is left to serve where it is broken, so it is always an error")
    return None if word == OFF else Severity(word)


RULE_LEVELS = Form(
    "RULE=LEVEL,…",
    "a list of rules and levels (write unused-cluster=off,no-cluster=note)",
    _read_levels,
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "object", "additionalProperties": {"enum": [*LEVELS, False]}},
        ]
    },
)
