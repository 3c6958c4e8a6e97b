"""Make before break: from what is served to what the tree asks for, by steps that clients take one after the other.

`target` says what is to be served of a tree, of which `holding` holds some back, `guard` has removals approved, and
`rejections` knows what clients reject. `planning` makes the steps to it, `lingering` says what stays for draining listeners,
and `machine` takes one step after the other.
"""

from __future__ import annotations

from fsxds.rollout.guard import Removal
from fsxds.rollout.holding import NO_HOLDS, Composed, Hold, HoldingRules, HoldReason, Holds, compose
from fsxds.rollout.lingering import DrainingListener, Lingering
from fsxds.rollout.machine import Rollout
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.planning import steps_between
from fsxds.rollout.rejections import HeldVersion, Nack, NodeKey, RejectingNode, Rejections, late_nack_of, nack_of
from fsxds.rollout.rollout_state import RolloutOptions, RolloutState
from fsxds.rollout.step import (
    Client,
    Completed,
    Held,
    LingeringEnded,
    LingeringStarted,
    PinsChanged,
    RolloutEvent,
    Standing,
    Step,
    StepKind,
    StepStarted,
    StepTimedOut,
    Superseded,
    snapshot_id,
)
from fsxds.rollout.target import Pin, Target, changed_keys, version_of

__all__ = [
    "NO_HOLDS",
    "Client",
    "Completed",
    "Composed",
    "DrainingListener",
    "Held",
    "HeldVersion",
    "Hold",
    "HoldReason",
    "HoldingRules",
    "Holds",
    "Lingering",
    "LingeringEnded",
    "LingeringStarted",
    "Nack",
    "NodeKey",
    "Pin",
    "PinsChanged",
    "RejectingNode",
    "Rejections",
    "Removal",
    "ResourceVersion",
    "Rollout",
    "RolloutEvent",
    "RolloutOptions",
    "RolloutState",
    "Standing",
    "Step",
    "StepKind",
    "StepStarted",
    "StepTimedOut",
    "Superseded",
    "Target",
    "changed_keys",
    "compose",
    "late_nack_of",
    "nack_of",
    "snapshot_id",
    "steps_between",
    "version_of",
]
