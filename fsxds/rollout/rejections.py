"""Tracks the versions that nodes reject, and holds them back.

| rule | source |
| --- | --- |
| A node that NACKs a version is served it again only with back-off, in ever smaller parts. | `pending` |
| A NACK that names resources is about these; else all the response's new ones are suspects. | ENVOY.md E12 |
| A version is held back from all nodes while more of those offered it reject it than the limit allows. | |
| One identity is one vote: a node id, or with credentials their name; its nodes share the vote. | |
| A node that left keeps its vote for a while, so that a reconnection changes nothing, and its back-off longer. | |
| So does an accepting node: if all reconnect at once, the first back does not decide. | |
| A version no longer offered to any node is not held back anew. | |
| A node answers an offer before it gets another, unless a hold on a reference blocks the version. | |

Times are seconds of a clock that only goes forward. A version is a digest of content: in several views it is one.

Rules: which versions a NACK is about, whose vote counts, and when a version is held back from all.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from fsxds.model.resources import Resource
from fsxds.rollout.pending import Pending, ResourceVersion
from fsxds.settings.rollout_forms import NackLimit

# How long the vote of a node that left counts, and how long the node is remembered.
VOTES_FOR_S = 10.0
REMEMBERED_FOR_S = 60.0

# The maximum number of remembered nodes with rejections, and of suspects of one NACK.
MOST_NODES = 10_000
MOST_SUSPECTS = 1000

# The maximum length of text of a late NACK that is searched for names: its client may hold very many.
MOST_WORDS = 2000

# Envoy writes each rejected resource, a colon, and the reason; a relay puts the rejecting node before that.
_ENVOY_REASON = re.compile(r"Error adding/updating [a-z ]+\(s\) (?P<resources>.+)", re.DOTALL)

# Equal sums of shares may differ by less.
_ROUNDING = 1e-9

NodeKey: TypeAlias = Hashable
"""The key that a node's clients share."""

Votes: TypeAlias = Mapping[str, int]
"""The number of nodes of each identity."""


class Voter(Protocol):
    """A node's client."""

    @property
    def name(self) -> str:
        """The name in the log."""

    @property
    def identity(self) -> str:
        """Clients of one identity share a vote."""


def exceeds(limit: NackLimit | None, rejecting: Votes, accepting: Votes) -> bool:
    """Whether rejecting nodes, of all that were offered a version, exceed a limit; None allows all."""
    if limit is None or not rejecting:
        return False
    if limit.count is not None:
        return len(rejecting) > limit.count
    votes = sum(count / (count + accepting.get(identity, 0)) for identity, count in rejecting.items())
    return votes > limit.share * len(rejecting.keys() | accepting.keys()) + _ROUNDING


@dataclass(frozen=True, slots=True)
class Nack:
    """The rejected resources; the client's `words` name each if `is_named`."""

    versions: frozenset[ResourceVersion]
    is_named: bool = False
    words: str | None = None


def nack_of(sent: Collection[Resource], fresh: Collection[str], words: str | None) -> Nack:
    """Return a NACKed response's suspects.

    An Envoy names each rejected resource, also of earlier rejections. `fresh` names in `sent` may be new or changed.
    """
    parts = _named_as_envoy(words or "")
    if parts is not None:
        named = [one for one in sent if one.name in parts]
    else:
        named = [one for one in sent if one.name in fresh and is_named(one.name, words or "")]
    suspects = named or [one for one in sent if one.name in fresh]
    versions = frozenset([((one.type_url, one.name), one.version) for one in suspects][:MOST_SUSPECTS])
    return Nack(versions, bool(named), words or None)


def late_nack_of(held: Collection[Resource], last: Collection[str], words: str | None) -> Nack:
    """Return suspects of a response ACKed before its NACK.

    The reason may be about any `held` resource; if it names none, all of that response, `last`, are suspects.
    """
    nack = nack_of(held, frozenset(one.name for one in held), (words or "")[:MOST_WORDS])
    return nack if nack.is_named else nack_of([one for one in held if one.name in last], last, words)


def names_as_envoy(name: str, words: str) -> bool:
    """Whether a text names a resource as Envoy does."""
    return name in (_named_as_envoy(words) or ())


def _named_as_envoy(words: str) -> frozenset[str] | None:
    found = _ENVOY_REASON.search(words)
    if found is None:
        return None
    return frozenset(part.partition(": ")[0] for part in re.split("\n|, ", found["resources"]))


def is_named(name: str, words: str) -> bool:
    """Whether a name is a text's whole word."""
    return name in words and re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words) is not None


@dataclass(slots=True)
class RejectingNode:
    """A node that rejects versions.

    `reasons` have the last reason and the first NACK's time; `gone_at_s` is None while it is connected. `blocked`
    offers are unserved for other reasons.
    """

    name: str
    identity: str
    reasons: dict[ResourceVersion, tuple[str | None, float]] = field(default_factory=dict)
    gone_at_s: float | None = None
    pending: Pending[ResourceVersion] = field(default_factory=Pending)
    blocked: frozenset[ResourceVersion] = frozenset()

    @property
    def unserved(self) -> frozenset[ResourceVersion]:
        """Versions that it must not be served now."""
        return self.pending.names - self.pending.offered

    @property
    def retry_at_s(self) -> float | None:
        """The next offer; None for never, or while one is unanswered."""
        is_awaited = bool(self.pending.offered - self.blocked)
        return None if self.gone_at_s is not None or is_awaited else self.pending.retry_at_s

    def receive_nack(self, nack: Nack, now_s: float) -> None:
        """Count one more rejection in a row."""
        for versions in [{one} for one in sorted(nack.versions)] if nack.is_named else [nack.versions]:
            self.pending.nack(versions, now_s)
        for version in nack.versions:
            self.reasons[version] = nack.words, self.reasons.get(version, (None, now_s))[1]

    def offer(self, now_s: float) -> bool:
        """Offer some due versions, if earlier offers are answered; return whether any."""
        if self.retry_at_s is None:
            return False
        due = self.pending.due(now_s, 1)
        for versions in due:
            self.pending.sent_again(versions)
        return bool(due)

    def forget(self, versions: Iterable[ResourceVersion]) -> bool:
        """Forget versions; return whether none is left."""
        self.pending.forget(versions)
        self.reasons = {version: why for version, why in self.reasons.items() if version in self.pending.names}
        return not self.pending.names

    def has_left(self, for_s: float, now_s: float) -> bool:
        """Whether the node left at least `for_s` ago."""
        return self.gone_at_s is not None and now_s - self.gone_at_s >= for_s


@dataclass(frozen=True, slots=True)
class HeldVersion:
    """A version held back from all nodes; `accepting` ones took it, or might have, at the decision."""

    since_s: float
    accepting: Votes


Accepting = Callable[[Collection[ResourceVersion]], Mapping[ResourceVersion, Votes]]
"""Maps offered versions to the nodes that do not reject them; omits versions offered to no node."""


class Rejections:
    """All nodes' rejections, the latest last; `limit` decides holds from all nodes, None for never."""

    def __init__(self, limit: NackLimit | None) -> None:
        self.limit = limit
        self.nodes: dict[NodeKey, RejectingNode] = {}
        self.held: Mapping[ResourceVersion, HeldVersion] = {}
        # By rejected version, the accepting nodes; with the time when they left, or None.
        self._accepting: dict[ResourceVersion, dict[str, tuple[int, float | None]]] = {}

    @property
    def versions(self) -> frozenset[ResourceVersion]:
        """All versions that any node rejects."""
        return frozenset[ResourceVersion]().union(*(node.reasons for node in self.nodes.values()))

    @property
    def known(self) -> frozenset[ResourceVersion]:
        """All versions rejected, or held back from all nodes."""
        return self.versions.union(self.held)

    def held_for(self, node: NodeKey) -> frozenset[ResourceVersion]:
        """Return versions that a node must not be served."""
        known = self.nodes.get(node)
        held = frozenset(self.held)
        return held if known is None else (held | known.unserved) - known.pending.offered

    def receive_nack(self, node: NodeKey, voter: Voter, nack: Nack, now_s: float) -> None:
        """Take a node's NACK."""
        known = self.nodes.pop(node, None) or RejectingNode(voter.name, voter.identity)
        known.identity, known.gone_at_s = voter.identity, None
        known.receive_nack(nack, now_s)
        self.nodes[node] = known
        while len(self.nodes) > MOST_NODES:
            del self.nodes[next(iter(self.nodes))]

    def receive_taken(self, node: NodeKey, is_served: Callable[[ResourceVersion], bool]) -> bool:
        """Record that a node took all served versions; return whether it rejected any."""
        known = self.nodes.get(node)
        taken = [] if known is None else [one for one in known.reasons if is_served(one)]
        if known is not None and known.forget(taken):
            del self.nodes[node]
        return bool(taken)

    def receive_blocked(self, node: NodeKey, is_blocked: Callable[[ResourceVersion], bool]) -> None:
        """Record offers that a hold keeps from a node: it need not answer them."""
        known = self.nodes.get(node)
        if known is not None:
            known.blocked = frozenset(filter(is_blocked, known.pending.offered))

    def receive_presence(self, node: NodeKey, now_s: float, *, is_there: bool) -> None:
        """Record whether a node has a client."""
        known = self.nodes.get(node)
        if known is not None and (known.gone_at_s is None) is not is_there:
            known.gone_at_s = None if is_there else now_s

    def offer(self, now_s: float) -> list[NodeKey]:
        """Offer due versions; return the nodes with new offers."""
        self.nodes = {key: node for key, node in self.nodes.items() if not node.has_left(REMEMBERED_FOR_S, now_s)}
        return [key for key, node in self.nodes.items() if node.offer(now_s)]

    def forget(self, versions: Collection[ResourceVersion]) -> None:
        """Forget versions that no tree has, or to be offered again."""
        if versions:
            self.nodes = {key: node for key, node in self.nodes.items() if not node.forget(versions)}
            self.held = {version: one for version, one in self.held.items() if version not in versions}

    def decide(self, accepting: Accepting, now_s: float) -> bool:
        """Decide which versions are held back from all nodes; return whether that changed."""
        rejecting: dict[ResourceVersion, Counter[str]] = {}
        for node in self.nodes.values():
            if not node.has_left(VOTES_FOR_S, now_s):
                for version in node.reasons:
                    rejecting.setdefault(version, Counter())[node.identity] += 1
        new = rejecting.keys() - self.held.keys()
        found = accepting(new) if new else {}
        known, self._accepting = self._accepting, {}
        no_votes: dict[str, tuple[int, float | None]] = {}
        others: dict[ResourceVersion, Votes] = {version: one.accepting for version, one in self.held.items()}
        # Most versions have the same votes.
        same: dict[object, tuple[dict[str, tuple[int, float | None]], Votes]] = {}
        for version, votes in found.items():
            absent = known.get(version, no_votes)
            case = id(votes), id(absent), frozenset(rejecting[version])
            if case not in same:
                each = _with_absent(votes, absent, now_s)
                same[case] = (
                    each,
                    {
                        identity: count
                        for identity, (count, _) in each.items()
                        if identity in votes or identity not in rejecting[version]
                    },
                )
            self._accepting[version], others[version] = same[case]
        before, self.held = (
            self.held,
            {
                version: self.held.get(version) or HeldVersion(now_s, others[version])
                for version, votes in rejecting.items()
                if version in others and exceeds(self.limit, votes, others[version])
            },
        )
        return before.keys() != self.held.keys()

    def next_s(self, now_s: float) -> float | None:
        """Return when `offer` or `decide` next have an effect; None for never."""
        times_s = [node.retry_at_s for node in self.nodes.values()]
        left_s = [node.gone_at_s for node in self.nodes.values() if node.gone_at_s is not None]
        left_s += [
            gone_at_s
            for each in {id(one): one for one in self._accepting.values()}.values()
            for _, gone_at_s in each.values()
            if gone_at_s is not None
        ]
        times_s += [at_s + after_s for at_s in left_s for after_s in (VOTES_FOR_S, REMEMBERED_FOR_S)]
        return min((time_s for time_s in times_s if time_s is not None and time_s > now_s), default=None)


def _with_absent(
    votes: Votes, before: Mapping[str, tuple[int, float | None]], now_s: float
) -> dict[str, tuple[int, float | None]]:
    absent = {
        identity: (count, now_s if gone_at_s is None else gone_at_s)
        for identity, (count, gone_at_s) in before.items()
        if identity not in votes and (gone_at_s is None or now_s - gone_at_s < VOTES_FOR_S)
    }
    return absent | {identity: (count, None) for identity, count in votes.items()}
