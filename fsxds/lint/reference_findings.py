"""What is wrong with the names in a file: references that lead nowhere, unused names, files that hold something else.

Also the words for it: what references lead to, what happens when it is missing, and which name was probably meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.lint.rules import RuleLevels
from fsxds.lint.tree_names import FileNames, StaticNames
from fsxds.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.resources import Key, Reference, Resource, key_of
from fsxds.snapshots.references import ANY, CLUSTER, ENDPOINTS, EXTENSION_CONFIG, IN_FILE, ROUTES, SCOPED_ROUTE, SECRET
from fsxds.values import Fault, Severity, TypeUrl

_LISTENER = BY_SHORT_NAME["lds"].type_url
_VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url

_WAITS = "Envoy waits for it until initial_fetch_timeout"
_REJECTS = "Envoy rejects what names it"


@dataclass(frozen=True, slots=True)
class Referent:
    """What there is to report about references to one type.

    Attributes:
        words: what one of them is called.
        missing: the rule that is broken where there is none.
        unused: the rule that is broken where one is not used.
        users: the types that could use it; without any of these in the tree, nothing is called unused.
        outcome: what happens when there is none.
        harm: what happens where that is an error.
        elsewhere: how to define it outside of the tree.
    """

    words: str
    missing: str
    unused: str
    users: frozenset[TypeUrl]
    outcome: str
    harm: str = ""
    elsewhere: str = ""


REFERENTS: Mapping[TypeUrl, Referent] = {
    CLUSTER: Referent(
        "cluster",
        "no-cluster",
        "unused-cluster",
        frozenset({_LISTENER, ROUTES, _VIRTUAL_HOST}),
        "requests for it fail",
        _REJECTS,
        ", or declare it by --static-clusters or --bootstrap",
    ),
    ENDPOINTS: Referent(
        "endpoints", "no-endpoints", "unused-endpoints", frozenset({CLUSTER}), "the cluster stays empty"
    ),
    ROUTES: Referent(
        "route configuration",
        "no-route-configuration",
        "unused-route-configuration",
        frozenset({_LISTENER, SCOPED_ROUTE}),
        "requests are answered 404",
    ),
    SCOPED_ROUTE: Referent(
        "scoped route", "no-scoped-route", "unused-scoped-route", frozenset({_LISTENER}), "requests are answered 404"
    ),
    SECRET: Referent(
        "secret",
        "no-secret",
        "unused-secret",
        frozenset({CLUSTER, _LISTENER}),
        _WAITS,
        f"{_WAITS}, then goes on without",
    ),
    EXTENSION_CONFIG: Referent(
        "extension config",
        "no-extension-config",
        "unused-extension-config",
        frozenset({CLUSTER, _LISTENER}),
        _WAITS,
        f"{_WAITS}, then goes on without",
    ),
}

_OF_BOOTSTRAP = {CLUSTER: "no-static-cluster", SECRET: "no-static-secret"}


def rule_of(reference: Reference) -> str:
    """Return the rule that a reference breaks when it leads nowhere."""
    return _OF_BOOTSTRAP[reference.type_url] if reference.is_static else REFERENTS[reference.type_url].missing


def words_of_missing(reference: Reference, hint: str | None, *, may_be_elsewhere: bool) -> tuple[str, str]:
    """Return the fact and the remedy of a reference that leads nowhere.

    Args:
        reference: that one.
        hint: the name that was probably meant, None where no name is near.
        may_be_elsewhere: the tree has nothing at all of the type.
    """
    if reference.is_static:
        return _words_of_static(reference)
    referent = REFERENTS[reference.type_url]
    verb = "are" if reference.type_url == ENDPOINTS else "is"
    named = "" if reference.name == ANY else f' "{reference.name}"'
    fact = f"there {verb} no {referent.words}{named}"
    if may_be_elsewhere:
        return f"{fact} in this tree, nor any other", f"define it{referent.elsewhere}, unless it comes from elsewhere"
    outcome = referent.harm if reference.severity is Severity.ERROR else referent.outcome
    if hint:
        return f"{fact}; {outcome}", f'did you mean "{hint}"?'
    return f"{fact}; {outcome}", f"define it{referent.elsewhere}"


def _words_of_static(reference: Reference) -> tuple[str, str]:
    if reference.type_url == SECRET:
        fact = f'without sds_config, secret "{reference.name}" has to be in the bootstrap, and is not'
        return fact, "add sds_config, or define the secret in the bootstrap's static_resources"
    fact = f'cluster "{reference.name}" has to be in the bootstrap, and is not; one that comes by CDS will not do'
    return fact, "name a cluster of the bootstrap's static_resources"


# Comparing one name with ten thousand takes some milliseconds; a tree that lacks more names than this has another problem
# than a typo.
MOST_LOOKED_UP = 20

_LARGEST_DIFFERENCE = 3


def similar_names(missing: AbstractSet[Key], defined: AbstractSet[Key], before: Mapping[Key, str]) -> Mapping[Key, str]:
    """Return a near name for each missing one, empty where none is; for the first few that are new.

    Args:
        missing: types and names that are not defined.
        defined: those that are.
        before: what was found in the tree before; it is kept as long as it is true.
    """
    hints = {key: name for key, name in before.items() if key in missing and (not name or (key[0], name) in defined)}
    new = sorted(key for key in missing if key not in hints and key[1] != ANY)
    for key in new[: max(0, MOST_LOOKED_UP - len(hints))]:
        hints[key] = nearest(key, defined)
    return MappingProxyType(hints)


def nearest(key: Key, defined: AbstractSet[Key]) -> str:
    """Return the defined name of this type that is most like the one in `key`, empty where none is."""
    type_url, name = key
    names = [
        other
        for other_type, other in defined
        if other_type == type_url and abs(len(other) - len(name)) <= _LARGEST_DIFFERENCE and other != ANY
    ]
    return next(iter(difflib.get_close_matches(name, names, 1, cutoff=0.6)), "")


@dataclass(frozen=True, slots=True)
class ReferenceFinding:
    """A fault that is found by comparing resources: the path in it leads from its resource."""

    resource: Resource
    fault: Fault


@dataclass(frozen=True, slots=True)
class KnownNames:
    """The names that exist, and what is known of them.

    Attributes:
        defined: the names in the tree, and the static clusters.
        declared: the types that its documents declare.
        static: what the bootstrap defines.
        unknown: the types that files may define which could not be read; of these, nothing is reported as missing.
        unused: the names that no resource mentions, as far as that is known.
        unreported: the missing names that are not reported.
        hints: the names that others were probably meant to be, as far as they were looked for.
    """

    defined: frozenset[Key]
    declared: frozenset[TypeUrl]
    static: StaticNames
    unknown: frozenset[TypeUrl] = frozenset()
    unused: frozenset[Key] = frozenset()
    unreported: frozenset[Key] = frozenset()
    hints: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))

    def missing_from(self, names: FileNames) -> frozenset[Key]:
        """Return what a file needs of others, and no file defines."""
        missing = names.demanded - self.defined - self.unreported
        return frozenset(key for key in missing if key[0] not in self.unknown) if missing else missing

    def of_elsewhere(self, missing: frozenset[Key], levels: RuleLevels) -> frozenset[Key]:
        """Return the missing names that need not be reported: of a type that the tree does not have, one is enough.

        All are reported where the settings change the severity of the rule.
        """
        rules = {type_url: REFERENTS[type_url].missing for type_url, _ in missing}
        undeclared = {one for one, rule in rules.items() if not self._declares(one) and rule not in levels.changed}
        first = {min(key for key in missing if key[0] == type_url) for type_url in undeclared}
        return frozenset(key for key in missing if key[0] in undeclared and key not in first)

    def findings(self, names: FileNames) -> tuple[ReferenceFinding, ...]:
        """Return what is wrong with a file: references that lead nowhere, and names that are not used."""
        missing = self.missing_from(names)
        static = frozenset(filter(self._lacks_static, names.static)) if names.static else names.static
        is_used = names.defined.isdisjoint(self.unused)
        if is_used and not missing and not static:
            return ()
        return (*self._missing(names, missing, static), *self._unused(names))

    def _missing(self, names: FileNames, missing: frozenset[Key], static: frozenset[Key]) -> Iterator[ReferenceFinding]:
        for resource in names.parsed.resources:
            for reference in resource.references:
                key = (reference.type_url, reference.name)
                if key not in (static if reference.is_static else missing) or reference.severity is Severity.NOTE:
                    continue
                may_be_elsewhere = not self._declares(reference.type_url)
                fact, remedy = words_of_missing(reference, self.hints.get(key), may_be_elsewhere=may_be_elsewhere)
                severity = self._severity_of(reference)
                fault = Fault(rule_of(reference), fact, remedy, reference.field_path, severity=severity)
                yield ReferenceFinding(resource, fault)

    def _unused(self, names: FileNames) -> Iterator[ReferenceFinding]:
        for resource in names.parsed.resources:
            if key_of(resource) not in self.unused:
                continue
            referent = REFERENTS[resource.type_url]
            fact = f'nothing in this tree uses {referent.words} "{resource.name}"'
            fault = Fault(referent.unused, fact, "remove it, or use it", severity=Severity.NOTE)
            yield ReferenceFinding(resource, fault)

    def _severity_of(self, reference: Reference) -> Severity:
        """Return the severity of a reference that leads nowhere, unless the settings change it."""
        if reference.is_static:
            return reference.severity if self._static(reference.type_url) is not None else Severity.WARNING
        # Of a type that the tree does not declare, all may come from somewhere else.
        return reference.severity if self._declares(reference.type_url) else Severity.NOTE

    def _static(self, type_url: TypeUrl) -> frozenset[str] | None:
        return self.static.clusters if type_url == CLUSTER else self.static.secrets

    def _declares(self, type_url: TypeUrl) -> bool:
        return type_url in self.declared or (type_url == CLUSTER and self.static.clusters is not None)

    def _lacks_static(self, key: Key) -> bool:
        type_url, name = key
        known = self._static(type_url)
        # A secret that is discovered under this name shows that `sds_config` was forgotten.
        return name not in known if known is not None else type_url == SECRET and key in self.defined


def source_findings(files: Iterable[FileNames]) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
    """Find the files that are named as the source of one resource, and hold another, or several. Source: ENVOY.md E16."""
    files = tuple(files)
    if not any(names.in_files for names in files):
        return {}
    by_path = {names.parsed.path.parts: names for names in files}
    found = {names.parsed.path: tuple(_wrong_sources(names, by_path)) for names in files if names.in_files}
    return {path: findings for path, findings in found.items() if findings}


def _wrong_sources(names: FileNames, by_path: Mapping[tuple[str, ...], FileNames]) -> Iterator[ReferenceFinding]:
    for resource, reference in names.in_files:
        path, _, name = reference.name.partition("\n")
        type_url = TypeUrl(reference.type_url.removeprefix(IN_FILE))
        source, depth = _file_at(PurePosixPath(path), by_path)
        if source is None or name == ANY or type_url not in source.declared or not source.parsed.is_good:
            continue
        # A file of the same name alone may be another one.
        severity = Severity.ERROR if depth > 1 else Severity.WARNING
        words = _words_of_source(source, type_url, name)
        if words is not None:
            fault = Fault("wrong-file-source", *words, reference.field_path, severity=severity)
            yield ReferenceFinding(resource, fault)


def _file_at(path: PurePosixPath, by_path: Mapping[tuple[str, ...], FileNames]) -> tuple[FileNames | None, int]:
    """Return the file whose path within the tree is the longest end of a path, and how many parts agree."""
    parts = path.parts
    for start in range(len(parts)):
        source = by_path.get(parts[start:])
        if source is not None:
            return source, len(parts) - start
    return None, 0


def _words_of_source(source: FileNames, type_url: TypeUrl, name: str) -> tuple[str, str] | None:
    present = source.parsed.resources
    noun = BY_TYPE_URL[type_url].noun
    if len(present) > 1:
        message = (
            f"{source.parsed.path} holds {len(present)} resources; Envoy takes one from a file that {noun} come from"
        )
        return message, f'give "{name}" a file of its own'
    if present and present[0].name != name:
        message = f'{source.parsed.path} holds "{present[0].name}"; Envoy expects "{name}" there'
        return message, "name the file that holds it"
    return None
