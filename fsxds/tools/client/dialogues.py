"""What a client says on a state-of-the-world stream, and what it makes of the answers.

What a client says on a Delta stream, and what it makes of the answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import DecodeError

from fsxds.protocol.messages import Node
from fsxds.protocol.subscription import WILDCARD
from fsxds.resource_types import BY_TYPE_URL
from fsxds.tools.client.messages import (
    NACK_CODE,
    Contents,
    DeltaDiscoveryRequest,
    DeltaDiscoveryResponse,
    DiscoveryRequest,
    DiscoveryResponse,
    LostError,
    Update,
    WrongAnswerError,
    node_message,
    read_anys,
    read_wrapper,
)
from fsxds.values import Nonce, TypeUrl, Version


@dataclass(slots=True)
class _Watch:
    """One type on the stream: the names asked for, the version accepted, the nonce heard last.

    `is_legacy`: nothing was ever named, which asks for everything.
    """

    names: tuple[str, ...] = ()
    is_legacy: bool = True
    version_info: str = ""
    nonce: str = ""


class SotwDialogue:
    """Speaks for one client, over one stream after the other."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._watches: dict[TypeUrl, _Watch] = {}
        self._is_introduced = False

    def opening(self) -> Iterator[bytes]:
        """Begin a stream: yield the requests that say again what is asked for, and which versions are held."""
        self._is_introduced = False
        for type_url, watch in self._watches.items():
            watch.nonce = ""
            if watch.names or watch.is_legacy:
                yield self._request(type_url, watch)

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for more names of a type; without any, for everything."""
        watch = self._watches.setdefault(type_url, _Watch())
        watch.names = tuple(dict.fromkeys((*watch.names, *names)))
        watch.is_legacy = watch.is_legacy and not watch.names
        return self._request(type_url, watch)

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for fewer names of a type."""
        watch = self._watches[type_url]
        gone = frozenset(names)
        watch.names = tuple(name for name in watch.names if name not in gone)
        return self._request(type_url, watch)

    def judge(self, update: Update, reason: str | None) -> bytes | None:
        """Say ACK to an update, or NACK where there is a reason; nothing of a type that was not asked for."""
        watch = self._watches.get(update.type_url)
        if watch is None:
            return None
        if reason is None:
            watch.version_info = update.version
        return self._request(update.type_url, watch, nonce=update.nonce, reason=reason)

    def read(self, data: bytes) -> Update:
        """Read a response.

        Raises:
            WrongAnswerError: it holds what cannot be taken.
            LostError: it is no response at all.
        """
        try:
            response = DiscoveryResponse.FromString(data)
        except DecodeError as error:
            raise LostError("what came is no DiscoveryResponse; is this an xDS server?", "INTERNAL") from error
        contents = Contents(TypeUrl(response.type_url))
        read_anys(response.resources, contents)
        row = BY_TYPE_URL.get(contents.type_url)
        update = Update(
            contents.type_url,
            Version(response.version_info),
            Nonce(response.nonce),
            contents.frozen(),
            # A heartbeat names what lives on, and nothing else.
            is_full=row is not None and row.full_state_in_sotw and not contents.heartbeats,
            heartbeats=tuple(contents.heartbeats),
        )
        watch = self._watches.get(contents.type_url)
        if watch is None:
            raise WrongAnswerError(f"{contents.type_url} was not asked for", update)
        watch.nonce = update.nonce
        if contents.faults:
            raise WrongAnswerError(contents.faults[0], update)
        return update

    def _request(
        self, type_url: TypeUrl, watch: _Watch, *, nonce: str | None = None, reason: str | None = None
    ) -> bytes:
        request = DiscoveryRequest(
            type_url=type_url,
            resource_names=watch.names,
            version_info=watch.version_info,
            response_nonce=watch.nonce if nonce is None else nonce,
        )
        if reason is not None:
            request.error_detail.code, request.error_detail.message = NACK_CODE, reason
        if not self._is_introduced:
            request.node.CopyFrom(node_message(self._node))
            self._is_introduced = True
        serialized: bytes = request.SerializeToString()
        return serialized


@dataclass(slots=True)
class _WatchDelta:
    """One type on the stream: the names asked for, and the versions of what was accepted.

    `is_legacy`: nothing was ever named, which asks for everything.
    """

    names: dict[str, None] = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)
    is_legacy: bool = True

    def subscribe(self, names: tuple[str, ...]) -> None:
        """Take in names; the first ones end the asking for everything, as the specification has it."""
        self.is_legacy = self.is_legacy and not names
        self.names |= dict.fromkeys(names)

    def unsubscribe(self, names: tuple[str, ...]) -> None:
        """Let go of names, and of what is held for them."""
        self.is_legacy = self.is_legacy and not names
        for name in names:
            self.names.pop(name, None)
        if WILDCARD not in self.names and not self.is_legacy:
            self.held = {name: version for name, version in self.held.items() if name not in names}

    def take(self, update: Update) -> None:
        """Hold what an accepted update tells."""
        self.held |= {name: resource.version for name, resource in update.resources.items()}
        for name in update.removed:
            self.held.pop(name, None)


class DeltaDialogue:
    """Speaks for one client, over one stream after the other."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._watches: dict[TypeUrl, _WatchDelta] = {}
        self._is_introduced = False

    def opening(self) -> Iterator[bytes]:
        """Begin a stream: yield the requests that say again what is asked for, and what is held."""
        self._is_introduced = False
        for type_url, watch in self._watches.items():
            if watch.names or watch.is_legacy:
                yield self._written(
                    DeltaDiscoveryRequest(
                        type_url=type_url, resource_names_subscribe=watch.names, initial_resource_versions=watch.held
                    )
                )

    def subscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for more names of a type; without any, for everything."""
        named = tuple(names)
        self._watches.setdefault(type_url, _WatchDelta()).subscribe(named)
        return self._written(DeltaDiscoveryRequest(type_url=type_url, resource_names_subscribe=named))

    def unsubscribe(self, type_url: TypeUrl, names: Iterable[str]) -> bytes:
        """Ask for fewer names of a type."""
        named = tuple(names)
        self._watches[type_url].unsubscribe(named)
        return self._written(DeltaDiscoveryRequest(type_url=type_url, resource_names_unsubscribe=named))

    def judge(self, update: Update, reason: str | None) -> bytes | None:
        """Say ACK to an update, or NACK where there is a reason; nothing of a type that was not asked for."""
        watch = self._watches.get(update.type_url)
        if watch is None:
            return None
        request = DeltaDiscoveryRequest(type_url=update.type_url, response_nonce=update.nonce)
        if reason is not None:
            request.error_detail.code, request.error_detail.message = NACK_CODE, reason
        else:
            watch.take(update)
        return self._written(request)

    def read(self, data: bytes) -> Update:
        """Read a response.

        Raises:
            WrongAnswerError: it holds what cannot be taken.
            LostError: it is no response at all.
        """
        try:
            response = DeltaDiscoveryResponse.FromString(data)
        except DecodeError as error:
            raise LostError("what came is no DeltaDiscoveryResponse; is this an xDS server?", "INTERNAL") from error
        contents = Contents(TypeUrl(response.type_url))
        update = _update_of(response, contents)
        if contents.type_url not in self._watches:
            raise WrongAnswerError(f"{contents.type_url} was not asked for", update)
        if contents.faults:
            raise WrongAnswerError(contents.faults[0], update)
        return update

    def _written(self, request: Any) -> bytes:
        if not self._is_introduced:
            request.node.CopyFrom(node_message(self._node))
            self._is_introduced = True
        serialized: bytes = request.SerializeToString()
        return serialized


def _update_of(response: Any, contents: Contents) -> Update:
    for wrapper in response.resources:
        read_wrapper(wrapper, contents)
    removed = tuple(response.removed_resources)
    if overlap := contents.resources.keys() & set(removed):
        contents.faults.append(f'"{min(overlap)}" is in it, and removed by it')
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
    )
