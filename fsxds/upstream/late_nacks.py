"""Late NACKs: an upstream gets a NACK once too many nodes here reject its resource.

| rule | source |
| --- | --- |
| Resources that the relay itself rejects are NACKed at once, others are ACKed when they were applied. | xDS protocol, "ACK and NACK semantics summary" |
| When versions of an upstream are held back from all nodes here, their type is NACKed, with the reason of a node. | xRFC TP1, "xDS relay proxy" |
| The reason names each resource as an Envoy does: the last response may have had others. | `rollout.rejections` |
| A response with these versions again is NACKed at once: an ACK would say that they are accepted now. | |
| So is one soon after the upstream took them back: nodes here would reject them again and again. | |
| This time doubles with each further rejection, and is limited: nodes may accept the versions by now. | |
| After a reconnect, the versions are not reported as held: so they are sent again, and NACKed. | |
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from fsxds.api.secrets import mask_reason
from fsxds.events.event import Observer
from fsxds.events.phrases import NO_REASON
from fsxds.events.upstream_events import UpstreamNacked
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, Rows
from fsxds.model.values import BackOff, TypeUrl
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.rejections import RejectingNode, names_as_envoy
from fsxds.settings.options import Settings

# Time of NACKs after a version was taken back; its upstream offers it at least once a minute.
BACK_OFF = BackOff(first_s=10.0, longest_s=600.0)
# How many rejected versions are remembered, and how long after their NACKs end.
MOST_REMEMBERED = 1000
REMEMBERED_FOR_S = 600.0

RELAY = "relay"

HeldRows = Callable[[str], Mapping[TypeUrl, Rows]]
"""Returns an upstream's held resources by type."""

NackType = Callable[[TypeUrl, str], object]
"""NACKs the last response of a type, with a reason."""


class LateNacks:
    """Decides upstreams' late NACKs. For the event loop."""

    def __init__(
        self, settings: Callable[[], Settings], observer: Observer, upstreams: Iterable[str], held: HeldRows
    ) -> None:
        self._settings = settings
        self._observer = observer
        self._upstreams = tuple(upstreams)
        self._held = held
        self._sessions: dict[str, NackType] = {}
        # Held back from all nodes here, with a node's reason.
        self._messages: dict[ResourceVersion, str] = {}
        # Taken back by the upstream: the reason, the end of the NACKs, and how often.
        self._past: dict[ResourceVersion, tuple[str, float, int]] = {}

    @property
    def rejected(self) -> Mapping[tuple[str, Key], str]:
        """Why nodes rejected held resources."""
        return MappingProxyType({
            (upstream, key): words
            for upstream in self._upstreams
            for (key, _), words in self._of(upstream, self._messages)
        })  # fmt: skip

    def nack_message(self, upstream: str, type_url: TypeUrl, names: Collection[str]) -> str | None:
        """Return why to NACK a response at once, or None."""
        if self._settings().upstream_verdict == RELAY:
            return None
        now_s = time.monotonic()
        known = {
            version: words for version, (words, until_s, _) in self._past.items() if until_s > now_s
        } | self._messages
        found = {
            name: words
            for ((of_type, name), _), words in self._of(upstream, known)
            if of_type == type_url and name in names
        }
        return _joined(found) if found else None

    def versions_to_send(self, upstream: str, type_url: TypeUrl, versions: Mapping[str, str]) -> Mapping[str, str]:
        """Return the `versions` to report at a start: those not to be NACKed."""
        if self._settings().upstream_verdict == RELAY:
            return versions
        rejected = {name for ((of_type, name), _), _ in self._of(upstream, self._messages) if of_type == type_url}
        return {name: one for name, one in versions.items() if name not in rejected} if rejected else versions

    @contextmanager
    def receiving_nacks(self, upstream: str, nack: NackType) -> Iterator[None]:
        """NACK to an upstream's server by `nack` within the context."""
        self._sessions[upstream] = nack
        try:
            yield
        finally:
            if self._sessions.get(upstream) is nack:
                del self._sessions[upstream]

    def receive_held(self, versions: Collection[ResourceVersion], nodes: Collection[RejectingNode]) -> None:
        """NACK versions that are held back from all nodes."""
        fresh = {version: _nack_message(version, nodes) for version in versions if version not in self._messages}
        self._messages |= fresh
        if self._settings().upstream_verdict == RELAY:
            return
        for upstream in self._upstreams:
            of_type: defaultdict[TypeUrl, dict[str, str]] = defaultdict(dict)
            for ((type_url, name), _), words in self._of(upstream, fresh):
                of_type[type_url][name] = words
            for type_url, words_of in of_type.items():
                words, nack = _joined(words_of), self._sessions.get(upstream)
                if nack is not None:
                    nack(type_url, words)
                names = frozenset(words_of)
                self._observer(UpstreamNacked(upstream, type_url, words, names, was_sent=nack is not None))

    def receive_released(self, versions: Collection[ResourceVersion]) -> None:
        """Remove versions no longer held back."""
        ended = {version: words for version in versions if (words := self._messages.pop(version, None)) is not None}
        if ended:
            self._remember(ended)

    def _remember(self, ended: Mapping[ResourceVersion, str]) -> None:
        still = {version for upstream in self._upstreams for version, _ in self._of(upstream, ended)}
        now_s = time.monotonic()
        past = {version: one for version, one in self._past.items() if one[1] + REMEMBERED_FOR_S > now_s}
        for version in ended.keys() - still:
            times = past.pop(version, ("", 0.0, 0))[2] + 1
            past[version] = ended[version], now_s + BACK_OFF.pause_s(times), times
        self._past = dict(list(past.items())[-MOST_REMEMBERED:])

    def _of(self, upstream: str, words: Mapping[ResourceVersion, str]) -> Iterator[tuple[ResourceVersion, str]]:
        held = self._held(upstream) if words else {}
        for version, said in words.items():
            (type_url, name), digest = version
            found = held[type_url].get(name) if type_url in held else None
            if found is not None and found.version == digest:
                yield version, said


def _nack_message(version: ResourceVersion, nodes: Collection[RejectingNode]) -> str:
    node = next((one for one in nodes if version in one.reasons), None)
    reason = node.reasons[version][0] if node is not None else None
    masked = mask_reason(reason or NO_REASON)
    said = masked if names_as_envoy(version[0][1], masked) else f"{_begin(version[0])}{version[0][1]}: {masked}"
    return f"{'a node' if node is None else f'node {node.name}'}: {said}"


def _begin(key: Key) -> str:
    """As Envoy's message about rejected resources of a type begins."""
    return f"Error adding/updating {BY_TYPE_URL[key[0]].noun.removesuffix('s')}(s) "


def _joined(words_of: Mapping[str, str]) -> str:
    first = next(iter(words_of.values()))
    others = (f"{name}: {words}" for name, words in words_of.items() if not names_as_envoy(name, first))
    return "\n".join((first, *others))
