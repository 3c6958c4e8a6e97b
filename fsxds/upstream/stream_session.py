"""Sessions with an upstream's server: one ADS stream until it is lost, or a poll per wanted type until all fail.

They get the server's manifests, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Never

import aiohttp
import grpc.aio

from fsxds.client.connection import ChannelLimits, Streaming, Wire, open_channel
from fsxds.client.dialogues import MOST_NAMES_AT_ONCE, DeltaDialogue, SotwDialogue
from fsxds.client.polls import PollingClient, base_of, open_session, read_body
from fsxds.client.streams import StreamClient, credentials_of
from fsxds.client.updates import ConnectionLostError, Update
from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import HEADER
from fsxds.model.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType, in_push_order
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import WILDCARD
from fsxds.runtime.channels import end_wait
from fsxds.transports.manifests import METHOD, PATH
from fsxds.upstream.intake import LONGEST_REASON, Intake

WILDCARD_ALONE = frozenset({WILDCARD})


@dataclass(frozen=True, slots=True)
class StreamRules:
    """A stream's options: silence before a ping, and whether to report held versions.

    Without `sends_versions` the server sends all resources.
    """

    wire: Wire = Wire.DELTA
    keepalive_s: float = 30.0
    sends_versions: bool = True


class StreamSession:
    """One stream. `run` it once."""

    def __init__(self, intake: Intake, rules: StreamRules, on_answered: Callable[[], object]) -> None:
        """Open nothing; `on_answered` is called for responses, or the connection if none is expected."""
        self._intake = intake
        self._rules = rules
        self._on_answered = on_answered
        self._subscribed: dict[TypeUrl, frozenset[str]] = {}
        self._wanted: Mapping[TypeUrl, frozenset[str]] | None = None
        # Without resources.
        self._last: dict[TypeUrl, Update] = {}

    async def run(self) -> Never:
        """Follow the server. Raises ConnectionLostError, or UsageError for an unusable credentials file."""
        context, access = self._intake.context, self._intake.access
        limits = ChannelLimits(context.settings().upstream_max_response_bytes, self._rules.keepalive_s)
        method = Streaming(self._rules.wire).method
        dialogue = (
            DeltaDialogue(access.node(), self._held, accepts_parts=True)
            if self._rules.wire is Wire.DELTA
            else SotwDialogue(access.node(), accepts_parts=True)
        )
        async with (
            open_channel(self._intake.server, access.tls(), limits) as channel,
            StreamClient(channel, method, dialogue) as client,
        ):
            client.token, client.headers = access.token(), ((HEADER, context.relays.upwards),)
            self._subscribe(client)
            with context.late_nacks.receiving_nacks(self._intake.upstream.rule.name, partial(self._nack_late, client)):
                lost = await self._converse(channel, client)
        raise lost

    def _held(self, type_url: TypeUrl) -> Mapping[str, str]:
        if not self._rules.sends_versions:
            return MappingProxyType({})
        upstream = self._intake.upstream
        versions = upstream.versions(self._intake.server, type_url)
        return self._intake.context.late_nacks.versions_to_send(upstream.rule.name, type_url, versions)

    async def _converse(self, channel: grpc.aio.Channel, client: StreamClient) -> ConnectionLostError:
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._follow_wanted(client)),
                tasks.create_task(self._await_ready(channel)),
                tasks.create_task(follow_stream(channel, self._intake)),
            ]
            lost = await self._receive_all(client)
            for each in beside:
                each.cancel()
        return lost

    async def _await_ready(self, channel: grpc.aio.Channel) -> None:
        await channel.channel_ready()
        if not self._expects_response():
            self._on_answered()

    def _expects_response(self) -> bool:
        """A healthy server must respond.

        SotW may be silent about names that do not exist, Delta if all versions are current.
        """
        if self._rules.wire is Wire.DELTA:
            return any(
                not _has_all_versions(names, self._held(type_url)) for type_url, names in self._subscribed.items()
            )
        return any(WILDCARD in names for names in self._subscribed.values())

    async def _receive_all(self, client: StreamClient) -> ConnectionLostError:
        while True:
            try:
                update = await client.next()
                client.defer()
                await self._intake.admit(update)
            except ConnectionLostError as error:
                return error
            self._on_answered()
            is_first = update.type_url not in self._last
            self._last[update.type_url] = replace(update, resources=MappingProxyType({}))
            reason = await self._intake.take(update)
            asks_all = WILDCARD in self._subscribed.get(update.type_url, ())
            if is_first and not self._rules.sends_versions and asks_all:
                # Without our versions, a server reports no removals: ask for held resources that it did not send.
                held = self._intake.upstream.rows.get(update.type_url, ())
                if missing := sorted(set(held) - update.resources.keys()):
                    self._subscribe_to(client, update.type_url, [WILDCARD, *missing])
            if reason is None:
                client.accept(update)
            else:
                client.nack(reason, update)

    def _nack_late(self, client: StreamClient, type_url: TypeUrl, words: str) -> None:
        if (last := self._last.get(type_url)) is not None:
            client.nack(words[:LONGEST_REASON], last)

    async def _follow_wanted(self, client: StreamClient) -> Never:
        changed = self._intake.upstream.changed
        seen = changed.current
        while True:
            self._subscribe(client)
            seen = await changed.other_than(seen)

    def _subscribe(self, client: StreamClient) -> None:
        wanted = self._intake.upstream.wanted()
        if wanted is self._wanted:
            return
        self._wanted = wanted
        gone = dict.fromkeys(self._subscribed.keys() - wanted.keys(), frozenset[str]())
        for type_url, names in in_push_order({**wanted, **gone}).items():
            before = self._subscribed.get(type_url)
            has_form = self._rules.wire is Wire.DELTA or BY_TYPE_URL[type_url].has_sotw
            if names is not before and names != before and has_form and (names or before):
                self._subscribed[type_url] = names
                self._change(client, type_url, before, names)

    def _change(
        self, client: StreamClient, type_url: TypeUrl, before: frozenset[str] | None, names: frozenset[str]
    ) -> None:
        if before is None:
            # The older form of a wildcard, as some servers know no other.
            self._subscribe_to(client, type_url, [] if names == WILDCARD_ALONE else sorted(names))
            return
        added = names - before
        if added and before == WILDCARD_ALONE and WILDCARD in names:
            # The first names end the older form.
            added |= WILDCARD_ALONE
        if added:
            self._subscribe_to(client, type_url, sorted(added))
        if removed := before - names:
            client.unsubscribe(type_url, *removed)

    def _subscribe_to(self, client: StreamClient, type_url: TypeUrl, names: list[str]) -> None:
        most = MOST_NAMES_AT_ONCE if self._rules.wire is Wire.DELTA else max(len(names), 1)
        for start in range(0, max(len(names), 1), most):
            client.subscribe(type_url, *names[start : start + most])


def _has_all_versions(names: AbstractSet[str], held: Mapping[str, str]) -> bool:
    return all(map(held.get, names - {WILDCARD})) and (WILDCARD not in names or (bool(held) and all(held.values())))


# Before a failed type is asked for again, while others succeed.
FAILED_TYPE_S = 5.0
_LOOP = "508"
# List collections have no polls, and are read by GET. What else has none is told by streams alone.
POLLED = frozenset(row.short_name for row in RESOURCE_TYPES if row.rest_path) | {"lcds"}


class PollSession:
    """Polls at one server. `run` once."""

    def __init__(self, intake: Intake, on_answered: Callable[[], object]) -> None:
        """`on_answered` is called for responses, and if nothing is wanted."""
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
        """Follow the server. Raises ConnectionLostError if it is unreachable, or has an error for every type."""
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
            self._failing[type_url] = error
            asked = {each for each, names in self._names.items() if names}
            # The server has an error only if all types have one.
            if not error.code.isdecimal() or error.code == _LOOP or asked <= self._failing.keys():
                self._lose(error)
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

    def _lose(self, error: ConnectionLostError) -> None:
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)


# Before a server without manifests is asked again.
PAUSE_S = 5.0
# For a server that does not know of manifests.
UNKNOWN_S = 300.0
# Over REST.
POLL_S = 1.0
_OK, _NOT_FOUND = 200, 404


async def follow_stream(channel: grpc.aio.Channel, intake: Intake) -> Never:
    """Apply a server's manifests until cancelled, asking again after an end."""
    call = channel.unary_stream(METHOD)
    while True:
        pause_s = PAUSE_S
        try:
            metadata = (*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards))
            async for content in call(b"", metadata=metadata):
                await intake.take_manifests(content)
        except grpc.aio.AioRpcError as error:
            # Other errors end the connection too.
            pause_s = UNKNOWN_S if error.code() is grpc.StatusCode.UNIMPLEMENTED else PAUSE_S
        except UsageError:
            # The connection goes on without its files, and the next one reports them.
            pass
        await asyncio.sleep(pause_s)


async def follow_polls(intake: Intake) -> Never:
    """Poll a REST server's manifests until cancelled, asking again while files are unusable, which polls report."""
    before: bytes | None = None
    while True:
        with suppress(UsageError):
            async with open_session(intake.server, PAUSE_S, intake.access.tls()) as session:
                while True:
                    pause_s = PAUSE_S
                    with suppress(aiohttp.ClientError, TimeoutError, ConnectionLostError, UsageError):
                        status, content = await _fetch(session, intake)
                        pause_s = POLL_S if status == _OK else UNKNOWN_S if status == _NOT_FOUND else PAUSE_S
                        if status == _OK and content != before:
                            await intake.take_manifests(content)
                            before = content
                    await asyncio.sleep(pause_s)
        await asyncio.sleep(PAUSE_S)


async def _fetch(session: aiohttp.ClientSession, intake: Intake) -> tuple[int, bytes]:
    headers = dict((*credentials_of(intake.access.token()), (HEADER, intake.context.relays.upwards)))
    url = f"{base_of(intake.server)}{PATH}"
    async with session.get(url, headers=headers, allow_redirects=False) as response:
        if response.status != _OK:
            return response.status, b""
        return _OK, await read_body(response, intake.context.settings().upstream_max_response_bytes)
