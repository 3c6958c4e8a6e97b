"""Connects the file tree with upstreams: names that files need, resources that files shadow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import is_

from rpds import HashTrieMap

from fsxds.events.event import Observer
from fsxds.events.upstream_events import UpstreamShadowed
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key
from fsxds.model.values import TypeUrl
from fsxds.protocol.subscription import WILDCARD
from fsxds.runtime.asked_names import AskedNames
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.locators import Followed
from fsxds.snapshots.resolution import Resolved
from fsxds.snapshots.upstream_content import Elsewhere, UpstreamScope
from fsxds.snapshots.upstream_rows import MergedView, Shadowed, Shadowing, shadowing_of
from fsxds.upstream.subscriptions import targets_of_locator
from fsxds.upstream.upstream import Upstream


class TreeNeeds:
    """Asks upstreams for resources that files lack."""

    def __init__(self, upstreams: Sequence[Upstream], asked: AskedNames, observer: Observer) -> None:
        self._upstreams = upstreams
        self._asked = asked
        self._observer = observer
        self._needed: frozenset[Key] = frozenset()
        self._denied: frozenset[Key] = frozenset()
        # By view and type, and the targets of those in files.
        self._redirects: list[HashTrieMap[str, Followed]] = []
        self._targets: frozenset[Key] = frozenset()
        # As last reported, by view.
        self._shadowed: list[Shadowed] = []
        self._shadowing: Mapping[str, Shadowing] = {}

    def elsewhere(self) -> Elsewhere:
        """Return the resources that upstreams have, or may have."""
        self._denied = self._denied_now()
        return Elsewhere(
            tuple(upstream.content for upstream in self._upstreams), tuple(map(_scope, self._upstreams)), self._denied
        )

    def has_changed(self) -> bool:
        """Whether upstreams now deny other names."""
        return self._denied_now() != self._denied

    def _denied_now(self) -> frozenset[Key]:
        return frozenset(
            (type_url, name)
            for type_url, names in _by_type(self._needed).items()
            for name in frozenset.intersection(*(each.absent_names(type_url, names) for each in self._upstreams))
        )

    def receive_loaded(self, views: LoadedViews) -> None:
        """Ask for resources that files need; report shadowed ones."""
        needed = frozenset(key for key in views.wanted if key[1] != WILDCARD and "#" not in key[1])
        needed |= self._targets_in(views)
        if needed != self._needed:
            now, before = _by_type(needed), _by_type(self._needed)
            self._needed = needed
            for type_url in now.keys() | before.keys():
                self._asked.ask(self, type_url, now.get(type_url, frozenset()))
        merged = views.results_of(MergedView)
        shadowed = [view.shadowed for view in merged]
        if len(shadowed) == len(self._shadowed) and all(map(is_, shadowed, self._shadowed)):
            return
        self._shadowed = shadowed
        shadowing = shadowing_of(merged)
        for name in shadowing.keys() | self._shadowing.keys():
            found = shadowing.get(name, Shadowing())
            if found != self._shadowing.get(name, Shadowing()):
                self._observer(UpstreamShadowed(name, found.count, found.examples))
        self._shadowing = shadowing

    def _targets_in(self, views: LoadedViews) -> frozenset[Key]:
        redirects = [each for one in views.results_of(Resolved) for each in one.redirects.by_type.values()]
        if len(redirects) != len(self._redirects) or not all(map(is_, redirects, self._redirects)):
            self._redirects = redirects
            written = (one.redirect for each in redirects for one in each.values())
            # Upstreams' own redirects are followed when they arrive.
            locators = {one.redirect for one in written if one.redirect and one.origin.line}
            self._targets = frozenset(key for locator in locators for key in targets_of_locator(locator))
        return self._targets


def _scope(upstream: Upstream) -> UpstreamScope:
    everything = frozenset({WILDCARD})
    complete = (type_url for type_url in BY_TYPE_URL if upstream.absent_names(type_url, everything))
    return UpstreamScope(upstream.covers, frozenset(complete))


def _by_type(keys: frozenset[Key]) -> Mapping[TypeUrl, frozenset[str]]:
    found: defaultdict[TypeUrl, set[str]] = defaultdict(set)
    for type_url, name in keys:
        found[type_url].add(name)
    return {type_url: frozenset(names) for type_url, names in found.items()}
