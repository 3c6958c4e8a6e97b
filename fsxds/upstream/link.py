"""Connects to an upstream's servers, in the order of `ServerOrder`.

Rules: on which wire a server is asked, and when the wire changes.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Never

from fsxds.client.connection import Wire
from fsxds.client.updates import TOO_LARGE_RESPONSE, ConnectionLostError
from fsxds.events.upstream_events import UpstreamConnected, UpstreamFailedOver, UpstreamLooped, UpstreamLost
from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import OWN_UPSTREAM, REMEDY, relays_of_words
from fsxds.runtime.channels import Latest, end_wait
from fsxds.settings.upstream_rules import URLS
from fsxds.upstream.intake import Intake, LinkContext, RelayLoopError, ServerAccess
from fsxds.upstream.server_order import ServerOrder
from fsxds.upstream.stream_session import PollSession, StreamRules, StreamSession
from fsxds.upstream.upstream import Upstream

# Between pings, as Go servers allow by default.
LONG_KEEPALIVE_S = 330.0
WIRES = {Wire.DELTA: "Delta ADS", Wire.SOTW: "SotW ADS", Wire.REST: "REST"}


@dataclass(slots=True)
class _Asked:
    """A server's connection state, beside `ServerOrder`.

    `limit` ends the session; `relays` are of a call that seems to come from the server itself. `answered_s` is of the
    last answering connection's first response; event loop time, as `pauses_until_s`.
    """

    rules: StreamRules
    limit: asyncio.Timeout | None = None
    error: str = ""
    relays: tuple[str, ...] = ()
    answered_s: float = 0.0
    pauses_until_s: float = 0.0


class Link:
    """Keeps one upstream connected."""

    def __init__(self, upstream: Upstream, context: LinkContext) -> None:
        """Raises UsageError for unusable credentials."""
        self._upstream = upstream
        self._context = context
        self._servers = upstream.rule.servers
        self._asked = [_Asked(StreamRules()) for _ in self._servers]
        self._order = ServerOrder(len(self._servers), context.back_off)
        self._turn = Latest(0)
        self._last: int | None = None
        self._access().check()

    async def keep_connected(self) -> Never:
        """Ask the servers until cancelled."""
        self._order = ServerOrder(len(self._servers), self._context.back_off)
        self._context.relays.listeners[self] = self._receive_loop
        try:
            async with asyncio.TaskGroup() as tasks:
                for place in range(len(self._servers)):
                    tasks.create_task(self._keep_asking(place))
        finally:
            del self._context.relays.listeners[self]
        raise AssertionError  # never reached: no task ends

    def _access(self) -> ServerAccess:
        return ServerAccess(self._upstream.rule, self._context.settings().upstream_node)

    async def _keep_asking(self, place: int) -> Never:
        while True:
            loop, asked = asyncio.get_running_loop(), self._asked[place]
            while not (may_ask := self._order.may_ask(place)) or asked.pauses_until_s > loop.time():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(asked.pauses_until_s if may_ask else None):
                        await self._turn.replaced()
            error = await self._ask(place)
            if error is None:
                self._order.left(place)
            elif not self._falls_back(place, error):
                self._lost(place, error)

    async def _ask(self, place: int) -> ConnectionLostError | None:
        """Why the server is lost; None if one before it answers."""
        intake = Intake(self._upstream, self._servers[place], self._access(), self._context)
        patience_s = self._order.patience_s(place, self._context.settings().upstream_patience_s)
        try:
            async with asyncio.timeout(patience_s) as limit:
                self._asked[place].limit, self._asked[place].relays = limit, ()
                await self._session(place, intake).run()
        except TimeoutError:
            if not self._order.may_ask(place):
                return None
            if relays := self._asked[place].relays:
                fact = f"relay {relays[0]} {OWN_UPSTREAM}, through this one, which it asks"
                return RelayLoopError(f"{fact}; {REMEDY}", relays)
            return ConnectionLostError(f"it gave no response within {patience_s:g} s", _SILENT)
        except ConnectionLostError as error:
            is_loop = OWN_UPSTREAM in str(error) and error.code in {"FAILED_PRECONDITION", "508"}
            return RelayLoopError(str(error), relays_of_words(str(error))) if is_loop else error
        except UsageError as error:
            return ConnectionLostError(str(error), "UNAVAILABLE")
        finally:
            self._asked[place].limit = None
            intake.disconnected()

    def _session(self, place: int, intake: Intake) -> PollSession | StreamSession:
        answered = partial(self._answered, place)
        if self._servers[place].startswith(URLS):
            return PollSession(intake, answered)
        return StreamSession(intake, self._asked[place].rules, answered)

    def _falls_back(self, place: int, error: ConnectionLostError) -> bool:
        """Whether to ask at once again, with other rules."""
        asked = self._asked[place]
        rules, was_answering = asked.rules, self._order.is_answering(place)
        has_no_delta = error.code == "UNIMPLEMENTED" or "not implemented" in str(error)
        if has_no_delta and rules.wire is Wire.DELTA and not was_answering:
            asked.rules = replace(rules, wire=Wire.SOTW)
            return True
        if error.code in _EXHAUSTED and rules.sends_versions and not was_answering:
            # The first request may be too large for the server.
            asked.rules = replace(rules, sends_versions=False)
            return True
        is_calm = any(words in str(error).lower() for words in _TOO_MANY_PINGS)
        asked.rules = StreamRules(keepalive_s=LONG_KEEPALIVE_S if is_calm else rules.keepalive_s)
        return False

    def _answered(self, place: int) -> None:
        if self._order.is_answering(place):
            return
        self._order.answered(place)
        self._asked[place].answered_s = asyncio.get_running_loop().time()
        end_wait(self._asked[place].limit, None)
        if self._order.current != place:
            return
        name, server = self._upstream.rule.name, self._servers[place]
        wire = Wire.REST if server.startswith(URLS) else self._asked[place].rules.wire
        self._upstream.connected(server, WIRES[wire], time.time())
        self._context.observer(UpstreamConnected(name, server, WIRES[wire]))
        if self._last is not None and self._last != place:
            reason = self._asked[self._last].error if self._last < place else ""
            self._context.observer(UpstreamFailedOver(name, self._servers[self._last], server, reason))
        self._last = place
        for later in range(place + 1, len(self._servers)):
            end_wait(self._asked[later].limit, asyncio.get_running_loop().time())

    def _receive_loop(self, relays: tuple[str, ...]) -> None:
        """A server without an answer may be asking this relay."""
        for place, asked in enumerate(self._asked):
            if not self._order.is_answering(place):
                asked.relays = relays
                end_wait(asked.limit, asyncio.get_running_loop().time())

    def _lost(self, place: int, error: ConnectionLostError) -> None:
        name, server, asked = self._upstream.rule.name, self._servers[place], self._asked[place]
        now_s = asyncio.get_running_loop().time()
        is_first = self._order.failed(place, now_s - asked.answered_s, is_silent=error.code == _SILENT)
        pause_s = self._order.pause_s(place, random.random(), is_final=error.is_final)  # noqa: S311
        asked.error, asked.pauses_until_s = str(error), now_s + pause_s
        if self._order.current is None:
            self._upstream.lost(error, time.time())
            for each in self._asked if is_first else ():
                # Others may have recovered.
                soon_s = random.uniform(0, self._context.back_off.first_s)  # noqa: S311
                each.pauses_until_s = min(each.pauses_until_s, now_s + soon_s)
        if isinstance(error, RelayLoopError):
            self._context.observer(UpstreamLooped(name, server, error.relays))
        count = sum(map(len, self._upstream.content.rows.values()))
        self._context.observer(UpstreamLost(name, server, str(error), pause_s, count))
        self._turn.replace(self._turn.current + 1)


_SILENT = "SILENT"
# For a request too large for the server, and a response too large for the client.
_EXHAUSTED = frozenset({"RESOURCE_EXHAUSTED", TOO_LARGE_RESPONSE})
_TOO_MANY_PINGS = ("too_many_pings", "too many pings", "enhance_your_calm")
