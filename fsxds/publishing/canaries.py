"""Canaries: nodes that get a change first, and when the others follow."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from math import inf

from fsxds.channels import ChannelKey, node_key
from fsxds.publishing.channel_rollout import ChannelRollout
from fsxds.publishing.verdicts import has_version
from fsxds.rollout import NodeKey, Rejections, ResourceVersion

Answers = Mapping[NodeKey, bool | None]
"""Of canaries: whether each has taken the change; None for one that rejects some of it."""


def is_in_share(node_id: str, share: float) -> bool:
    """Whether a node is one of the share of all, from 0 to 1: always the same ones, and of a larger share all of a smaller."""
    digest = hashlib.sha256(node_id.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8]) < share * 2**64


def answers_of(rollouts: Mapping[ChannelKey, ChannelRollout], rejections: Rejections) -> Answers:
    """Return the answers of all canaries that are connected.

    A version that a canary rejects counts if the others are to get it: it is in their tree, they are not served it, and
    it is not held back from all nodes.
    """
    others = [one for key, one in rollouts.items() if key.is_main and not key.is_canary]
    answers: dict[NodeKey, bool | None] = {}
    for key, rollout in rollouts.items():
        has_taken = not key.lane and rollout.has_completed
        if rollout.target.pins and key.is_canary:
            # A canary on which something is rolled back has not taken what the others would get.
            has_taken = has_taken and not any(one.is_to_get(rollout.target.pins) for one in others)
        for client in rollout.channel.clients if key.is_canary else ():
            node = node_key(client)
            known = rejections.nodes.get(node)
            rejected = () if known is None else known.reasons.keys() - rejections.held.keys()
            if any(_is_awaited(version, others) for version in rejected):
                answers[node] = None
            else:
                answers[node] = answers.get(node, True) and has_taken
    return answers


def _is_awaited(version: ResourceVersion, others: Collection[ChannelRollout]) -> bool:
    """Whether others are to get a version that they are not served."""
    return any(
        one.wanted is not None
        and has_version(one.wanted, version)
        and not (one.machine.served is not None and has_version(one.machine.served, version))
        for one in others
    )


class CanaryGate:
    """Holds the others back until canaries have taken a change, and have lived with it for a while.

    The silence of canaries is not consent: without one, or when one is gone, the change waits until it is back, until
    somebody promotes the change, or for `patience_s`. Patience does not end a bake, nor the wait for a canary that
    rejects the change.

    Attributes:
        bake_s: for how long canaries have a change before it opens.
        quorum: which share of the canaries has to have it, above 0 and up to 1.
        patience_s: after so long without enough answers it opens anyway; infinite for never.
        waits_since_s: since when a change waits for canaries; None while none does.
        is_reported: that it waits for too few answers was reported, and there were not enough since.
    """

    def __init__(self, bake_s: float, quorum: float, patience_s: float) -> None:
        self.bake_s = bake_s
        self.quorum = quorum
        self.patience_s = patience_s
        self.waits_since_s: float | None = None
        self.is_reported = False
        # All canaries that were connected since the change was offered, with their answers.
        self._canaries: dict[NodeKey, bool | None] = {}
        # Since when enough canaries have the change; None while they do not.
        self._taken_since_s: float | None = None
        self._is_promoted = True

    @property
    def count(self) -> int:
        """How many canaries were connected since the change was offered."""
        return len(self._canaries)

    @property
    def missing(self) -> int:
        """How many of them have not taken the change, or are gone."""
        return sum(not has_taken for has_taken in self._canaries.values())

    @property
    def has_enough(self) -> bool:
        """Whether enough canaries have the change."""
        return self.count > self.missing and self.count - self.missing >= self.quorum * self.count

    def wait_s(self, now_s: float) -> float:
        """Return for how long a change has waited for canaries that have not taken it, or are not there; 0 for none."""
        return 0.0 if self.waits_since_s is None or self.has_enough else now_s - self.waits_since_s

    @property
    def opens_at_s(self) -> float | None:
        """When it opens if nothing else happens; None while canaries are waited for."""
        if self._is_promoted or self.waits_since_s is None:
            return -inf
        if self._taken_since_s is not None:
            return self._taken_since_s + self.bake_s
        if self.patience_s == inf or None in self._canaries.values():
            return None
        return self.waits_since_s + self.patience_s

    def close(self, now_s: float) -> None:
        """Begin anew, with a change that the others do not get yet."""
        self.waits_since_s, self._is_promoted, self.is_reported = now_s, False, False
        self._canaries, self._taken_since_s = {}, None

    def look(self, answers: Answers, now_s: float) -> None:
        """Take the answers of the canaries that are connected; one that is gone has taken nothing."""
        if self.waits_since_s is None:
            return
        gone = {node: None if known is None else False for node, known in self._canaries.items()}
        self._canaries = {**gone, **answers}
        if not self.has_enough:
            self._taken_since_s = None
        elif self._taken_since_s is None:
            self._taken_since_s, self.is_reported = now_s, False

    def promote(self) -> None:
        """Open now, for what the tree asks for."""
        self._is_promoted = True

    def is_open(self, now_s: float) -> bool:
        """Whether the others may have what the tree asks for."""
        opens_at_s = self.opens_at_s
        is_open = opens_at_s is not None and now_s >= opens_at_s
        if is_open:
            self.waits_since_s = None
        return is_open
