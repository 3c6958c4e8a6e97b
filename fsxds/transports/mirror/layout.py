"""Point the config sources inside of resources at mirrored files.

Which files a snapshot makes, and what stands in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.events import Remark
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Origin, Resource, Snapshot, version_of_body
from fsxds.transports.config_sources import CDS, EDS, RDS, SRDS, WITH_CONFIG_SOURCES, Reference, SiteFinder, eds_name_of
from fsxds.transports.mirror.files import BUNDLES, SINGLES, Held, Layout, MirrorFile, path_of, united
from fsxds.values import TypeUrl, Version

Answers = tuple[tuple[Reference, PurePosixPath | None], ...]
Find = Callable[[Reference], PurePosixPath | None]
"""The absolute path of the file that has what a reference asks for, or None where no file can have it."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A resource whose config sources point at files; `left` are those that stay as they were written."""

    resource: Resource
    found: tuple[Reference, ...] = ()
    left: tuple[Reference, ...] = ()


class ConfigSources:
    """Reads and rewrites the config sources of resources; each version of a resource is worked on once.

    `keep_only` after every snapshot forgets what is not served any more.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._finder = SiteFinder(catalogue)
        # {(type, version of the resource): …}
        self._eds_names: dict[tuple[TypeUrl, Version], str | None] = {}
        self._rewritten: dict[tuple[TypeUrl, Version], tuple[Answers, Rewritten]] = {}

    def eds_names(self, clusters: Iterable[Resource]) -> frozenset[str]:
        """Return the names of the ClusterLoadAssignments that clusters take their endpoints from."""
        return frozenset(name for cluster in clusters if (name := self._eds_name(cluster)) is not None)

    def _eds_name(self, cluster: Resource) -> str | None:
        key = cluster.type_url, cluster.version
        if key not in self._eds_names:
            self._eds_names[key] = eds_name_of(self._parse(cluster))
        return self._eds_names[key]

    def routes_of_scopes(self, scopes: Iterable[Resource]) -> tuple[str, ...]:
        """Return the names of the route configurations that ScopedRouteConfigurations name, sorted."""
        messages: Iterable[Any] = map(self._parse, scopes)
        names = {message.route_configuration_name for message in messages}
        return tuple(sorted(names - {""}))

    def rewrite(self, resource: Resource, find: Find) -> Rewritten:
        """Return the resource with `path_config_source` in the place of each ADS, REST, gRPC or `self` source.

        `initial_fetch_timeout` stays, sources that are paths already stay, and the resource keeps its version: that of
        what the author wrote.
        """
        key = resource.type_url, resource.version
        known = self._rewritten.get(key)
        if known is None or any(find(reference) != path for reference, path in known[0]):
            known = self._rewritten[key] = self._rewrite(resource, find)
        return known[1]

    def _rewrite(self, resource: Resource, find: Find) -> tuple[Answers, Rewritten]:
        answers: dict[Reference, PurePosixPath | None] = {}

        def change(source: Message, reference: Reference) -> bool:
            if not _is_served(source):
                return False
            path = answers[reference] = find(reference)
            return path is not None and _point(source, path)

        message = self._parse(resource)
        if self._finder.visit(message, change):
            resource = replace(resource, body=message.SerializeToString(deterministic=True))
        found = tuple(reference for reference, path in answers.items() if path is not None)
        left = tuple(reference for reference, path in answers.items() if path is None)
        return tuple(answers.items()), Rewritten(resource, found, left)

    def keep_only(self, resources: Iterable[Resource]) -> None:
        """Forget all versions but those of these resources."""
        keys = {(resource.type_url, resource.version) for resource in resources}
        self._eds_names = {key: value for key, value in self._eds_names.items() if key in keys}
        self._rewritten = {key: value for key, value in self._rewritten.items() if key in keys}

    def empty_assignment(self, name: str, origin: Origin) -> Resource:
        """Return a ClusterLoadAssignment of that name without endpoints."""
        message_class = self._catalogue.message_class(BY_TYPE_URL[EDS].message_type)
        body = message_class(cluster_name=name).SerializeToString(deterministic=True)
        return Resource(EDS, name, body, version_of_body(EDS, body), origin)

    def _parse(self, resource: Resource) -> Message:
        return self._catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)


def _is_served(source: Any) -> bool:
    """Tell whether a config source is answered by a server: a path is not, and one without a source is an error."""
    return source.WhichOneof("config_source_specifier") in {"ads", "self", "api_config_source"}


def _point(source: Any, path: PurePosixPath) -> bool:
    """Make a config source a file; the oneof lets go of what it was."""
    source.path_config_source.path = str(path)
    source.resource_api_version = 2  # ApiVersion.V3: the only one that Envoy takes.
    return True


class LayoutMaker:
    """Makes the layout of one snapshot after another.

    Args:
        suffix: of all files, such as `.pb`.
        sources: reads the clusters, and rewrites config sources.
        directory: the absolute path that rewritten config sources point into; None leaves them as they are.
    """

    def __init__(self, suffix: str, sources: ConfigSources, directory: PurePosixPath | None) -> None:
        self.suffix = suffix
        self.sources = sources
        self.directory = directory

    def lay_out(self, snapshot: Snapshot, held: Held) -> Layout:
        """Return which files should be there for a snapshot, given what is there."""
        return _Drawing(snapshot, held, self).finished()


class _Drawing:
    """One layout while it is made."""

    def __init__(self, snapshot: Snapshot, held: Held, maker: LayoutMaker) -> None:
        self._snapshot = snapshot
        self._held = held
        self._suffix = maker.suffix
        self._directory = maker.directory
        self._sources = maker.sources
        self._files: dict[PurePosixPath, MirrorFile] = {}
        self._kept: set[PurePosixPath] = set()
        self._remarks: list[Remark] = []
        self._left: list[Remark] = []
        # What a missing file must not be told of: it may be defined where nobody could read it, or nobody ever said.
        self._unsure = snapshot.incomplete | snapshot.withheld | snapshot.undeclared

    def finished(self) -> Layout:
        """Draw everything: which files there are comes before what stands in them."""
        for type_url in SINGLES:
            self._keep_missing_singles(type_url)
        wanted = {type_url: self._served(type_url) for type_url in (*SINGLES, *BUNDLES)}
        if self._directory is not None:
            find = partial(self._find, self._directory)
            for type_url in WITH_CONFIG_SOURCES:
                wanted[type_url] = self._rewritten(wanted[type_url], find)
        for type_url in SINGLES:
            self._draw_singles(type_url, wanted[type_url])
        for type_url in BUNDLES:
            self._draw_bundle(type_url, wanted[type_url])
        self._draw_stand_ins()
        self._sources.keep_only(self._everything())
        return Layout(self._files, frozenset(self._kept), tuple(sorted(self._remarks)), tuple(sorted(set(self._left))))

    def _everything(self) -> Iterable[Resource]:
        for type_url in WITH_CONFIG_SOURCES:
            yield from self._snapshot.resources(type_url).values()
        for file in self._files.values():
            if file.type_url == CDS:
                yield from file.resources

    def _served(self, type_url: TypeUrl) -> tuple[Resource, ...]:
        return () if type_url in self._snapshot.withheld else tuple(self._snapshot.resources(type_url).values())

    def _path(self, type_url: TypeUrl, name: str | None) -> PurePosixPath:
        return path_of(type_url, name, self._suffix)

    # -- one file per resource

    def _keep_missing_singles(self, type_url: TypeUrl) -> None:
        if type_url not in self._unsure:
            return
        served = self._snapshot.resources(type_url).keys()
        ours = {path: file for path, file in self._held.items() if file.type_url == type_url}
        missing = [path for path, file in ours.items() if not served >= set(file.names)]
        self._kept.update(missing)
        reason = self._reason_to_keep(type_url)
        self._remarks += [Remark(str(path), reason) for path in missing if not ours[path].is_stand_in]

    def _reason_to_keep(self, type_url: TypeUrl) -> str:
        noun = BY_TYPE_URL[type_url].noun
        if type_url in self._snapshot.undeclared:
            return f"kept: no document speaks of {noun}; write an empty list of them to remove what is left"
        return f"kept: a file that may define {noun} was never good; repair it or remove it"

    def _draw_singles(self, type_url: TypeUrl, resources: Iterable[Resource]) -> None:
        for resource in resources:
            self._add(type_url, resource.name, (resource,))

    def _add(self, type_url: TypeUrl, name: str, resources: tuple[Resource, ...], *, is_stand_in: bool = False) -> None:
        """Add the file of one resource, with the version of just that selection."""
        version = version_of(self._snapshot, Subscription(type_url, frozenset({name}), wildcard=False))
        path = self._path(type_url, name)
        self._files[path] = MirrorFile(path, type_url, version, resources, is_stand_in)

    # -- bundles

    def _draw_bundle(self, type_url: TypeUrl, resources: tuple[Resource, ...]) -> None:
        path = self._path(type_url, None)
        # There may be one of another form, from before that was changed.
        paths = [at for at in self._held if self._held[at].type_url == type_url]
        before = self._held.get(path) or (self._held[paths[0]] if paths else None)
        if before is None or type_url not in self._unsure:
            if type_url not in self._snapshot.withheld:
                self._files[path] = self._whole(type_url, resources)
            return
        names = {resource.name for resource in resources}
        if missing := [name for name in before.names if name not in names]:
            self._remarks.append(Remark(str(path), f"{_some(missing)} {self._reason_to_keep(type_url)}"))
        if type_url in self._snapshot.withheld or (missing and before.content is None):
            self._kept.update(paths)
            return
        self._files[path] = united(self._whole(type_url, resources), before.content)

    def _whole(self, type_url: TypeUrl, resources: tuple[Resource, ...]) -> MirrorFile:
        version = version_of(self._snapshot, Subscription(type_url))
        return MirrorFile(self._path(type_url, None), type_url, version, resources)

    # -- what clusters and config sources refer to

    def _draw_stand_ins(self) -> None:
        """Write an empty ClusterLoadAssignment where a cluster names a removed one: Envoy would keep its endpoints."""
        bundle = self._files.get(self._path(CDS, None))
        clusters = bundle.resources if bundle else self._held_clusters()
        for name in sorted(self._sources.eds_names(clusters)):
            path = self._path(EDS, name)
            if path in self._held and path not in self._files and path not in self._kept:
                self._stand_in(name)

    def _held_clusters(self) -> tuple[Resource, ...]:
        contents = [file.content for file in self._held.values() if file.type_url == CDS]
        return tuple(resource for content in contents if content for resource in content.resources)

    def _stand_in(self, name: str) -> None:
        path = self._path(EDS, name)
        self._add(EDS, name, (self._sources.empty_assignment(name, Origin(path, 1)),), is_stand_in=True)

    def _rewritten(self, resources: Iterable[Resource], find: Find) -> tuple[Resource, ...]:
        results = [self._sources.rewrite(resource, find) for resource in resources]
        for result in results:
            self._tell_left(result)
            for reference in result.found:
                if reference.type_url == EDS and reference.names and not self._will_be(EDS, reference.names[0]):
                    self._stand_in(reference.names[0])
        return tuple(result.resource for result in results)

    def _tell_left(self, result: Rewritten) -> None:
        resource = result.resource
        subject = f"{BY_TYPE_URL[resource.type_url].short_name} {resource.name}"
        for reference in result.left:
            row = BY_TYPE_URL[reference.type_url]
            asked = _some(reference.names) if reference.names else "those of its scopes"
            reason = f"config source for {row.noun} left as written: there is no one file for {asked}"
            self._left.append(Remark(subject, reason))

    def _will_be(self, type_url: TypeUrl, name: str) -> bool:
        """Tell whether there will be a file of this resource, other than as a stand-in."""
        if type_url not in self._snapshot.withheld and name in self._snapshot.resources(type_url):
            return True
        return self._path(type_url, name) in self._kept

    def _find(self, directory: PurePosixPath, reference: Reference) -> PurePosixPath | None:
        """Return the file for a config source: Envoy refuses a path that does not exist, so it must come to be."""
        type_url = reference.type_url
        if type_url == SRDS:
            path = self._path(SRDS, None)
            is_there = SRDS not in self._snapshot.withheld or path in self._held
            return directory / path if is_there else None
        names = self._routes_of_scopes() if reference.names is None else reference.names
        if len(names) != 1 or not (self._will_be(type_url, names[0]) or self._may_stand_in(type_url)):
            return None
        return directory / self._path(type_url, names[0])

    def _may_stand_in(self, type_url: TypeUrl) -> bool:
        return type_url == EDS and EDS not in self._snapshot.incomplete | self._snapshot.withheld

    def _routes_of_scopes(self) -> tuple[str, ...]:
        """Return the routes that scopes name: Envoy asks for all of them through one path, which can hold but one."""
        return self._sources.routes_of_scopes(self._served(SRDS)) or tuple(self._snapshot.resources(RDS))


def _some(names: Iterable[str]) -> str:
    """Name a few of many."""
    first, *rest = sorted(names)
    return f"{first!r}" if not rest else f"{first!r} and {len(rest)} more"
