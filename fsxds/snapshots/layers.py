"""Loads a layer on top of the layers below it, which views share.

The layers below are a `Loaded`, and the layer is one change of it: its files appear, and the files below are projected
without the resources that it replaces. So the rules of acceptance apply as in a tree, at the cost of the layer. A file
below counts with its present content if that is good by itself, else with its last good content.

Only if the layer is held back by that, it is loaded on top of its previous result. A held file then replaces the
resources of its last good content.

A patched resource is accepted, held back, and kept with the file that patches it. Its problems are those of that file;
in a field written below, they are shown there (`Problem.elsewhere`).

Rules: a later layer wins; a held resource overrides none.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from pathlib import PurePosixPath

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import shown_pointer
from fsxds.api.merge_patch import PatchMerger
from fsxds.api.printing import Printer
from fsxds.formats.decoded import PlainDocument
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Document, Key, LayerEdit, Origin, ParsedFile, Patched, Resource, key_of
from fsxds.model.values import (
    Fault,
    FieldPath,
    HeldFile,
    OverlaidTree,
    PlainValue,
    Problem,
    ProjectedFile,
    Severity,
    SourceFile,
    SourceTree,
    TypeUrl,
    pointer_of,
)
from fsxds.settings.naming_rules import NO_RULES, NamingRules
from fsxds.snapshots import names
from fsxds.snapshots.document import DocumentReader
from fsxds.snapshots.layer_documents import edit_problem, nothing_below
from fsxds.snapshots.load import Acceptance, Loaded, following, load, may_define
from fsxds.snapshots.parse import tools_for
from fsxds.snapshots.proposals import Check, FieldLocator, FileRecord, differing, problem_at


@dataclass(frozen=True, slots=True)
class LayerFiles:
    """One layer's files, sorted by path."""

    files: tuple[SourceFile, ...] = ()
    problems: tuple[Problem, ...] = ()
    parsed: Mapping[PurePosixPath, ParsedFile] = field(default_factory=dict)

    def is_same(self, other: LayerFiles) -> bool:
        """Compare layers, by identity of files."""
        return (
            (self.files, self.problems) == (other.files, other.problems)
            and self.parsed.keys() == other.parsed.keys()
            and all(map(is_, self.parsed.values(), other.parsed.values()))
        )

    @property
    def is_good(self) -> bool:
        """Whether each file is good alone."""
        are_readable = not any(problem.severity is Severity.ERROR for problem in self.problems)
        return are_readable and all(parsed.is_good for parsed in self.parsed.values())


@dataclass(frozen=True, slots=True)
class LoadedLayer:
    """A layer loaded on top of others.

    `bare` is `loaded` without the problems of `carried` files below. `added` and `removed` are the differences from the
    problems below.
    """

    loaded: Loaded
    bare: Loaded
    below: LoadedLayer | None
    layer: LayerFiles
    carried: Mapping[PurePosixPath, Carried]
    added: tuple[Problem, ...]
    removed: tuple[Problem, ...]


def load_layer(
    below: LoadedLayer | None, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
) -> LoadedLayer:
    """`below` is None for the lowest layer; `before` is the previous result."""
    if below is None:
        tree = SourceTree(layer.files, layer.problems)
        bare = load(
            tree, before.bare if before else None, lambda files: [layer.parsed[file.path] for file in files], acceptance
        )
        return LoadedLayer(bare, bare, None, layer, {}, bare.problems, ())
    done = _with_edits_done(below.bare, layer, before, acceptance)
    bare, projection = _LayerLoad(below, done, before, acceptance).load()
    carried = {**below.carried, **projection.carried}
    loaded = with_carried(bare, carried)
    removed, added = differing(below.loaded.problems, loaded.problems)
    return LoadedLayer(loaded, bare, below, layer, carried, added, removed)


def _with_edits_done(
    below: Loaded, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
) -> LayerFiles:
    patching, edited = acceptance.patching, [parsed for parsed in layer.parsed.values() if parsed.edits]
    if patching is None or not edited or below.memory is None:
        return layer
    bases = resources_below(below, (edit.key for parsed in edited for edit in parsed.edits))
    may_exist = may_exist_below(below)
    digests = {parsed.path: digest_of_done(parsed, bases, may_exist) for parsed in edited}
    files = {
        file.path: ProjectedFile(file, digests[file.path]) if file.path in digests else file for file in layer.files
    }
    locator = FieldLocator(OverlaidTree(below.memory.tree, files), acceptance.locate_up_to_bytes)
    parsed = dict(layer.parsed)
    for each in edited:
        known = before.bare.records.get(each.path) if before else None
        if known is None or known.parsed is None or known.parsed.digest != digests[each.path]:
            parsed[each.path] = patching.done(each, bases, may_exist, locator)
        else:
            parsed[each.path] = known.parsed
    return LayerFiles(tuple(files.values()), layer.problems, parsed)


@dataclass(slots=True)
class _Assumed:
    """Corrections of the assumption that every good file of the layer is served.

    Attributes:
        own: the served content of the layer's files.
        below: files below with held content, so that only served content can be projected.
    """

    own: dict[PurePosixPath, ParsedFile | None] = field(default_factory=dict)
    below: set[PurePosixPath] = field(default_factory=set)


class _LayerLoad:
    def __init__(
        self, below: LoadedLayer, layer: LayerFiles, before: LoadedLayer | None, acceptance: Acceptance
    ) -> None:
        self._below = below
        self._layer = layer
        self._before = before
        self._acceptance = acceptance
        earlier = before.layer.files if before else ()
        self._paths = {file.path for file in (*layer.files, *earlier)}
        self._below_held = {file.path for file in below.bare.held}

    def load(self) -> tuple[Loaded, Projection]:
        # With authored versions, the layer below would be the same version with other content.
        shared = None if self._acceptance.authored_versions else self._below.bare
        if self._before is None:
            return self._settled(shared)
        if shared is not None and self._layer.is_good:
            loaded, projection = self._attempt(shared, _Assumed())
            if self._below_held.issuperset(file.path for file in loaded.held):
                old_below = self._before.below.bare if self._before.below else self._before.bare
                below = self._below.bare.snapshot, old_below.snapshot
                return following(loaded, self._before.bare, below), projection
        return self._settled(self._before.bare)

    def _settled(self, start: Loaded | None) -> tuple[Loaded, Projection]:
        """Repeat until the layer replaces exactly the names it is served with."""
        assumed = _Assumed()
        while True:
            loaded, projection = self._attempt(start, assumed)
            if not self._learn(assumed, loaded, projection, start):
                return loaded, projection

    def _attempt(self, start: Loaded | None, assumed: _Assumed) -> tuple[Loaded, Projection]:
        below = self._below.bare
        keys: set[Key] = set()
        for path in self._paths:
            counted = self._counted(path, assumed, start)
            keys |= keys_of(counted) if counted is not None else frozenset()
        projection = project(below, keys, assumed.below)
        tree_below = below.memory.tree if below.memory else SourceTree(())
        files = {**projection.files, **{file.path: file for file in self._layer.files}}
        problems = tuple(one for one in tree_below.problems if one.path not in projection.files)
        tree = OverlaidTree(tree_below, files, (*problems, *self._layer.problems))

        def parse(changed: tuple[SourceFile, ...]) -> list[ParsedFile]:
            return [self._parsed(file.path, projection) for file in changed]

        return load(tree, start, parse, self._acceptance), projection

    def _parsed(self, path: PurePosixPath, projection: Projection) -> ParsedFile:
        found = projection.parsed.get(path) or self._layer.parsed.get(path)
        if found is None and path in self._below.bare.records:
            found = self._below.bare.records[path].parsed
        if found is None:
            raise LookupError(path)
        return found

    def _counted(self, path: PurePosixPath, assumed: _Assumed, start: Loaded | None) -> ParsedFile | None:
        if path in assumed.own:
            return assumed.own[path]
        parsed = self._layer.parsed.get(path)
        if parsed is not None and parsed.is_good:
            return parsed
        # Applies to a vanished file, too: it may be kept.
        record = start.records.get(path) if start else None
        return None if record is None else record.good

    def _learn(self, assumed: _Assumed, loaded: Loaded, projection: Projection, start: Loaded | None) -> bool:
        below = {path for path in projection.parsed.keys() - assumed.below if loaded.records[path].is_held}
        if below:
            # Their held content may be served beside their last good content.
            assumed.below |= below
            return True
        own: dict[PurePosixPath, ParsedFile | None] = {}
        for path in self._paths - assumed.own.keys():
            record, counted = loaded.records.get(path), self._counted(path, assumed, start)
            served = None if record is None else record.good
            if (served.digest if served else None) != (counted.digest if counted else None):
                own[path] = served
        assumed.own.update(own)
        return bool(own)


@dataclass(frozen=True, slots=True)
class Carried:
    """Problems of a projected file, which no load finds again."""

    held: HeldFile | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Projection:
    """The files below that differ in the layer above.

    `carried` ones are held back, so their served content was projected.
    """

    files: Mapping[PurePosixPath, SourceFile] = field(default_factory=dict)
    parsed: Mapping[PurePosixPath, ParsedFile] = field(default_factory=dict)
    carried: Mapping[PurePosixPath, Carried] = field(default_factory=dict)


def keys_of(parsed: ParsedFile) -> frozenset[Key]:
    """Return a file's replaced, deleted and patched resources."""
    return frozenset((*map(key_of, parsed.resources), *parsed.takes, *(edit.key for edit in parsed.edits)))


def resources_below(below: Loaded, keys: Iterable[Key]) -> Mapping[Key, Resource]:
    """Return resources that `project` takes out."""
    keys = frozenset(keys)
    contents = (_content(below.records[path], is_served=False) for path in _found(below, keys))
    found = (one for content in contents if content is not None for one in content.resources)
    return {key_of(one): one for one in found if key_of(one) in keys}


def without(parsed: ParsedFile, keys: AbstractSet[Key]) -> ParsedFile:
    """Leave out resources; change the digest."""
    text = repr((parsed.digest, sorted(keys)))
    return parsed.with_some(lambda one: key_of(one) not in keys, hashlib.sha256(text.encode()).hexdigest())


def may_exist_below(below: Loaded) -> Callable[[Key], bool]:
    """Test whether a held file may define it."""
    known: set[Key] = set()
    types: set[TypeUrl] = set()
    for path in (file.path for file in below.held):
        held = below.records[path].parsed
        if held is not None:
            known.update(map(key_of, held.resources))
            known.update((one.type_url, one.name) for one in held.unread)
        if held is None or not held.documents:
            types |= may_define(path)
    return lambda key: key in known or key[0] in types


def project(below: Loaded, keys: Collection[Key], as_served: Collection[PurePosixPath]) -> Projection:
    """Take resources out of files.

    `as_served` files count with served content, though their present content is good.
    """
    files: dict[PurePosixPath, SourceFile] = {}
    parsed: dict[PurePosixPath, ParsedFile] = {}
    carried: dict[PurePosixPath, Carried] = {}
    for path, taken in _found(below, keys).items():
        record = below.records[path]
        content = _content(record, is_served=path in as_served)
        if content is None:
            continue
        projected = without(content, taken)
        parsed[path] = projected
        original = below.memory.tree.file_at(path) if below.memory else None
        if content is record.parsed and original is not None:
            files[path] = ProjectedFile(original, projected.digest)
        else:
            # The text has other content, so no place is searched for in it.
            held = next((file for file in below.held if file.path == path), None)
            carried[path] = Carried(held, tuple(problem for problem in below.problems if problem.path == path))
            files[path] = ProjectedFile(SourceFile.of(path, b""), f"served {projected.digest}")
    return Projection(files, parsed, carried)


def _found(below: Loaded, keys: Collection[Key]) -> Mapping[PurePosixPath, set[Key]]:
    found: defaultdict[PurePosixPath, set[Key]] = defaultdict(set)
    for key in keys:
        row = below.snapshot.resources(key[0]).get(key[1])
        if row is not None:
            found[row.origin.path].add(key)
    for path in (file.path for file in below.held) if keys else ():
        held = below.records[path].parsed
        for key in keys_of(held).intersection(keys) if held is not None else ():
            found[path].add(key)
    return found


def _content(record: FileRecord, *, is_served: bool) -> ParsedFile | None:
    is_good = record.parsed is not None and record.parsed.is_good
    return record.parsed if is_good and not (is_served and record.good) else record.good


def with_carried(loaded: Loaded, carried: Mapping[PurePosixPath, Carried]) -> Loaded:
    """Add the problems of carried files."""
    if not carried:
        return loaded
    problems: set[Problem] = set(loaded.problems)
    held = {file.path: file for file in loaded.held}
    for path, row in carried.items():
        problems.update(row.problems)
        if row.held is not None:
            held[path] = row.held
    ordered = tuple(sorted(held.values(), key=lambda file: file.path.parts))
    return replace(loaded, problems=tuple(sorted(problems)), held=ordered)


RESOURCE = "resource"


@dataclass(frozen=True, slots=True)
class PatchedResource:
    """`resource` is None if the result is no message."""

    resource: Resource | None
    origin: Origin
    faults: tuple[Fault, ...]


class Patching:
    """Patches resources, and checks the results."""

    def __init__(
        self, catalogue: Catalogue, unknown_fields: Severity, check: Check, naming: NamingRules = NO_RULES
    ) -> None:
        self._catalogue = catalogue
        self._check = check
        # A patched resource has the parameters of the folder in which it was written.
        self._tools = tools_for(catalogue, unknown_fields, check, replace(naming, contexts=()))
        self._merger = PatchMerger(catalogue)
        self._printer = Printer(catalogue)

    def done(
        self,
        parsed: ParsedFile,
        bases: Mapping[Key, Resource],
        may_exist: Callable[[Key], bool],
        locator: FieldLocator,
    ) -> ParsedFile:
        """Apply all edits of a file.

        `bases` are the existing resources that it edits; others `may_exist` in a broken file below. `locator` finds this file
        by its new digest, `digest_of_done`.
        """
        digest = digest_of_done(parsed, bases, may_exist)
        problems = [*parsed.problems, *nothing_below(parsed, bases, self._check.adjusted, may_exist)]
        documents = []
        for document in parsed.documents:
            made = [self._patched(bases[edit.key], edit) for edit in document.edits if edit.patch and edit.key in bases]
            for each in made:
                wanted = [(each.origin, fault.field_path) for fault in each.faults]
                places = locator.places(replace(parsed, digest=digest), wanted)
                for fault, place in zip(each.faults, places, strict=True):
                    pointer = partial(self._pointer, fault.message, each.origin.field_path)
                    problems.append(problem_at(place, fault, pointer))
            resources = tuple(each.resource for each in made if each.resource is not None)
            problems += self._unchanged(document, resources, bases)
            declared = document.declared | {resource.type_url for resource in resources}
            documents.append(
                replace(document, resources=(*document.resources, *resources), declared=declared, edits=())
            )
        takes = frozenset(edit.key for edit in parsed.edits if edit.key in bases)
        ordered = tuple(sorted(problems))
        return replace(parsed, digest=digest, documents=tuple(documents), problems=ordered, takes=takes)

    def _patched(self, base: Resource, edit: LayerEdit) -> PatchedResource:
        if base.redirect:
            fact = f"the patched resource is a redirect, at {base.origin}: it has no content of its own"
            of_redirect = Fault("malformed-redirect", fact, f"patch its target, {base.redirect}")
            return PatchedResource(None, edit.origin, (of_redirect,))
        row = BY_TYPE_URL[base.type_url]
        message = self._catalogue.message_class(row.message_type).FromString(base.body)
        merged = self._merger.merge(self._printer.to_plain(message), edit.patch or {}, row.message_type)
        around: dict[str, PlainValue] = {"name": base.name, "aliases": [*_authored_aliases(base, message)]}
        if base.ttl_s is not None:
            around["ttl"] = f"{base.ttl_s:.9f}s"
        document = PlainDocument({**around, RESOURCE: {"@type": base.type_url, **merged.value}}, edit.origin.line)
        draft = DocumentReader(self._tools, edit.origin.path, document, None).read(edit.origin.document)
        # Faults of the wrapper are those of the layer below.
        found = (
            replace(one, field_path=one.field_path[1:]) for one in draft.faults if one.field_path[:1] == (RESOURCE,)
        )
        faults = tuple(fault for one in found if (fault := self._check.adjusted(one)) is not None)
        origin = replace(edit.origin, patched=Patched(base.origin, merged.sources))
        resource = replace(draft.resources[0], origin=origin) if draft.resources else None
        return PatchedResource(resource, origin, faults)

    def _pointer(self, message: str, known: FieldPath, field_path: FieldPath) -> str:
        """A resource's name may be shown, as it leads to a patch."""
        if field_path[: len(known)] != known:
            return shown_pointer(field_path, message, self._catalogue)
        rest = shown_pointer(field_path[len(known) :], message, self._catalogue)
        return pointer_of(known) + ("." if rest[:1].isalnum() else "") + rest

    def _unchanged(
        self, document: Document, patched: tuple[Resource, ...], bases: Mapping[Key, Resource]
    ) -> Iterator[Problem]:
        after = {(resource.type_url, resource.name): resource for resource in patched}
        for edit in document.edits:
            resource, base = after.get(edit.key), bases.get(edit.key)
            is_empty = edit.patch is not None and not edit.patch and base is not None
            if is_empty or (resource is not None and base is not None and resource.equals_for_clients(base)):
                noun = BY_TYPE_URL[edit.type_url].noun
                fact = f'the patch changes nothing of "{edit.name}" of the {noun} below'
                problem = self._check.adjusted(
                    edit_problem(edit, "patch-without-effect", fact, "remove it", Severity.WARNING)
                )
                if problem is not None:
                    yield problem


def digest_of_done(parsed: ParsedFile, bases: Mapping[Key, Resource], may_exist: Callable[[Key], bool]) -> str:
    """Return a file's digest after its edits."""
    found: list[tuple[Key, object]] = []
    for edit in parsed.edits:
        base = bases.get(edit.key)
        text = None if base is None else (base.version, base.ttl_s, base.aliases, str(base.origin))
        found.append((edit.key, text or may_exist(edit.key)))
    return hashlib.sha256(repr((parsed.digest, found)).encode()).hexdigest()


def _authored_aliases(base: Resource, message: Message) -> tuple[str, ...]:
    if base.type_url != names.VIRTUAL_HOST.type_url:
        return base.aliases
    made = names.aliases_of(base.name, message, ())
    return tuple(alias for alias in base.aliases if alias not in made)
