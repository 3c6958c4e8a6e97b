"""Finds the targets of locators, redirects, and references with alternatives. Pure.

| rule | source |
| --- | --- |
| Alternatives are tried in order, if the target before does not exist; a note names the one that counts. | xRFC TP1, "Resource locators" |
| `#entry=` is an inline entry of a list collection. | xRFC TP1, "List collections" |
| A folder's collection has the listeners in it and below as entries, inline or as locators. | fsxds |
| A path that ends with `/*` means the resources in that directory, not deeper. | xRFC TP1, "Glob" |
| `file:///...` is a file of the loaded tree; no other can be read. | xRFC TP1, "Filesystem transport" |
| A structured name of no authority, or the tree's, also finds the plain name of its path. | |
| A redirect is followed to a resource that is none; its content is served under the requested name. | xRFC TP1, "Redirects" |
| The content has the requested name, which Envoy compares; endpoints stay the target's. | ENVOY.md E43 |
| A redirect that dangles, loops, or leads too far keeps its name's last content. | |
| Its former target may be removed. | |
| So does one whose copy claims the same as another resource, such as an address: Envoy would reject both. | |
| If no target of a reference exists, the first counts. | |
| References get names without directives, which Envoy would request as part of the name. | ENVOY.md E72 |

Rules: a locator never leads out of the tree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TypeAlias

from google.protobuf.message import DecodeError

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.model.name_table import Chunk
from fsxds.model.resource_names import ENTRY_NAME, FileName, Locator, MalformedName, ResourceName, parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL
from fsxds.model.resources import Key, Reference, Resource, Rows, Snapshot, claims_of, version_of_body
from fsxds.model.values import Problem, Severity, TypeUrl
from fsxds.settings.naming_rules import NO_RULES, CollectionRule
from fsxds.snapshots import names
from fsxds.snapshots.loaded_views import has_directives, locates
from fsxds.snapshots.names import VIRTUAL_HOST, NameWriter
from fsxds.snapshots.redirect_payloads import COLLECTION

Place: TypeAlias = Key | PurePosixPath
"""A place of a search: a name of a type, a file, or a directory."""


@dataclass(frozen=True, slots=True)
class NotThere:
    """The target does not exist.

    `reason` ends a sentence about the locator; `authority` is empty for ours.
    """

    reason: str
    authority: str = ""


Found: TypeAlias = Resource | tuple[Resource, ...] | NotThere
"""A resource, or the members of a glob in the order of names."""


class Resolver:
    """Finds resources of one snapshot.

    `root` is the tree's absolute path, empty if no file can be found. Without `catalogue`, list collections have no entries.
    `folders` has list collections not yet in the snapshot; `looked_at` grows with each search.
    """

    def __init__(
        self, snapshot: Snapshot, authority: str = "", root: str = "", catalogue: Catalogue | None = None
    ) -> None:
        self._snapshot = snapshot
        self._authority = authority
        self._root = PurePosixPath(root) if root else None
        self._catalogue = catalogue
        self.folders: Mapping[str, CollectionRule] = {}
        self.looked_at: set[Place] = set()

    def find(self, locator: Locator, type_url: TypeUrl) -> Found:
        """Return the first existing target, else the first reason."""
        reason: NotThere | None = None
        for choice in locator.choices():
            found = self.find_choice(choice, type_url)
            if not isinstance(found, NotThere):
                return found
            reason = reason or found
        return reason or NotThere("leads nowhere")

    def find_choice(self, choice: Locator, type_url: TypeUrl) -> Found:
        """Return one choice's target; add searched places to `looked_at`."""
        if isinstance(choice.target, FileName):
            return self._in_files(choice.target, choice.entry, type_url)
        if not choice.entry:
            return self._named(choice.target, type_url)
        of_list = self._named(choice.target, TypeUrl(type_url + COLLECTION))
        if isinstance(of_list, NotThere) and str(choice.target) in self.folders:
            return self._in_folder(self.folders[str(choice.target)], choice.entry, type_url)
        return self._entry(of_list, choice.entry, type_url) if isinstance(of_list, Resource) else of_list

    # Names

    def _named(self, name: ResourceName, type_url: TypeUrl) -> Found:
        if name.type_url != type_url:
            return NotThere(f"is of the type {name.message_type}")
        rows, text = self._snapshot.resources(type_url), str(name)
        self.looked_at.add((type_url, text))
        if name.is_glob:
            directory = text.partition("?")[0].removesuffix("*")
            members = tuple(row for _, row in rows.starting_with(directory) if collection_of(row) == text)
            return members or self._absent(name)
        found = rows.get(text)
        if found is None and not name.context and name.authority in {"", self._authority}:
            self.looked_at.add((type_url, name.path))
            found = rows.get(name.path)
        return found or self._absent(name)

    def _absent(self, name: ResourceName) -> NotThere:
        if name.authority in {"", self._authority}:
            return NotThere("which is the name of no resource" if not name.is_glob else "which has no resource")
        return NotThere(f"of the authority {name.authority}", name.authority)

    # Inline entries

    def _entry(self, of_list: Resource, entry: str, type_url: TypeUrl) -> Found:
        packed = None if self._catalogue is None else _packed_entry(of_list, entry, self._catalogue)
        if packed is None:
            return NotThere(f"but {of_list.origin} has no inline entry {entry}")
        found_type, body = packed
        if found_type != type_url:
            return NotThere(f"but the entry {entry} at {of_list.origin} is of another type")
        return Resource(type_url, entry, body, version_of_body(type_url, body), of_list.origin)

    def _in_folder(self, rule: CollectionRule, entry: str, type_url: TypeUrl) -> Found:
        if not rule.is_inline:
            return NotThere(f"but the collection of the folder {rule.folder} has locators, and no inline entries")
        self.looked_at.add(PurePosixPath(rule.folder))
        members = resources_below(rule.folder, self._snapshot.resources(type_url))
        found = next((member for member in members if entry_name_of(member.name) == entry), None)
        return found or NotThere(f"but no listener in the folder {rule.folder} has this name")

    # Files

    def _in_files(self, file: FileName, entry: str, type_url: TypeUrl) -> Found:
        path = PurePosixPath(file.path)
        if self._root is None or not path.is_relative_to(self._root) or ".." in path.parts:
            return NotThere("which is outside of the tree")
        path = path.relative_to(self._root)
        if file.is_glob:
            self.looked_at.add(path.parent)
            rows = self._snapshot.resources(type_url)
            by_path = (each for chunk in rows.chunks for each in sorted(chunk.once(names_by_path).items()))
            members = tuple(rows[name] for at, names in by_path if at.parent == path.parent for name in names)
            return members or NotThere("which has no loaded resource of this type")
        self.looked_at.add(path)
        here = tuple(self._of_file(path, type_url))
        if entry:
            lists = tuple(self._of_file(path, TypeUrl(type_url + COLLECTION)))
            if len(lists) == 1:
                return self._entry(lists[0], entry, type_url)
            here = tuple(one for one in here if one.name == entry)
            if not here:
                return NotThere(f"which has no entry {entry}")
        if len(here) == 1:
            return here[0]
        several = f"which holds {len(here)} of this type; add #entry=<name> to name one"
        return NotThere(several if here else "which has no loaded resource of this type")

    def _of_file(self, path: PurePosixPath, type_url: TypeUrl) -> Iterator[Resource]:
        rows = self._snapshot.resources(type_url)
        for chunk in rows.chunks:
            yield from (rows[name] for name in chunk.once(names_by_path).get(path, ()))


def entry_name_of(name: str) -> str:
    """Return an entry name in a folder's collection, or an empty text."""
    structured = parse_or_none(name)
    path = structured.path if structured else name
    return path if ENTRY_NAME.fullmatch(path) else ""


def resources_below(folder: str, rows: Rows) -> Iterator[Resource]:
    """Return the resources of files below a folder, by name."""
    top = PurePosixPath(folder)
    by_path = (each for chunk in rows.chunks for each in chunk.once(names_by_path).items())
    names = sorted(name for path, several in by_path if top in path.parents for name in several)
    return (rows[name] for name in names)


def names_by_path(chunk: Chunk[Resource]) -> Mapping[PurePosixPath, tuple[str, ...]]:
    """Return the names in a chunk, by file."""
    found: defaultdict[PurePosixPath, list[str]] = defaultdict(list)
    for name, resource in zip(chunk.names, chunk.values, strict=True):
        found[resource.origin.path].append(name)
    return {path: tuple(names) for path, names in found.items()}


def _packed_entry(of_list: Resource, entry: str, catalogue: Catalogue) -> tuple[TypeUrl, bytes] | None:
    row = BY_TYPE_URL.get(of_list.type_url)
    if row is None:
        return None
    try:
        message: DynamicMessage = catalogue.message_class(row.message_type).FromString(of_list.body)
    except DecodeError:
        return None
    for each in message.entries:
        if each.HasField("inline_entry") and each.inline_entry.name == entry:
            return TypeUrl(each.inline_entry.resource.type_url), bytes(each.inline_entry.resource.value)
    return None


def places_of(resource: Resource) -> Iterator[Place]:
    """Yield a resource's name, glob, file and all directories."""
    yield resource.type_url, resource.name
    if glob := collection_of(resource):
        yield resource.type_url, glob
    yield resource.origin.path
    yield from resource.origin.path.parents


MOST_FOLLOWED = 10
"""The maximum number of successive redirects."""

MOST_TRIED = 100
"""The maximum number of locators looked up for one redirect, with the alternatives of its targets."""

_EDS = 3  # envoy.config.cluster.v3.Cluster.DiscoveryType
_CLUSTER = BY_SHORT_NAME["cds"]


@dataclass(frozen=True, slots=True)
class Followed:
    """A redirect's target, or a resource with names in place of locators.

    Attributes:
        redirect: as read.
        looked_at: the places searched: only changes there matter.
        is_elsewhere: a known authority owns the target, or an upstream may have it.
        is_kept: `content` is the name's last.
    """

    redirect: Resource
    target: Resource | None
    content: Resource | None
    problems: tuple[Problem, ...]
    looked_at: frozenset[Place]
    is_elsewhere: bool = False
    is_kept: bool = False

    @property
    def claims(self) -> frozenset[Key]:
        """Exclusive keys; none without redirect."""
        return claims_of(self.content) if self.content is not None and self.redirect.redirect else frozenset()


@dataclass(frozen=True, slots=True)
class _Failure:
    """With `may_be_upstream` the target may exist, on an upstream not queried here."""

    rule: str
    fact: str
    remedy: str
    authority: str = ""
    may_be_upstream: bool = False


class RedirectFollower:
    """Follows the redirects and locators of one snapshot.

    With `passes_redirects`, clients on streams follow redirects themselves. `authorities` are at known places. Names of
    `unasked` authorities may exist on upstreams not queried here; None for all.
    """

    def __init__(
        self, resolver: Resolver, copier: Copier, authorities: frozenset[str], *, passes_redirects: bool
    ) -> None:
        self.unasked: frozenset[str] | None = frozenset()
        self._passes_redirects = passes_redirects
        self._resolver = resolver
        self._copier = copier
        self._authorities = authorities
        self._tried = 0
        self._notes: list[tuple[Resource, str]] = []

    def follow(self, redirect: Resource) -> Followed:
        """Return a redirect's target."""
        self._resolver.looked_at, self._tried, self._notes = set(), 0, []
        found = self._end_of((redirect,)) if redirect.redirect else redirect
        if isinstance(found, Resource):
            content = self._copier.copy(redirect, found) if redirect.redirect else redirect
            notes = tuple(_note(redirect, at, fact) for at, fact in self._notes)
            if locates(content):
                content, more = located(content, self._name_at, self._copier.catalogue)
                notes += more
            return Followed(redirect, found, content, notes, frozenset(self._resolver.looked_at))
        looked_at = frozenset(self._resolver.looked_at)
        if found.may_be_upstream:
            return Followed(redirect, None, None, (), looked_at, is_elsewhere=True)
        is_elsewhere = bool(found.authority) and (self._passes_redirects or found.authority in self._authorities)
        problem = (
            self._elsewhere(redirect, found.fact)
            if is_elsewhere
            else _at(redirect, found.rule, found.fact, found.remedy, Severity.ERROR)
        )
        return Followed(redirect, None, None, (problem,), looked_at, is_elsewhere)

    def _name_at(self, choice: Locator, type_url: TypeUrl) -> str | None:
        """None for an entry, too."""
        found = None if choice.entry else self._resolver.find_choice(choice, type_url)
        if isinstance(found, tuple):
            return str(choice.target)
        if found is None or isinstance(found, NotThere):
            return None
        self._tried = 0
        is_there = not found.redirect or isinstance(self._end_of((found,)), Resource)
        return found.name if is_there else None

    def _elsewhere(self, redirect: Resource, fact: str) -> Problem:
        remedy = "over HTTP its clients are sent there; for all others add the resource, or an alternative by #alt="
        severity = Severity.WARNING
        if self._passes_redirects:
            remedy, severity = "clients follow it; add the resource to the tree for clients that cannot", Severity.NOTE
        return _at(redirect, "redirect-elsewhere", fact, remedy, severity)

    def _end_of(self, trail: tuple[Resource, ...]) -> Resource | _Failure:
        first: _Failure | None = None
        for choice in Locator.parse(trail[-1].redirect).choices():
            self._tried += 1
            if self._tried > MOST_TRIED:
                return first or _too_many(trail)
            found = self._at(choice, trail)
            if isinstance(found, Resource):
                if first is not None and not first.may_be_upstream:
                    self._notes.append((trail[-1], f"uses the alternative {choice}: otherwise it {first.fact}"))
                return found
            first = first or found
        return first or _too_many(trail)

    def _at(self, choice: Locator, trail: tuple[Resource, ...]) -> Resource | _Failure:
        found = self._resolver.find_choice(choice, trail[0].type_url)
        if isinstance(found, NotThere):
            may_be_upstream = not (isinstance(choice.target, FileName) or choice.entry) and (
                self.unasked is None or choice.target.authority in self.unasked
            )
            return replace(_missing_target(choice, trail, found), may_be_upstream=may_be_upstream)
        if isinstance(found, tuple):
            fact = f"leads{_by_way_of(trail)} to {choice}, which is a collection"
            remedy = "write the name of one resource: collections cannot be redirected to"
            return _Failure("dangling-redirect", fact, remedy)
        if not found.redirect:
            return found
        if any(found is step for step in trail):
            fact = f'leads{_by_way_of(trail)} back to "{found.name}" at {found.origin}'
            return _Failure("redirect-loop", fact, "let one of them lead to a resource that is no redirect")
        if len(trail) >= MOST_FOLLOWED:
            fact = f"leads over more than {MOST_FOLLOWED} redirects, the last one at {trail[-1].origin}"
            return _Failure("redirect-loop", fact, "let it lead to the resource itself")
        return self._end_of((*trail, found))


class Copier:
    """Makes the content of redirects."""

    def __init__(self, catalogue: Catalogue, field_rules: FieldRules) -> None:
        self.catalogue = catalogue
        self._field_rules = field_rules

    def copy(self, redirect: Resource, target: Resource) -> Resource:
        """Return a target's content under the redirect's name."""
        row = BY_TYPE_URL[redirect.type_url]
        message: DynamicMessage = self.catalogue.message_class(row.message_type).FromString(target.body)
        if row is _CLUSTER and message.WhichOneof("cluster_discovery_type") == "type" and message.type == _EDS:
            # By default endpoints are those of the cluster's own name.
            message.eds_cluster_config.service_name = message.eds_cluster_config.service_name or message.name
        if row.name_field is not None:
            setattr(message, row.name_field, redirect.name)
        body = message.SerializeToString(deterministic=True)
        used, aliases = tuple(self._field_rules.check(message).references), redirect.aliases
        if row is VIRTUAL_HOST:
            used += tuple(names.claims_of(redirect.name, message, aliases))
            aliases = names.aliases_of(redirect.name, message, aliases)
        return replace(
            redirect,
            body=body,
            version=version_of_body(redirect.type_url, body),
            aliases=aliases,
            ttl_s=target.ttl_s if redirect.ttl_s is None else redirect.ttl_s,
            # The target is removed only after users of this copy have moved on.
            references=(*used, *redirect.references, _mention(redirect.type_url, target.name)),
        )


def kept_content(redirect: Resource, last: Resource) -> Resource:
    """Drop the reference to the last target."""
    used = (one for one in last.references if one.field_path or one != _mention(redirect.type_url, one.name))
    references = (*used, *redirect.references)
    return replace(last, origin=redirect.origin, redirect=redirect.redirect, references=references)


def _mention(type_url: TypeUrl, name: str) -> Reference:
    return Reference(type_url, name, (), Severity.NOTE)


def collection_of(resource: Resource) -> str:
    """Return the collection of a resource, if any."""
    name = parse_or_none(resource.name)
    return "" if name is None else str(name.glob)


# Problems

_NAME_IT = "add the first choice, or name the alternative in its place"


def _by_way_of(trail: tuple[Resource, ...]) -> str:
    steps = ", ".join(f'"{step.name}" at {step.origin}' for step in trail[1:])
    return f" by way of {steps}" if steps else ""


def _missing_target(choice: Locator, trail: tuple[Resource, ...], absent: NotThere) -> _Failure:
    fact = f"leads{_by_way_of(trail)} to {choice}, {absent.reason}"
    remedy = "add that resource, or write the name of another one"
    if isinstance(choice.target, FileName):
        remedy = "write the path of a file of the tree that has one resource of this type, or the name of a resource"
    elif absent.authority:
        remedy = "give its URL in the setting `authorities`, add that resource to the tree, or an alternative by #alt="
    return _Failure("dangling-redirect", fact, remedy, absent.authority)


def _too_many(trail: tuple[Resource, ...]) -> _Failure:
    fact = f"leads to more than {MOST_TRIED} locators, the last ones at {trail[-1].origin}"
    return _Failure("redirect-loop", fact, "write fewer alternatives")


def conflict(redirect: Resource, target: Resource, other: Resource, *, is_apart: bool) -> Problem:
    """Report equal claims; `is_apart`: the other is in another collection."""
    fact = (
        f'leads to "{target.name}" at {target.origin}, and would share with '
        f'"{other.name}" at {other.origin} an address or a domain'
    )
    if is_apart:
        remedy = "clients must not subscribe to both: one collection each is fine, all of the type is not"
        return _at(redirect, "redirect-conflict", fact, remedy, Severity.WARNING)
    remedy = "remove the redirect, or define its target as an inline entry of a collection instead of in a file"
    return _at(redirect, "redirect-conflict", fact, remedy, Severity.ERROR)


def _note(redirect: Resource, at: Resource, fact: str) -> Problem:
    place = "" if at is redirect else f' (at "{at.name}" at {at.origin})'
    return _at(redirect, "redirect-alternative", f"{fact}{place}", _NAME_IT, Severity.NOTE)


def _at(redirect: Resource, rule: str, fact: str, remedy: str, severity: Severity) -> Problem:
    message = f'the redirect of {BY_TYPE_URL[redirect.type_url].message_name} "{redirect.name}" {fact}'
    return redirect.origin.problem(rule, message, remedy, severity)


FindName: TypeAlias = Callable[[Locator, TypeUrl], str | None]
"""Returns the clients' name of a locator's target, without alternatives; None if there is no target."""


def located(resource: Resource, find: FindName, catalogue: Catalogue) -> tuple[Resource, tuple[Problem, ...]]:
    """Replace locators by names; note each alternative used."""
    chosen: dict[str, str] = {}
    notes = []
    for reference in filter(has_directives, resource.references):
        if reference.name in chosen:
            continue
        choices = _choices(reference.name)
        names = (find(choice, reference.type_url) for choice in choices)
        at, name = next(((at, name) for at, name in enumerate(names) if name), (0, ""))
        chosen[reference.name] = name or (str(choices[0].target) if choices else reference.name)
        if at:
            noun = BY_TYPE_URL[resource.type_url].message_name
            fact = f'{noun} "{resource.name}" uses the alternative {name}, because {choices[0].target} is not there'
            notes.append(resource.origin.problem("redirect-alternative", fact, _NAME_IT, Severity.NOTE))
    row = BY_TYPE_URL[resource.type_url]
    message = catalogue.message_class(row.message_type).FromString(resource.body)
    _NameChooser(catalogue, chosen).rewrite(message)
    body = message.SerializeToString(deterministic=True)
    references = tuple(one._replace(name=chosen.get(one.name, one.name)) for one in resource.references)
    version = version_of_body(resource.type_url, body)
    return replace(resource, body=body, version=version, references=references), tuple(notes)


class _NameChooser(NameWriter):
    def __init__(self, catalogue: Catalogue, chosen: Mapping[str, str]) -> None:
        super().__init__(catalogue, NO_RULES, PurePosixPath())
        self._chosen = chosen

    def _written(self, text: str) -> str:
        return self._chosen.get(text, text)


def _choices(text: str) -> tuple[Locator, ...]:
    try:
        return tuple(Locator.parse(text).choices())
    except MalformedName:
        return ()  # its file was reported, and an author may have the rule off
