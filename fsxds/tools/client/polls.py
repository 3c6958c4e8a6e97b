"""A client that polls over REST, held by the server until there is news."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import aiohttp

from fsxds.api.convert import Converter
from fsxds.protocol.messages import Node
from fsxds.resource_types import ResourceType
from fsxds.tools.client.messages import AGENT, Contents, LostError, Update, WrongAnswerError, name_within
from fsxds.values import Nonce, PlainValue, TypeUrl, Version

# A poll is held for so long; the server may hold it for less.
HOLD_S = 60.0
# An answer that comes so much later than that comes no more: the connection died.
LATE_S = 15.0
_CONNECT_PATIENCE_S = 5.0

_OK, _NOTHING_NEW, _UNAVAILABLE = 200, 304, 503
# Others mean that the request, or the server, is not what it should be.
_PASSING = frozenset({408, 429, 500, 502, _UNAVAILABLE, 504})
_UNIX = "unix:"


class PollingClient:
    """A client that polls for one type. Use as an async context manager; its verbs are those of `StreamClient`.

    It can be cancelled while it waits in `next()`. `on_connected` is called with each answer that is no error.
    `hold_s` is for how long the server is asked to hold a poll, `late_s` for how much longer an answer is waited for; they
    may be set before the client is used.
    """

    def __init__(self, address: str, row: ResourceType, node: Node, converter: Converter) -> None:
        """Poll at an address.

        Args:
            address: `http://host:port`, with a path before `/v3/` if need be, or `unix:` and the path of a socket.
            row: what to poll for; it has a REST form.
            node: who polls.
            converter: reads the resources.
        """
        is_unix = address.startswith(_UNIX)
        self._base = "http://fsxds" if is_unix else address.rstrip("/")
        self._socket = address.removeprefix(_UNIX) if is_unix else None
        self._row = row
        self._node: PlainValue = {"id": node.id, "cluster": node.cluster, "user_agent_name": node.agent or AGENT}
        self._converter = converter
        self.hold_s, self.late_s = HOLD_S, LATE_S
        self._names: list[str] = []
        self._version = ""
        self._unjudged: Update | None = None
        self._refused: tuple[Nonce, str] | None = None
        self._was_lost = False
        self._session: aiohttp.ClientSession | None = None
        self.on_connected: Callable[[], None] = _nothing

    async def __aenter__(self) -> Self:
        connector = aiohttp.UnixConnector(self._socket) if self._socket else aiohttp.TCPConnector()
        patience = aiohttp.ClientTimeout(total=None, connect=_CONNECT_PATIENCE_S, sock_read=self.hold_s + self.late_s)
        self._session = aiohttp.ClientSession(connector=connector, timeout=patience)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Ask for names of the type beside those asked for before; without any, for everything."""
        if type_url != self._row.type_url:
            raise ValueError(f"this client polls for {self._row.short_name}")
        self._names = list(dict.fromkeys((*self._names, *names)))

    def ack(self) -> None:
        """Accept the last update; the next poll tells it."""
        if self._unjudged is not None:
            self._version, self._unjudged, self._refused = self._unjudged.version, None, None

    def nack(self, reason: str) -> None:
        """Refuse the last update; the next poll tells it."""
        if self._unjudged is None:
            raise ValueError("there is no update without a verdict")
        self._refused, self._unjudged = (self._unjudged.nonce, reason), None

    async def next(self) -> Update:
        """Wait for the next update, after an ACK to the one before where it has no verdict yet.

        Raises:
            LostError: the server cannot be asked, or has nothing to tell; to call again is to ask again.
            WrongAnswerError: the update cannot be taken, and is refused with the next poll.
        """
        self.ack()
        while True:
            body = await self._poll()
            if body is not None:
                return self._read(body)

    async def finish(self) -> None:
        """Accept the last update, and tell it by a poll that is not held."""
        self.ack()
        with contextlib.suppress(LostError):
            await self._ask(hold_s=0.0)

    async def _poll(self) -> bytes | None:
        """Poll once; None when there is nothing new."""
        # After an outage the first answer comes at once: that the server is back is news.
        hold_s = 0.0 if self._was_lost else self.hold_s
        self._was_lost = True
        body = await self._ask(hold_s)
        self._was_lost = False
        self.on_connected()
        return body

    async def _ask(self, hold_s: float) -> bytes | None:
        if self._session is None:
            raise RuntimeError("a client is used as an async context manager")
        url = f"{self._base}/v3/discovery:{self._row.rest_path}"
        try:
            async with self._session.post(url, params={"timeout": f"{hold_s:g}"}, json=self._request()) as answer:
                body = await answer.read()
        except TimeoutError as error:
            raise LostError("no answer came in time", "TIMEOUT") from error
        except aiohttp.InvalidURL as error:
            raise LostError(f"{self._base} is no URL", "INVALID_ARGUMENT", is_final=True) from error
        except aiohttp.ClientError as error:
            raise LostError(f"cannot connect: {words_of(error)}", "UNAVAILABLE") from error
        if answer.status not in (_OK, _NOTHING_NEW):
            raise _refusal(answer.status, body)
        return body if answer.status == _OK else None

    def _request(self) -> dict[str, PlainValue]:
        request: dict[str, PlainValue] = {"node": self._node, "type_url": self._row.type_url}
        if self._names:
            request["resource_names"] = [*self._names]
        if self._version:
            request["version_info"] = self._version
        if self._refused:
            nonce, reason = self._refused
            request |= {"response_nonce": nonce, "error_detail": {"code": 13, "message": reason}}
        return request

    def _read(self, body: bytes) -> Update:
        try:
            response = json.loads(body)
            members, version = response.get("resources", []), str(response["version_info"])
        except (ValueError, LookupError, AttributeError, TypeError) as error:
            raise LostError("what came is no DiscoveryResponse in JSON; is this an xDS server?", "INTERNAL") from error
        contents = Contents(self._row.type_url)
        for member in members:
            self._convert(member, contents)
        nonce = Nonce(str(response.get("nonce") or version))
        update = Update(self._row.type_url, Version(version), nonce, contents.frozen(), is_full=True)
        self._unjudged = update
        if contents.faults:
            self.nack(contents.faults[0])
            raise WrongAnswerError(contents.faults[0], update)
        return update

    def _convert(self, member: Any, contents: Contents) -> None:
        type_url = member.get("@type") if isinstance(member, dict) else None
        if type_url != self._row.type_url:
            contents.faults.append(f"a resource in it is of type {type_url}")
            return
        converted = self._converter.convert(
            {name: value for name, value in member.items() if name != "@type"}, self._row.message_type
        )
        if converted.message is None:
            contents.faults.append(f"a resource in it cannot be read: {converted.faults[0].message}")
            return
        body = converted.message.SerializeToString(deterministic=True)
        contents.add(name_within(body), body)


def _nothing() -> None:
    """Hear of an answer, and do nothing."""


def _refusal(status: int, body: bytes) -> LostError:
    """Return what an answer with an error means, in its own words where it has some."""
    try:
        words = str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError):
        words = "without a word that fsxds would say"
    fact = "nothing to tell yet" if status == _UNAVAILABLE else f"the server answers with status {status}"
    return LostError(f"{fact}: {words[:300]}", str(status), is_final=status not in _PASSING)


def words_of(error: aiohttp.ClientError) -> str:
    """Return what is wrong, without aiohttp's own objects."""
    if isinstance(error, aiohttp.ClientConnectorError):
        # The words of a name that is not found come with a number of their own, below zero.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or "no connection"
    return " ".join(str(error).split())[:200] or type(error).__name__
