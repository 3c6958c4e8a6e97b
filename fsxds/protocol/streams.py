"""What goes over a stream in both directions, as values; and what can be told of a stream."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Generic, TypeVar

from fsxds.protocol.node import Node
from fsxds.resources import Resource
from fsxds.values import Nonce, TypeUrl, Version


@dataclass(frozen=True, slots=True)
class SotwRequest:
    """A `DiscoveryRequest`.

    `version_info` and `nonce` are None where they are empty, `node` where the message bore none. `error_detail` is the
    message of a NACK ("" for one without words), None where it is none.
    """

    type_url: TypeUrl
    names: tuple[str, ...] = ()
    version_info: Version | None = None
    nonce: Nonce | None = None
    error_detail: str | None = None
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class SotwResponse:
    """A `DiscoveryResponse`.

    `resources` is shared between streams where it is equal, so that its bytes can be kept by its identity. With
    `with_ttl`, those resources that have a `ttl_s` are wrapped and carry it. `heartbeats` are resources whose time to live
    is renewed without their content.
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Collection[Resource]
    with_ttl: bool = False
    heartbeats: tuple[Resource, ...] = ()


@dataclass(frozen=True, slots=True)
class DeltaRequest:
    """A `DeltaDiscoveryRequest`. `held` are its `initial_resource_versions`; the rest is as in `SotwRequest`."""

    type_url: TypeUrl
    subscribe: tuple[str, ...] = ()
    unsubscribe: tuple[str, ...] = ()
    held: Mapping[str, Version] = field(default_factory=lambda: MappingProxyType({}))
    nonce: Nonce | None = None
    error_detail: str | None = None
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class DeltaResponse:
    """A `DeltaDiscoveryResponse`.

    `version` is its `system_version_info`. `resources`, `with_ttl` and `heartbeats` are as in `SotwResponse`. `aliases`
    replace those of a resource, by its name. `unpopulated` are names that are answered with a `Resource` that has the name
    as its name and alias and holds nothing: the virtual host does not exist (ENVOY.md D5).
    """

    type_url: TypeUrl
    version: Version
    nonce: Nonce
    resources: Collection[Resource] = ()
    removed: tuple[str, ...] = ()
    with_ttl: bool = False
    heartbeats: tuple[Resource, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    unpopulated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a client made of a version: told once. `reason` is None for a rejection without words of its own."""

    version: Version
    accepted: bool
    reason: str | None = None


Response = TypeVar("Response", SotwResponse, DeltaResponse)


@dataclass(frozen=True, slots=True)
class Reaction(Generic[Response]):
    """What a request calls for: responses, to be written in this order, and what it says of an earlier one."""

    responses: tuple[Response, ...] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class WatchStatus:
    """Where one type stands on one stream, or with one polling client.

    `names` is None for everything. `resources` are what the client was sent and should hold, `missing` the names it asked
    for that do not exist. `rejected` are the names in the responses that it rejected, `reason` its words for the last one.
    `sent`, `accepted` and `refused` are versions; None where there was none.
    """

    type_url: TypeUrl
    names: frozenset[str] | None
    sent: Version | None = None
    accepted: Version | None = None
    refused: Version | None = None
    reason: str | None = None
    resources: Collection[Resource] = field(default=(), repr=False)
    missing: tuple[str, ...] = ()
    rejected: frozenset[str] = frozenset()
