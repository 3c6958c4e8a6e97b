"""Point the config sources inside of resources at mirrored files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Origin, Resource, version_of_body
from fsxds.transports.config_source_sites import EDS, Reference, SiteFinder, eds_name_of
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
