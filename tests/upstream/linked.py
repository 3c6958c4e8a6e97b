"""An upstream with its link, in this process, and servers for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from fsxds.api.converter import Converter
from fsxds.events.upstream_events import UpstreamLost
from fsxds.model.relay_ids import RelayIds
from fsxds.model.resources import Rows
from fsxds.model.values import BackOff
from fsxds.rollout.rejections import RejectingNode
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.upstream.intake import LateNacks, LinkContext
from fsxds.upstream.link import Link
from fsxds.upstream.server_order import PAUSES
from fsxds.upstream.subscriptions import NameScope
from fsxds.upstream.upstream import Upstream
from tests.support.errors import Recorder
from tests.support.polls import envoy_catalogue
from tests.upstream.made import CDS, NOW_S, cluster, reader_of, update

OWN = "0" * 16
# As the real pauses are, a hundred times shorter.
SHORT = BackOff(PAUSES.first_s / 100, PAUSES.longest_s / 100, PAUSES.well_after_s / 100)
SETTINGS = replace(Settings(), upstream_patience_s=5.0)


@dataclass
class Linked:
    """An upstream that is kept connected."""

    upstream: Upstream
    recorder: Recorder
    late_nacks: LateNacks
    relays: RelayIds

    @property
    def names(self) -> list[str]:
        """The clusters that are held."""
        return sorted(self.upstream.content.rows.get(CDS, Rows(CDS)))

    @property
    def trouble(self) -> str:
        """Why there is no connection."""
        return self.upstream.status().trouble

    def hold_back(self, name: str, reason: str | None = None, node: str = "envoy-1") -> None:
        """Have what is held of a cluster held back from all nodes, because one rejects it."""
        version = (CDS, name), self.upstream.content.rows[CDS][name].version
        rejecting = RejectingNode(node, node, {version: (reason, 0.0)})
        self.late_nacks.receive_held({version}, (rejecting,))

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until a fact holds; tell what happened where it never does."""
        try:
            await until(predicate)
        except TimeoutError:
            raise AssertionError(self.recorder.events) from None

    async def until_lost(self, words: str) -> UpstreamLost:
        """Wait until an attempt has ended so."""
        await self.until(lambda: any(words in event.reason for event in self.recorder.of(UpstreamLost)))
        return next(event for event in self.recorder.of(UpstreamLost) if words in event.reason)


async def until(predicate: Callable[[], object], patience_s: float = 60.0) -> None:
    """Wait until a fact holds."""
    async with asyncio.timeout(patience_s):
        # Some facts are those of a server, which tells nobody.
        while not predicate():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def rule_of(*servers: str) -> UpstreamRule:
    """Return the rule of an upstream without credentials."""
    return UpstreamRule(servers)


@asynccontextmanager
async def linked(
    rule: UpstreamRule,
    settings: Settings = SETTINGS,
    *,
    holds: str = "",
    relays: RelayIds | None = None,
    back_off: BackOff = SHORT,
) -> AsyncIterator[Linked]:
    """Keep an upstream connected as long as the context lasts; nothing of fsxds may fail meanwhile.

    Args:
        rule: its servers.
        settings: as they would be given.
        holds: a cluster that is held already.
        relays: knows other relays.
        back_off: the pauses between attempts to connect.
    """
    scope = NameScope(is_asked_only=settings.upstream_names == "asked")
    upstream = Upstream(rule, reader_of(envoy_catalogue(), rule.name), scope)
    if holds:
        upstream.receive(update(CDS, {holds: cluster(holds)}), "before", NOW_S)
    recorder = Recorder()
    late_nacks = LateNacks(lambda: settings, recorder, [rule.name], lambda _: upstream.content.rows)
    context = LinkContext(
        lambda: settings, recorder, late_nacks, relays or RelayIds(OWN), Converter(envoy_catalogue()), back_off
    )
    link = Link(upstream, context)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(link.keep_connected())
        yield Linked(upstream, recorder, late_nacks, context.relays)
        assert not keeping.done(), "the component failed"
        keeping.cancel()
