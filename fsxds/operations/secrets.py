"""What nobody may see in a log or a listing: hidden here and nowhere else."""

from __future__ import annotations

import re

from fsxds.api.secrecy import INLINE_FIELDS, SECRET_FIELDS
from fsxds.values import PlainValue

HIDDEN = "<hidden>"

PEM_BLOCK = re.compile(r"-----BEGIN [^-]{1,60}-----.*?(?:-----END [^-]{1,60}-----|\Z)", re.DOTALL)

# The value of a DataSource in text form, YAML or JSON, also where that text was quoted once more.
INLINE_VALUE = re.compile(
    r"""(inline_?(?:string|bytes)[\\"']*\s*[:=]\s*)    # the name as an author may spell it
        (?: "(?:\\.|[^"\\])*(?:"|\Z)                   # a quoted value, perhaps cut off
          | \\+"(?:(?!\\+").)*(?:\\+"|\Z)              # a quoted value inside a quoted text
          | '[^']*(?:'|\Z)
          | [^\s,}]+ )""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)

WHOLLY_HIDDEN_MESSAGE = ".Secret"
# What may be seen below a secret field: where the secret comes from.
PLACES = frozenset({"@type", "environment_variable", "filename", "name", "sds_config", "watched_directory"})


def mask_text(text: str) -> str:
    """Hide PEM blocks and the inline values of data sources in a text that may quote configuration."""
    return INLINE_VALUE.sub(rf"\1{HIDDEN}", PEM_BLOCK.sub(HIDDEN, text))


def mask_value(value: PlainValue, *, is_secret: bool = False) -> PlainValue:
    """Return a resource in plain values with its secrets hidden.

    Args:
        value: a message as snake_case JSON, with `@type` where it is an Any.
        is_secret: it stands where every inline value is a secret; a Secret message says so itself by its `@type`.
    """
    if isinstance(value, list):
        return [mask_value(member, is_secret=is_secret) for member in value]
    if not isinstance(value, dict):
        return PEM_BLOCK.sub(HIDDEN, value) if isinstance(value, str) else value
    is_secret = is_secret or str(value.get("@type", "")).endswith(WHOLLY_HIDDEN_MESSAGE)
    return {name: _mask_field(name, member, is_secret=is_secret) for name, member in value.items()}


def _mask_field(name: str, value: PlainValue, *, is_secret: bool) -> PlainValue:
    if name in SECRET_FIELDS:
        return _hidden(value)
    if is_secret and name in INLINE_FIELDS:
        return HIDDEN
    return mask_value(value, is_secret=is_secret)


def _hidden(value: PlainValue) -> PlainValue:
    """Hide every text in what a secret field holds, but for where it comes from."""
    if isinstance(value, list):
        return [_hidden(member) for member in value]
    if isinstance(value, dict):
        return {name: mask_value(part) if name in PLACES else _hidden(part) for name, part in value.items()}
    return HIDDEN if isinstance(value, str) else value
