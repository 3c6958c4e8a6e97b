"""Combines all checks of contents for loading."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.walk import Hooks, merge_hooks
from fsxds.formats.decoded import PlainDocument, UnreadableError, read_text, unreadable
from fsxds.formats.yaml_format import read_yaml
from fsxds.lint import (
    claims,
    clusters,
    extensions,
    field_values,
    filters,
    format_strings,
    listeners,
    matchers,
    routes,
    tls,
)
from fsxds.lint.rules import RuleLevels, read_levels
from fsxds.lint.tree_names import OutsideNames, StaticNames
from fsxds.lint.tree_references import ReferenceCheck, ReferenceMemory, ReferenceSettings
from fsxds.model.errors import UsageError
from fsxds.model.resources import Key
from fsxds.model.values import PlainValue
from fsxds.protocol.ttl import TtlMode
from fsxds.settings.options import Settings
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import NOWHERE, Elsewhere, FieldLocator, Found, ServedFiles
from fsxds.snapshots.references import CLUSTER

# Each has `hooks(catalogue)`, which returns its checks by the messages and fields that they check.
SUBJECTS = (claims, clusters, extensions, field_values, filters, format_strings, listeners, matchers, routes, tls)

# The rule about a TTL that only `ttl: spec` keeps.
TTL_DROPPED = "ttl-dropped"


@dataclass(frozen=True, slots=True)
class Linter:
    """All checks, with set severities and static names."""

    levels: RuleLevels = field(default_factory=RuleLevels)
    static: StaticNames = field(default_factory=StaticNames)

    @property
    def identity(self) -> str:
        """The changed severities; static names matter only in trees."""
        changed = sorted((name, level.value if level else None) for name, level in self.levels.changed.items())
        return f"{type(self).__qualname__} {changed}"

    def is_static(self, key: Key) -> bool:
        """Whether the bootstrap has it."""
        return key[0] == CLUSTER and key[1] in (self.static.clusters or ())

    def message_hooks(self, catalogue: Catalogue) -> Hooks:
        """Return checks by message and field names."""
        return merge_hooks(*(subject.hooks(catalogue) for subject in SUBJECTS))

    def adjusted(self, found: Found) -> Found | None:
        """Apply the set severity; None if off."""
        return self.levels.adjusted(found)

    def tree_check(
        self, memory: object, locator: FieldLocator, served: ServedFiles, elsewhere: Elsewhere = NOWHERE
    ) -> ReferenceCheck:
        """Check a tree's references and claims."""
        known = memory if isinstance(memory, ReferenceMemory) else None
        return ReferenceCheck(
            known, locator, served, ReferenceSettings(self.levels, OutsideNames(self.static, elsewhere))
        )


def make_field_rules(catalogue: Catalogue) -> FieldRules:
    """Compile all rules.

    Raises:
        ApiError: the catalogue has an unknown field rule.
    """
    return field_rules(catalogue, Linter())


def linter_of(settings: Settings) -> Linter:
    """Return the linter for these settings.

    Raises:
        UsageError: they name an unknown or unchangeable rule, or an unreadable bootstrap.
    """
    given, levels = settings.static_clusters, levels_of(settings)
    if settings.bootstrap is None:
        return Linter(levels, StaticNames(None if given is None else frozenset(given)))
    names = static_names(read_bootstrap_file(settings.bootstrap))
    return Linter(levels, StaticNames((names.clusters or frozenset()) | frozenset(given or ()), names.secrets))


def levels_of(settings: Settings) -> RuleLevels:
    """Return set severities, also of pointless rules."""
    levels = read_levels(settings.rules or {})
    if settings.ttl != TtlMode.SPECIFICATION.value:
        return levels
    return RuleLevels({TTL_DROPPED: None, **levels.changed})


def static_names(bootstrap: PlainValue) -> StaticNames:
    """Return a bootstrap's names; none if malformed."""
    static = _field(bootstrap, "static_resources", "staticResources")
    return StaticNames(frozenset(_names(_field(static, "clusters"))), frozenset(_names(_field(static, "secrets"))))


def _field(value: PlainValue, *spellings: str) -> PlainValue:
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in spellings if name in value), None)


def _names(resources: PlainValue) -> Iterator[str]:
    # Envoy's reader accepts one object for a list.
    for resource in resources if isinstance(resources, list) else [resources]:
        name = _field(resource, "name")
        if isinstance(name, str):
            yield name


def read_bootstrap_file(path: Path) -> PlainValue:
    """Read a bootstrap. Raises UsageError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; --bootstrap names Envoy's bootstrap") from error
    try:
        decoded = read_yaml(read_text(content))
    except UnreadableError as error:
        decoded = unreadable(error.fault)
    if decoded.faults:
        fault = decoded.faults[0]
        raise UsageError(f"{path}:{fault.line or 1}:{fault.column or 1}: {fault.message}; {fault.remedy}")
    return next((document.value for document in decoded.documents if isinstance(document, PlainDocument)), None)
