"""What upstreams are told of their responses: ACK or NACK, as the clients here take or reject what they brought.

| rule | source |
| --- | --- |
| What the relay itself rejects is NACKed at once. | xDS protocol, "ACK and NACK semantics summary" |
| A response is ACKed when all clients that follow it have what it brought, NACKed when the first of them rejected some of it. | xRFC TP1, "xDS relay proxy" |
| Whoever takes longer than `upstream_verdict_within` is not waited for. | |
| What was rejected, and is not served therefore, is NACKed again in the same words when it comes again. | ENVOY.md E10 |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from fsxds.api.secrets import mask_reason
from fsxds.channels import ChannelClient, ChannelKey
from fsxds.events import Observer
from fsxds.resources import Key, Rows, Snapshot
from fsxds.rollout import Rejection, Step
from fsxds.settings.options import Settings
from fsxds.store import Latest
from fsxds.upstream.upstream import Received
from fsxds.upstream_events import UpstreamNacked
from fsxds.values import Layers, TypeUrl, Version

NO_REASON = "it gave no reason; see its own log"
RELAY = "relay"

# So many rejected resources are remembered, the last ones.
MOST_REJECTED = 10_000


class FollowedRollout(Protocol):
    """The rollout of one channel."""

    @property
    def has_completed(self) -> bool:
        """Whether what is to be served is served, and all clients that are waited for have it."""


class Publishing(Protocol):
    """What publishes what was taken in.

    Attributes:
        published: what was received last, once all channels have taken it in; None before the first.
        on_progress: is called when a rollout did what was due.
        on_rejected: receives rejections of clients.
    """

    published: Latest[Mapping[Layers, Snapshot] | None]
    on_progress: Callable[[], object]
    on_rejected: Callable[[ChannelClient, Rejection, Step], object]

    @property
    def rollouts(self) -> Mapping[ChannelKey, FollowedRollout]:
        """The rollouts of all channels."""


HeldRows = Callable[[str], Mapping[TypeUrl, Rows]]
"""Returns what is held of the upstream of a name."""


@dataclass(slots=True, eq=False)
class _OpenVerdict:
    """A response whose verdict is not known: the versions of what it has, None for what it removed; equal to itself alone."""

    upstream: str
    versions: Mapping[Key, Version | None]
    words: str = ""


@dataclass(frozen=True, slots=True)
class _RejectedVersion:
    version: Version | None
    words: str


class Verdicts:
    """Says what an upstream is told of a response. Touched from the event loop only.

    Args:
        settings: returns those in use.
        observer: receives what clients reject.
        upstreams: the names of all upstreams.
        held: returns what is held of each.
    """

    def __init__(
        self, settings: Callable[[], Settings], observer: Observer, upstreams: Iterable[str], held: HeldRows
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._upstreams = tuple(upstreams)
        self._held = held
        self._publishing: Publishing | None = None
        self._open: dict[_OpenVerdict, None] = {}
        self._progress = Latest(0)
        # By upstream and resource, the last to be rejected last.
        self._rejected: dict[tuple[str, Key], _RejectedVersion] = {}

    def follow(self, publishing: Publishing) -> None:
        """Judge by what becomes of what is published; without that, all that was taken in is ACKed."""
        self._publishing = publishing
        publishing.on_progress = self._look_again
        publishing.on_rejected = self.receive_rejection

    @property
    def rejected(self) -> Mapping[tuple[str, Key], str]:
        """The words with which clients rejected what is held, by upstream and resource."""
        found = self._rejected.items()
        return MappingProxyType({at: one.words for at, one in found if self._version(*at) == one.version})

    async def of(self, upstream: str, received: Received) -> str | None:
        """Return None for an ACK, or the words of a NACK, as soon as that is known.

        Args:
            upstream: the name of the upstream.
            received: what was taken in of its response.
        """
        if received.faults:
            return "; ".join(received.faults)
        settings, publishing = self._settings(), self._publishing
        if not received.keys or publishing is None or settings.upstream_verdict == RELAY:
            return None
        verdict = _OpenVerdict(upstream, {key: self._version(upstream, key) for key in received.keys})
        self._open[verdict] = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(settings.upstream_verdict_within_s):
                    await _published(publishing, upstream, received.sequence)
                    await self._follow_clients(verdict, publishing)
        finally:
            del self._open[verdict]
        return verdict.words or None

    async def _follow_clients(self, verdict: _OpenVerdict, publishing: Publishing) -> None:
        """Wait until it is known what became of a response that is published."""
        while not verdict.words and not all(rollout.has_completed for rollout in publishing.rollouts.values()):
            # A rollout that was taken back never completes.
            verdict.words = self._words_before(verdict)
            if not verdict.words:
                await self._progress.replaced()

    def _words_before(self, verdict: _OpenVerdict) -> str:
        """Return with which words some of a response was rejected when it came before; empty where none was."""
        if self._rejected:
            for key, version in verdict.versions.items():
                before = self._rejected.get((verdict.upstream, key))
                if before is not None and before.version == version:
                    return before.words
        return ""

    def _look_again(self) -> None:
        if self._open:
            self._progress.replace(self._progress.current + 1)

    def receive_rejection(self, client: ChannelClient, rejection: Rejection, step: Step) -> None:
        """Take a client's rejection of a step, the same as often as you like."""
        rows = step.snapshot.resources(rejection.type_url)
        if rejection.is_about_others(rows):
            return
        reason = mask_reason(rejection.reason or NO_REASON)
        versions = {
            (rejection.type_url, name): rows[name].version if name in rows else None for name in rejection.meant
        }
        for upstream in self._upstreams:
            was_nacked = self._nack(upstream, versions, f"node {client.name}: {reason}")
            names = self._remember(upstream, versions, f"node {client.name}: {reason}")
            if names:
                event = UpstreamNacked(upstream, rejection.type_url, client.node, reason, was_nacked, names)
                self._observer(event)
        self._look_again()

    def _nack(self, upstream: str, rejected: Mapping[Key, Version | None], words: str) -> bool:
        """Have the responses NACKed whose verdict is not known, and that brought what was rejected; return whether there are any."""
        found = [
            verdict
            for verdict in self._open
            if verdict.upstream == upstream
            and any(key in verdict.versions and verdict.versions[key] == version for key, version in rejected.items())
        ]
        for verdict in found:
            verdict.words = verdict.words or words
        return bool(found)

    def _remember(self, upstream: str, rejected: Mapping[Key, Version | None], words: str) -> frozenset[str]:
        """Remember what was rejected of what is held; return the names of which that is new."""
        new = set[str]()
        for key, version in rejected.items():
            if version is None or self._version(upstream, key) != version:
                continue
            before = self._rejected.pop((upstream, key), None)
            is_known = before is not None and before.version == version
            self._rejected[upstream, key] = before if is_known and before else _RejectedVersion(version, words)
            if not is_known:
                new.add(key[1])
        for oldest in tuple(self._rejected)[: max(len(self._rejected) - MOST_REJECTED, 0)]:
            del self._rejected[oldest]
        return frozenset(new)

    def _version(self, upstream: str, key: Key) -> Version | None:
        """Return the version of what is held of a resource; None where nothing is."""
        rows = self._held(upstream).get(key[0])
        return rows[key[1]].version if rows is not None and key[1] in rows else None


async def _published(publishing: Publishing, upstream: str, sequence: int) -> None:
    """Wait until all that is published has what came with a response."""
    while (current := publishing.published.current) is None or any(
        snapshot.upstreams.get(upstream, -1) < sequence for snapshot in current.values()
    ):
        await publishing.published.replaced()
