"""Decides a snapshot's files, with config sources that point at files, and stand-ins.

Envoy reads list collections from files with all listeners inline, and silently skips locators; a collection of only
these removes every listener (ENVOY.md E80). So a locator's resource is written in its place; an empty result is not.

The layout `resources` has one `Resource` per file, at its name's path: `xdstp://<own authority>/<type>/foo/bar` is `<type>/foo/bar.yaml`, and so is the type's plain name `foo/bar`, as in
URLs. Other authorities are in `@<authority>/<type>/...`. Source: xRFC TP1, "File transport".
Envoy reads none of these, except lists (ENVOY.md E88).

Rules: the content of the file of a list collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.locator_messages import locator_of
from fsxds.api.walk import addresses_taken
from fsxds.events.file_events import Remark
from fsxds.model.memo import Recent
from fsxds.model.name_table import version_of_set
from fsxds.model.resource_names import Locator, MalformedName, ResourceName, parse_or_none
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_SHORT_NAME, BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Key, Origin, Resource, Snapshot, version_of_body
from fsxds.model.values import TypeUrl, Version
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.transports.config_sources import (
    API_V3,
    CDS,
    ECDS,
    EDS,
    RDS,
    SRDS,
    WITH_CONFIG_SOURCES,
    ConfigSourceFinder,
    RequestedResources,
    eds_name_of,
)
from fsxds.transports.mirror.files import (
    BUNDLES,
    COLLECTIONS,
    FORMS,
    SINGLES,
    Held,
    Layout,
    MirrorFile,
    MirrorPaths,
    file_name_of,
    united,
)

LISTENER = BY_SHORT_NAME["lds"]
COLLECTION = BY_SHORT_NAME["lcds"]

FindListeners = Callable[[Locator], "tuple[Resource, ...] | str"]
"""Returns a locator's listeners, at most one unless it is a glob; or why there are none.
"""

ListenerFinder = Callable[[Snapshot], FindListeners]
"""Returns a snapshot's function to find listeners."""


@dataclass(frozen=True, slots=True)
class InlinedCollection:
    """A list collection without locators, with its inlined content's version.

    `left_out` has reasons; `is_void`: no entry of the author is left: Envoy would remove all listeners.
    """

    resource: Resource
    left_out: tuple[str, ...] = ()
    is_void: bool = False


def by_name(snapshot: Snapshot) -> FindListeners:
    """Find listeners by their names alone."""
    rows = snapshot.resources(LISTENER.type_url)

    def find(locator: Locator) -> tuple[Resource, ...] | str:
        found = (rows.get(str(choice.target)) for choice in locator.choices() if not choice.entry)
        return next(((one,) for one in found if one is not None), f"leads to {locator}, which is not there")

    return find


def inlined(catalogue: Catalogue, collection: Resource, find: FindListeners) -> InlinedCollection:
    """Replace a collection's locators by listeners, the first per name and address.

    For two with the same, Envoy rejects the collection, yet removes all further ones (ENVOY.md E56, E80).
    """
    message: DynamicMessage = catalogue.message_class(COLLECTION.message_type).FromString(collection.body)
    if not any(entry.HasField("locator") for entry in message.entries):
        return InlinedCollection(collection)
    made = type(message)()
    taken: dict[str, int] = {}
    addresses: dict[str, int] = {}
    left_out: list[str] = []
    for index, entry in enumerate(message.entries):
        for each in _entries(entry, find):
            if isinstance(each, str):
                left_out.append(f"entries[{index}] {each}")
                continue
            listener: DynamicMessage = catalogue.message_class(LISTENER.message_type).FromString(
                each.inline_entry.resource.value
            )
            name = listener.name
            own = {address for _, address in addresses_taken(listener)}
            if name in taken:
                left_out.append(f'entries[{index}] leads to listener "{name}", which entries[{taken[name]}] is already')
            elif equal := sorted(own & addresses.keys()):
                other = addresses[equal[0]]
                left_out.append(
                    f'entries[{index}] is listener "{name}", and entries[{other}] has its address {equal[0]}'
                )
            else:
                taken[name] = index
                addresses |= dict.fromkeys(own, index)
                made.entries.append(each)
    body = made.SerializeToString(deterministic=True)
    resource = replace(collection, body=body, version=version_of_body(collection.type_url, body))
    return InlinedCollection(resource, tuple(left_out), is_void=not made.entries)


def _entries(entry: DynamicMessage, find: FindListeners) -> Iterator[DynamicMessage | str]:
    if not entry.HasField("locator"):
        yield entry
        return
    try:
        found = find(locator_of(entry.locator))
    except MalformedName as malformed:
        found = malformed.fact
    if isinstance(found, str):
        yield found
        return
    for listener in found:
        made = type(entry)()
        made.inline_entry.version = listener.version
        made.inline_entry.resource.type_url = LISTENER.type_url
        made.inline_entry.resource.value = listener.body
        yield made


# Longer paths become one cut file name: systems allow 4096 bytes.
LONGEST_PATH = 1000

_OTHERS = "@"
_ENDS = tuple(f".{form}" for form in FORMS)


def path_of_resource(row: ResourceType, name: str, authority: str) -> PurePosixPath:
    """Return a path without suffix; `authority` is the tree's.

    Unique among structured names; a plain name may share it.
    """
    found = parse_or_none(name) or ResourceName("", row.message_type, name)
    written, question_mark, parameters = found.without_authority.removeprefix(f"/{found.message_type}/").partition("?")
    *folders, last = written.split("/") if len(written) <= LONGEST_PATH else [written]
    file_name = file_name_of(f"{last}{question_mark}{parameters}")
    of_others = [f"{_OTHERS}{file_name_of(found.authority)}"] if found.authority not in {"", authority} else []
    return PurePosixPath(*of_others, found.message_type, *map(_folder_name_of, folders), file_name)


def _folder_name_of(segment: str) -> str:
    name = file_name_of(segment)
    stem, dot, end = name.rpartition(".")
    return f"{stem}%2E{end}" if dot and f".{end}" in _ENDS else name


def is_path_of_resource(path: PurePosixPath) -> bool:
    """Whether a file may be in this layout."""
    parts = path.parts[1:] if path.parts[:1] and path.parts[0].startswith(_OTHERS) else path.parts
    return len(parts) > 1 and parts[0] in BY_MESSAGE_TYPE and ".." not in parts


class ResourceLayoutMaker:
    """Lays out successive snapshots; `authority` is the tree's or empty."""

    def __init__(self, suffix: str, authority: str) -> None:
        self.suffix = suffix
        self.authority = authority
        # Making the paths takes longer than the rest.
        self._paths: dict[Key, PurePosixPath] = {}

    def lay_out(self, snapshot: Snapshot, held: Held) -> Layout:
        """Return a snapshot's layout, given our files."""
        files: dict[PurePosixPath, MirrorFile] = {}
        remarks: list[Remark] = []
        paths: dict[Key, PurePosixPath] = {}
        for resource in _served(snapshot):
            key = resource.type_url, resource.name
            path = self._paths.get(key)
            if path is None:
                path = path_of_resource(BY_TYPE_URL[resource.type_url], resource.name, self.authority)
                path = path.with_name(path.name + self.suffix)
            paths[key] = path
            file = MirrorFile(path, resource.type_url, resource.version, (resource,), is_wrapped=True)
            other = files.get(path)
            if other is not None and not _goes_before(file, other, held):
                remarks.append(_same_file(file, other))
                continue
            if other is not None:
                remarks.append(_same_file(other, file))
            files[path] = file
        self._paths = paths
        kept = {
            path: file.type_url
            for path, file in held.items()
            if path not in files and file.type_url in snapshot.incomplete | snapshot.withheld | snapshot.undeclared
        }
        remarks += [Remark(str(path), _reason_to_keep(snapshot, type_url)) for path, type_url in kept.items()]
        return Layout(files, frozenset(kept), tuple(sorted(remarks)))


def _served(snapshot: Snapshot) -> Iterator[Resource]:
    for row in RESOURCE_TYPES:
        if row.type_url not in snapshot.withheld:
            yield from snapshot.resources(row.type_url).values()


def _goes_before(file: MirrorFile, other: MirrorFile, held: Held) -> bool:
    """The present owner stays, else the structured name wins."""
    present = held.get(file.path)
    if present is not None and present.names in {file.names, other.names}:
        return present.names == file.names
    return parse_or_none(file.names[0]) is not None


def _same_file(left_out: MirrorFile, file: MirrorFile) -> Remark:
    return Remark(
        str(file.path), f"{left_out.names[0]} has no file: {file.names[0]} has the same path; rename one of the two"
    )


def _reason_to_keep(snapshot: Snapshot, type_url: TypeUrl) -> str:
    noun = BY_TYPE_URL[type_url].noun
    if type_url in snapshot.undeclared:
        return f"kept: no document defines {noun}; write an empty list of them to remove the file"
    return f"kept: a file that may define {noun} was never good; repair it or remove it"


Find = Callable[[RequestedResources], PurePosixPath | None]
"""Returns the absolute path of the file that a config source requests, or None."""


@dataclass(frozen=True, slots=True)
class RewrittenResource:
    """A resource whose config sources point at `paths` (None: left)."""

    resource: Resource
    paths: Mapping[RequestedResources, PurePosixPath | None]


class MirrorConfigSources:
    """Rewrites config sources, once per version. Call `turn` before each snapshot."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._finder = ConfigSourceFinder(catalogue)
        # {(type, version of the resource): …}
        self._eds_names: Recent[tuple[TypeUrl, Version], str | None] = Recent()
        self._rewritten: Recent[tuple[TypeUrl, Version], RewrittenResource] = Recent()

    def eds_names(self, clusters: Iterable[Resource]) -> frozenset[str]:
        """Return clusters' ClusterLoadAssignment names."""
        return frozenset(name for cluster in clusters if (name := self._eds_name(cluster)) is not None)

    def _eds_name(self, cluster: Resource) -> str | None:
        key = cluster.type_url, cluster.version
        return self._eds_names.get(key, lambda: eds_name_of(self._finder.parse(cluster)))

    def routes_of_scopes(self, scopes: Iterable[Resource]) -> tuple[str, ...]:
        """Return scopes' route configuration names, sorted."""
        messages: Iterable[DynamicMessage] = map(self._finder.parse, scopes)
        names = {message.route_configuration_name for message in messages}
        return tuple(sorted(names - {""}))

    def rewrite(self, resource: Resource, find: Find) -> RewrittenResource:
        """Return a resource with `path_config_source` for ADS, REST, gRPC and `self`.

        `initial_fetch_timeout`, path sources and the version stay.
        """
        key = resource.type_url, resource.version
        known = self._rewritten.get(key, lambda: self._rewrite(resource, find))
        if any(find(requested) != path for requested, path in known.paths.items()):
            known = self._rewritten.put(key, self._rewrite(resource, find))
        return known

    def _rewrite(self, resource: Resource, find: Find) -> RewrittenResource:
        paths: dict[RequestedResources, PurePosixPath | None] = {}

        def change(source: DynamicMessage, requested: RequestedResources) -> bool:
            # A path stays, and a config source without a source is an error.
            if source.WhichOneof("config_source_specifier") not in {"ads", "self", "api_config_source"}:
                return False
            path = paths[requested] = find(requested)
            if path is not None:
                source.path_config_source.path = str(path)
                source.resource_api_version = API_V3
            return path is not None

        body = self._finder.rewrite(resource, change)
        return RewrittenResource(resource if body is None else replace(resource, body=body), paths)

    def turn(self) -> None:
        """Forget versions unused in the last snapshot."""
        self._eds_names.turn()
        self._rewritten.turn()

    def empty_assignment(self, name: str, origin: Origin) -> Resource:
        """Return a ClusterLoadAssignment without endpoints."""
        message_class = self.catalogue.message_class(BY_TYPE_URL[EDS].message_type)
        body = message_class(cluster_name=name).SerializeToString(deterministic=True)
        return Resource(EDS, name, body, version_of_body(EDS, body), origin)


class LayoutMaker:
    """Lays out successive snapshots.

    `directory` is absolute, for config sources; None leaves them.
    """

    def __init__(
        self,
        suffix: str,
        sources: MirrorConfigSources,
        directory: PurePosixPath | None,
        finder: ListenerFinder = by_name,
    ) -> None:
        self.finder = finder
        self.suffix = suffix
        self.sources = sources
        self.directory = directory
        self.paths = MirrorPaths(suffix, directory or PurePosixPath())

    def lay_out(self, snapshot: Snapshot, held: Held) -> Layout:
        """Return a snapshot's layout, given our files."""
        self.paths.turn()
        self.sources.turn()
        return _LayoutBuilder(snapshot, held, self).build()


class _LayoutBuilder:
    def __init__(self, snapshot: Snapshot, held: Held, maker: LayoutMaker) -> None:
        self._snapshot = snapshot
        self._held = held
        self._paths = maker.paths
        self._rewrites = maker.directory is not None
        self._sources = maker.sources
        self._find_listeners = maker.finder(snapshot)
        self._files: dict[PurePosixPath, MirrorFile] = {}
        self._kept: set[PurePosixPath] = set()
        self._remarks: list[Remark] = []
        self._left: list[Remark] = []
        # Missing resources are not removed: a file that was never good, or none yet, may define them.
        self._unsure = snapshot.incomplete | snapshot.withheld | snapshot.undeclared

    def build(self) -> Layout:
        for type_url in SINGLES:
            self._keep_missing_singles(type_url)
        wanted = {type_url: self._served(type_url) for type_url in (*SINGLES, *BUNDLES)}
        for type_url in COLLECTIONS:
            wanted[type_url] = tuple(self._inlined(wanted[type_url]))
        if self._rewrites:
            for type_url in WITH_CONFIG_SOURCES:
                wanted[type_url] = self._rewrite(wanted[type_url])
        for type_url in SINGLES:
            for resource in wanted[type_url]:
                if type_url in COLLECTIONS:
                    path = self._paths.relative(resource.type_url, resource.name)
                    self._files[path] = MirrorFile(
                        path, resource.type_url, resource.version, (resource,), is_wrapped=True
                    )
                else:
                    self._add(type_url, resource.name, (resource,))
        for type_url in BUNDLES:
            self._add_bundle(type_url, wanted[type_url])
        self._add_stand_ins()
        return Layout(self._files, frozenset(self._kept), tuple(sorted(self._remarks)), tuple(sorted(set(self._left))))

    def _served(self, type_url: TypeUrl) -> tuple[Resource, ...]:
        return () if type_url in self._snapshot.withheld else tuple(self._snapshot.resources(type_url).values())

    def _keep_missing_singles(self, type_url: TypeUrl) -> None:
        if type_url not in self._unsure:
            return
        served = self._snapshot.resources(type_url).keys()
        ours = {path: file for path, file in self._held.items() if file.type_url == type_url}
        missing = [path for path, file in ours.items() if not served >= set(file.names)]
        self._kept.update(missing)
        reason = _reason_to_keep(self._snapshot, type_url)
        self._remarks += [Remark(str(path), reason) for path in missing if not ours[path].is_stand_in]

    def _add(self, type_url: TypeUrl, name: str, resources: tuple[Resource, ...], *, is_stand_in: bool = False) -> None:
        path = self._paths.relative(type_url, name)
        self._files[path] = MirrorFile(path, type_url, self._version_of_one(type_url, name), resources, is_stand_in)

    def _version_of_one(self, type_url: TypeUrl, name: str) -> Version:
        # `version_of` remembers every selection; there may be a hundred thousand files.
        if type_url in self._snapshot.authored:
            return Version(self._snapshot.authored[type_url])
        resource = self._snapshot.resources(type_url).get(name)
        return version_of_set(type_url, ((name, resource.version if resource else ""),))

    # -- list collections

    def _inlined(self, collections: Iterable[Resource]) -> Iterator[Resource]:
        """The collections to write; others stay as on disk."""
        for collection in collections:
            made = inlined(self._sources.catalogue, collection, self._find_listeners)
            path = self._paths.relative(collection.type_url, collection.name)
            if made.is_void or (made.left_out and LISTENER.type_url in self._unsure):
                self._keep_collection(path, made.left_out)
                continue
            self._remarks += [Remark(str(path), f"{each}; it is not in the file") for each in made.left_out]
            yield made.resource

    def _keep_collection(self, path: PurePosixPath, left_out: tuple[str, ...]) -> None:
        """Without unknown listeners in it, Envoy would remove them."""
        if path in self._held:
            self._kept.add(path)
        what = "kept as it was" if path in self._held else "not written"
        self._remarks += [Remark(str(path), f"{what}: {each}") for each in left_out]

    # -- bundles

    def _add_bundle(self, type_url: TypeUrl, resources: tuple[Resource, ...]) -> None:
        path = self._paths.relative(type_url, None)
        # From before the form was changed.
        paths = [at for at in self._held if self._held[at].type_url == type_url]
        before = self._held.get(path) or (self._held[paths[0]] if paths else None)
        if before is None or type_url not in self._unsure:
            if type_url not in self._snapshot.withheld:
                self._files[path] = self._whole(type_url, resources)
            return
        names = {resource.name for resource in resources}
        if missing := [name for name in before.names if name not in names]:
            self._remarks.append(Remark(str(path), f"{_some(missing)} {_reason_to_keep(self._snapshot, type_url)}"))
        if type_url in self._snapshot.withheld or (missing and before.content is None):
            self._kept.update(paths)
            return
        self._files[path] = united(self._whole(type_url, resources), before.content)

    def _whole(self, type_url: TypeUrl, resources: tuple[Resource, ...]) -> MirrorFile:
        version = version_of(self._snapshot, Subscription(type_url))
        return MirrorFile(self._paths.relative(type_url, None), type_url, version, resources)

    def _add_stand_ins(self) -> None:
        """Envoy would keep the endpoints of a removed assignment (ENVOY.md E27)."""
        bundle = self._files.get(self._paths.relative(CDS, None))
        contents = [bundle] if bundle else [file.content for file in self._held.values() if file.type_url == CDS]
        clusters = [resource for content in contents if content for resource in content.resources]
        for name in sorted(self._sources.eds_names(clusters)):
            path = self._paths.relative(EDS, name)
            if path in self._held and path not in self._files and path not in self._kept:
                self._add_stand_in(EDS, name)

    def _add_stand_in(self, type_url: TypeUrl, name: str) -> None:
        """Without an extension, Envoy takes its default at once (ENVOY.md E87)."""
        origin = Origin(self._paths.relative(type_url, name), 1)
        resources = (self._sources.empty_assignment(name, origin),) if type_url == EDS else ()
        self._add(type_url, name, resources, is_stand_in=True)

    def _rewrite(self, resources: Iterable[Resource]) -> tuple[Resource, ...]:
        results = [self._sources.rewrite(resource, self._find) for resource in resources]
        for result in results:
            for requested, path in result.paths.items():
                if path is None:
                    subject = f"{BY_TYPE_URL[result.resource.type_url].short_name} {result.resource.name}"
                    noun = BY_TYPE_URL[requested.type_url].noun
                    names = _some(requested.names) if requested.names else "those of its scopes"
                    reason = f"config source for {noun} left as written: there is no one file for {names}"
                    self._left.append(Remark(subject, reason))
                elif requested.names and not self._will_be(requested.type_url, requested.names[0]):
                    self._add_stand_in(requested.type_url, requested.names[0])
        return tuple(result.resource for result in results)

    def _will_be(self, type_url: TypeUrl, name: str) -> bool:
        if type_url not in self._snapshot.withheld and name in self._snapshot.resources(type_url):
            return True
        return bool(self._kept) and self._paths.relative(type_url, name) in self._kept

    def _find(self, requested: RequestedResources) -> PurePosixPath | None:
        """Envoy rejects a path that does not exist (ENVOY.md E25)."""
        type_url = requested.type_url
        if type_url == SRDS:
            is_there = SRDS not in self._snapshot.withheld or self._paths.relative(SRDS, None) in self._held
            return self._paths.absolute(SRDS, None) if is_there else None
        names = requested.names
        if names is None:
            # Envoy requests all routes of scopes through one path, which can hold only one.
            names = self._sources.routes_of_scopes(self._served(SRDS)) or tuple(self._snapshot.resources(RDS))
        has_stand_ins = type_url in {EDS, ECDS} and type_url not in self._snapshot.incomplete | self._snapshot.withheld
        if len(names) != 1 or not (self._will_be(type_url, names[0]) or has_stand_ins):
            return None
        return self._paths.absolute(type_url, names[0])


def _some(names: Iterable[str]) -> str:
    first, *rest = sorted(names)
    return f"{first!r}" if not rest else f"{first!r} and {len(rest)} more"
