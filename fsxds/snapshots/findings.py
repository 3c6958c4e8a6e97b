"""What is wrong with the mentions of one file, before it is put to its place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fsxds.resources import Reference, Resource
from fsxds.rules.levels import RuleLevels
from fsxds.rules.mentions import CLUSTER, SECRET
from fsxds.snapshots.file_names import FileNames
from fsxds.snapshots.parsed import Key, key_of
from fsxds.snapshots.reference_words import REFERENTS, rule_of, words_of_missing
from fsxds.snapshots.static_names import StaticNames
from fsxds.values import FieldPath, Severity, TypeUrl


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach: the resource, the place within it, and what `Problem` says of it."""

    resource: Resource
    field_path: FieldPath
    rule: str
    message: str
    remedy: str
    severity: Severity


@dataclass(frozen=True, slots=True)
class World:
    """What is there to be mentioned.

    Attributes:
        defined: the names in the tree, and the static clusters.
        declared: the types that its documents speak of.
        static: what the bootstrap defines.
        levels: the rules that weigh more, less or nothing here.
        unknown: the types that files may define which could not be read; of these, nothing is said to be missing.
        unused: the names that nobody mentions, as far as that can be said.
        quiet: the missing names that are not told.
        hints: the names that others were probably meant to be, as far as somebody looked.
    """

    defined: frozenset[Key]
    declared: frozenset[TypeUrl]
    static: StaticNames
    levels: RuleLevels
    unknown: frozenset[TypeUrl] = frozenset()
    unused: frozenset[Key] = frozenset()
    quiet: frozenset[Key] = frozenset()
    hints: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))

    def missing_from(self, names: FileNames) -> frozenset[Key]:
        """Return what a file asks of others, and nobody has."""
        missing = names.demanded - self.defined - self.quiet
        return frozenset(key for key in missing if key[0] not in self.unknown) if missing else missing

    def of_elsewhere(self, missing: frozenset[Key]) -> frozenset[Key]:
        """Return those of the missing names that need not be told: of a type that the tree has not, one stands for all."""
        rules = {type_url: REFERENTS[type_url].missing for type_url, _ in missing}
        unspoken = {one for one, rule in rules.items() if not self._speaks_of(one) and rule not in self.levels.changed}
        first = {min(key for key in missing if key[0] == type_url) for type_url in unspoken}
        return frozenset(key for key in missing if key[0] in unspoken and key not in first)

    def findings(self, names: FileNames) -> tuple[Finding, ...]:
        """Return what is wrong with a file: references that lead nowhere, and names that nobody uses."""
        missing = self.missing_from(names)
        static = frozenset(filter(self._lacks_static, names.static)) if names.static else names.static
        is_used = names.defined.isdisjoint(self.unused)
        if is_used and not missing and not static:
            return ()
        return (*self._dangling(names, missing, static), *self._idle(names))

    def _dangling(self, names: FileNames, missing: frozenset[Key], static: frozenset[Key]) -> Iterator[Finding]:
        for resource in names.parsed.resources:
            for reference in resource.references:
                key = (reference.type_url, reference.name)
                if key not in (static if reference.is_static else missing) or reference.severity is Severity.NOTE:
                    continue
                severity = self._weigh(reference)
                if severity is not None:
                    may_be_elsewhere = not self._speaks_of(reference.type_url)
                    fact, remedy = words_of_missing(reference, self.hints.get(key), may_be_elsewhere=may_be_elsewhere)
                    yield Finding(resource, reference.field_path, rule_of(reference), fact, remedy, severity)

    def _idle(self, names: FileNames) -> Iterator[Finding]:
        for resource in names.parsed.resources:
            if key_of(resource) not in self.unused:
                continue
            referent = REFERENTS[resource.type_url]
            severity = self.levels.changed.get(referent.unused, Severity.NOTE)
            if severity is not None:
                fact = f'nothing in this tree uses {referent.words} "{resource.name}"'
                yield Finding(resource, (), referent.unused, fact, "remove it, or use it", severity)

    def _weigh(self, reference: Reference) -> Severity | None:
        """Return how much it weighs that a reference leads nowhere; None where its rule is silenced."""
        rule = rule_of(reference)
        if rule in self.levels.changed:
            return self.levels.changed[rule]
        if reference.is_static:
            return reference.severity if self._static(reference.type_url) is not None else Severity.WARNING
        # Of a type that the tree does not speak of, all may come from somewhere else.
        return reference.severity if self._speaks_of(reference.type_url) else Severity.NOTE

    def _static(self, type_url: TypeUrl) -> frozenset[str] | None:
        return self.static.clusters if type_url == CLUSTER else self.static.secrets

    def _speaks_of(self, type_url: TypeUrl) -> bool:
        return type_url in self.declared or (type_url == CLUSTER and self.static.clusters is not None)

    def _lacks_static(self, key: Key) -> bool:
        type_url, name = key
        known = self._static(type_url)
        # A secret that is discovered under this name shows that `sds_config` was forgotten.
        return name not in known if known is not None else type_url == SECRET and key in self.defined
