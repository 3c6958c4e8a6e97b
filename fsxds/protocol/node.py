"""Who asks: what a client says of itself, once per stream or with each poll."""

from __future__ import annotations

from dataclasses import dataclass, field

ENVOY = "envoy"
"""What an Envoy says that it is."""


@dataclass(frozen=True, slots=True)
class Node:
    """`node.id` and `node.cluster` of a request, and the IP address it came from ("" on a unix socket).

    `features` are its `client_features`; `agent` is its `user_agent_name`, which is "envoy" of an Envoy. `told` is the
    whole node as it was sent, serialized, without the list of extensions (61 kB in an Envoy); it is there to be shown, and
    decides nothing. Source: xDS protocol, "Basic Protocol Overview".
    """

    id: str
    cluster: str = ""
    peer: str = ""
    features: frozenset[str] = frozenset()
    agent: str = ""
    told: bytes = field(default=b"", compare=False, repr=False)
