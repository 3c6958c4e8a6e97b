"""What nobody may see in a log or a listing: hidden here and nowhere else."""

from __future__ import annotations

import re

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
INLINE_FIELDS = frozenset(("inline_string", "inline_bytes", "inlineString", "inlineBytes"))

# Fields outside of Secret messages below which an inline value is one: TLS material, passwords, tokens.
SECRET_FIELDS = frozenset((
    "private_key", "pkcs12", "password", "session_ticket_keys", "secret", "secrets", "token_secret", "hmac_secret",
    "client_secret", "auth_password", "auth_passwords", "api_key", "credential", "credentials", "users", "keys",
))  # fmt: skip


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
    is_secret = is_secret or name in SECRET_FIELDS
    if is_secret and (name in INLINE_FIELDS or (name in SECRET_FIELDS and isinstance(value, str))):
        return HIDDEN
    return mask_value(value, is_secret=is_secret)
