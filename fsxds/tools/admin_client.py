"""A client of fsxds' admin address."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import aiohttp

from fsxds.client.client_tls import ClientTls
from fsxds.client.polls import error_message, open_session
from fsxds.client.streams import credentials_of
from fsxds.model.errors import FsxdsError, UsageError
from fsxds.settings.access_rules import read_token
from fsxds.settings.forms import OFF, Address, TcpAddress, parse_address
from fsxds.settings.options import Settings

# The server answers at once, unless it reads a history of fifty snapshots from a slow disk.
READ_PATIENCE_S = 30.0

_OK = 200
# The request cannot be done now, or its subject does not exist.
_NOT_DONE = frozenset({404, 409})
# The server rejects other names, so that no foreign DNS name can lead to it.
_HOST = {"Host": "localhost"}


class NotDoneError(FsxdsError):
    """The server did not carry out a request."""


def settings_at(address: str, settings: Settings) -> Settings:
    """Return the settings with an admin address as the user wrote it; UsageError for https without a CA."""
    if address.startswith("https://") and settings.admin_ca is None:
        raise UsageError(f"{address}: https needs a CA to trust; give --admin-ca FILE")
    return replace(settings, admin=re.sub("^https?://", "", address).removesuffix("/"))


def ask(settings: Settings, path: str, words: Mapping[str, str | int] | None = None, method: str = "GET") -> Any:
    """Return the JSON response to a `GET`, or a `POST` for a change.

    Raises:
        NotDoneError: there is no such subject, or the request cannot be done now.
        UsageError: no fsxds answers, the request was wrong, or the token's file is unusable.
    """
    return asyncio.run(_ask(settings, path, words or {}, method))


async def _ask(settings: Settings, path: str, words: Mapping[str, str | int], method: str) -> Any:
    where = _address_of(settings.admin)
    token = "" if settings.admin_token is None else read_token(settings.admin_token)
    tls = ClientTls.of(settings.admin_ca, None, None) if isinstance(where, TcpAddress) else None
    base = f"http{'s' if tls else ''}://{where if isinstance(where, TcpAddress) else 'fsxds'}"
    by_method: dict[str, Any] = {"params": words} if method == "GET" else {"json": dict(words)}
    try:
        async with (
            open_session(str(where), READ_PATIENCE_S, tls) as session,
            session.request(
                method, f"{base}{path}", headers={**_HOST, **dict(credentials_of(token))}, **by_method
            ) as response,
        ):
            status, body = response.status, await response.read()
    except TimeoutError as error:
        raise UsageError(f"{where}: no response came in time; {_REMEDY}") from error
    except (aiohttp.ClientError, ValueError) as error:
        message = error_message(error) if isinstance(error, aiohttp.ClientError) else str(error)
        is_cut_off = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
        if tls is None and is_cut_off and not isinstance(error, aiohttp.ClientConnectorError):
            message += " (if it uses TLS, give --admin-ca FILE)"
        raise UsageError(f"{where}: request failed: {message}; {_REMEDY}") from error
    return _content_of(where, status, body)


_REMEDY = "is fsxds running, and is that its --admin address?"


def _address_of(text: str) -> Address:
    if text == OFF:
        raise UsageError("the admin address is off; give the --admin address of the running fsxds")
    address = parse_address(text)
    if not isinstance(address, TcpAddress):
        return address
    if not address.port:
        raise UsageError(f"{address}: the port is chosen when fsxds starts; its ready file and its log have it")
    # A server that listens on all interfaces is reachable by any address of this machine.
    return TcpAddress(address.host or "localhost", address.port)


def _content_of(where: Address, status: int, body: bytes) -> Any:
    try:
        content = json.loads(body)
        message = "" if status == _OK else str(content["message"])[:2000]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: answered with status {status}, and no JSON of fsxds; {_REMEDY}") from error
    if message.startswith("there is nothing at this path"):
        raise UsageError(f"{where}: this is no admin address; {_REMEDY}")
    if status in _NOT_DONE:
        raise NotDoneError(f"{where}: {message}")
    if message:
        raise UsageError(f"{where}: {message}")
    return content
