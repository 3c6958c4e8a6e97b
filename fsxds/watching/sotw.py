"""What a client says on a state-of-the-world stream, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from fsxds.protocol.messages import Node
from fsxds.resource_types import BY_TYPE_URL
from fsxds.values import Nonce, TypeUrl, Version
from fsxds.watching.messages import NACK_CODE, DiscoveryRequest, DiscoveryResponse, node_message, read_anys
from fsxds.watching.updates import Contents, LostError, Update, WrongAnswerError


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
