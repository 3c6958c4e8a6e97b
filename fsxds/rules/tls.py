"""TLS: what belongs together in its contexts, and the names of ciphers and curves."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

_TLS = "envoy.extensions.transport_sockets.tls.v3."
_RULE = "wrong-tls"
_TICKET_KEY_BYTES = 80
_OTHER_NAME = 5
_OID = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_LONGEST_ALPN = 65_535

_SEPARATORS = re.compile(r"[:,; |\[\]]+")
_WHOLE_NAME = re.compile(r"[A-Z0-9]+(?:-[A-Z0-9]+)+|TLS_[A-Z0-9_]+")


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over TLS contexts, but for what is in certificates."""
    features = catalogue.features
    return {
        _TLS + "DownstreamTlsContext": (_check_downstream,),
        _TLS + "UpstreamTlsContext": (_check_upstream,),
        _TLS + "CommonTlsContext.alpn_protocols": (_check_alpn,),
        _TLS + "TlsParameters": (_check_versions,),
        _TLS + "TlsParameters.cipher_suites": (_suites(features.ciphers),) if features is not None else (),
        _TLS + "TlsParameters.ecdh_curves": (_curves(features.curves),) if features is not None else (),
        _TLS + "CertificateValidationContext": (_check_validation,),
        _TLS + "SubjectAltNameMatcher": (_check_other_name,),
        _TLS + "TlsSessionTicketKeys": (_check_ticket_keys,),
        _TLS + "Secret": (_check_secret,),
    }


def _check_downstream(context: Any, path: Path, walk: Walk) -> None:
    common = context.common_tls_context
    place = (path, "common_tls_context")
    if common.tls_certificates and common.tls_certificate_sds_secret_configs:
        message = "certificates are written here and discovered, which Envoy does not mix"
        walk.tell((place, "tls_certificates"), _RULE, message, "keep one of the two")
    for index, certificate in enumerate(common.tls_certificates):
        if not certificate.ListFields():
            at = ((place, "tls_certificates"), index)
            walk.tell(at, _RULE, "a certificate of a server has a content", "add certificate_chain and private_key")
    if not (common.tls_certificates or common.tls_certificate_sds_secret_configs or _has_other_source(common)):
        message = "a server needs a certificate"
        remedy = "add tls_certificates, or tls_certificate_sds_secret_configs"
        walk.tell(place, _RULE, message, remedy)


def _has_other_source(common: Any) -> bool:
    """Tell whether certificates may come by a way that nothing is known of here."""
    known = {
        "tls_params", "tls_certificates", "tls_certificate_sds_secret_configs", "validation_context", "key_log",
        "validation_context_sds_secret_config", "combined_validation_context", "alpn_protocols",
    }  # fmt: skip
    return any(field.name not in known for field, _ in common.ListFields())


def _check_upstream(context: Any, path: Path, walk: Walk) -> None:
    common = context.common_tls_context
    place = (path, "common_tls_context")
    count = len(common.tls_certificates) + len(common.tls_certificate_sds_secret_configs)
    if count > 1:
        message = f"a client has at most one certificate, here are {count}"
        walk.tell(place, _RULE, message, "keep one")
    if context.auto_sni_san_validation and common.WhichOneof("validation_context_type") is None:
        message = "auto_sni_san_validation needs a validation context"
        walk.tell((path, "auto_sni_san_validation"), _RULE, message, "add one with a trusted_ca")


def _check_alpn(protocols: Any, path: Path, walk: Walk) -> None:
    length = 0
    for index, protocol in enumerate(protocols):
        size = len(protocol.encode())
        length += size + 1
        if size > 255:
            walk.tell((path, index), _RULE, f"must be at most 255 bytes, is {size}", "shorten it")
            return
    if length > _LONGEST_ALPN:
        walk.tell(path, _RULE, "are too many", "keep those that are in use")


def _suites(ciphers: frozenset[str]) -> Hook:
    """Make the rule over names of ciphers; of groups such as HIGH nothing is said."""

    def is_no_cipher(name: str) -> bool:
        return _WHOLE_NAME.fullmatch(name) is not None and name not in ciphers

    def check_suites(all_suites: Any, path: Path, walk: Walk) -> None:
        for index, suites in enumerate(all_suites):
            if suites in ciphers:
                continue
            wrong = next((name for name in _SEPARATORS.split(suites) if is_no_cipher(name)), None)
            if wrong is not None:
                remedy = "see the list in Envoy's documentation of TlsParameters"
                if wrong.startswith("TLS_"):
                    remedy = "the ciphers of TLS 1.3 are not chosen: remove it"
                walk.tell((path, index), _RULE, "has a cipher that Envoy does not know", remedy)

    return check_suites


def _curves(groups: Mapping[str, str]) -> Hook:
    """Make the rule over names of curves; Envoy joins them with colons, so that one text may hold several."""

    def check_curves(curves: Any, path: Path, walk: Walk) -> None:
        if not any(curves):
            return
        seen: set[str] = set()
        for index, listed in enumerate(curves):
            for curve in listed.split(":"):
                group = groups.get(curve)
                if group is None or group in seen:
                    fact = "holds a curve that Envoy does not know" if group is None else f'"{curve}" is here twice'
                    walk.tell((path, index), _RULE, fact, f"write some of {', '.join(sorted(set(groups.values())))}")
                    return
                seen.add(group)

    return check_curves


def _check_versions(params: Any, path: Path, walk: Walk) -> None:
    lowest, highest = params.tls_minimum_protocol_version, params.tls_maximum_protocol_version
    if lowest and highest and lowest > highest:
        message = "the minimum version is above the maximum version: no handshake can succeed"
        walk.warn((path, "tls_minimum_protocol_version"), _RULE, message, "exchange them")


def _check_validation(context: Any, path: Path, walk: Walk) -> None:
    """Check what stands in a validation context; a combined one gets its CA from elsewhere, so nothing is told of it."""
    if path is None or path[1] != "default_validation_context":
        _check_trust(context, path, walk)
    for index, digest in enumerate(context.verify_certificate_hash):
        length = len(digest)
        if (length == 64 and not _is_hex(digest)) or (length == 95 and not _is_hex(digest.replace(":", ""))):
            place = ((path, "verify_certificate_hash"), index)
            walk.tell(place, _RULE, "is not a SHA-256 in hex", "write 64 digits, or 32 pairs of them with colons")
    for index, digest in enumerate(context.verify_certificate_spki):
        if len(digest) == 44 and not _is_digest(digest):
            place = ((path, "verify_certificate_spki"), index)
            walk.tell(place, _RULE, "is not a SHA-256 in base64", "write the 44 characters of one")


def _check_other_name(matcher: Any, path: Path, walk: Walk) -> None:
    if matcher.san_type == _OTHER_NAME and _OID.fullmatch(matcher.oid) is None:
        message = "a name of type OTHER_NAME needs the object identifier of its kind"
        walk.tell((path, "oid"), _RULE, message, 'write such as "1.3.6.1.4.1.311.20.2.3"')


def _check_trust(context: Any, path: Path, walk: Walk) -> None:
    if context.HasField("trusted_ca") or context.HasField("custom_validator_config"):
        return
    remedy = "add trusted_ca"
    # A secret may be combined with a context that has one.
    tell = walk.warn if path == (None, "validation_context") else walk.tell
    for field in ("match_typed_subject_alt_names", "match_subject_alt_names"):
        if getattr(context, field) and not context.HasField("ca_certificate_provider_instance"):
            tell((path, field), _RULE, "names are not verified without a trusted CA", remedy)
    if context.HasField("crl"):
        tell((path, "crl"), _RULE, "a revocation list needs a trusted CA", remedy)
    if context.allow_expired_certificate:
        tell((path, "allow_expired_certificate"), _RULE, "has no meaning without a trusted CA", remedy)


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdefABCDEF" for character in text)


def _is_digest(text: str) -> bool:
    try:
        return len(base64.b64decode(text, validate=True)) == 32
    except (binascii.Error, ValueError):
        return False


def _check_ticket_keys(keys: Any, path: Path, walk: Walk) -> None:
    for index, key in enumerate(keys.keys):
        chosen = key.WhichOneof("specifier")
        if chosen in {"inline_string", "inline_bytes"}:
            value = getattr(key, chosen)
            size = len(value.encode() if isinstance(value, str) else value)
            if size != _TICKET_KEY_BYTES:
                place = ((path, "keys"), index)
                walk.tell(place, _RULE, f"must be {_TICKET_KEY_BYTES} bytes, is {size}", "make it of random bytes")


def _check_secret(secret: Any, path: Path, walk: Walk) -> None:
    if secret.WhichOneof("type") is None:
        remedy = "add tls_certificate, validation_context, session_ticket_keys or generic_secret"
        walk.warn(path, "empty-secret", "a secret needs a content", remedy)
