"""What a client is told, as values; and what it hears when it is told nothing more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.errors import FsxdsError
from fsxds.resources import Origin, Resource, version_of_body
from fsxds.values import Nonce, TypeUrl, Version

# What came over a wire was written in no file that is known here.
ELSEWHERE = Origin(PurePosixPath(), 0)


@dataclass(frozen=True, slots=True)
class Update:
    """One response of a server.

    Attributes:
        type_url: the type that it is about.
        version: its `version_info`, or `system_version_info`.
        nonce: its nonce, or version where the wire has none.
        resources: what it holds, by name. A version is the server's own word in Delta, elsewhere a digest of the body.
        removed: the names that it takes away (Delta).
        is_full: it holds all there is, so that what is not in it is taken away too.
        heartbeats: names whose time to live begins anew, without their content.
        unpopulated: names that are answered with nothing: there is no such virtual host.
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Mapping[str, Resource]
    removed: tuple[str, ...] = ()
    is_full: bool = False
    heartbeats: tuple[str, ...] = ()
    unpopulated: tuple[str, ...] = ()

    @property
    def bodies(self) -> dict[str, bytes]:
        """The serialized resources by name."""
        return {name: resource.body for name, resource in self.resources.items()}


@dataclass(frozen=True, slots=True)
class Told:
    """What stands around a resource on the wire; `version` is empty where nothing is said."""

    version: str = ""
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None


@dataclass(slots=True)
class Contents:
    """What was read out of one response, until it is an update.

    `faults` are for people: what a client cannot take.
    """

    type_url: TypeUrl
    resources: dict[str, Resource] = field(default_factory=dict)
    heartbeats: list[str] = field(default_factory=list)
    unpopulated: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def add(self, name: str, body: bytes, told: Told = Told()) -> None:
        """Take in a resource; the second one of a name is a fault."""
        if name in self.resources:
            self.faults.append(f'"{name}" is in it twice')
        version = Version(told.version) or version_of_body(self.type_url, body)
        self.resources[name] = Resource(self.type_url, name, body, version, ELSEWHERE, told.aliases, told.ttl_s)

    def frozen(self) -> Mapping[str, Resource]:
        """Return the resources, not to be changed any more."""
        return MappingProxyType(self.resources)


class LostError(FsxdsError):
    """The server tells nothing more, or cannot be reached; to ask again is to connect again.

    `code` is the name of a gRPC status code, or an HTTP status. `is_final`: it would be told the same again.
    """

    def __init__(self, message: str, code: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_final = is_final


class WrongAnswerError(FsxdsError):
    """The server told what a client cannot take; `update` is what could be read of it."""

    def __init__(self, message: str, update: Update) -> None:
        super().__init__(message)
        self.update = update
