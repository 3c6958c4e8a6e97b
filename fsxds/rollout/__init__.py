"""Make before break: moves clients to the tree's snapshot, in steps taken one after another.

`target` composes the snapshot to serve: `holding` holds resources back and demands approval of removals, `rejections`
knows versions that clients reject. `planning` plans steps and keeps resources for draining listeners, `machine` takes
the steps.
"""

from __future__ import annotations

from fsxds.rollout.holding import NO_HOLDS, Composed, Hold, HoldingRules, HoldReason, Holds, Removal, compose
from fsxds.rollout.machine import Rollout, RolloutOptions, RolloutState
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.planning import DrainingListener, Lingering, steps_between
from fsxds.rollout.rejections import HeldVersion, Nack, NodeKey, RejectingNode, Rejections, late_nack_of, nack_of
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
    "steps_between",
    "version_of",
]
