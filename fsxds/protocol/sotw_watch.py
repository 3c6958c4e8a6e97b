"""One type on one state-of-the-world stream: what its client wants, what it was told, and what it made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fsxds.protocol.messages import SotwRequest, SotwResponse, WatchStatus
from fsxds.protocol.sotw_verdicts import NOTHING, Heard, Sent, SotwVerdicts
from fsxds.protocol.subscription import WILDCARD, SharedMemory, Subscription, version_of
from fsxds.protocol.ttl import TtlUse, heartbeat_s
from fsxds.resource_types import ResourceType
from fsxds.resources import Resource, ResourceList, Rows, Snapshot, version_of_set
from fsxds.values import Nonce, TypeUrl, Version


@dataclass(frozen=True, slots=True)
class News:
    """What a client is to be told now.

    `resources` go out. Of them, `fresh` are the names that the client may not hold as they are. `removed` are those that a
    full state takes away.
    """

    version: Version
    resources: ResourceList
    fresh: frozenset[str]
    removed: tuple[Resource, ...] = ()


class SotwWatch:
    """Remembers one subscription; decides what it is told, and leaves the order between types to its stream.

    What the client holds is not kept by name: it is what `_base` has of the subscription, except for what it rejected.
    """

    __slots__ = (
        "_asked",
        "_base",
        "_claimed",
        "_has_named",
        "_memory",
        "_row",
        "_ttl",
        "_verdicts",
        "heartbeat_at_s",
        "subscription",
    )

    def __init__(self, row: ResourceType, memory: SharedMemory, ttl: TtlUse) -> None:
        self.subscription = Subscription(row.type_url, wildcard=False)
        self.heartbeat_at_s: float | None = None
        self._row, self._memory, self._ttl = row, memory, ttl
        self._has_named = False
        self._asked = NOTHING
        # The snapshot that the client was last told of; None before it was told anything on this stream.
        self._base: Snapshot | None = None
        self._claimed: Version | None = None
        self._verdicts = SotwVerdicts(is_full=row.full_state_in_sotw)

    @property
    def type_url(self) -> TypeUrl:
        """The type that is watched."""
        return self._row.type_url

    @property
    def everything(self) -> frozenset[str]:
        """All names that were asked for, `*` for everything."""
        return frozenset((WILDCARD,)) if self.subscription.wildcard else self.subscription.names

    @property
    def is_greeted(self) -> bool:
        """Whether it is known what the client holds."""
        return self._base is not None

    @property
    def has_sent(self) -> bool:
        """Whether there was a response on this stream."""
        return self._verdicts.last_nonce is not None

    @property
    def owed(self) -> frozenset[str]:
        """What the client rejected, and is not mended yet."""
        return self._verdicts.rejections.names

    @property
    def timer_at_s(self) -> float | None:
        """When time alone gives this watch something to say."""
        retry_at_s, heartbeat_at_s = self._verdicts.retry_at_s, self.heartbeat_at_s
        if retry_at_s is None or heartbeat_at_s is None:
            return heartbeat_at_s if retry_at_s is None else retry_at_s
        return min(retry_at_s, heartbeat_at_s)

    def hear(self, request: SotwRequest, now_s: float) -> Heard:
        """Take what a request says of the responses before it."""
        if self._base is None:
            self._claimed = request.version_info
        return self._verdicts.hear(request, now_s)

    def subscribe(self, requested: Iterable[str]) -> frozenset[str]:
        """Take the names of a request; return those that were not asked for before, `*` among them for everything.

        No names mean everything until a name was given once on this stream.
        """
        names = frozenset(requested)
        self._has_named = self._has_named or bool(names)
        before = self.subscription
        wildcard = WILDCARD in names or not self._has_named
        names -= {WILDCARD}
        if names != before.names or wildcard != before.wildcard:
            self.subscription = Subscription(before.type_url, self._memory.share(names), wildcard)
        if not (wildcard or (names and self._row.full_state_in_sotw)):
            self._verdicts.rejections.forget(self.owed - names)
        added = names - before.names
        return added | {WILDCARD} if wildcard and not before.wildcard else added

    def keep_asked(self, requested: Iterable[str]) -> None:
        """Remember names that were asked for again by a client that had not seen the latest response."""
        if self.subscription.names == frozenset(requested):
            self._asked |= self.subscription.names - self._verdicts.unseen

    def repeated(self, *, is_asked: bool) -> frozenset[str]:
        """Return the names to send again: all where the client asks again for what it has, and what was put off before.

        An Envoy does so when it changed a cluster, and waits for its endpoints (ENVOY.md D2).
        """
        if self._row.full_state_in_sotw:
            return NOTHING
        return self.repeatable(self.subscription.names | self._asked if is_asked else self._asked)

    def repeatable(self, names: Iterable[str], *, unasked: bool = False) -> frozenset[str]:
        """Return those of these names that the client asked for; what it rejected is put off until that is mended."""
        subscription = self.subscription
        wanted = frozenset(names) if unasked or subscription.wildcard else subscription.names.intersection(names)
        self._asked = (self._asked | wanted) & self.owed
        return wanted - self.owed

    def news(self, snapshot: Snapshot, again: frozenset[str], now_s: float) -> News | None:
        """Return what the client is to be told, of the names in `again` also what it was told before; None for nothing.

        Every answer but None has to be told: the client counts as told of `snapshot` from now on.
        """
        if self.subscription.type_url in snapshot.withheld:
            return None
        if self._base is None:
            return self._greeting(snapshot, again, now_s)
        base, self._base = self._base, snapshot
        if self._selects_nothing:
            return None
        fresh, removed = self._difference(base, snapshot)
        if self._row.full_state_in_sotw:
            gone = tuple(base.resources(self.type_url)[name] for name in sorted(removed))
            return self._full_news(snapshot, fresh | again, gone, now_s)
        return self._partial_news(snapshot, fresh, again, now_s)

    @property
    def _selects_nothing(self) -> bool:
        return not (self.subscription.wildcard or self.subscription.names)

    def _greeting(self, snapshot: Snapshot, again: frozenset[str], now_s: float) -> News | None:
        """Return what a client is told first: it may hold what another stream gave it, of this process or of another."""
        if self._selects_nothing or (not self._holds_selection(snapshot) and self._may_lose_something(snapshot)):
            return None
        self._base = snapshot
        full, version = self._row.full_state_in_sotw, version_of(snapshot, self.subscription)
        if self._holds_selection(snapshot):
            self._verdicts.sent = self._verdicts.acked = version
            self._memory.know(version)
            # Nobody knows how long ago its time to live was renewed.
            self.heartbeat_at_s = now_s if self._timed() else None
            return None if full else self._partial_news(snapshot, NOTHING, again, now_s)
        resources = self._selection(snapshot)
        return News(version, resources, resources.names) if resources or full else None

    def _holds_selection(self, snapshot: Snapshot) -> bool:
        subscription = self.subscription
        if subscription.type_url in snapshot.authored and not subscription.wildcard:
            # An author's version does not tell for which names the client got it.
            return False
        return self._claimed is not None and self._claimed == version_of(snapshot, subscription)

    def _may_lose_something(self, snapshot: Snapshot) -> bool:
        """Whether a full state might take away what the client got before this process began."""
        type_url = self.type_url
        if self._claimed is None or not self._row.full_state_in_sotw:
            return False
        if self._memory.is_known(self._claimed) and type_url not in snapshot.authored:
            return False
        if type_url not in snapshot.incomplete and type_url not in snapshot.undeclared:
            return False
        return self.subscription.wildcard or not self.subscription.names <= snapshot.resources(type_url).keys()

    def _difference(self, base: Snapshot, snapshot: Snapshot) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names that are news since `base`, and those that are gone."""
        change = snapshot.resources(self.type_url).changes_since(base.resources(self.type_url))
        fresh = change.fresh | change.renewed if change.renewed and self._ttl is not TtlUse.NONE else change.fresh
        if self.subscription.wildcard:
            return fresh, change.removed
        return fresh & self.subscription.names, change.removed & self.subscription.names

    def _full_news(
        self, snapshot: Snapshot, fresh: frozenset[str], removed: tuple[Resource, ...], now_s: float
    ) -> News | None:
        if fresh or removed:
            self._verdicts.rejections.renew(self.owed, now_s)
        elif not self._verdicts.due(now_s):
            return None
        resources = self._selection(snapshot)
        if WILDCARD in fresh:
            fresh = resources.names
        version = version_of(snapshot, self.subscription)
        return News(version, resources, fresh | self._verdicts.suspects, removed)

    def _partial_news(
        self, snapshot: Snapshot, fresh: frozenset[str], again: frozenset[str], now_s: float
    ) -> News | None:
        rows, rejections = snapshot.resources(self.type_url), self._verdicts.rejections
        # What is gone cannot be told; when it comes back it is news.
        rejections.forget([name for name in rejections.names if name not in rows])
        if other := rejections.names & fresh:
            rejections.renew(other, now_s)
        # Apart from all else: if it is rejected once more, nothing else is.
        names = fresh | again or self._verdicts.due(now_s)
        resources = self._picked(rows, names)
        if not resources:
            return None
        return News(self._version(snapshot, rejections.names - names), resources, names)

    def _version(self, snapshot: Snapshot, owed: frozenset[str]) -> Version:
        """Return the version of what was asked for; without what the client is not known to hold, so that it never says so."""
        type_url = self.type_url
        if not owed or WILDCARD in owed or type_url in snapshot.authored:
            return version_of(snapshot, self.subscription)
        rows = snapshot.resources(type_url)
        names = rows if self.subscription.wildcard else sorted(self.subscription.names)
        members = ((name, rows[name].version if name in rows and name not in owed else "") for name in names)
        return version_of_set(type_url, members)

    def _selection(self, snapshot: Snapshot) -> ResourceList:
        return self._picked(snapshot.resources(self.type_url), self.everything)

    def _picked(self, rows: Rows, names: frozenset[str]) -> ResourceList:
        return rows.everything if WILDCARD in names else rows.select(names)

    def tell(self, news: News, nonce: Nonce, now_s: float) -> SotwResponse:
        """Make news a response, and remember it until its verdict."""
        is_offer = False
        if self._asked or self.owed:
            names = news.resources.names
            self._asked -= names
            offered = self.owed if self._row.full_state_in_sotw else self.owed & names
            self._verdicts.rejections.offered(offered)
            is_offer = bool(offered)
        self._expect_verdict(nonce, Sent(news.version, news.resources, news.fresh, is_offer))
        self._plan_heartbeat(now_s, is_all=self._row.full_state_in_sotw)
        with_ttl = self._ttl is not TtlUse.NONE
        return SotwResponse(self.type_url, news.version, nonce, news.resources, with_ttl)

    def _expect_verdict(self, nonce: Nonce, sent: Sent) -> None:
        self._verdicts.expect(nonce, sent)
        self._memory.know(sent.version)

    def _timed(self) -> list[Resource]:
        """Return what was asked for, and the client was told the time to live of."""
        if self._ttl is TtlUse.NONE or self._base is None:
            return []
        timed = self._base.resources(self.type_url).timed
        wanted = timed if self.subscription.wildcard else timed.keys() & self.subscription.names
        return [timed[name] for name in sorted(wanted)]

    def _plan_heartbeat(self, now_s: float, *, is_all: bool) -> None:
        """Plan the next heartbeat; `is_all`: everything was renewed now, else what is due stays due."""
        periods_s = [heartbeat_s(resource.ttl_s) for resource in self._timed() if resource.ttl_s]
        next_at_s = now_s + min(periods_s) if periods_s else None
        if is_all or next_at_s is None or self.heartbeat_at_s is None:
            self.heartbeat_at_s = next_at_s
        else:
            self.heartbeat_at_s = min(self.heartbeat_at_s, next_at_s)

    def heartbeat(self, next_nonce: Callable[[], Nonce], now_s: float) -> SotwResponse | None:
        """Return what renews the time to live of what the client holds, where that is due."""
        version, base = self._verdicts.sent, self._base
        if version is None or base is None or self.heartbeat_at_s is None or now_s < self.heartbeat_at_s:
            return None
        self._plan_heartbeat(now_s, is_all=True)
        timed = {resource.name: resource for resource in self._timed() if resource.name not in self.owed}
        if not timed:
            return None
        nonce = next_nonce()
        self._expect_verdict(nonce, Sent(version, base.resources(self.type_url).select(timed.keys()), NOTHING))
        is_light = self._ttl is TtlUse.HEARTBEAT
        whole = self._heard_whole(base, frozenset(timed), is_light=is_light)
        return SotwResponse(self.type_url, version, nonce, whole, True, tuple(timed.values()) if is_light else ())

    def _heard_whole(self, base: Snapshot, timed: frozenset[str], *, is_light: bool) -> ResourceList:
        """Return what a heartbeat bears with its content: of a full state also what has no time to live."""
        names = self._selection(base).names if self._row.full_state_in_sotw else timed
        return base.resources(self.type_url).select(names - timed if is_light else names)

    def status(self) -> WatchStatus:
        """Tell where this watch stands."""
        subscription = self.subscription
        held = self._selection(self._base) if self._base else ()
        names = None if subscription.wildcard else subscription.names
        missing = tuple(sorted((names or NOTHING) - {resource.name for resource in held})) if self._base else ()
        return WatchStatus(
            subscription.type_url,
            names,
            sent=self._verdicts.sent,
            acked=self._verdicts.acked,
            nacked=self._verdicts.nacked,
            reason=self._verdicts.reason,
            resources=held,
            missing=missing,
            rejected=self.owed,
        )
