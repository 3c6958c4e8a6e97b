"""A client that polls over REST; the server holds polls until a change.

A server that takes no POST is read by GET (`listed.py`): an exported tree behind a web server, or in a bucket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import aiohttp
from google.protobuf import json_format
from yarl import URL

from fsxds.api.converter import Converter
from fsxds.client.client_tls import ClientTls, tls_error_message
from fsxds.client.listed import Fetched, ListReader, NamedReader
from fsxds.client.streams import credentials_of
from fsxds.client.updates import (
    AGENT,
    TOO_LARGE_RESPONSE,
    ConnectionLostError,
    Update,
    UpdateContents,
    WrongResponseError,
    node_message,
    read_plain,
)
from fsxds.model.relay_ids import HEADER, relays_in
from fsxds.model.resource_types import ResourceType
from fsxds.model.values import Nonce, PlainValue, TypeUrl, Version
from fsxds.protocol.messages import Node, metadata_of

# How long the server is asked to hold a poll; it may hold it for less.
HOLD_S = 60.0
# Without a response this long after that, the connection is dead.
LATE_S = 15.0
_CONNECT_PATIENCE_S = 5.0
# The interval of polls without a change to a server that does not hold polls.
REFRESH_S = 1.0

_OK, _NOTHING_NEW, _UNAVAILABLE = 200, 304, 503
# With these another attempt may succeed; others mean a wrong request or server.
_TRANSIENT = frozenset({408, 429, 500, 502, _UNAVAILABLE, 504})
# File servers, and caches that pass GET alone, respond so to a POST.
_NO_POST = frozenset({403, 404, 405, 501})
_UNIX = "unix:"

_Answer = bytes | tuple[Update, UpdateContents] | None
"""A response's body, or the contents of a list; None for nothing new."""


def plain_node(node: Node) -> PlainValue:
    """Return the JSON of a poll's node."""
    if node.serialized:
        plain: PlainValue = json_format.MessageToDict(node_message(node), preserving_proto_field_name=True)
        return plain
    return {
        "id": node.id,
        "cluster": node.cluster,
        "user_agent_name": node.agent or AGENT,
        "metadata": metadata_of(node.attributes),
    }


class PollingClient:
    """Polls for one type. Use as an async context manager, like `StreamClient`.

    `next()` may be cancelled. A server read by GET gets neither ACK nor NACK. `on_connected` is called with each
    response that is not an error. Set the other attributes before use.

    Attributes:
        hold_s: the requested hold; `late_s`: how much longer a response may take.
        tls: None for plain text, or with https this machine's CAs.
        token: a bearer token, or empty.
        most_bytes: of a decompressed response, or None.
        accepts_parts: faults are in the update, beside good resources, and not raised.
    """

    def __init__(self, address: str, row: ResourceType, node: Node, converter: Converter) -> None:
        """Poll for a type with a REST form.

        `address` is `http://host:port`, possibly with a path before `/v3/`, or `unix:PATH`.
        """
        self._address = address
        self._row = row
        self._node = plain_node(node)
        self._converter = converter
        self.hold_s, self.late_s = HOLD_S, LATE_S
        self.tls: ClientTls | None = None
        self.token = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.most_bytes: int | None = None
        self.accepts_parts = False
        self._names: list[str] = []
        self._version = ""
        self._unanswered: Update | None = None
        self._rejected: tuple[Nonce, str] | None = None
        self._was_lost = False
        self._rests_until_s = 0.0
        self._relays: tuple[str, ...] = ()
        self._session: aiohttp.ClientSession | None = None
        # Reads by GET a type without polls, or from a server that takes no POST; None for one that takes it, or was not
        # asked yet.
        self._reader: ListReader | NamedReader | None = None if row.rest_path else NamedReader(row, self._fetch)
        self.on_connected: Callable[[], None] = _nothing

    async def __aenter__(self) -> Self:
        self._session = open_session(self._address, self.hold_s + self.late_s, self.tls)
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    def subscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Subscribe to more names, or everything."""
        self._check_type(type_url)
        self._names = list(dict.fromkeys((*self._names, *names)))
        # The version does not cover other names; a server with versions per type would see no change.
        self._version = ""

    def unsubscribe(self, type_url: TypeUrl, *names: str) -> None:
        """Unsubscribe from names; without any left, everything is requested."""
        self._check_type(type_url)
        gone = frozenset(names)
        self._names = [name for name in self._names if name not in gone]
        self._version = ""

    def ack(self) -> None:
        """ACK with the next poll."""
        if self._unanswered is not None:
            self._version, self._unanswered, self._rejected = self._unanswered.version, None, None

    def nack(self, reason: str) -> None:
        """NACK with the next poll."""
        if self._unanswered is None:
            raise ValueError("there is no unanswered update")
        self._rejected, self._unanswered = (self._unanswered.nonce, reason), None

    def nack_late(self, reason: str) -> None:
        """NACK the held version later."""
        if self._version:
            self._rejected = Nonce(self._version), reason

    async def next(self) -> Update:
        """Await the next update; ACK the previous one unless answered.

        Raises:
            ConnectionLostError: no connection, or an error response; the next call polls again.
            WrongResponseError: the update cannot be accepted; the next poll is a NACK.
        """
        held = self._version
        self.ack()
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._rests_until_s - loop.time())
            asked_s, hold_s = loop.time(), 0.0 if self._was_lost else self.hold_s
            update = await self._poll(hold_s)
            if hold_s and (update is None or update.version == held):
                self._rests_until_s = asked_s + REFRESH_S
            if update is not None:
                return update

    async def finish(self) -> None:
        """ACK the last update, by a poll without hold, unless read by GET."""
        self.ack()
        with contextlib.suppress(ConnectionLostError):
            if self._reader is None:
                await self._ask(hold_s=0.0)

    def _check_type(self, type_url: TypeUrl) -> None:
        if type_url != self._row.type_url:
            raise ValueError(f"this client polls for {self._row.short_name}")

    async def _poll(self, hold_s: float) -> Update | None:
        """None: nothing changed.

        After an outage the poll is not held, to detect the server's return.
        """
        try:
            answer = await (self._ask(hold_s) if self._reader is None else self._read_all(self._reader, hold_s))
        except ConnectionLostError:
            self._was_lost = True
            raise
        self._was_lost = False
        self.on_connected()
        return (
            answer if answer is None else self._read(answer) if isinstance(answer, bytes) else self._accepted(*answer)
        )

    async def _ask(self, hold_s: float) -> _Answer:
        url = f"{url_of(self._address, self._row)}?timeout={hold_s:g}"
        fetched = await self._send("POST", url, {}, self._request())
        if fetched.status in (_OK, _NOTHING_NEW):
            return fetched.body if fetched.status == _OK else None
        error = _error_of(fetched.status, fetched.body)
        if fetched.status not in _NO_POST:
            raise error
        reader = ListReader(self._row, self._converter, self._fetch)
        reader.most_bytes = self.most_bytes
        try:
            answer = await self._read_all(reader, 0.0)
        except ConnectionLostError:
            raise error from None
        self._reader = reader
        return answer

    async def _read_all(self, reader: ListReader | NamedReader, hold_s: float) -> _Answer:
        reader.names = frozenset(self._names)
        return await reader.read(hold_s)

    async def _fetch(self, path: str, headers: Mapping[str, str]) -> Fetched:
        return await self._send("GET", URL(base_of(self._address) + path, encoded=True), headers)

    async def _send(self, method: str, url: str | URL, headers: Mapping[str, str], plain: PlainValue = None) -> Fetched:
        if self._session is None:
            raise RuntimeError("a client is used as an async context manager")
        try:
            # A redirect would send the token elsewhere.
            async with self._session.request(
                method,
                url,
                headers={**dict((*credentials_of(self.token), *self.headers)), **headers},
                allow_redirects=False,
                json=plain,
            ) as response:
                self._relays = relays_in(",".join(response.headers.getall(HEADER, ())))
                found = {name.lower(): value for name, value in response.headers.items()}
                return Fetched(response.status, found, await read_body(response, self.most_bytes))
        except TimeoutError as error:
            raise ConnectionLostError("no response came in time", "TIMEOUT") from error
        except aiohttp.InvalidURL as error:
            raise ConnectionLostError(f"{self._address} is no URL", "INVALID_ARGUMENT", is_final=True) from error
        except aiohttp.ClientError as error:
            raise ConnectionLostError(f"cannot connect: {error_message(error)}", "UNAVAILABLE") from error

    def _request(self) -> dict[str, PlainValue]:
        request: dict[str, PlainValue] = {"node": self._node, "type_url": self._row.type_url}
        if self._names:
            request["resource_names"] = [*self._names]
        if self._version:
            request["version_info"] = self._version
        if self._rejected:
            nonce, reason = self._rejected
            request |= {"response_nonce": nonce, "error_detail": {"code": 13, "message": reason}}
        return request

    def _read(self, body: bytes) -> Update:
        members, version, nonce = _parsed(body)
        contents = UpdateContents(self._row.type_url)
        for member in members:
            read_plain(member, self._row, self._converter, contents)
        update = Update(
            self._row.type_url,
            Version(version),
            Nonce(nonce or version),
            contents.frozen(),
            is_full=True,
        )
        return self._accepted(update, contents)

    def _accepted(self, update: Update, contents: UpdateContents) -> Update:
        self._unanswered = update = replace(update, relays=self._relays)
        if contents.faults and not self.accepts_parts:
            self.nack(contents.faults[0])
            raise WrongResponseError(contents.faults[0], update)
        return contents.accepted(update)


def open_session(address: str, read_patience_s: float, tls: ClientTls | None = None) -> aiohttp.ClientSession:
    """Return a session for a URL, or for `unix:PATH`.

    Without `tls`, https means this machine's CAs. Raises UsageError for unusable TLS files.
    """
    connector: aiohttp.BaseConnector
    if address.startswith(_UNIX):
        connector = aiohttp.UnixConnector(address.removeprefix(_UNIX))
    else:
        connector = aiohttp.TCPConnector(ssl=True if tls is None else tls.ssl_context())
    timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_PATIENCE_S, sock_read=read_patience_s)
    # A server's cookies are not sent to it again.
    return aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())


def url_of(address: str, row: ResourceType) -> str:
    """Return the URL to poll for a type."""
    return f"{base_of(address)}/v3/discovery:{row.rest_path}"


def base_of(address: str) -> str:
    """Return a server's base URL."""
    return "http://fsxds" if address.startswith(_UNIX) else address.rstrip("/")


def _nothing() -> None:
    """The default of `on_connected`."""


async def read_body(response: aiohttp.ClientResponse, most_bytes: int | None) -> bytes:
    """Return the decompressed body; ConnectionLostError beyond `most_bytes`."""
    pieces, size_bytes = [], 0
    async for piece in response.content.iter_any():
        size_bytes += len(piece)
        if most_bytes is not None and size_bytes > most_bytes:
            # The rest is not read.
            response.close()
            fact = f"a response is larger than {most_bytes} bytes, which is all that is taken"
            raise ConnectionLostError(fact, TOO_LARGE_RESPONSE)
        pieces.append(piece)
    return b"".join(pieces)


def _parsed(body: bytes) -> tuple[Sequence[PlainValue], str, str]:
    try:
        response = json.loads(body)
        members, version = response.get("resources", []), str(response["version_info"])
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        members, version = None, ""
    if not isinstance(members, list):
        # Without its cause, which has the content.
        raise ConnectionLostError("the response is no DiscoveryResponse in JSON; is this an xDS server?", "INTERNAL")
    return members, version, str(response.get("nonce") or "")


def _error_of(status: int, body: bytes) -> ConnectionLostError:
    try:
        words = str(json.loads(body)["message"])
    except (ValueError, LookupError, TypeError, RecursionError):
        words = "without a message such as fsxds gives"
    fact = "nothing to send yet" if status == _UNAVAILABLE else f"the server responds with status {status}"
    return ConnectionLostError(f"{fact}: {words[:300]}", str(status), is_final=status not in _TRANSIENT)


def error_message(error: aiohttp.ClientError) -> str:
    """Return an error's message, without aiohttp's objects."""
    if words := tls_error_message(error):
        return words
    if isinstance(error, aiohttp.ClientConnectorError):
        # The message for an unknown host name has a special, negative number.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or "no connection"
    if isinstance(error, aiohttp.ClientResponseError):
        return "the server there does not speak HTTP"
    return " ".join(str(error).split())[:200] or type(error).__name__
