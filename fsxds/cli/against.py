"""`fsxds check --against ADMIN`: reports changes that a server would hold."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fsxds.events.event import escape
from fsxds.model.errors import UsageError
from fsxds.model.resources import Key
from fsxds.model.values import Layers, Problem, Severity
from fsxds.rollout.holding import HoldingRules
from fsxds.rollout.served_outline import ServedOutline
from fsxds.settings.options import Settings
from fsxds.snapshots.loaded_views import LoadedViews, named_in
from fsxds.tools.admin_client import AdminServer, ask_admin
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
        found: dict[HeldChange, list[Layers]] = {}
        for layers, tree in views.items():
            for change in held_changes(tree, self.outlines[layers], rules):
                found.setdefault(change, []).append(layers)
        problems = ((problem_of(change), shown) for change, shown in found.items())
        return tuple(one if len(shown) == len(views) else named_in(one, shown) for one, shown in problems)


def problem_of(change: HeldChange) -> Problem:
    """Return a problem; a removed resource's line is only in its text."""
    fact = f"{change.fact} (it is served from line {change.line})" if change.is_removed else change.fact
    line = 1 if change.is_removed else change.line or 1
    return Problem(change.path, line, 1, "", change.rule, fact, change.remedy, Severity.ERROR)


def read_server(address: str, settings: Settings) -> OtherServer:
    """Ask a running fsxds; UsageError without an answer."""
    if address.startswith("https://") and settings.admin_ca is None:
        raise UsageError(f"{address}: https needs a CA to trust; give --admin-ca FILE")
    settings = replace(settings, admin=re.sub("^https?://", "", address).removesuffix("/"))
    answer = asyncio.run(ask_admin(AdminServer.of(settings), "GET", OUTLINE, {}))
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
