"""Stages that derive a view's served snapshot from its files. Pure.

| stage | is needed |
| --- | --- |
| add the resources of upstreams below the files | while an upstream has any |
| follow redirects and locators | while there is one |
| make collections of folders, and find dangling entries | while one is written, or the settings have one |

A stage's module is imported when first needed. A stage that changed the snapshot is applied once more when it is no
longer needed, so that this is a change like any other.
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
from fsxds.model.values import WHOLE_TREE, HeldFile, Layers, Problem
from fsxds.settings.naming_rules import CollectionRule
from fsxds.settings.upstream_rules import Authority
from fsxds.snapshots.check_protocol import Check, NoCheck
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import Records
from fsxds.snapshots.upstream_content import UpstreamContent


@dataclass(frozen=True, slots=True)
class CollectionRules:
    """The settings of collections.

    `authority` completes names; `root` is the absolute path of the tree, or empty; without `catalogue` no resource is
    made.
    """

    rules: tuple[CollectionRule, ...] = ()
    authority: str = ""
    root: str = ""
    catalogue: Catalogue | None = field(default=None, compare=False, repr=False)

    def name_of(self, rule: CollectionRule) -> str:
        """Return a collection's canonical name."""
        return str(replace(rule.name, authority=rule.name.authority or self.authority))

    def by_name(self) -> Mapping[str, CollectionRule]:
        """Return the rules by canonical names."""
        return {self.name_of(rule): rule for rule in self.rules}


@dataclass(frozen=True, slots=True)
class ResolutionRules:
    """The settings of names that lead to other resources.

    Attributes:
        authority: completes names.
        passes_redirects: clients on streams follow redirects themselves, to other authorities too.
        root: the absolute path of the tree for `file:///` locators, or empty.
        catalogue: None if no resource is to be made and no redirect followed.
        unasked: the authorities of upstreams that are not queried here, as by commands; None if any name may be theirs.
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
        """Return the rules that find references, compiled once."""
        if catalogue not in self._compiled:
            self._compiled[catalogue] = field_rules(catalogue, self.check)
        return self._compiled[catalogue]


class Inputs(NamedTuple):
    """Settings, upstreams in order of precedence, and the files of a view, with its layers."""

    rules: ResolutionRules
    contents: tuple[UpstreamContent, ...] = ()
    files: Records = MappingProxyType({})
    layers: Layers = WHOLE_TREE


class Staged(Protocol):
    """A view after a stage, with its memory."""

    @property
    def snapshot(self) -> Snapshot:
        """The result; `raw` itself if the stage changed nothing."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The stage's problems, sorted by place."""

    @property
    def raw(self) -> Snapshot:
        """The snapshot before the stage."""

    @property
    def held(self) -> tuple[HeldFile, ...]:
        """The files that the stage holds back."""


class StageModule(Protocol):
    """A stage's module."""

    def unchanged(self, raw: Snapshot, inputs: Inputs) -> Staged:
        """Return a view that did not need the stage."""

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None) -> Staged:
        """Apply the stage, sharing unchanged parts with `before`."""


class Stage(NamedTuple):
    """A module, and whether a view needs it, given its previous snapshot."""

    module: str
    is_needed: Callable[[Snapshot, Snapshot | None, Inputs], bool]

    def apply(self, raw: Snapshot, inputs: Inputs, before: Staged | None, earlier: Snapshot | None) -> Staged | None:
        """Return a view after this stage; None if it is not needed.

        `raw` is the result of the earlier stages, `earlier` their last one, None for a new view. `before` is this
        stage's last result, or None.
        """
        was_used = before is not None and before.snapshot is not before.raw
        # While a stage is not needed, only changes are examined.
        if not was_used and not self.is_needed(raw, None if before is not None else earlier, inputs):
            return None
        module = cast("StageModule", import_module(self.module))
        if before is None and earlier is not None:
            before = module.unchanged(earlier, inputs)
        return module.apply(raw, inputs, before)


def has_directives(reference: Reference) -> bool:
    """Whether a reference is a locator with directives."""
    return "#" in reference.name and is_structured(reference.name)


def locates(resource: Resource) -> bool:
    """Whether any reference is a locator with directives."""
    return any(map(has_directives, resource.references))


def is_redirect_elsewhere(resource: Resource) -> bool:
    """Whether the served form depends on other resources."""
    return bool(resource.redirect) or locates(resource)


def names_redirected_elsewhere(chunk: Chunk[Resource]) -> tuple[str, ...]:
    """Return a chunk's names that lead elsewhere."""
    return tuple(
        name for name, resource in zip(chunk.names, chunk.values, strict=True) if is_redirect_elsewhere(resource)
    )


def _has_redirects(raw: Snapshot, earlier: Snapshot | None, inputs: Inputs) -> bool:
    return inputs.rules.catalogue is not None and any(
        chunk.once(names_redirected_elsewhere)
        for type_url, rows in raw.by_type.items()
        if earlier is None or earlier.by_type.get(type_url) is not rows
        for chunk in rows.chunks
    )


def _has_collections(raw: Snapshot, _: Snapshot | None, inputs: Inputs) -> bool:
    return bool(inputs.rules.collections.rules or raw.by_type.get(BY_SHORT_NAME["lcds"].type_url))


STAGES = (
    Stage("fsxds.snapshots.upstream_rows", lambda _raw, _earlier, inputs: bool(inputs.contents)),
    Stage("fsxds.snapshots.resolution", _has_redirects),
    Stage("fsxds.snapshots.folder_collections", _has_collections),
)
"""In order of application."""
