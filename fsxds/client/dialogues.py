"""A client's requests and responses on a stream: SotW and Delta. Pure.

A dialogue outlives its streams: `first_requests` renews subscriptions.

Rules: which part of a response with faults is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType

from google.protobuf.message import DecodeError

from fsxds.api.catalogue import DynamicMessage
from fsxds.client.updates import (
    NACK_CODE,
    ConnectionLostError,
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    Update,
    UpdateContents,
    WrongResponseError,
    node_message,
    read_anys,
    read_wrapper,
)
from fsxds.model.relay_ids import relays_of_identifier
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import WILDCARD

# The maximum number of names per request at the start of a Delta stream; a server may take no more than 4 MB per
# request.
MOST_NAMES_AT_ONCE = 10_000

HeldVersions = Callable[[TypeUrl], Mapping[str, str]]
"""Returns the versions of held resources by name, for the start of a stream."""


class _RequestWriter:
    """The first request of each stream has the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._has_sent_node = False

    def begin_stream(self) -> None:
        self._has_sent_node = False

    def written(self, request: DynamicMessage, reason: str | None = None) -> bytes:
        if reason is not None:
            request.error_detail.code, request.error_detail.message = NACK_CODE, reason
        if not self._has_sent_node:
            request.node.CopyFrom(node_message(self._node))
            self._has_sent_node = True
        serialized: bytes = request.SerializeToString()
        return serialized


@dataclass(slots=True)
class _SotwSubscription:
    """The names, the last ACKed version, the last nonce.

    `never_named`: no request had a name: a wildcard.
    """

    names: tuple[str, ...] = ()
    never_named: bool = True
    version_info: str = ""
    nonce: str = ""


class SotwDialogue:
    """One client's state, over successive streams.

    With `accepts_parts`, faults are in the update, beside good resources, and not raised.
    """

    def __init__(self, node: Node, *, accepts_parts: bool = False) -> None:
        self._writer = _RequestWriter(node)
        self._accepts_parts = accepts_parts
        self._subscriptions: dict[TypeUrl, _SotwSubscription] = {}

    def first_requests(self) -> Iterator[bytes]:
        """Yield all subscriptions with held versions."""
        self._writer.begin_stream()
        for type_url, subscription in self._subscriptions.items():
            subscription.nonce = ""
            if subscription.names or subscription.never_named:
                yield self._request(type_url, subscription)

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Return the request for more names, or everything."""
        subscription = self._subscriptions.setdefault(type_url, _SotwSubscription())
        subscription.names = tuple(dict.fromkeys((*subscription.names, *names)))
        subscription.never_named = subscription.never_named and not subscription.names
        return self._request(type_url, subscription)

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Return the request."""
        subscription = self._subscriptions[type_url]
        gone = frozenset(names)
        subscription.names = tuple(name for name in subscription.names if name not in gone)
        return self._request(type_url, subscription)

    def answer(self, update: Update, reason: str | None) -> bytes | None:
        """Return the ACK, or with a reason the NACK, if subscribed."""
        subscription = self._subscriptions.get(update.type_url)
        if subscription is None:
            return None
        if reason is None:
            subscription.version_info = update.version
        return self._request(update.type_url, subscription, nonce=update.nonce, reason=reason)

    def read(self, data: bytes) -> Update:
        """Read a response. Raises WrongResponseError for an unacceptable one, ConnectionLostError for none."""
        response, contents = _parsed(DiscoveryResponse, data)
        read_anys(response.resources, contents)
        row = BY_TYPE_URL.get(contents.type_url)
        update = Update(
            contents.type_url,
            Version(response.version_info),
            Nonce(response.nonce),
            contents.frozen(),
            # A heartbeat lists resources to keep, and nothing else.
            is_full=row is not None and row.full_state_in_sotw and not contents.heartbeats,
            heartbeats=tuple(contents.heartbeats),
            relays=relays_of_identifier(response.control_plane.identifier),
        )
        if subscription := self._subscriptions.get(contents.type_url):
            subscription.nonce = update.nonce
        return _checked(update, contents, self._subscriptions, accepts_parts=self._accepts_parts)

    def _request(
        self, type_url: TypeUrl, subscription: _SotwSubscription, *, nonce: str | None = None, reason: str | None = None
    ) -> bytes:
        request = DiscoveryRequest(
            type_url=type_url,
            resource_names=subscription.names,
            version_info=subscription.version_info,
            response_nonce=subscription.nonce if nonce is None else nonce,
        )
        return self._writer.written(request, reason)


@dataclass(slots=True)
class _DeltaSubscription:
    """The names, and ACKed versions.

    `never_named`: no request had a name: a wildcard.
    """

    names: dict[str, None] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    never_named: bool = True

    def subscribe(self, names: tuple[str, ...]) -> None:
        """By the specification, the first names end an implicit wildcard."""
        self.never_named = self.never_named and not names
        self.names |= dict.fromkeys(names)

    def unsubscribe(self, names: tuple[str, ...]) -> None:
        self.never_named = self.never_named and not names
        for name in names:
            self.names.pop(name, None)
        if WILDCARD not in self.names and not self.never_named:
            self.held = {name: version for name, version in self.held.items() if name not in names}

    def take(self, update: Update) -> None:
        self.held |= {name: resource.version for name, resource in update.resources.items()}
        for name in update.removed:
            self.held.pop(name, None)


class DeltaDialogue:
    """See `SotwDialogue`. Without `held`, a stream starts with ACKed versions."""

    def __init__(self, node: Node, held: HeldVersions | None = None, *, accepts_parts: bool = False) -> None:
        self._writer = _RequestWriter(node)
        self._subscriptions: dict[TypeUrl, _DeltaSubscription] = {}
        self._held = held
        self._accepts_parts = accepts_parts
        # The types requested on the current stream: versions are in the first request for a type only.
        self._begun: set[TypeUrl] | None = None

    def first_requests(self) -> Iterator[bytes]:
        """Yield all subscriptions with held resources."""
        self._writer.begin_stream()
        self._begun = set()
        for type_url, subscription in self._subscriptions.items():
            if subscription.names or subscription.never_named:
                names = iter(tuple(subscription.names))
                yield self._subscribing(type_url, tuple(islice(names, MOST_NAMES_AT_ONCE)))
                while more := tuple(islice(names, MOST_NAMES_AT_ONCE)):
                    yield self._subscribing(type_url, more)

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """See `SotwDialogue`."""
        named = tuple(names)
        self._subscriptions.setdefault(type_url, _DeltaSubscription()).subscribe(named)
        return self._subscribing(type_url, named)

    def _subscribing(self, type_url: TypeUrl, names: tuple[str, ...]) -> bytes:
        held: Mapping[str, str] = MappingProxyType({})
        if self._begun is not None and type_url not in self._begun:
            self._begun.add(type_url)
            held = self._subscriptions[type_url].held if self._held is None else self._held(type_url)
        request = DeltaDiscoveryRequest(
            type_url=type_url, resource_names_subscribe=names, initial_resource_versions=held
        )
        return self._writer.written(request)

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """See `SotwDialogue`."""
        named = tuple(names)
        self._subscriptions[type_url].unsubscribe(named)
        return self._writer.written(DeltaDiscoveryRequest(type_url=type_url, resource_names_unsubscribe=named))

    def answer(self, update: Update, reason: str | None) -> bytes | None:
        """See `SotwDialogue`."""
        subscription = self._subscriptions.get(update.type_url)
        if subscription is None:
            return None
        request = DeltaDiscoveryRequest(type_url=update.type_url, response_nonce=update.nonce)
        if reason is None and self._held is None:
            subscription.take(update)
        return self._writer.written(request, reason)

    def read(self, data: bytes) -> Update:
        """See `Dialogue`. Raises WrongResponseError for an unacceptable one, ConnectionLostError for none."""
        response, contents = _parsed(DeltaDiscoveryResponse, data)
        update = _update_of(response, contents)
        return _checked(update, contents, self._subscriptions, accepts_parts=self._accepts_parts)


def _parsed(message_class: type[DynamicMessage], data: bytes) -> tuple[DynamicMessage, UpdateContents]:
    try:
        response = message_class.FromString(data)
    except DecodeError as error:
        fact = f"the response is no {message_class.DESCRIPTOR.name}; is this an xDS server?"
        raise ConnectionLostError(fact, "INTERNAL") from error
    return response, UpdateContents(TypeUrl(response.type_url))


def _checked(
    update: Update, contents: UpdateContents, subscribed: Container[TypeUrl], *, accepts_parts: bool
) -> Update:
    """WrongResponseError for a fault that is not tolerated."""
    if update.type_url not in subscribed:
        fault = f"{update.type_url} was not asked for"
        if not accepts_parts:
            raise WrongResponseError(fault, update)
        return replace(update, resources=MappingProxyType({}), removed=(), is_full=False, faults=(fault,))
    if contents.faults and not accepts_parts:
        raise WrongResponseError(contents.faults[0], update)
    return contents.accepted(update)


def _update_of(response: DynamicMessage, contents: UpdateContents) -> Update:
    for wrapper in response.resources:
        try:
            read_wrapper(wrapper, contents)
        except DecodeError:
            contents.reject(wrapper.name, "a resource in it is no message")
    removed = tuple(response.removed_resources)
    for name in sorted(contents.resources.keys() & set(removed)):
        contents.reject(name, f'"{name}" is in it, and removed by it')
    if len(set(removed)) < len(removed):
        contents.faults.append("it removes a name twice")
    return Update(
        contents.type_url,
        Version(response.system_version_info),
        Nonce(response.nonce),
        contents.frozen(),
        removed,
        heartbeats=tuple(contents.heartbeats),
        unpopulated=tuple(contents.unpopulated),
        relays=relays_of_identifier(response.control_plane.identifier),
    )
