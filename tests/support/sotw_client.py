"""A client of state-of-the-world streams, as little of one as an Envoy may be: what it holds after each response."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource
from fsxds.model.values import Nonce, Version
from fsxds.protocol.messages import Node, SotwRequest, SotwResponse
from tests.support.snapshots import type_url

Held = dict[str, bytes]


@dataclass(slots=True)
class TypeClient:
    """What a client has of one type.

    `wants` is None for everything. `nacked` are names of which nobody knows what the client holds, because a response
    with them was rejected; `given_up` are names that it dropped since it got its version. Both are `tainted` when it tells a
    new stream that version: the server has to believe it. `awaited` are the endpoints that a changed cluster waits for.
    """

    short_name: str
    wants: frozenset[str] | None
    version: Version | None = None
    nonce: Nonce | None = None
    held: Held = field(default_factory=dict)
    has_asked: bool = False
    nacked: set[str] = field(default_factory=set)
    given_up: set[str] = field(default_factory=set)
    tainted: set[str] = field(default_factory=set)
    awaited: set[str] = field(default_factory=set)

    @property
    def is_full(self) -> bool:
        """Whether a response has everything, so that the client drops what is not in it."""
        return BY_TYPE_URL[type_url(self.short_name)].full_state_in_sotw

    def request(self, error_detail: str | None = None) -> SotwRequest:
        """Return the request that this client sends now."""
        if not self.has_asked:
            self.tainted |= self.nacked | self.given_up
        self.has_asked = True
        names = tuple(sorted(self.wants)) if self.wants is not None else ()
        url = type_url(self.short_name)
        return SotwRequest(url, names, self.version, self.nonce, error_detail, Node("n"))

    def want(self, names: frozenset[str]) -> None:
        """Ask for other names; what is given up is dropped."""
        self.given_up |= (set(self.held) | self.nacked | self.tainted) - names
        self.wants = names
        for kept in (self.nacked, self.tainted, self.awaited):
            kept.intersection_update(names)
        self.held = {name: body for name, body in self.held.items() if name in names}

    def accept(self, response: SotwResponse) -> set[str]:
        """Take a response; return the names of what is new or changed by it."""
        self.version, self.nonce = response.version, response.nonce
        named = {resource.name for resource in response.resources}
        changed = self._apply(response.resources)
        unwanted = named - self.wants if self.wants is not None else set()
        self.given_up = unwanted if self.is_full else (self.given_up - named) | unwanted
        if self.is_full:
            self.held = {name: body for name, body in self.held.items() if name in named}
            self.nacked, self.tainted = set(), set()
        self.nacked -= named
        self.tainted -= named
        self.awaited -= named
        return changed

    def reject(self, response: SotwResponse) -> set[str]:
        """Reject a response, and apply the first resource of it nevertheless; return its name where that is changed."""
        self.nonce = response.nonce
        self.nacked |= {resource.name for resource in response.resources} | (set(self.held) if self.is_full else set())
        return self._apply(list(response.resources)[:1])

    def start_stream(self) -> None:
        """Begin a new stream: nonces are forgotten, versions are not."""
        self.nonce, self.has_asked = None, False
        self.awaited = set()

    def _apply(self, resources: Iterable[Resource]) -> set[str]:
        wanted = [resource for resource in resources if self.wants is None or resource.name in self.wants]
        changed = {resource.name for resource in wanted if self.held.get(resource.name) != resource.body}
        self.held |= {resource.name: resource.body for resource in wanted}
        return changed
