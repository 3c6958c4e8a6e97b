"""Responses in protobuf's wire form: a join of bytes that exist, with no message object in between.

Fields are written in the order that leaves what streams share together: the resources come as one piece, which is kept
as long as streams ask for the same collection.
Source: https://protobuf.dev/programming-guides/encoding; envoy/service/discovery/v3/discovery.proto.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from types import MappingProxyType

from fsxds.protocol.streams import DeltaResponse, SotwResponse
from fsxds.values import Resource, TypeUrl, Version

# Messages are kept until together they take more than this, or are more than this; the last one is kept in any case.
MOST_KEPT_BYTES = 64 * 1024 * 1024
MOST_KEPT = 1024
# Of one type, two of more than this are kept: a removal of clusters is told in two steps.
LARGE_BYTES = 1024 * 1024
MOST_LARGE_EACH = 2

# Sizes of bodies that are remembered of a type.
MOST_HEADS = 65536

RESOURCE_TYPE_URL = "type.googleapis.com/envoy.service.discovery.v3.Resource"
CONTROL_PLANE = "fsxds"


class Form(Enum):
    """How a collection of resources stands in a response."""

    SOTW = auto()
    SOTW_WITH_TTL = auto()
    DELTA = auto()
    DELTA_WITH_TTL = auto()


NO_ALIASES: Mapping[str, tuple[str, ...]] = MappingProxyType({})


class ResponseWriter:
    """Writes the responses of all streams; equal collections of resources are written once.

    What differs between streams stands at the end of a message, so that all before it is shared; where that is equal too,
    they share the whole message. `written` counts the messages that nothing was kept of.
    """

    def __init__(self, most_kept_bytes: int = MOST_KEPT_BYTES) -> None:
        self.written = 0
        self._most_kept_bytes = most_kept_bytes
        self._kept_bytes = 0
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()
        # Those of a type that are large, the oldest first.
        self._large: dict[tuple[TypeUrl, Form], list[_Key]] = {}

    def sotw(self, response: SotwResponse) -> bytes:
        """Return a DiscoveryResponse."""
        heartbeats = (_wrapped(_heartbeat(resource)) for resource in response.heartbeats)
        rest = b"".join((*heartbeats, text_field(5, response.nonce)))
        return self._message(response, Form.SOTW_WITH_TTL if response.with_ttl else Form.SOTW, rest)

    def delta(self, response: DeltaResponse) -> bytes:
        """Return a DeltaDiscoveryResponse."""
        rest = b"".join(
            (
                *(length_delimited(2, _heartbeat(resource)) for resource in response.heartbeats),
                *(length_delimited(2, text_field(3, name) + text_field(4, name)) for name in response.unpopulated),
                *(length_delimited(6, name.encode()) for name in response.removed),
                text_field(5, response.nonce),
            )
        )
        form = Form.DELTA_WITH_TTL if response.with_ttl else Form.DELTA
        if response.aliases:
            parts = _delta_parts(response.resources, response.aliases, with_ttl=response.with_ttl)
            return b"".join((*_frame(response, form), *parts, rest))
        return self._message(response, form, rest)

    def _message(self, response: SotwResponse | DeltaResponse, form: Form, rest: bytes) -> bytes:
        resources = response.resources
        # Only what cannot change is known by its identity.
        if not resources or not isinstance(resources, tuple):
            return b"".join((*_frame(response, form), *_parts(resources, form), rest))
        key = id(resources), form, response.version
        kept = self._kept.get(key)
        if kept is None:
            self._make_room(response.type_url, form)
            return self._keep(key, _Kept.of(response, form, rest))
        self._kept.move_to_end(key)
        if kept.rest == rest:
            return kept.message
        return b"".join((memoryview(kept.message)[: len(kept.message) - len(kept.rest)], rest))

    def _make_room(self, type_url: TypeUrl, form: Form) -> None:
        """Drop what the next message of a type makes old, where that is large, before it is written.

        So it gets the memory of the one before it: to touch new pages takes longer than to write on them.
        """
        large = self._large.setdefault((type_url, form), [])
        while len(large) >= MOST_LARGE_EACH:
            self._drop(large[0])

    def _keep(self, key: _Key, kept: _Kept) -> bytes:
        self.written += 1
        self._kept[key] = kept
        self._kept_bytes += len(kept.message)
        if len(kept.message) >= LARGE_BYTES:
            self._large[kept.type_url, key[1]].append(key)
        while len(self._kept) > 1 and (self._kept_bytes > self._most_kept_bytes or len(self._kept) > MOST_KEPT):
            self._drop(next(iter(self._kept)))
        return kept.message

    def _drop(self, key: _Key) -> None:
        dropped = self._kept.pop(key)
        self._kept_bytes -= len(dropped.message)
        if len(dropped.message) >= LARGE_BYTES:
            self._large[dropped.type_url, key[1]].remove(key)


_Key = tuple[int, Form, Version]
"""The identity of a collection, how it is written, and its version."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A message whose end is `rest`; with its collection, so that the identity of that is not another's."""

    type_url: TypeUrl
    resources: Collection[Resource]
    message: bytes
    rest: bytes

    @classmethod
    def of(cls, response: SotwResponse | DeltaResponse, form: Form, rest: bytes) -> _Kept:
        parts = _parts(response.resources, form)
        message = b"".join((*_frame(response, form), *parts, rest))
        return cls(response.type_url, response.resources, message, rest)


def _frame(response: SotwResponse | DeltaResponse, form: Form) -> tuple[bytes, ...]:
    """Return what all streams are told beside the resources: the version, the type, and who we are."""
    field = 6 if form in {Form.SOTW, Form.SOTW_WITH_TTL} else 7
    return text_field(1, response.version), text_field(4, response.type_url), _control_plane(field)


def _parts(resources: Collection[Resource], form: Form) -> Iterable[bytes]:
    """Return the field `resources = 2` of a response, in pieces."""
    match form:
        case Form.SOTW:
            return _sotw_parts(resources)
        case Form.SOTW_WITH_TTL:
            return _sotw_parts_with_ttl(resources)
        case Form.DELTA | Form.DELTA_WITH_TTL:
            return _delta_parts(resources, NO_ALIASES, with_ttl=form is Form.DELTA_WITH_TTL)


def _sotw_parts(resources: Collection[Resource]) -> list[bytes]:
    if not resources:
        return []
    # All resources of a response are of one type.
    heads = _heads_of(next(iter(resources)).type_url)
    return [part for resource in resources for part in (heads.field_2[len(resource.body)], resource.body)]


def _sotw_parts_with_ttl(resources: Iterable[Resource]) -> Iterator[bytes]:
    for resource in resources:
        if resource.ttl_s is None:
            yield from _sotw_parts((resource,))
        else:
            yield _wrapped(_resourcelength_head(resource, resource.aliases, resource.ttl_s) + resource.body)


def _delta_parts(
    resources: Iterable[Resource], aliases: Mapping[str, tuple[str, ...]], *, with_ttl: bool
) -> Iterator[bytes]:
    for resource in resources:
        ttl_s = resource.ttl_s if with_ttl else None
        head = _resourcelength_head(resource, aliases.get(resource.name, resource.aliases), ttl_s)
        yield length_head(2, len(head) + len(resource.body))
        yield head
        yield resource.body


def _resourcelength_head(resource: Resource, aliases: tuple[str, ...], ttl_s: float | None) -> bytes:
    """Return all of a `Resource` but the body of what it holds, which comes last."""
    size = len(resource.body)
    held = _heads_of(resource.type_url).without_field[size]
    version, name = resource.version.encode(), resource.name.encode()
    # Fields 1 and 3: this is done ten thousand times for one response.
    head = b"\x0a" + varint(len(version)) + version + b"\x1a" + varint(len(name)) + name
    if aliases:
        head += b"".join([text_field(4, alias) for alias in aliases])
    if ttl_s is not None:
        head += length_delimited(6, _duration(ttl_s))
    return head + length_head(2, len(held) + size) + held


def _heartbeat(resource: Resource) -> bytes:
    """Return a `Resource` without content. Source: xDS protocol, "TTL"."""
    ttl = b"" if resource.ttl_s is None else length_delimited(6, _duration(resource.ttl_s))
    return text_field(1, resource.version) + text_field(3, resource.name) + ttl


def _duration(seconds: float) -> bytes:
    whole, nanos = divmod(round(seconds * 1_000_000_000), 1_000_000_000)
    return _number_field(1, whole) + _number_field(2, nanos)


def _wrapped(message: bytes) -> bytes:
    """Return the field of a DiscoveryResponse that holds a serialized `Resource`."""
    return _heads_of(RESOURCE_TYPE_URL).field_2[len(message)] + message


class _Heads(dict[int, bytes]):
    """By the size of a body: what stands before it in an `Any` of one type. Bodies of one size share it."""

    def __init__(self, type_url: str, field: int | None) -> None:
        self._type_url = type_url
        self._field = field

    def __missing__(self, size: int) -> bytes:
        head = text_field(1, self._type_url) + length_head(2, size)
        if self._field is not None:
            head = length_head(self._field, len(head) + size) + head
        if len(self) >= MOST_HEADS:
            self.clear()
        self[size] = head
        return head


@dataclass(frozen=True, slots=True)
class _TypeHeads:
    """Heads of an `Any` as a field of its own, and of one whose field is written elsewhere."""

    field_2: _Heads
    without_field: _Heads


@lru_cache(maxsize=64)
def _heads_of(type_url: str) -> _TypeHeads:
    return _TypeHeads(_Heads(type_url, 2), _Heads(type_url, None))


@lru_cache
def _control_plane(field: int) -> bytes:
    return length_delimited(field, text_field(1, CONTROL_PLANE))


def text_field(field: int, text: str) -> bytes:
    """Write a string; an empty one is left out."""
    return length_delimited(field, text.encode()) if text else b""


def length_delimited(field: int, content: bytes) -> bytes:
    """Write a field that is a string, bytes or a message."""
    return length_head(field, len(content)) + content


def _number_field(field: int, number: int) -> bytes:
    return varint(field << 3) + varint(number) if number else b""


def length_head(field: int, size: int) -> bytes:
    """Write the begin of a field that is a string, bytes or a message: its content follows."""
    return _SINGLE_BYTES[field << 3 | 2] + varint(size)


def varint(number: int) -> bytes:
    """Write a number that is not negative in groups of seven bits."""
    if number < 0x80:
        return _SINGLE_BYTES[number]
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    groups.append(number)
    return bytes(groups)


_SINGLE_BYTES = tuple(bytes((number,)) for number in range(0x80))
