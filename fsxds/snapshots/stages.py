"""What is served of a view follows from what its files hold by stages, each with its own memory. Pure.

| stage | is needed |
| --- | --- |
| what upstreams hold goes under it | while an upstream holds anything |
| redirects and locators are followed | while there is one |
| collections are made of folders, and entries that lead nowhere are found | while one is written, or the settings have one |

A stage is a module that is imported when it is first needed. One that changed what is served is asked once more when it is
not needed any longer, so that this is a change like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import is_structured
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Reference, Resource, Snapshot
from fsxds.model.values import HeldFile, Problem
from fsxds.settings.naming_rules import CollectionRule
from fsxds.settings.upstream_rules import Authority
from fsxds.snapshots.check_protocol import Check, NoCheck
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.upstream_content import UpstreamContent


@dataclass(frozen=True, slots=True)
class CollectionRules:
    """What the settings say about collections.

    Attributes:
        rules: the collections to make.
        authority: that of names which have none.
        root: the absolute path of the tree, in which `file:///` locators are resolved; empty for no such place.
        catalogue: the message types; None where no resource is to be made.
    """

    rules: tuple[CollectionRule, ...] = ()
    authority: str = ""
    root: str = ""
    catalogue: Catalogue | None = field(default=None, compare=False, repr=False)

    def name_of(self, rule: CollectionRule) -> str:
        """Return the canonical name of a collection."""
        return str(replace(rule.name, authority=rule.name.authority or self.authority))

    def by_name(self) -> Mapping[str, CollectionRule]:
        """Return the rules by the canonical names of the collections."""
        return {self.name_of(rule): rule for rule in self.rules}


@dataclass(frozen=True, slots=True)
class ResolutionRules:
    """What the settings say about names that lead elsewhere.

    Attributes:
        authority: that of names which say none.
        authorities: where the resources of other authorities are.
        passes_redirects: clients on streams follow redirects themselves, to other authorities too.
        root: the absolute path of the tree, in which `file:///` locators are resolved; empty for no such place.
        catalogue: the message types; None where no resource is to be made, and no redirect is followed.
        check: says how bad what is wrong is.
        collections: which list collections are made of folders.
        unasked: the authorities of upstreams that nobody asks here, as by commands; None where they may have any name.
    """

    authority: str = ""
    authorities: Mapping[str, Authority] = field(default_factory=lambda: MappingProxyType({}))
    passes_redirects: bool = False
    root: str = ""
    catalogue: Catalogue | None = field(default=None, compare=False, repr=False)
    check: Check = field(default_factory=NoCheck, repr=False)
    collections: CollectionRules = field(default_factory=CollectionRules)
    unasked: frozenset[str] | None = frozenset()
    _compiled: dict[Catalogue, FieldRules] = field(default_factory=dict, init=False, compare=False, repr=False)

    def field_rules(self, catalogue: Catalogue) -> FieldRules:
        """Return what finds the references of messages, as parsing does; compiled once."""
        if catalogue not in self._compiled:
            self._compiled[catalogue] = field_rules(catalogue, self.check)
        return self._compiled[catalogue]


class Inputs(NamedTuple):
    """What stages depend on beside the files: the settings, and what each upstream holds, in the order of precedence."""

    rules: ResolutionRules
    contents: tuple[UpstreamContent, ...] = ()


class Staged(Protocol):
    """A view after a stage, with what the stage remembers for the next time."""

    @property
    def snapshot(self) -> Snapshot:
        """What is served after it; `raw` itself if the stage changed nothing."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with what it did, sorted by place."""

    @property
    def raw(self) -> Snapshot:
        """What it was made of."""

    @property
    def held(self) -> tuple[HeldFile, ...]:
        """The files of which something older is served for its sake, or nothing."""


class StageModule(Protocol):
    """The module of a stage."""

    def unchanged(self, raw: Snapshot, inputs: Inputs) -> Staged:
        """Return a view that the stage left as it was, when it was not needed."""

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None) -> Staged:
        """Return a view after the stage; what did not change since `before` is shared with that."""


class Stage(NamedTuple):
    """A stage: the module, and whether a view needs it, given the one from before."""

    module: str
    is_needed: Callable[[Snapshot, Snapshot | None, Inputs], bool]

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None, earlier: Snapshot | None) -> Staged | None:
        """Return a view after this stage; None if it is not needed.

        Args:
            raw: what the stages before made.
            inputs: what it depends on.
            before: what it made for this view before; None if it was not needed.
            earlier: what it would have been applied to then; None if the view is new.
        """
        was_used = before is not None and before.snapshot is not before.raw
        # As long as it is not needed, nothing is looked at but what changed.
        if not was_used and not self.is_needed(raw, None if before is not None else earlier, inputs):
            return None
        module = cast("StageModule", import_module(self.module))
        if before is None and earlier is not None:
            before = module.unchanged(earlier, inputs)
        return module.apply(raw, inputs, before)


def has_directives(reference: Reference) -> bool:
    """Whether a reference is a locator that says more than a name."""
    return "#" in reference.name and is_structured(reference.name)


def locates(resource: Resource) -> bool:
    """Whether a resource refers to another by such a locator."""
    return any(map(has_directives, resource.references))


def leads_elsewhere(resource: Resource) -> bool:
    """Whether what is served of a resource follows from others: it is a redirect, or refers to some by locators."""
    return bool(resource.redirect) or locates(resource)


def names_that_lead_elsewhere(chunk: Chunk[Resource]) -> tuple[str, ...]:
    """Return the names of a chunk that lead elsewhere."""
    return tuple(name for name, resource in zip(chunk.names, chunk.values, strict=True) if leads_elsewhere(resource))


def _leads_elsewhere(raw: Snapshot, earlier: Snapshot | None, inputs: Inputs) -> bool:
    """Whether anything leads elsewhere; nothing did in the snapshot from before."""
    return inputs.rules.catalogue is not None and any(
        chunk.once(names_that_lead_elsewhere)
        for type_url, rows in raw.by_type.items()
        if earlier is None or earlier.by_type.get(type_url) is not rows
        for chunk in rows.chunks
    )


def _has_collections(raw: Snapshot, _: Snapshot | None, inputs: Inputs) -> bool:
    return bool(inputs.rules.collections.rules or raw.by_type.get(BY_SHORT_NAME["lcds"].type_url))


STAGES = (
    Stage("fsxds.snapshots.upstream_rows", lambda _raw, _earlier, inputs: bool(inputs.contents)),
    Stage("fsxds.snapshots.resolution", _leads_elsewhere),
    Stage("fsxds.snapshots.folder_collections", _has_collections),
)
"""In the order in which they are applied."""
