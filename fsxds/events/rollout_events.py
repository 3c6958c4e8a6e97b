"""Events of rollouts, and of what operators decide about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsxds.events.event import Event
from fsxds.model.values import Layers, Problem
from fsxds.rollout import Client, RejectingNode, ResourceVersion, RolloutEvent


@dataclass(frozen=True, slots=True)
class RolloutCommanded(Event):
    """An operator decided something at the admin address.

    Attributes:
        command: the path below `/api`, such as `rollout/abort`.
        words: what the request said, such as a version.
        peer: the IP address that it came from; empty for a unix socket.
    """

    command: str
    words: Mapping[str, str]
    peer: str


@dataclass(frozen=True, slots=True)
class RolloutChanged(Event):
    """Something happened in the rollout of a channel.

    Attributes:
        layers: of the nodes that it is for; empty for all nodes.
        cohort: which of them: `main`, `canary`, `rejecting` or `catching up`.
        happened: what happened.
        names: what the clients in that are called.
    """

    layers: Layers
    cohort: str
    happened: RolloutEvent
    names: Mapping[Client, str]


@dataclass(frozen=True, slots=True)
class HoldsChanged(Event):
    """What of the tree is held back now, and what nodes reject of it, as problems of the files that it was written in."""

    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class VersionsHeld(Event):
    """Versions of resources are held back from all nodes, because these reject them."""

    versions: frozenset[ResourceVersion]
    nodes: tuple[RejectingNode, ...]


@dataclass(frozen=True, slots=True)
class VersionsReleased(Event):
    """Versions of resources that were held back from all nodes are offered to them again, or are in no tree any more."""

    versions: frozenset[ResourceVersion]


@dataclass(frozen=True, slots=True)
class CanaryAwaited(Event):
    """A change waits because canaries have not taken it: so many of `count` that were connected since it was offered."""

    missing: int
    count: int
