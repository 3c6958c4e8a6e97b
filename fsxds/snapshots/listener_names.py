"""How a listener is named that its author gave no name. Source: ENVOY.md J.

Envoy 1.40 accepts one of them, and gives it a random name in each response that holds it: every update of any listener
would replace it, and drain its connections. So it is served by a name that is made of its address.
"""

from __future__ import annotations

from typing import Any

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Reference
from fsxds.rules.mentions import UNNAMED
from fsxds.values import Fault, FieldPath, Severity

LISTENER = BY_SHORT_NAME["lds"]

ONLY_ONE = Reference(UNNAMED, "", (), Severity.ERROR)
"""Envoy accepts one listener without a name, and refuses two."""

_UDP = 1  # envoy.config.core.v3.SocketAddress.Protocol


def name_of_unnamed(listener: Any, wrapper_name: str) -> str:
    """Return the name of the `Resource` around a listener, else one made of its address; empty where it has none."""
    if wrapper_name or not listener.HasField("address"):
        return wrapper_name
    chosen = listener.address.WhichOneof("address")
    if chosen == "pipe":
        return f"unnamed-{listener.address.pipe.path}"
    if chosen != "socket_address":
        return ""
    socket = listener.address.socket_address
    port = socket.named_port or socket.port_value
    return f"unnamed-{socket.address}:{port}{'/udp' if socket.protocol == _UDP else ''}"


def unnamed_fault(name: str, place: FieldPath) -> Fault:
    """Say by which name an unnamed listener is served."""
    fact = f'the listener has no name and is served as "{name}"; Envoy would make up another one at every update'
    return Fault("unnamed-listener", fact, "give it a name", place, severity=Severity.NOTE)
