"""`fsxds check --against ADMIN`: reports changes that a server would hold."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fsxds.events.phrases import escape
from fsxds.model.errors import UsageError
from fsxds.model.resources import Key
from fsxds.model.values import Layers, Problem, Severity
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews, by_views, named_in
from fsxds.tools.admin_client import ask, settings_at
from fsxds.tools.held_changes import HeldChange, held_changes
from fsxds.transports.admin.status_paths import OUTLINE


@dataclass(frozen=True, slots=True)
class OtherServer:
    """A running fsxds: served state and holding rules."""

    address: str
    rules: HoldingRules
    outlines: Mapping[Layers, ServedOutline]

    def problems(
        self, loaded: LoadedViews, settings: Settings, is_static: Callable[[Key], bool]
    ) -> tuple[Problem, ...]:
        """Return each held change once, with its views unless in all."""
        views = {layers: tree for layers, tree in loaded.served.items() if layers in self.outlines}
        if self.outlines and not views:
            print(f"{escape(self.address)}: serves none of these views, so no resource would be held", file=sys.stderr)
        approved = self.rules.approved | frozenset(settings.approved or ())
        knows_static = (settings.static_clusters, settings.bootstrap) != (None, None)
        rules = replace(self.rules, approved=approved, is_static=is_static, knows_static=knows_static)
        found = by_views({layers: held_changes(tree, self.outlines[layers], rules) for layers, tree in views.items()})
        return tuple(named_in(_problem(one), shown) if shown else _problem(one) for one, shown in found.items())


def _problem(change: HeldChange) -> Problem:
    """A removed resource's line is only in the text."""
    fact = f"{change.fact} (it is served from line {change.line})" if change.is_removed else change.fact
    line = 1 if change.is_removed else change.line or 1
    return Problem(change.path, line, 1, "", change.rule, fact, change.remedy, Severity.ERROR)


def read_server(address: str, settings: Settings) -> OtherServer:
    """Ask a running fsxds; UsageError without an answer."""
    answer = ask(settings_at(address, settings), OUTLINE)
    try:
        outlines = map(ServedOutline.read, answer["views"])
        rules = HoldingRules(
            keeps_references=answer["references"] == "hold",
            max_removal=answer["max_removal"],
            approved=frozenset(answer["approved"]),
        )
        return OtherServer(address, rules, {one.layers: one for one in outlines})
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"{address}: its response is in another format than this fsxds reads; use the same version of fsxds"
        ) from error
