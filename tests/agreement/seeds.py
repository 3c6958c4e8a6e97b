"""Valid resources of every type, written by hand in seeds/*.yaml; every mutation starts at one of them."""

from __future__ import annotations

import base64
import datetime as dt
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

FOLDER = Path(__file__).parent / "seeds"


@dataclass(frozen=True, slots=True)
class Seed:
    """One valid resource; `type_name` is the short name of its type, `cds` for a cluster."""

    type_name: str
    name: str
    resource: dict[str, Any]


def certificate_and_key(number: int) -> tuple[str, str]:
    """Return a self-signed certificate and its key as PEM; the same number gives the same pair."""
    key = ec.derive_private_key(number, ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "web.example.com")])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(2060, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    )
    certificate = builder.sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem).decode(), private.decode()


@cache
def _texts() -> dict[str, str]:
    certificate, key = certificate_and_key(7)
    return {
        "$CERTIFICATE": certificate,
        "$KEY": key,
        "$CERTIFICATE_BYTES": base64.b64encode(certificate.encode()).decode(),
        "$KEY_BYTES": base64.b64encode(key.encode()).decode(),
        "$TICKET": base64.b64encode(bytes(range(80))).decode(),
    }


def _read(name: str) -> Any:
    return yaml.load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)


def _filled(value: Any, filters: dict[str, Any]) -> Any:
    """Copy a value with what `$NAME` stands for in the places of its placeholders; nothing is shared within the copy."""
    if isinstance(value, dict):
        return {key: _filled(member, filters) for key, member in value.items()}
    if isinstance(value, list):
        return [_filled(member, filters) for member in value]
    if not isinstance(value, str):
        return value
    if match := re.fullmatch(r"\$(http_filters|access_logs)(?: (\d+):(\d+))?", value):
        name, first, last = match.groups()
        chosen = filters[name.removesuffix("_filters")]
        part = chosen[int(first) : int(last)] if first else chosen
        return [_filled(one, filters) for one in (part if name == "access_logs" else [*part, filters["router"]])]
    return _texts().get(value, value)


def _filters() -> dict[str, Any]:
    read = _read("filters")
    router_type = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
    return {**read, "router": {"name": "envoy.filters.http.router", "typed_config": {"@type": router_type}}}


@cache
def seeds() -> tuple[Seed, ...]:
    """Return all seeds, grouped by type."""
    filters = _filters()
    small, routes = _read("small"), _read("routes")
    by_type = {
        "rtds": small["runtime"],
        "sds": _read("secrets"),
        "cds": _read("clusters"),
        "eds": _read("endpoints"),
        "ecds": [{**one, "name": f"extension-{number}"} for number, one in enumerate(filters["http"])],
        "lds": _read("listeners"),
        "rds": routes["routes"],
        "srds": small["scoped_routes"],
        "vhds": routes["virtual_hosts"],
    }
    return tuple(
        Seed(type_name, one["cluster_name" if type_name == "eds" else "name"], _filled(one, filters))
        for type_name, rows in by_type.items()
        for one in rows
    )
