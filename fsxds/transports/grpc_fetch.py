"""Unary discovery: one DiscoveryRequest, one DiscoveryResponse, and nothing is remembered."""

from __future__ import annotations

from fsxds.errors import ProtocolError
from fsxds.protocol.messages import SotwRequest, SotwResponse
from fsxds.protocol.poll import nonce_of
from fsxds.protocol.subscription import Subscription, select
from fsxds.resources import Snapshot

UNAVAILABLE = "UNAVAILABLE"


def answer_fetch(request: SotwRequest, snapshot: Snapshot | None) -> tuple[SotwResponse, Subscription]:
    """Return what a client should hold now, and what it asked for.

    Raises:
        ProtocolError: nothing good was loaded of the type, or of a resource that was named: with the code `UNAVAILABLE`.
    """
    type_url = request.type_url
    if snapshot is None or type_url in snapshot.withheld:
        raise ProtocolError("nothing good was loaded yet; see the server's log, or run `fsxds check`", UNAVAILABLE)
    subscription = Subscription.for_request(type_url, request.names)
    selection = select(snapshot, subscription)
    if selection.missing and type_url in snapshot.incomplete:
        raise ProtocolError("a file that may define this resource was never good", UNAVAILABLE)
    response = SotwResponse(type_url, selection.version, nonce_of(selection.version), tuple(selection.resources))
    return response, subscription
