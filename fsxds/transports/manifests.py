"""Offer the manifests that vouch for what is served to relays: as a gRPC stream, and by GET.

A manifest has digests of secrets, so it is sent where secrets would be, to those who may ask about all nodes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

import grpc
from aiohttp import web

from fsxds.access import SECRET, AccessInUse, Peer
from fsxds.signing.offered import PATH, SERVICE, write_offers
from fsxds.store import Latest
from fsxds.transports.peers import peer_of_call, peer_of_request
from fsxds.transports.rest.http_edge import Handler
from fsxds.transports.rest.poll_responses import Payload, write_response
from fsxds.values import TypeUrl


class ManifestOffers:
    """What relays are offered.

    Attributes:
        content: the message; see `signing/offered.py`.
    """

    def __init__(self, access: AccessInUse) -> None:
        self.content = Latest(write_offers(()))
        self._access = access

    def check(self, peer: Peer) -> None:
        """Raise ProtocolError where a peer may not have it."""
        self._access.current.check_all_nodes(peer)
        self._access.current.check_type(peer, TypeUrl(SECRET))

    @property
    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """What a gRPC server registers: whatever a relay sends, it is sent the message now, and each one after it."""

        async def stream(_: bytes, context: grpc.aio.ServicerContext) -> AsyncIterator[bytes]:
            while True:
                self.check(peer_of_call(context))
                content = self.content.current
                yield content
                await self.content.other_than(content)

        methods = {"StreamManifests": grpc.unary_stream_rpc_method_handler(stream)}
        return (grpc.method_handlers_generic_handler(SERVICE, methods),)

    @property
    def documents(self) -> Mapping[str, Handler]:
        """What answers a GET."""

        async def answer(request: web.Request) -> web.StreamResponse:
            self.check(peer_of_request(request))
            headers = {"Content-Type": "application/json", "Cache-Control": "no-store"}
            return await write_response(request, headers, Payload(self.content.current))

        return {PATH: answer}
