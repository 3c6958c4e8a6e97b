"""Faults of names in a file.

Undefined names are errors before a tree is served: `fsxds serve` holds new references to them. Then they are warnings:
the references may be served already, and a first start serves them (`rollout.holding`). Names of a type that the tree
lacks entirely belong elsewhere, except clusters if the bootstrap's are known. A secret or an extension from a separate
gRPC service stays a warning (ENVOY.md E6). Settings of a rule, and `--references warn`, take precedence.
"""

from __future__ import annotations

import difflib
import heapq
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import quote

from fsxds.lint.tree_names import StaticNames, TreeNames
from fsxds.model.resource_names import parse_or_none
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Key, ParsedFile, Reference, Resource, key_of
from fsxds.model.values import Fault, Problem, Severity, TypeUrl
from fsxds.rollout.uses import MAY_BE_REMOTE
from fsxds.settings.options import Settings
from fsxds.snapshots.references import ANY, CLUSTER, ENDPOINTS, EXTENSION_CONFIG, IN_FILE, ROUTES, SCOPED_ROUTE, SECRET

_WAITS = "Envoy waits for it until initial_fetch_timeout"
_REJECTS = "Envoy rejects the resource that names it"


@dataclass(frozen=True, slots=True)
class Referent:
    """A type's wording of faults.

    Attributes:
        outcome: the consequence of a missing one.
        harm: the same, if it is an error.
    """

    words: str
    missing: str
    unused: str
    outcome: str
    harm: str = ""
    elsewhere: str = ""


REFERENTS: Mapping[TypeUrl, Referent] = {
    CLUSTER: Referent(
        "cluster",
        "no-cluster",
        "unused-cluster",
        "requests for it fail",
        _REJECTS,
        ", or list it in `static_clusters` if the bootstrap defines it",
    ),
    ENDPOINTS: Referent("endpoints", "no-endpoints", "unused-endpoints", "the cluster stays empty"),
    ROUTES: Referent(
        "route configuration", "no-route-configuration", "unused-route-configuration", "requests are answered 404"
    ),
    SCOPED_ROUTE: Referent("scoped route", "no-scoped-route", "unused-scoped-route", "requests are answered 404"),
    SECRET: Referent("secret", "no-secret", "unused-secret", _WAITS, f"{_WAITS}, then goes on without"),
    EXTENSION_CONFIG: Referent(
        "extension config", "no-extension-config", "unused-extension-config", _WAITS, f"{_WAITS}, then goes on without"
    ),
}


_OF_BOOTSTRAP = {CLUSTER: "no-static-cluster", SECRET: "no-static-secret"}


def rule_of(reference: Reference) -> str:
    """Return a dangling reference's rule."""
    return _OF_BOOTSTRAP[reference.type_url] if reference.is_static else REFERENTS[reference.type_url].missing


def missing_message(reference: Reference, hint: str | None, *, may_be_elsewhere: bool) -> tuple[str, str]:
    """Return a dangling reference's fact and remedy.

    `hint` is the probable name, if any; `may_be_elsewhere`: the tree has none of the type.
    """
    if reference.is_static:
        return _static_message(reference)
    referent = REFERENTS[reference.type_url]
    verb = "are" if reference.type_url == ENDPOINTS else "is"
    named = "" if reference.name == ANY else f' "{reference.name}"'
    fact = f"there {verb} no {referent.words}{named}"
    if may_be_elsewhere:
        unless = "" if reference.type_url == CLUSTER else ", unless it comes from elsewhere"
        return f"{fact} in this tree, nor any other", f"define it{referent.elsewhere}{unless}"
    outcome = referent.harm if reference.severity is Severity.ERROR else referent.outcome
    meant = f'did you mean "{hint}"? Else ' if hint else ""
    return f"{fact}; {outcome}", f"{meant}define it{referent.elsewhere}"


def _static_message(reference: Reference) -> tuple[str, str]:
    if reference.type_url == SECRET:
        fact = f'without sds_config, secret "{reference.name}" has to be in the bootstrap, and is not'
        return fact, "add sds_config, or define the secret in the bootstrap's static_resources"
    fact = f'cluster "{reference.name}" has to be in the bootstrap, and is not; one that comes by CDS will not do'
    return fact, "name a cluster of the bootstrap's static_resources"


# Comparing one name with ten thousand takes some milliseconds; a tree that lacks more names has another problem than a
# typo.
MOST_LOOKED_UP = 20

_LARGEST_DIFFERENCE = 3
_LEAST_SIMILARITY = 0.6


def similar_names(names: TreeNames, unknown: Collection[TypeUrl], before: Mapping[Key, str]) -> Mapping[Key, str]:
    """Return near names, or "", for the first few missing ones.

    `unknown` types are not reported as missing. Valid parts of `before` stay.
    """
    missing = names.open.missing
    hints = {
        key: name
        for key, name in before.items()
        if key in missing and key[0] not in unknown and (not name or names.is_defined((key[0], name)))
    }
    room = MOST_LOOKED_UP - len(hints)
    types = [type_url for type_url in missing.types if type_url not in unknown]
    if room > 0 and sum(len(missing.of(type_url)) for type_url in types) > len(hints):
        keys = ((type_url, name) for type_url in types for name in missing.of(type_url) if name != ANY)
        for key in heapq.nsmallest(room, (key for key in keys if key not in hints)):
            hints[key] = _probable(key[1], tuple(names.names_of(key[0])))
    return MappingProxyType(hints)


def _probable(name: str, names: Collection[str]) -> str:
    """Prefer the same path with another authority or parameters."""
    path = _path_of(name)
    end = path.rpartition("/")[2]
    # Parsing names takes longer than searching them.
    near = (other for other in names if other != name and (end in other or quote(end) in other))
    variants = (other for other in near if _path_of(other) == path)
    return min(variants, default="") or nearest(name, names)


def _path_of(name: str) -> str:
    structured = parse_or_none(name)
    return name if structured is None else structured.path


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the nearest name or "": a faster `difflib.get_close_matches`."""
    matcher = difflib.SequenceMatcher(b=name)
    counts = Counter(name)
    characters, amounts = tuple(counts), tuple(counts.values())
    least, best = _LEAST_SIMILARITY, ""
    for other in names:
        if not other or other == ANY or abs(len(other) - len(name)) > _LARGEST_DIFFERENCE:
            continue
        # No more characters can agree than both have; comparing their order takes ten times as long.
        if 2.0 * sum(map(min, amounts, map(other.count, characters))) / (len(name) + len(other)) < least:
            continue
        matcher.set_seq1(other)
        least, best = max((least, best), (matcher.ratio(), other))
    return best


@dataclass(frozen=True, slots=True)
class ReferenceFinding:
    """A fault between resources; its path starts at its own."""

    resource: Resource
    fault: Fault


FileAt = Callable[[PurePosixPath], ParsedFile | None]
"""Returns the file of a tree at a path, if any."""


@dataclass(frozen=True, slots=True)
class ReferenceScope:
    """The scope of reports on references.

    Attributes:
        unknown: types in unreadable files, not reported as missing.
        unused_of: types with reports of unused names.
        first: the one missing name that stands for all of its type.
    """

    declared: frozenset[TypeUrl] = frozenset()
    unknown: frozenset[TypeUrl] = frozenset()
    unused_of: frozenset[TypeUrl] = frozenset()
    first: Mapping[TypeUrl, str] = field(default_factory=lambda: MappingProxyType({}))
    hints: Mapping[Key, str] = field(default_factory=lambda: MappingProxyType({}))


class ReferenceFindings:
    """Finds dangling references, unused names and wrong file sources."""

    def __init__(self, names: TreeNames, scope: ReferenceScope, file_at: FileAt) -> None:
        self._names = names
        self._scope = scope
        self._file_at = file_at

    def of_names(self, parsed: ParsedFile) -> tuple[ReferenceFinding, ...]:
        """Return faults of references and names."""
        opened = self._names.open
        missing = self._missing(parsed) if opened.missing or opened.lacking else ()
        return (*missing, *(self._unused(parsed) if self._scope.unused_of else ()))

    def of_sources(self, parsed: ParsedFile) -> Iterator[ReferenceFinding]:
        """Yield wrong file sources. Source: ENVOY.md E16."""
        if self._names.mentions.sources:
            for resource in parsed.resources:
                for reference in resource.references:
                    if reference.type_url.startswith(IN_FILE) and not reference.is_static:
                        yield from self._wrong_source(resource, reference)

    def is_missing(self, key: Key) -> bool:
        """Whether it is reported; one suffices for an undeclared type."""
        first = self._scope.first.get(key[0], key[1])
        return key in self._names.open.missing and key[0] not in self._scope.unknown and key[1] == first

    def _missing(self, parsed: ParsedFile) -> Iterator[ReferenceFinding]:
        lacking = self._names.open.lacking
        for resource in parsed.resources:
            for reference in resource.references:
                key = (reference.type_url, reference.name)
                if reference.severity is Severity.NOTE or not (
                    key in lacking if reference.is_static else self.is_missing(key)
                ):
                    continue
                may_be_elsewhere = not declares(reference.type_url, self._scope.declared, self._names.static)
                hint = self._scope.hints.get(key)
                fact, remedy = missing_message(reference, hint, may_be_elsewhere=may_be_elsewhere)
                severity: Severity = reference.severity
                if reference.is_static and self._names.static.of(reference.type_url) is None:
                    severity = Severity.WARNING
                elif not reference.is_static and may_be_elsewhere:
                    severity = Severity.NOTE  # all resources of an undeclared type may come from elsewhere
                fault = Fault(rule_of(reference), fact, remedy, reference.field_path, severity=severity)
                yield ReferenceFinding(resource, fault)

    def _unused(self, parsed: ParsedFile) -> Iterator[ReferenceFinding]:
        unmentioned = self._names.open.unmentioned
        for resource in parsed.resources:
            if resource.type_url in self._scope.unused_of and key_of(resource) in unmentioned and resource.name != ANY:
                referent = REFERENTS[resource.type_url]
                fact = f'no resource in this tree uses {referent.words} "{resource.name}"'
                fault = Fault(referent.unused, fact, "remove it, or use it", severity=Severity.NOTE)
                yield ReferenceFinding(resource, fault)

    def _wrong_source(self, resource: Resource, reference: Reference) -> Iterator[ReferenceFinding]:
        path, _, name = reference.name.partition("\n")
        type_url = TypeUrl(reference.type_url.removeprefix(IN_FILE))
        source, depth = self._longest_end(PurePosixPath(path))
        if source is None or name == ANY or type_url not in source.declared or not source.is_good:
            return
        # A file with just the same name may be another one.
        severity = Severity.ERROR if depth > 1 else Severity.WARNING
        words = _source_message(source, type_url, name)
        if words is not None:
            fault = Fault("wrong-file-source", *words, reference.field_path, severity=severity)
            yield ReferenceFinding(resource, fault)

    def _longest_end(self, path: PurePosixPath) -> tuple[ParsedFile | None, int]:
        parts = path.parts
        for start in range(len(parts)):
            source = self._file_at(PurePosixPath(*parts[start:]))
            if source is not None:
                return source, len(parts) - start
        return None, 0


def declares(type_url: TypeUrl, declared: Collection[TypeUrl], static: StaticNames) -> bool:
    """Whether the tree declares a type."""
    return type_url in declared or (type_url == CLUSTER and static.clusters is not None)


def _source_message(source: ParsedFile, type_url: TypeUrl, name: str) -> tuple[str, str] | None:
    present = source.resources
    noun = BY_TYPE_URL[type_url].noun
    if len(present) > 1:
        message = f"{source.path} holds {len(present)} resources; Envoy takes one from a file that {noun} come from"
        return message, f'give "{name}" a file of its own'
    if present and present[0].name != name:
        message = f'{source.path} holds "{present[0].name}"; Envoy expects "{name}" there'
        return message, "name the file that holds it"
    return None


_DEMANDED = frozenset(referent.missing for type_url, referent in REFERENTS.items() if type_url not in MAY_BE_REMOTE)


def with_undefined_names(problems: Iterable[Problem], settings: Settings) -> tuple[Problem, ...]:
    """Set severities from before the tree is served."""
    if settings.references != "hold":
        return tuple(problems)
    demanded = _DEMANDED - (settings.rules or {}).keys()
    return tuple(
        replace(one, severity=Severity.ERROR) if one.rule in demanded and one.severity is Severity.WARNING else one
        for one in problems
    )
