"""The interface of rollouts, of a server or a fleet, for the admin address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.transports.admin.page_paths import ShownSnapshots
from fsxds.transports.admin.rollout_control import RolloutControl
from fsxds.transports.admin.status_paths import Outlined


class AdminControl(RolloutControl, ShownSnapshots, Outlined, Protocol):
    """Shows and controls rollouts, and shows snapshots."""


class OperatorControl(AdminControl, Protocol):
    """The control of one publisher."""

    def roll_back(self, snapshots: Mapping[Layers, Snapshot]) -> int:
        """Serve these snapshots; return the number of affected channels."""
