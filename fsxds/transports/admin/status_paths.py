"""The paths of the admin address that show the whole server: its status, its clients, its files."""

from __future__ import annotations

from aiohttp import web

from fsxds.errors import ProtocolError
from fsxds.protocol.sync_states import SyncState
from fsxds.transports.admin.admin_api import WORD, AdminPath, AdminPaths, Words
from fsxds.transports.admin.status_reports import DEFAULT_ROWS, MOST_ROWS, RowQuery, StatusFacts

FILE_STATES = ("good", "held", "broken")
_CLIENT_STATES = tuple(state.value for state in SyncState)
_ROWS = frozenset({"state", "search", "offset", "limit"})
_LARGEST = 10**9


class StatusPaths:
    """Answers what is asked of the whole server.

    Args:
        facts: knows it.

    Attributes:
        paths: what answers each path.
    """

    def __init__(self, facts: StatusFacts) -> None:
        self._facts = facts
        self.paths: AdminPaths = {
            ("GET", "/api/status"): AdminPath(self._status),
            ("GET", "/api/clients"): AdminPath(self._clients, _ROWS | {"view"}),
            ("GET", "/api/clients/N"): AdminPath(self._node),
            ("GET", "/api/files"): AdminPath(self._files, _ROWS),
        }

    async def _status(self, _request: web.Request, _words: Words) -> object:
        return await self._facts.report()

    async def _clients(self, _: web.Request, words: Words) -> object:
        return await self._facts.clients(query_of(words, _CLIENT_STATES))

    async def _node(self, _: web.Request, words: Words) -> object:
        return await self._facts.node(words[WORD])

    async def _files(self, _: web.Request, words: Words) -> object:
        return await self._facts.files(query_of(words, FILE_STATES))


def query_of(words: Words, states: tuple[str, ...]) -> RowQuery:
    """Return what a request asks for; ProtocolError where that cannot be."""
    state = words.get("state") or None
    if state is not None and state not in states:
        raise ProtocolError(f"state: {state[:80]!r} is none; there is {', '.join(states)}")
    offset, limit = _number(words, "offset", 0), _number(words, "limit", DEFAULT_ROWS)
    return RowQuery(state, words.get("search", ""), words.get("view"), offset, min(limit, MOST_ROWS))


def _number(words: Words, name: str, default: int) -> int:
    written = words.get(name)
    if written is None:
        return default
    if not (written.isascii() and written.isdecimal() and len(written) <= len(str(_LARGEST))):
        raise ProtocolError(f"{name}: {written[:80]!r} is no whole number; give one from 0 on")
    return int(written)
