"""Reads structured names of requests; rejects names that cannot exist.

| rule | source |
| --- | --- |
| Every spelling means the canonical name, which is in the answer; on Delta streams the client's spelling becomes an alias. | xRFC TP1, "URI encoding"; xDS protocol, "Aliases" |
| A malformed name, or one of another type, is rejected alone, with a reason. The rest of the stream continues. | xRFC TP1, "Logical resource naming"; `resource_errors` in discovery.proto |
| A virtual host's name is its route configuration's with a host appended, which no client encodes. | ENVOY.md E46 |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType

from fsxds.model.errors import LimitError, ProtocolError
from fsxds.model.resource_names import (
    MalformedName,
    canonical,
    canonical_of_type,
    is_as_written,
    is_structured,
    names_no_authority,
)
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import DeltaRequest

VIRTUAL_HOSTS = BY_SHORT_NAME["vhds"].type_url

# How much of a name is shown, and the maximum number of rejected names with a reason in a response.
_SHOWN = 200
MOST_REASONS = 100

# Decoding a name takes some 20 microseconds, during which all other clients wait. Most names are canonical as written.
MOST_DECODED = 20_000

# The size of the cache of read names, and the maximum length of cached names.
MOST_KEPT, _LONGEST_KEPT = 20_000, 256


@dataclass(frozen=True, slots=True)
class RequestedNames:
    """The meaning of a request's structured names.

    `canonical` maps other spellings, `rejected` canonical names to reasons. `without_authority` is one name completed
    by the settings' authority, or "".
    """

    canonical: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    rejected: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    without_authority: str = ""

    def among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return canonical names."""
        return tuple(self.canonical.get(name, name) for name in names) if self.canonical else tuple(names)


NO_STRUCTURED_NAMES = RequestedNames()


def read_names(names: Iterable[str], type_url: TypeUrl, authority: str = "") -> RequestedNames:
    """Read a request's names; `authority` completes names without one.

    Raises:
        LimitError: too many names have to be decoded.
    """
    structured = [name for name in names if is_structured(name)] if type_url != VIRTUAL_HOSTS else []
    if not structured:
        return NO_STRUCTURED_NAMES
    forms: dict[str, str] = {}
    rejected: dict[str, str] = {}
    others = [name for name in structured if not is_as_written(name, type_url)]
    if len(others) > MOST_DECODED:
        raise LimitError("max-names", f"the request has more than {MOST_DECODED} names with codes or parameters")
    for written in others:
        read = _read_short if len(written) <= _LONGEST_KEPT else _read
        form, reason = read(written, type_url, authority)
        if form != written:
            forms[written] = form
        if reason and len(rejected) < MOST_REASONS:
            rejected[form] = reason
    completed = (name for name in forms if authority and names_no_authority(name))
    return RequestedNames(forms, rejected, next(completed, "")[:_SHOWN])


def _read(written: str, type_url: TypeUrl, authority: str) -> tuple[str, str]:
    """Return the canonical form or the name, and a rejection's reason."""
    try:
        return canonical_of_type(written, type_url, authority), ""
    except MalformedName as error:
        return _canonical_or_as_written(written, authority), f"{written[:_SHOWN]!r} {error}"


# On a SotW stream, a client repeats its names with each ACK.
_read_short = lru_cache(maxsize=MOST_KEPT)(_read)


def checked_names(names: Iterable[str], type_url: TypeUrl, authority: str = "") -> tuple[str, ...]:
    """For a request without a stream. Raises ProtocolError for a rejected name."""
    written = tuple(names)
    read = read_names(written, type_url, authority)
    reject_request(read.rejected)
    return read.among(written)


def reject_request(rejected: Mapping[str, str]) -> None:
    """For a request without a stream. Raises ProtocolError for a rejected name."""
    for reason in rejected.values():
        raise ProtocolError(reason_of(reason))


def reason_of(reason: str) -> str:
    """Add the field to a reason."""
    return f"resource_names: {reason}"


def _canonical_or_as_written(written: str, authority: str) -> str:
    try:
        return canonical(written, authority)
    except MalformedName:
        return written


class Spellings:
    """One Delta client's other spellings of subscribed names."""

    __slots__ = ("_by_name",)

    def __init__(self) -> None:
        # All spellings in use of a name; omitted if the canonical form is the only one.
        self._by_name: dict[str, frozenset[str]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_name)

    def others(self, name: str) -> frozenset[str]:
        """Return a canonical name's other spellings."""
        return self._by_name.get(name, frozenset()) - {name}

    def with_others(self, names: frozenset[str]) -> frozenset[str]:
        """Add the other spellings."""
        return names.union(*map(self.others, names & self._by_name.keys())) if self._by_name else names

    def receive(self, request: DeltaRequest, subscribed: AbstractSet[str]) -> DeltaRequest:
        """Return a request with canonical names; remember its spellings.

        A name unsubscribed in one spelling stays subscribed in another. `subscribed` are canonical names before.
        """
        if not request.canonical and not self._by_name:
            return request
        form_of, asked = request.canonical, frozenset(request.subscribe)
        subscribe = tuple(form_of.get(written, written) for written in request.subscribe)
        for written, name in zip(request.subscribe, subscribe, strict=True):
            if written != name or name in self._by_name:
                known = self._by_name.get(name, subscribed & {name} | asked & {name})
                self._by_name[name] = frozenset(known) | {written}
        given_up = tuple(self._give_up(form_of.get(written, written), written) for written in request.unsubscribe)
        held = {form_of.get(name, name): version for name, version in request.initial_resource_versions.items()}
        return replace(
            request,
            subscribe=subscribe,
            unsubscribe=tuple(name for name in given_up if name is not None),
            initial_resource_versions=held,
        )

    def _give_up(self, name: str, written: str) -> str | None:
        """Return the name if no spelling is subscribed any more."""
        left = self._by_name.pop(name, frozenset((written,))) - {written}
        if not left:
            return name
        self._by_name[name] = left
        return None
