"""A relay's node, certificate and token for an upstream's servers; files are read each time."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from envoy.config.core.v3 import base_pb2
from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

from fsxds import __version__
from fsxds.client.client_tls import ClientTls
from fsxds.protocol.messages import Node
from fsxds.protocol.ttl import SOTW_TTL_FEATURES, TTL_FEATURE
from fsxds.settings.access_rules import read_token
from fsxds.settings.upstream_rules import UpstreamNode, UpstreamRule

AGENT = "fsxds"
# Times to live are passed on.
_FEATURES = frozenset({TTL_FEATURE, *SOTW_TTL_FEATURES})


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """Node and credentials for an upstream's servers."""

    rule: UpstreamRule
    announced: UpstreamNode | None = None

    def check(self) -> None:
        """Raise UsageError for an unusable file."""
        if (tls := self.tls()) is not None:
            tls.ssl_context()
        self.token()

    def tls(self) -> ClientTls | None:
        """Return the TLS files; None: plain text, or public trust."""
        return ClientTls.of(self.rule.ca, self.rule.cert, self.rule.key)

    def token(self) -> str:
        """Return the bearer token or "". Raises UsageError."""
        return "" if self.rule.token is None else read_token(self.rule.token)

    def node(self) -> Node:
        """Return the relay's node."""
        announced = self.announced or UpstreamNode()
        message = base_pb2.Node(
            id=announced.id or socket.gethostname(),
            cluster=announced.cluster,
            user_agent_name=AGENT,
            user_agent_version=__version__,
            client_features=sorted(_FEATURES),
        )
        if announced.metadata:
            message.metadata.CopyFrom(json_format.ParseDict(dict(announced.metadata), Struct()))
        locality = base_pb2.Locality(region=announced.region, zone=announced.zone, sub_zone=announced.sub_zone)
        if locality.ByteSize():
            message.locality.CopyFrom(locality)
        return Node(
            message.id, message.cluster, agent=AGENT, features=_FEATURES, serialized=message.SerializeToString()
        )
