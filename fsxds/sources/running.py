"""What a running fsxds serves, asked over REST."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

import aiohttp

from fsxds.errors import UsageError
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.values import SourceFile, SourceTree

# An answer comes at once; what takes longer is not fsxds, or hangs.
CONNECT_PATIENCE_S = 5.0
READ_PATIENCE_S = 30.0

_UNIX, _HTTP = "unix:", ("http://", "https://")
_AT_ONCE = {"timeout": "0"}

# Of the second there are no resources that Envoy would take; of the third nothing good was loaded yet.
_OK, _NOTHING_TO_TELL, _UNAVAILABLE = 200, 304, 503


def is_running_address(text: str) -> bool:
    """Tell whether a text names a running fsxds, and not a directory."""
    return text.startswith((_UNIX, *_HTTP))


@dataclass(frozen=True, slots=True)
class Served:
    """What a running fsxds serves: one file for each type of which there is something.

    `unavailable` are the types of which it never loaded anything good.
    """

    tree: SourceTree
    unavailable: tuple[ResourceType, ...]


async def fetch_served(address: str) -> Served:
    """Return what a running fsxds serves of the types that have a REST form.

    Args:
        address: `http://host:port`, with a path before `/v3/` if need be, or `unix:` and the path of a socket.

    Raises:
        UsageError: nobody answers there, or someone else than fsxds.
    """
    is_unix = address.startswith(_UNIX)
    connector = aiohttp.UnixConnector(address.removeprefix(_UNIX)) if is_unix else aiohttp.TCPConnector()
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_PATIENCE_S, sock_read=READ_PATIENCE_S)
    base = "http://fsxds" if is_unix else address.rstrip("/")
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            answers = [(row, await _poll(session, base, row)) for row in RESOURCE_TYPES if row.rest_path]
    except TimeoutError as error:
        raise UsageError(f"{address}: no answer came in time; is fsxds running there?") from error
    except aiohttp.InvalidURL as error:
        raise UsageError(f"{address}: is no URL; write http://HOST:PORT or unix:PATH") from error
    except aiohttp.ClientError as error:
        raise UsageError(f"{address}: cannot be asked: {_words_of(error)}; is fsxds running there?") from error
    except _WrongAnswerError as error:
        raise UsageError(f"{address}: {error}; is this fsxds?") from error
    files = (SourceFile.of(PurePosixPath(f"{row.noun}.json"), body) for row, (_, body) in answers if body)
    tree = SourceTree(tuple(sorted(files, key=lambda file: file.path.parts)))
    return Served(tree, tuple(row for row, (status, _) in answers if status == _UNAVAILABLE))


class _WrongAnswerError(Exception):
    """The answer is not what fsxds says."""


async def _poll(session: aiohttp.ClientSession, base: str, row: ResourceType) -> tuple[int, bytes]:
    """Return the status, and the DiscoveryResponse with all resources of a type, empty where nothing is served."""
    path = f"/v3/discovery:{row.rest_path}"
    async with session.post(base + path, params=_AT_ONCE, json={}) as response:
        if response.status in (_NOTHING_TO_TELL, _UNAVAILABLE):
            return response.status, b""
        if response.status != _OK:
            raise _WrongAnswerError(f"{path} is answered with status {response.status}")
        if response.content_type != "application/json":
            raise _WrongAnswerError(f"{path} is answered with {response.content_type}, not with JSON")
        return response.status, await response.read()


def _words_of(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # The words of a name that is not found come with a number of their own, below zero.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or "no connection"
    # aiohttp's words may hold whole objects, over several lines.
    return re.sub(r"\s+", " ", str(error))[:200] or type(error).__name__
