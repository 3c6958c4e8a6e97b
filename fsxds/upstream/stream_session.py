"""One ADS stream to an upstream's server, Delta or SotW, until it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Never

import grpc.aio

from fsxds.client.connection import ChannelLimits, Streaming, Wire, open_channel
from fsxds.client.dialogues import MOST_NAMES_AT_ONCE, DeltaDialogue, SotwDialogue
from fsxds.client.streams import StreamClient
from fsxds.client.updates import ConnectionLostError, Update
from fsxds.model.relay_ids import HEADER
from fsxds.model.resource_types import BY_TYPE_URL, in_push_order
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import WILDCARD
from fsxds.upstream.intake import LONGEST_REASON, Intake
from fsxds.upstream.manifest_session import follow_stream

WILDCARD_ALONE = frozenset({WILDCARD})


@dataclass(frozen=True, slots=True)
class StreamRules:
    """Options of a stream: silence before a ping, and whether to report held versions.

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
        """Follow the server.

        Raises:
            ConnectionLostError: the stream ended, or cannot be opened.
            UsageError: a credentials file cannot be used.
        """
        context, access = self._intake.context, self._intake.access
        limits = ChannelLimits(context.settings().upstream_max_response_bytes, self._rules.keepalive_s)
        method = Streaming(self._rules.wire).method
        async with (
            open_channel(self._intake.server, access.tls(), limits) as channel,
            StreamClient(channel, method, self._dialogue()) as client,
        ):
            client.token, client.headers = access.token(), ((HEADER, context.relays.upwards),)
            self._subscribe(client)
            with context.late_nacks.receiving_nacks(self._intake.upstream.rule.name, partial(self._nack_late, client)):
                lost = await self._converse(channel, client)
        raise lost

    def _dialogue(self) -> DeltaDialogue | SotwDialogue:
        node = self._intake.access.node()
        if self._rules.wire is Wire.DELTA:
            return DeltaDialogue(node, self._held, accepts_parts=True)
        return SotwDialogue(node, accepts_parts=True)

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
        """Whether a healthy server must respond.

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
            if is_first and not self._rules.sends_versions:
                self._ask_for_rest(client, update)
            if reason is None:
                client.accept(update)
            else:
                client.nack(reason, update)

    def _ask_for_rest(self, client: StreamClient, update: Update) -> None:
        """Ask for held resources not sent: without our versions, a server reports no removals."""
        if WILDCARD in self._subscribed.get(update.type_url, ()):
            held = self._intake.upstream.rows.get(update.type_url, ())
            if missing := sorted(set(held) - update.resources.keys()):
                self._subscribe_to(client, update.type_url, [WILDCARD, *missing])

    def _nack_late(self, client: StreamClient, type_url: TypeUrl, words: str) -> None:
        """After the ACK: nodes reject some held resources."""
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
