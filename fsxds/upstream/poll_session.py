"""Polls at an upstream's REST server: one per wanted type, until all fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never

from fsxds.client.polls import PollingClient
from fsxds.client.updates import ConnectionLostError
from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import HEADER
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType, in_push_order
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import WILDCARD
from fsxds.runtime.store import end_wait
from fsxds.upstream.intake import LONGEST_REASON, Intake
from fsxds.upstream.manifest_session import follow_polls

# Before a failed type is asked for again, while others succeed.
FAILED_TYPE_S = 5.0
_LOOP = "508"
# List collections have no polls, and are read by GET. What else has none is told by streams alone.
POLLED = frozenset(row.short_name for row in RESOURCE_TYPES if row.rest_path) | {"lcds"}


class PollSession:
    """Polls at one server. `run` once."""

    def __init__(self, intake: Intake, on_answered: Callable[[], object]) -> None:
        """Start no poll; `on_answered` is called for responses, and if nothing is wanted."""
        self._intake = intake
        self._on_answered = on_answered
        self._names: dict[TypeUrl, frozenset[str]] = {}
        self._polls: dict[TypeUrl, asyncio.Task[None]] = {}
        self._clients: dict[TypeUrl, PollingClient] = {}
        # They end a poll's wait.
        self._limits: dict[TypeUrl, asyncio.Timeout] = {}
        self._failing: dict[TypeUrl, ConnectionLostError] = {}
        self._lost: asyncio.Future[ConnectionLostError] | None = None

    async def run(self) -> Never:
        """Follow the server.

        Raises:
            ConnectionLostError: it cannot be reached, or has an error for every type.
        """
        self._lost = asyncio.get_running_loop().create_future()
        late_nacks, upstream = self._intake.context.late_nacks, self._intake.upstream.rule.name
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(self._follow_wanted(tasks))
            manifests = tasks.create_task(follow_polls(self._intake))
            with late_nacks.receiving_nacks(upstream, self._nack_late):
                lost = await self._lost
            for each in (following, manifests, *self._polls.values()):
                each.cancel()
        raise lost

    def _nack_late(self, type_url: TypeUrl, words: str) -> None:
        """Nodes reject some held resources."""
        client, limit = self._clients.get(type_url), self._limits.get(type_url)
        if client is not None:
            client.nack_late(words[:LONGEST_REASON])
        end_wait(limit, asyncio.get_running_loop().time())

    async def _follow_wanted(self, tasks: asyncio.TaskGroup) -> Never:
        upstream = self._intake.upstream
        seen = upstream.changed.current
        while True:
            wanted = upstream.wanted()
            gone = dict.fromkeys(self._names.keys() - wanted.keys(), frozenset[str]())
            for type_url, names in in_push_order({**wanted, **gone}).items():
                row = BY_TYPE_URL[type_url]
                if row.short_name in POLLED and self._names.get(type_url, frozenset()) != names:
                    self._names[type_url] = names
                    self._change(row, tasks)
            if not any(self._names.values()):
                self._on_answered()
            seen = await upstream.changed.other_than(seen)

    def _change(self, row: ResourceType, tasks: asyncio.TaskGroup) -> None:
        if row.type_url not in self._polls:
            self._polls[row.type_url] = tasks.create_task(self._poll(row))
        else:
            end_wait(self._limits.get(row.type_url), asyncio.get_running_loop().time())

    async def _poll(self, row: ResourceType) -> None:
        context, access = self._intake.context, self._intake.access
        client = PollingClient(self._intake.server, row, access.node(), context.converter)
        client.most_bytes, client.accepts_parts = context.settings().upstream_max_response_bytes, True
        asked: frozenset[str] = frozenset()
        try:
            client.tls = access.tls()
            async with client:
                self._clients[row.type_url] = client
                while True:
                    names = self._names[row.type_url]
                    plain = frozenset() if names == {WILDCARD} else names
                    if plain != asked:
                        client.subscribe(row.type_url, *(plain - asked))
                        client.unsubscribe(row.type_url, *(asked - plain))
                        asked = plain
                    client.token, client.headers = access.token(), ((HEADER, context.relays.upwards),)
                    await self._poll_once(client, row.type_url, is_wanted=bool(names))
        except UsageError as error:
            self._lose(ConnectionLostError(str(error), "UNAVAILABLE"))

    async def _poll_once(self, client: PollingClient, type_url: TypeUrl, *, is_wanted: bool) -> None:
        pause_s = None if not is_wanted else FAILED_TYPE_S if type_url in self._failing else 0.0
        try:
            async with asyncio.timeout(None) as limit:
                self._limits[type_url] = limit
                try:
                    await (asyncio.Event().wait() if pause_s is None else asyncio.sleep(pause_s))
                    update = await client.next()
                finally:
                    del self._limits[type_url]
        except TimeoutError:
            return
        except ConnectionLostError as error:
            self._fail(type_url, error)
            return
        self._failing.pop(type_url, None)
        try:
            await self._intake.admit(update)
        except ConnectionLostError as error:
            self._lose(error)
            return
        self._on_answered()
        reason = await self._intake.take(update)
        if reason is None:
            client.ack()
        else:
            client.nack(reason)

    def _fail(self, type_url: TypeUrl, error: ConnectionLostError) -> None:
        """The server has an error only if all types have one."""
        self._failing[type_url] = error
        asked = {each for each, names in self._names.items() if names}
        if not error.code.isdecimal() or error.code == _LOOP or asked <= self._failing.keys():
            self._lose(error)

    def _lose(self, error: ConnectionLostError) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)
