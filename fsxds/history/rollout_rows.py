"""The place of a rollout as it is kept: its snapshots by their digests, the rest as JSON.

Times of a rollout are seconds left, of a clock that starts with the machine. With the time of day at which they were kept,
they are less by as much as has passed, whoever restarted what.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping

from fsxds.channels import ChannelKey
from fsxds.history.kept_objects import Digest
from fsxds.resources import Key, Snapshot
from fsxds.rollout import DrainingListener, RolloutState
from fsxds.snapshots.parsed_bytes import DamagedBytesError
from fsxds.values import PlainValue, TypeUrl

FORMAT = 1
"""The version of the form: a state in another one is not used."""

_SNAPSHOTS = ("served", "target", "good", "pinned")


# What reading somebody else's JSON comes upon.
_DAMAGE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)


class OtherFormError(Exception):
    """A state is of another form than this version of fsxds reads."""


def channel_text(key: ChannelKey) -> str:
    """Return which nodes a channel is for, as text."""
    return json.dumps([list(key.layers), key.is_canary])


def channel_key(text: bytes) -> ChannelKey:
    """Return the channel of a text that `channel_text` made.

    Raises:
        DamagedBytesError: it is another text.
    """
    try:
        layers, is_canary = json.loads(text)
        return ChannelKey(tuple(map(str, layers)), bool(is_canary))
    except _DAMAGE as error:
        raise DamagedBytesError(f"it is damaged: {type(error).__name__}") from error


def snapshots_of(state: RolloutState) -> dict[str, Snapshot]:
    """Return the snapshots of a rollout by what they are in it."""
    found = {name: getattr(state, name) for name in _SNAPSHOTS}
    return {name: snapshot for name, snapshot in found.items() if snapshot is not None}


def encode_state(state: RolloutState, digests: Mapping[str, Digest], now_s: float) -> str:
    """Return a state as text.

    Args:
        state: the place of the rollout.
        digests: those of its snapshots, by what they are in it.
        now_s: seconds since 1970.
    """
    facts: dict[str, PlainValue] = {
        "format": FORMAT,
        "saved_s": now_s,
        "snapshots": {name: digest.hex() for name, digest in digests.items()},
        "asked_id": state.asked_id,
        "tainted": [*sorted(state.tainted)],
        "is_back": state.is_back,
        "is_stopped": state.is_stopped,
        "draining": [[one.name, _names(one.keys), _names(one.patterns), one.ends_at_s] for one in state.draining],
    }
    return json.dumps(facts)


def decode_state(text: bytes, restore: Callable[[Digest], Snapshot], now_s: float) -> RolloutState:
    """Return a state whose times are seconds left as of now.

    Args:
        text: what `encode_state` returned.
        restore: returns the snapshot with a digest.
        now_s: seconds since 1970.

    Raises:
        OtherFormError: another version of fsxds wrote it.
        DamagedBytesError: it is something else, or a snapshot is.
    """
    try:
        facts = json.loads(text)
        if facts["format"] != FORMAT:
            raise OtherFormError(f"its form is {facts['format']!r}, and not {FORMAT}")
        # A clock that was set back prolongs nothing.
        passed_s = max(now_s - _seconds(facts["saved_s"]), 0.0)
        found = {name: restore(bytes.fromhex(digest)) for name, digest in facts["snapshots"].items()}
        return RolloutState(
            found["served"],
            found["target"],
            found.get("good"),
            None if facts["asked_id"] is None else str(facts["asked_id"]),
            frozenset(map(str, facts["tainted"])),
            found.get("pinned"),
            bool(facts["is_back"]),
            tuple(_draining(row, passed_s) for row in facts["draining"]),
            bool(facts["is_stopped"]),
        )
    except _DAMAGE as error:
        raise DamagedBytesError(f"it is damaged: {type(error).__name__}") from error


def _seconds(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{value} seconds")
    return float(value)


_Names = list[list[str]]


def _names(keys: Iterable[Key]) -> PlainValue:
    return [[*key] for key in sorted(keys)]


def _keys(names: _Names) -> frozenset[Key]:
    return frozenset((TypeUrl(str(type_url)), str(name)) for type_url, name in names)


def _draining(row: tuple[str, _Names, _Names, float | None], passed_s: float) -> DrainingListener:
    listener, names, patterns, left_s = row
    ends_at_s = None if left_s is None else max(_seconds(left_s) - passed_s, 0.0)
    return DrainingListener(str(listener), _keys(names), _keys(patterns), ends_at_s)
