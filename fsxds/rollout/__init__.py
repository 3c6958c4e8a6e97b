"""Make before break: from what is served to what the tree asks for, by steps that clients take one after the other.

`planning` makes the steps, `lingering` says what stays for draining listeners, `guard` what has to be approved;
`machine` puts them together.
"""

from __future__ import annotations

from fsxds.rollout.guard import Removal
from fsxds.rollout.lingering import DrainingListener, Lingering
from fsxds.rollout.machine import Rollout
from fsxds.rollout.rollout_events import (
    Completed,
    Held,
    LingeringEnded,
    LingeringStarted,
    RolledBack,
    RolloutEvent,
    StepStarted,
    StepTimedOut,
    Stopped,
    Superseded,
)
from fsxds.rollout.rollout_state import HeldTarget, OnNack, RolloutOptions, RolloutState, RolloutStatus
from fsxds.rollout.step import Client, Rejection, Standing, Step, StepKind, snapshot_id

__all__ = [
    "Client",
    "Completed",
    "DrainingListener",
    "Held",
    "HeldTarget",
    "Lingering",
    "LingeringEnded",
    "LingeringStarted",
    "OnNack",
    "Rejection",
    "Removal",
    "RolledBack",
    "Rollout",
    "RolloutEvent",
    "RolloutOptions",
    "RolloutState",
    "RolloutStatus",
    "Standing",
    "Step",
    "StepKind",
    "StepStarted",
    "StepTimedOut",
    "Stopped",
    "Superseded",
    "snapshot_id",
]
