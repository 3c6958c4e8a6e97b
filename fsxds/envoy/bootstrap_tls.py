"""TLS between an Envoy and fsxds, as a bootstrap has it (pure)."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import PurePath

from fsxds.envoy.envoy_bootstrap import XDS_CLUSTER, Section
from fsxds.values import PlainValue

# Envoy counts the handshake in. One takes fsxds milliseconds, and after a restart of it all Envoys come at once.
CONNECT_TIMEOUT = "5s"

_UPSTREAM = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


@dataclass(frozen=True, slots=True)
class EnvoyTls:
    """The files by which an Envoy knows fsxds, and fsxds the Envoy: paths on the Envoy's machine.

    Attributes:
        ca: who signs the certificate of fsxds.
        cert: the Envoy's own certificate; None where fsxds asks for none.
        key: the key to that.
    """

    ca: PurePath
    cert: PurePath | None = None
    key: PurePath | None = None


def with_tls(bootstrap: Section, tls: EnvoyTls) -> Section:
    """Return a bootstrap whose Envoy speaks TLS with fsxds; with a unix socket it stays as it is, as fsxds does."""
    static = bootstrap.get("static_resources")
    clusters = static.get("clusters") if isinstance(static, dict) else None
    if not isinstance(clusters, list):
        return bootstrap
    secured: list[PlainValue] = [
        _secured(each, tls) if isinstance(each, dict) and each.get("name") == XDS_CLUSTER else each for each in clusters
    ]
    return {**bootstrap, "static_resources": {"clusters": secured}}


def _secured(cluster: Section, tls: EnvoyTls) -> Section:
    host = _host_of(cluster)
    if host is None:
        return cluster
    is_address = _is_address(host)
    common: Section = {
        "validation_context": {
            "trusted_ca": {"filename": str(tls.ca)},
            "match_typed_subject_alt_names": [
                {"san_type": "IP_ADDRESS" if is_address else "DNS", "matcher": {"exact": host}}
            ],
        },
    }
    if tls.cert is not None and tls.key is not None:
        pair: Section = {
            "certificate_chain": {"filename": str(tls.cert)},
            "private_key": {"filename": str(tls.key)},
        }
        common["tls_certificates"] = [pair]
    # An address is no name that a client may ask for (RFC 6066, 3).
    context: Section = {"@type": _UPSTREAM, **({} if is_address else {"sni": host}), "common_tls_context": common}
    transport_socket: Section = {"name": "envoy.transport_sockets.tls", "typed_config": context}
    return {**cluster, "connect_timeout": CONNECT_TIMEOUT, "transport_socket": transport_socket}


def _host_of(cluster: PlainValue) -> str | None:
    """Return the host that a cluster with one endpoint leads to; None for a unix socket."""
    if isinstance(cluster, list):
        return next((host for each in cluster if (host := _host_of(each)) is not None), None)
    if not isinstance(cluster, dict):
        return None
    socket = cluster.get("socket_address")
    return str(socket["address"]) if isinstance(socket, dict) else _host_of([*cluster.values()])


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
