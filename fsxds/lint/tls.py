"""TLS: contexts, ciphers and curves, certificates and keys."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hook, Hooks, Path, Walk
from fsxds.lint.field_values import inline
from fsxds.model.memo import Lru

_TLS = "envoy.extensions.transport_sockets.tls.v3."
_BLOCK = re.compile(
    rb"^-----BEGIN ([A-Z0-9 ]+)-----[ \t]*\r?\n(.*?)^-----END \1-----[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
_KEY_LABEL = re.compile(rb"(-----(?:BEGIN|END)) (?:EC|RSA) PRIVATE KEY-----")
_CERTIFICATES = frozenset({b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"})
_SMALLEST_RSA = 2048
_MOST_REMEMBERED = 1000
_TICKET_KEY_BYTES = 80
_OTHER_NAME = 5
_OID = re.compile(r"[0-9]+(?:\.[0-9]+)+")
_HEX_SHA256, _BASE64_SHA256 = re.compile(r"[0-9a-fA-F]{64}|[0-9a-fA-F:]{95}"), re.compile(r"[A-Za-z0-9+/]{43}=")
_LONGEST_ALPN = 65_535

_SEPARATORS = re.compile(r"[:,; |+\[\]]+")
# The names of groups, such as HIGH or CHACHA20, and @STRENGTH are shorter.
_WHOLE_NAME = re.compile(r"[A-Z0-9]+(?:-[A-Z0-9]+)+|TLS_[A-Z0-9_]+|.{12,}")

Compare: TypeAlias = Callable[[bytes, bytes, "bytes | None"], "tuple[str, str, str] | None"]
"""Compares a chain, a key and its password; returns the field, the fact and the remedy."""


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of TLS, only of texts without `cryptography`."""
    features, certificates = catalogue.features, CertificateChecks(_compare)
    return {
        _TLS + "TlsCertificate": (certificates.check_certificate,),
        _TLS + "CertificateValidationContext": (_check_validation,),
        _TLS + "DownstreamTlsContext": (_check_downstream,),
        _TLS + "UpstreamTlsContext": (_check_upstream,),
        _TLS + "CommonTlsContext.alpn_protocols": (_check_alpn,),
        _TLS + "TlsParameters": (_check_versions,),
        _TLS + "TlsParameters.cipher_suites": (_suites(features.ciphers),) if features is not None else (),
        _TLS + "TlsParameters.ecdh_curves": (_curves(features.curves),) if features is not None else (),
        _TLS + "SubjectAltNameMatcher": (_check_other_name,),
        _TLS + "TlsSessionTicketKeys": (_check_ticket_keys,),
        _TLS + "Secret": (_check_secret,),
    }


# Fields beside the sources of a certificate.
_BESIDE = frozenset({
    "tls_params", "tls_certificates", "validation_context", "key_log", "validation_context_sds_secret_config",
    "combined_validation_context", "alpn_protocols",
})  # fmt: skip


def _check_downstream(context: DynamicMessage, path: Path, walk: Walk) -> None:
    common = context.common_tls_context
    place = (path, "common_tls_context")
    if common.tls_certificates and common.tls_certificate_sds_secret_configs:
        message = "certificates are written here and discovered, which Envoy does not mix"
        walk.error((place, "tls_certificates"), "wrong-tls", message, "keep one of the two")
    for index, certificate in enumerate(common.tls_certificates):
        if not certificate.ListFields():
            at = ((place, "tls_certificates"), index)
            remedy = "add certificate_chain and private_key"
            walk.error(at, "wrong-tls", "a certificate of a server has a content", remedy)
    # Any other field may bring one.
    if not any(field.name == "tls_certificates" or field.name not in _BESIDE for field, _ in common.ListFields()):
        message = "a server needs a certificate"
        remedy = "add tls_certificates, or tls_certificate_sds_secret_configs"
        walk.error(place, "wrong-tls", message, remedy)


def _check_upstream(context: DynamicMessage, path: Path, walk: Walk) -> None:
    common = context.common_tls_context
    place = (path, "common_tls_context")
    count = len(common.tls_certificates) + len(common.tls_certificate_sds_secret_configs)
    if count > 1:
        message = f"a client has at most one certificate, here are {count}"
        walk.error(place, "wrong-tls", message, "keep one")
    if len(common.alpn_protocols) > 1 and "" in common.alpn_protocols:
        walk.error((place, "alpn_protocols"), "wrong-tls", "has an empty name: Envoy crashes", "remove it")
    if context.auto_sni_san_validation and common.WhichOneof("validation_context_type") is None:
        message = "auto_sni_san_validation needs a validation context"
        walk.error((path, "auto_sni_san_validation"), "wrong-tls", message, "add one with a trusted_ca")


def _check_alpn(protocols: FieldValue, path: Path, walk: Walk) -> None:
    length = 0
    for index, protocol in enumerate(protocols):
        size = len(protocol.encode())
        length += size + 1
        if size > 255:
            walk.error((path, index), "wrong-tls", f"must be at most 255 bytes, is {size}", "shorten it")
            return
    if length > _LONGEST_ALPN:
        walk.error(path, "wrong-tls", "are too many", "keep only protocols in use")


def _suites(ciphers: frozenset[str]) -> Hook:
    """Groups such as HIGH are not checked."""

    def is_no_cipher(name: str) -> bool:
        return _WHOLE_NAME.fullmatch(name) is not None and name not in ciphers

    def check_suites(all_suites: FieldValue, path: Path, walk: Walk) -> None:
        for index, suites in enumerate(all_suites):
            if suites in ciphers:
                continue
            wrong = next((name for name in _SEPARATORS.split(suites) if is_no_cipher(name)), None)
            if wrong is not None:
                remedy = "see the list in Envoy's documentation of TlsParameters"
                if wrong.startswith("TLS_"):
                    remedy = "the ciphers of TLS 1.3 are not chosen: remove it"
                walk.error((path, index), "wrong-tls", "has a cipher that Envoy does not know", remedy)

    return check_suites


def _curves(groups: Mapping[str, str]) -> Hook:
    """Envoy joins names with colons: a text may hold several."""

    def check_curves(curves: FieldValue, path: Path, walk: Walk) -> None:
        if not any(curves):
            return
        seen: set[str] = set()
        for index, listed in enumerate(curves):
            for curve in listed.split(":"):
                group = groups.get(curve)
                if group is None or group in seen:
                    fact = "holds a curve that Envoy does not know" if group is None else f'"{curve}" is duplicated'
                    remedy = f"write some of {', '.join(sorted(set(groups.values())))}"
                    walk.error((path, index), "wrong-tls", fact, remedy)
                    return
                seen.add(group)

    return check_curves


def _check_versions(params: DynamicMessage, path: Path, walk: Walk) -> None:
    lowest, highest = params.tls_minimum_protocol_version, params.tls_maximum_protocol_version
    if lowest and highest and lowest > highest:
        message = "the minimum version is above the maximum version: no handshake can succeed"
        walk.warning((path, "tls_minimum_protocol_version"), "wrong-tls", message, "exchange them")


def _check_validation(context: DynamicMessage, path: Path, walk: Walk) -> None:
    """A combined context gets its CA from elsewhere."""
    trusted = inline(context.trusted_ca) if context.HasField("trusted_ca") else None
    if trusted == b"":
        walk.error((path, "trusted_ca"), "wrong-certificate", "is empty", "write the certificates in PEM")
    elif trusted is not None:
        _report_unreadable(trusted, (path, "trusted_ca"), walk)
    if path is None or path[1] != "default_validation_context":
        _check_trust(context, path, walk)
    for index, digest in enumerate(context.verify_certificate_hash):
        if len(digest) in {64, 95} and not _HEX_SHA256.fullmatch(digest):
            place = ((path, "verify_certificate_hash"), index)
            remedy = "write 64 digits, or 32 pairs of them with colons"
            walk.error(place, "wrong-tls", "is not a SHA-256 in hex", remedy)
    for index, digest in enumerate(context.verify_certificate_spki):
        if len(digest) == 44 and not _BASE64_SHA256.fullmatch(digest):
            place = ((path, "verify_certificate_spki"), index)
            walk.error(place, "wrong-tls", "is not a SHA-256 in base64", "write the 44 characters of one")


def _check_other_name(matcher: DynamicMessage, path: Path, walk: Walk) -> None:
    if matcher.san_type == _OTHER_NAME and _OID.fullmatch(matcher.oid) is None:
        message = "a name of type OTHER_NAME needs the object identifier of its kind"
        walk.error((path, "oid"), "wrong-tls", message, 'write such as "1.3.6.1.4.1.311.20.2.3"')


def _check_trust(context: DynamicMessage, path: Path, walk: Walk) -> None:
    if context.HasField("trusted_ca") or context.HasField("custom_validator_config"):
        return
    remedy = "add trusted_ca"
    # A secret may be combined with a context that has one.
    report = walk.warning if path == (None, "validation_context") else walk.error
    for field in ("match_typed_subject_alt_names", "match_subject_alt_names"):
        if getattr(context, field) and not context.HasField("ca_certificate_provider_instance"):
            report((path, field), "wrong-tls", "names are not verified without a trusted CA", remedy)
    if context.HasField("crl"):
        report((path, "crl"), "wrong-tls", "a revocation list needs a trusted CA", remedy)
    if context.allow_expired_certificate:
        report((path, "allow_expired_certificate"), "wrong-tls", "has no meaning without a trusted CA", remedy)


def _check_ticket_keys(keys: DynamicMessage, path: Path, walk: Walk) -> None:
    for index, key in enumerate(keys.keys):
        content = inline(key)
        if content is not None and len(content) != _TICKET_KEY_BYTES:
            message = f"must be {_TICKET_KEY_BYTES} bytes, is {len(content)}"
            walk.error(((path, "keys"), index), "wrong-tls", message, "make it of random bytes")


def _check_secret(secret: DynamicMessage, path: Path, walk: Walk) -> None:
    if secret.WhichOneof("type") is None:
        remedy = "add tls_certificate, validation_context, session_ticket_keys or generic_secret"
        walk.warning(path, "empty-secret", "a secret needs a content", remedy)


class CertificateChecks:
    """Compares each certificate and key once."""

    def __init__(self, compare: Compare | None) -> None:
        """Take a comparison; None if not installed."""
        self._compare = compare
        self._known: Lru[tuple[bytes, bytes, bytes | None], tuple[str, str, str] | None] = Lru(_MOST_REMEMBERED)

    def check_certificate(self, certificate: DynamicMessage, path: Path, walk: Walk) -> None:
        """Certificate and key must exist and match."""
        if certificate.HasField("pkcs12"):
            if certificate.HasField("certificate_chain") or certificate.HasField("private_key"):
                message = "a PKCS #12 bundle holds the chain and the key already"
                walk.error(
                    (path, "pkcs12"), "wrong-certificate", message, "keep pkcs12, or certificate_chain and private_key"
                )
            return
        if not certificate.ListFields() and (path is None or path[1] != "tls_certificate"):
            return  # valid for a client; for a server it is reported there
        has_key = certificate.HasField("private_key") or certificate.HasField("private_key_provider")
        if not certificate.HasField("certificate_chain"):
            walk.error(path, "wrong-certificate", "a certificate needs a certificate_chain", "add it")
            return
        if not has_key:
            walk.error(path, "wrong-certificate", "a certificate needs its private_key", "add it")
            return
        if certificate.ocsp_staple.WhichOneof("specifier") == "inline_string":
            message = "an OCSP staple cannot be given as inline_string"
            remedy = "write inline_bytes, in base64"
            walk.error(((path, "ocsp_staple"), "inline_string"), "wrong-certificate", message, remedy)
        self._check_pair(certificate, path, walk)

    def _check_pair(self, certificate: DynamicMessage, path: Path, walk: Walk) -> None:
        chain, key = inline(certificate.certificate_chain), inline(certificate.private_key)
        if chain is not None and _report_unreadable(chain, (path, "certificate_chain"), walk):
            return
        if key is None or certificate.HasField("private_key_provider"):
            return
        if b"-----BEGIN " not in key or b"PRIVATE KEY-----" not in key:
            message = "is not a private key in PEM"
            walk.error((path, "private_key"), "wrong-certificate", message, "write the whole key, from BEGIN to END")
            return
        password = inline(certificate.password) if certificate.HasField("password") else None
        is_external = certificate.HasField("password") and password is None
        if chain is None or is_external or self._compare is None:
            return
        pair = chain, key, password
        compare = self._compare
        fault = self._known.find(pair, lambda: compare(*pair))
        if fault is not None:
            field, message, remedy = fault
            rule = "key-mismatch" if message.startswith("does not belong") else "wrong-certificate"
            walk.error((path, field), rule, message, remedy)


def _report_unreadable(chain: bytes, path: Path, walk: Walk) -> bool:
    """Return whether there is no readable certificate."""
    blocks = [match for match in _BLOCK.finditer(chain) if match[1] in _CERTIFICATES]
    if not blocks:
        remedy = "write the whole certificate, from BEGIN to END"
        walk.error(path, "wrong-certificate", "holds no certificate in PEM", remedy)
        return True
    for number, match in enumerate(blocks, 1):
        if match[1] != b"TRUSTED CERTIFICATE" and not _is_certificate(match[0] + b"\n"):
            message = f"certificate {number} of {len(blocks)} cannot be read"
            walk.error(path, "wrong-certificate", message, "write the whole certificate, from BEGIN to END")
            return True
    return False


_compare: Compare | None
_is_certificate: Callable[[bytes], bool]
try:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    def _compare_pair(chain: bytes, key: bytes, password: bytes | None) -> tuple[str, str, str] | None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about old forms that Envoy accepts silently
            try:
                public = x509.load_pem_x509_certificate(chain).public_key()
            except (ValueError, UnsupportedAlgorithm):
                return None  # parsed before; Envoy may accept a form that this library does not
            weak = _weakness(public)
            if weak is not None:
                remedy = "make it with RSA of 2048 bits or more, or ECDSA P-256, P-384 or P-521"
                return "certificate_chain", weak, remedy
            try:
                private = _load_key(key, password)
            except (TypeError, ValueError, UnsupportedAlgorithm) as error:
                return _unreadable(error, has_password=password is not None)
        form = Encoding.DER, PublicFormat.SubjectPublicKeyInfo
        if private.public_key().public_bytes(*form) == public.public_bytes(*form):
            return None
        remedy = "give the key that the certificate was made with; the leaf comes first in the chain"
        return "private_key", "does not belong to the first certificate of the chain", remedy

    def _load_key(key: bytes, password: bytes | None) -> Any:
        """Like Envoy's library, use the content even if the label differs."""
        try:
            return load_pem_private_key(key, password)
        except ValueError:
            relabeled = _KEY_LABEL.sub(rb"\1 PRIVATE KEY-----", key)
            if relabeled == key:
                raise
            return load_pem_private_key(relabeled, password)

    def _unreadable(error: Exception, *, has_password: bool) -> tuple[str, str, str] | None:
        if isinstance(error, TypeError) and not has_password:
            return "private_key", "is encrypted, and there is no password", "add password, or store the key decrypted"
        if isinstance(error, ValueError):
            remedy = "write the whole key in PEM, with the right password if it has one"
            return "private_key", "cannot be read", remedy
        return None  # an unneeded password, which Envoy accepts, or an algorithm that it may know

    def _weakness(public: Any) -> str | None:
        if isinstance(public, rsa.RSAPublicKey) and public.key_size < _SMALLEST_RSA:
            return f"its key has {public.key_size} bits, and Envoy demands {_SMALLEST_RSA}"
        if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name not in {
            "secp256r1",
            "secp384r1",
            "secp521r1",
        }:
            return f"its key is on the curve {public.curve.name}, which Envoy does not know"
        return None

    def _parses(block: bytes) -> bool:
        try:
            x509.load_pem_x509_certificate(block)
        except ValueError:
            return False
        return True

    _compare, _is_certificate = _compare_pair, _parses
except ImportError:  # the extra "certificates" is not installed
    _compare, _is_certificate = None, bool
