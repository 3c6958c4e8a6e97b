"""Written forms of rollout options."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from math import inf

from fsxds.settings.forms import DURATION, OFF, OptionForm, Schema, or_off

_PERCENT = re.compile(r"([0-9]{1,3}(?:[.][0-9]{1,6})?) ?%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Canary:
    """The nodes that get a change first: of a view, or a share of all, above 0 and up to 1."""

    view: str | None = None
    share: float | None = None


def is_in_share(node_id: str, share: float) -> bool:
    """Whether a node is in a share, from 0 to 1.

    The choice is stable; a larger share includes a smaller one's nodes.
    """
    digest = hashlib.sha256(node_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


@dataclass(frozen=True, slots=True)
class NackLimit:
    """A version is held if more identities reject it: a share below 1, or a number."""

    share: float = 0.5
    count: int | None = None


def _read_number(written: object) -> int:
    number = int(written) if isinstance(written, str) and written.isdecimal() else written
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(written)
    return number


def _read_count(written: object) -> int:
    number = _read_number(written)
    if not number:
        raise ValueError(written)
    return number


def _read_share(written: object) -> float:
    match = _PERCENT.fullmatch(written.strip()) if isinstance(written, str) else None
    if match is None or float(match[1]) > 100:
        raise ValueError(written)
    return float(match[1]) / 100


def _read_quorum(written: object) -> float:
    share = _read_share(written)
    if not share:
        raise ValueError(written)
    return share


def _read_nack_limit(written: object) -> NackLimit:
    if isinstance(written, str) and written.strip().endswith("%"):
        share = _read_share(written)
        if share == 1:
            raise ValueError(written)
        return NackLimit(share)
    return NackLimit(count=_read_number(written))


def _read_canary(written: object) -> Canary:
    if isinstance(written, dict) and len(written) == 1:
        [(word, value)] = written.items()
    else:
        word, _, value = str(written).partition("=")
    if word == "view" and isinstance(value, str) and value:
        return Canary(view=value)
    if word == "nodes" and (share := _read_share(value)):
        return Canary(share=share)
    raise ValueError(written)


_PERCENT_TEXT: Schema = {"type": "string", "pattern": f"^{_PERCENT.pattern}$"}
_CANARY_KEYS = {"view": {"type": "string", "minLength": 1}, "nodes": _PERCENT_TEXT}

COUNT = OptionForm(
    "COUNT", "a number, 1 at least", _read_count, {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
)
COUNT_OR_OFF = OptionForm(
    "COUNT",
    "a number, 1 at least, or off",
    or_off(_read_count, None),
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}, {"const": False}]},
)
SHARE_OR_OFF = OptionForm(
    "SHARE", "a share or off (write 50%)", or_off(_read_share, inf), {"anyOf": [_PERCENT_TEXT, {"enum": [OFF, False]}]}
)
DURATION_OR_OFF = OptionForm(
    "DURATION",
    "a duration or off (write 10m or off)",
    or_off(DURATION.read, inf),
    {"anyOf": [DURATION.schema, {"enum": [OFF, False]}]},
)
QUORUM = OptionForm("SHARE", "a share above 0 (write 80%)", _read_quorum, _PERCENT_TEXT)
NACK_LIMIT = OptionForm(
    "SHARE|COUNT",
    "a share below 100%, a number, or off (write 50%, 3 or off)",
    or_off(_read_nack_limit, None),
    {"anyOf": [_PERCENT_TEXT, {"type": "integer", "minimum": 0}, {"enum": [OFF, False]}]},
)
CANARY = OptionForm(
    "view=NAME|nodes=SHARE",
    "a view or a share of the nodes (write view=NAME or nodes=5%)",
    _read_canary,
    {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "object",
                "properties": _CANARY_KEYS,
                "additionalProperties": False,
                "minProperties": 1,
                "maxProperties": 1,
            },
        ]
    },
)
