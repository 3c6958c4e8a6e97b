"""What a message may quote of a file: its numbers, names that the API has or that are near to one, and type names.

Other words of a file are never repeated, whatever field they are in, since a secret may be in any wrong place: as a
key, as an alias (`*pw`), as a tag (`!pw`). The rules, each with one home:

* a value (`quoted`): numbers, times such as `100ms`, true, false and null; of another text, only that it is one;
* a name of an enum's value: where it is near to one that exists (`scalars`);
* the name of a field (`may_quote_field`): where some message of the API has such a field, or where it is near to a field of
  the message that it is in, so that the remedy is "did you mean";
* the name of a message type (`may_quote_type`): where it is written like one, `package.Name`;
* names of resources, and what refers to them, are not secret and are quoted by those who know them.
"""

from __future__ import annotations

import re
from typing import Final

from fsxds.api.catalogue import Catalogue
from fsxds.values import FieldPath, SpelledFloat, pointer_of

DID_YOU_MEAN: Final = "did you mean"
UNSHOWN: Final = "[…]"

_LONGEST_NUMBER = 40
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*(\.[A-Z][A-Za-z0-9]{0,60}){1,4}")
_DESCRIBED: Final = (
    (dict, "an object"), (list, "a list"), (str, "text"), (bool, "true or false"), (type(None), "null"),
)  # fmt: skip
_HOST = "type.googleapis.com/"
_LONGEST_TYPE = 120
_EXTENSION = re.compile(r"(envoy|xds)(\.[a-z][a-z0-9_]*)+")
_TIME = re.compile(r"[0-9]{1,12}(\.[0-9]{1,9})? ?(ns|us|ms|s|m|h|d|sec|min|hours?|minutes?|seconds?)")
_IN_QUOTES = re.compile(r'"([^"]*)"')


def quoted(value: object, *, secret: bool) -> str:
    """Name a value in a message: a short number or time as it is unless it is a secret, all else by its kind."""
    described = next((words for value_type, words in _DESCRIBED if isinstance(value, value_type)), "a number")
    if isinstance(value, str):
        return f'"{value}"' if not secret and _TIME.fullmatch(value) else described
    if secret or value is None or isinstance(value, (dict, list)):
        return described
    if isinstance(value, bool):
        return str(value).lower()
    # Python does not write integers of more than some thousand digits.
    is_long = isinstance(value, int) and value.bit_length() > 4 * _LONGEST_NUMBER
    text = value.text if isinstance(value, SpelledFloat) else "" if is_long else repr(value)
    return text if 0 < len(text) <= _LONGEST_NUMBER else described


def may_quote_field(name: str, catalogue: Catalogue, advice: str = "") -> bool:
    """Return whether a message may repeat what is in place of a field's name; `advice` is the remedy."""
    return advice.startswith(DID_YOU_MEAN) or name == "@type" or catalogue.knows_word(name)


def may_quote_type(name: str) -> bool:
    """Return whether a message may repeat what is in place of a message type's name."""
    return len(name) <= _LONGEST_TYPE and _TYPE_NAME.fullmatch(name) is not None


def quoted_type_url(type_url: str) -> str:
    """Name what a client gave for a type URL: as it is where it is written like one."""
    return type_url if may_quote_type(type_url.removeprefix(_HOST)) else "no type URL"


def shown_pointer(field_path: FieldPath, message: str, catalogue: Catalogue) -> str:
    """Write a path for a message, with `[…]` for keys that may not be quoted: those that no message quotes."""
    quoted_names = frozenset(_IN_QUOTES.findall(message))
    text = ""
    for step in field_path:
        if (
            isinstance(step, int)
            or step in quoted_names
            or may_quote_field(step, catalogue)
            or _EXTENSION.fullmatch(step)
        ):
            text = pointer_of((text, step) if text else (step,))
        else:
            text += UNSHOWN
    return text
