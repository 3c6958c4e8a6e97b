"""All that the admin address needs of the rollouts of a server, or of its fleet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fsxds.model.resources import Snapshot
from fsxds.model.values import Layers
from fsxds.transports.admin.page_paths import ShownSnapshots
from fsxds.transports.admin.rollout_control import RolloutControl
from fsxds.transports.admin.status_paths import Outlined


class AdminControl(RolloutControl, ShownSnapshots, Outlined, Protocol):
    """Shows rollouts, what is served and what was, and does what operators decide."""


class OperatorControl(AdminControl, Protocol):
    """The same of one publisher."""

    def roll_back(self, snapshots: Mapping[Layers, Snapshot]) -> int:
        """Serve these snapshots in views in place of what differs from them in the tree; return in how many channels."""
