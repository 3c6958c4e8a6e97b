"""Parses a GET: preconditions, wait time and accepted formats.

| rule | source |
| --- | --- |
| `If-None-Match` compares weakly, `If-Match` strongly; `*` is any tag. | RFC 9110, 8.8.3.2, 13.1 |
| Dates make no difference, because no answer has `Last-Modified`. | RFC 9110, 13.1.3, 13.1.4 |
| `Prefer: wait=N` is a wish, and ignored if it is malformed; `?wait=N` is a demand. | RFC 7240 |
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from aiohttp import web

from fsxds.model.errors import ProtocolError
from fsxds.protocol.get import GetTarget, node_of, read_target
from fsxds.protocol.messages import Node
from fsxds.runtime.access import Peer
from fsxds.transports.peers import peer_of_request
from fsxds.transports.rest.poll_requests import patience_of

# Tags have quotes; xRFC TP1 writes `if-none-match: v1`.
_TAG = re.compile(r'(W/)?("[^"]*"|[^\s,"]+)')
_WAIT = re.compile(r'(?:^|[,;])\s*wait\s*=\s*"?([0-9]{1,9})"?\s*(?=$|[,;])', re.IGNORECASE | re.ASCII)
_ANY = "*"
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*", re.ASCII)

# Longer lists are cut: no client has more tags.
MOST_HEADER_CHARACTERS = 8190

DEADLINE_HEADER = "x-envoy-expected-rq-timeout-ms"


# For upstreams to answer whether they have the resource, unless a GET has its own wait time.
ON_DEMAND_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Preconditions:
    """The preconditions of a request.

    `if_none_match` are the tags that the client has, `if_match` those that it demands; None without.
    """

    if_none_match: frozenset[str] | None = None
    if_match: frozenset[str] | None = None

    def has(self, tag: str | None) -> bool:
        """Whether the client has this content; None: there is none."""
        return tag is not None and self.if_none_match is not None and bool(self.if_none_match & {tag, _ANY})

    def fails(self, tag: str | None) -> bool:
        """Whether the client demands other content; None: there is none."""
        return self.if_match is not None and (tag is None or not self.if_match & {tag, _ANY})


@dataclass(frozen=True, slots=True)
class GetRequest:
    """One GET or HEAD.

    Attributes:
        accept: the accepted formats, as written.
        accept_encoding: the accepted codings, as written.
        patience_s: the wait for a change.
        on_demand_patience_s: the wait for upstreams to answer whether they have the resource.
        preference: the applied `Prefer`, such as `wait=30`; empty for none.
        base_url: the server's URL as the client has it, without a final slash.
    """

    target: GetTarget
    node: Node
    peer: Peer
    preconditions: Preconditions
    accept: str
    accept_encoding: str
    patience_s: float
    on_demand_patience_s: float
    preference: str
    base_url: str


def read_get(request: web.Request, authority: str, max_hold_s: float) -> GetRequest:
    """Parse a GET or HEAD, by the server's authority and hold limit.

    Raises:
        ProtocolError: it is malformed, or, with the code `NOT_FOUND`, its path has no type.
    """
    peer = peer_of_request(request)
    host = _host_of(request)
    target = read_target(_path_of(request.raw_path), host, authority)
    preference = ""
    deadline = request.headers.get(DEADLINE_HEADER)
    wait = target.wait
    if wait is None and (found := _WAIT.search(_listed(request, "Prefer"))) is not None:
        wait = found[1]
        preference = f"wait={min(int(wait), int(max_hold_s))}"
    patience_s, on_demand_patience_s = 0.0, min(ON_DEMAND_WAIT_S, max_hold_s)
    if wait is not None:
        patience_s = on_demand_patience_s = patience_of(None, wait, max_hold_s, "wait")
    if deadline is not None:
        # A proxy gives up then.
        longest_s = patience_of(deadline, None, max_hold_s)
        patience_s, on_demand_patience_s = min(patience_s, longest_s), min(on_demand_patience_s, longest_s)
    return GetRequest(
        target=target,
        node=node_of(target.node, peer.address),
        peer=peer,
        preconditions=Preconditions(tags_of(request, "If-None-Match", is_weak=True), tags_of(request, "If-Match")),
        accept=_listed(request, "Accept"),
        accept_encoding=_listed(request, "Accept-Encoding"),
        patience_s=patience_s,
        on_demand_patience_s=on_demand_patience_s,
        preference=preference,
        base_url=f"{'https' if request.secure else 'http'}://{host or 'localhost'}",
    )


def _host_of(request: web.Request) -> str:
    hosts = request.headers.getall("Host", [""])
    if len(hosts) > 1 or not _HOST.fullmatch(hosts[0]):
        raise ProtocolError("`host` is no host with or without a port; send one, such as example.com:18001")
    return hosts[0]


def _path_of(target: str) -> str:
    if target.startswith("/"):
        return target
    scheme, mark, rest = target.partition("://")
    return f"/{rest.partition('/')[2]}" if mark and scheme.lower() in {"http", "https"} else "/" + target


def _listed(request: web.Request, name: str) -> str:
    return ",".join(request.headers.getall(name, ()))[:MOST_HEADER_CHARACTERS]


def tags_of(request: web.Request, name: str, *, is_weak: bool = False) -> frozenset[str] | None:
    """Return a header's tags, quoted; None without it. Weak ones only with `is_weak`."""
    if name not in request.headers:
        return None
    found = _TAG.findall(_listed(request, name))
    return frozenset(
        tag if tag == _ANY or tag.startswith('"') else f'"{tag}"' for weak, tag in found if is_weak or not weak
    )
