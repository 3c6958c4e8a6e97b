"""Stubs for files, folders, variables and scripts (pure).

A validating Envoy opens files and runs Lua, which may neither depend on this machine, nor act on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.fields import LIST_VALUE, STRUCT, VALUE, is_map, map_parts
from fsxds.api.walk import MessageVisitor

Change: TypeAlias = Callable[[DynamicMessage], None]
"""Changes one message in place."""

# Free-form content: it can be large, and no part of it is a message to change.
_LEAVES = frozenset({None, LIST_VALUE, STRUCT, VALUE})


class Reshaper:
    """Changes messages, also in Anys."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._visitor = MessageVisitor(catalogue, _holds_messages)

    def reshape(self, message: DynamicMessage, changes: Mapping[str, Change], every: Change | None = None) -> None:
        """Change a message and its parts, outer ones first.

        `changes` are by full name; `every` applies to all.
        """

        def change_one(part: DynamicMessage) -> bool:
            if change := changes.get(part.DESCRIPTOR.full_name):
                change(part)
            if every is not None:
                every(part)
            return True

        self._visitor.visit(message, change_one)


def _held_type(field: FieldDescriptor) -> str | None:
    """Return the message type of a field's value, or of a map's values."""
    held = (map_parts(field)[1] if is_map(field) else field).message_type
    return None if held is None else held.full_name


def _holds_messages(field: FieldDescriptor) -> bool:
    return _held_type(field) not in _LEAVES


STUB_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIICDzCCAbagAwIBAgIUPB6NOosNDw0PLI5M3gHXZdUMvj4wCgYIKoZIzj0EAwIw
UDEVMBMGA1UEAwwMc3R1Yi5pbnZhbGlkMTcwNQYDVQQKDC5mc3hkcyBzdGFuZC1p
biBmb3IgYSBmaWxlLCBuZXZlciB0byBiZSB0cnVzdGVkMCAXDTI2MTEyMDIzMzUz
MFoYDzIwOTgwMTI2MjMzNTMwWjBQMRUwEwYDVQQDDAxzdHViLmludmFsaWQxNzA1
BgNVBAoMLmZzeGRzIHN0YW5kLWluIGZvciBhIGZpbGUsIG5ldmVyIHRvIGJlIHRy
dXN0ZWQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATZ/P3ndn1rnbZfZNlIkpYB
reGcv+PdT9+lCXK34zaVIrxMdCi8kr2bkHuTljkY/rNdGP/RSz0bBiN+i60VOCOI
o2wwajAdBgNVHQ4EFgQUHbvOQ9mjBJQ8RsIh+r61Xgz433kwHwYDVR0jBBgwFoAU
HbvOQ9mjBJQ8RsIh+r61Xgz433kwDwYDVR0TAQH/BAUwAwEB/zAXBgNVHREEEDAO
ggxzdHViLmludmFsaWQwCgYIKoZIzj0EAwIDRwAwRAIgDehaWRGumhy4lyJ0w8mH
CDd5JfbAQlbj3Erw08xF1DkCIDqZuJ1zqK8uBVKUY3xHEeP/XXMxlhAFbnR6XlGw
8tLL
-----END CERTIFICATE-----
"""
"""A self-signed certificate of the name `stub.invalid`, which is its own authority; it ends in 2098."""

STUB_PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg8H2Ct8oUfNxVZF/2
5FLE5Nt+odIEfwLj9CFwii0z0pChRANCAATZ/P3ndn1rnbZfZNlIkpYBreGcv+Pd
T9+lCXK34zaVIrxMdCi8kr2bkHuTljkY/rNdGP/RSz0bBiN+i60VOCOI
-----END PRIVATE KEY-----
"""
"""The key of `STUB_CERTIFICATE`; it is published here, so it protects nothing."""

STAND_IN = "fsxds-stand-in"
"""The name of a stand-in, or its beginning; also the cluster of all served sources."""

STUB_FILE = "stub"
"""The empty file in the folder that replaces all others."""

_TEXT = "stub"
# The public half of the key above.
_JWKS = (
    '{"keys": [{"kty": "EC", "crv": "P-256", "alg": "ES256", "kid": "stub", '
    '"x": "2fz953Z9a522X2TZSJKWAa3hnL_j3U_fpQlyt-M2lSI", "y": "vEx0KLySvZuQe5OWORj-s10Y_9FLPRsGI36LrRU4I4g"}]}'
)
_GRPC, _V3 = 2, 2  # ApiConfigSource.GRPC, ApiVersion.V3
_TICKET_KEY = bytes(80)
_DATA_SOURCE = "envoy.config.core.v3.DataSource"
_TLS = "envoy.extensions.transport_sockets.tls.v3."
_HTTP_FILTERS = "envoy.extensions.filters.http."
_GOOGLE_CREDENTIALS = "envoy.config.core.v3.GrpcService.GoogleGrpc.SslCredentials."
_LUA_MATCHER = "envoy.extensions.string_matcher.lua.v3.Lua"
_LUA_SPECIFIER = "envoy.extensions.router.cluster_specifiers.lua.v3.LuaConfig"
# Fields with Lua sources, and the functions that Envoy demands of them.
_LUA_SOURCES = {
    f"{_HTTP_FILTERS}lua.v3.Lua": ("default_source_code", "source_codes"),
    f"{_HTTP_FILTERS}lua.v3.LuaPerRoute": ("source_code",),
    _LUA_MATCHER: ("source_code",),
    _LUA_SPECIFIER: ("source_code",),
}
_LUA_FUNCTIONS = ("envoy_match", "envoy_on_route")
_BYTECODE = b"\x1b"
_ROLES_ANYWHERE = "envoy.extensions.common.aws.v3.IAMRolesAnywhereCredentialProvider."

# The content of stub files, by the full name of the field; Envoy reads these.
_CONTENTS = {
    f"{_TLS}SPIFFECertValidatorConfig.TrustDomain.trust_bundle": STUB_CERTIFICATE,
    f"{_TLS}GenericSecret.secret": _TEXT,
    f"{_TLS}GenericSecret.SecretsEntry.value": _TEXT,
    f"{_GOOGLE_CREDENTIALS}cert_chain": STUB_CERTIFICATE,
    f"{_GOOGLE_CREDENTIALS}private_key": STUB_PRIVATE_KEY,
    f"{_GOOGLE_CREDENTIALS}root_certs": STUB_CERTIFICATE,
    f"{_ROLES_ANYWHERE}certificate": STUB_CERTIFICATE,
    f"{_ROLES_ANYWHERE}certificate_chain": STUB_CERTIFICATE,
    f"{_ROLES_ANYWHERE}private_key": STUB_PRIVATE_KEY,
    f"{_HTTP_FILTERS}basic_auth.v3.BasicAuth.users": "stub:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw=",
    f"{_HTTP_FILTERS}basic_auth.v3.BasicAuthPerRoute.users": "stub:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw=",
    f"{_HTTP_FILTERS}jwt_authn.v3.JwtProvider.local_jwks": _JWKS,
    "envoy.extensions.filters.common.jwks.v3.JwtHandshakeValidator.local_jwks": _JWKS,
    f"{_HTTP_FILTERS}lua.v3.Lua.default_source_code": "-- stub",
    f"{_HTTP_FILTERS}lua.v3.Lua.SourceCodesEntry.value": "-- stub",
    f"{_HTTP_FILTERS}lua.v3.LuaPerRoute.source_code": "-- stub",
    f"{_LUA_MATCHER}.source_code": "function envoy_match() end",
    f"{_LUA_SPECIFIER}.source_code": "function envoy_on_route() end",
    "envoy.config.core.v3.SubstitutionFormatString.text_format_source": _TEXT,
    "envoy.config.grpc_credential.v3.FileBasedMetadataConfig.secret_data": _TEXT,
    "envoy.config.route.v3.DirectResponseAction.body": _TEXT,
    "envoy.config.trace.v3.LightstepConfig.access_token": _TEXT,
    "envoy.extensions.filters.network.direct_response.v3.Config.response": _TEXT,
    "envoy.extensions.filters.network.http_connection_manager.v3.ResponseMapper.body": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions.auth_password": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions.auth_username": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions.Credential.auth_password": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProtocolOptions.Credential.auth_username": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.downstream_auth_password": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.downstream_auth_passwords": _TEXT,
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy.downstream_auth_username": _TEXT,
    "envoy.extensions.http.custom_response.local_response_policy.v3.LocalResponsePolicy.body": _TEXT,
}

# Paths that Envoy opens when it creates the object with this field.
_FILE_FIELDS = {
    "envoy.config.core.v3.HealthCheck": "event_log_path",
    "envoy.extensions.access_loggers.file.v3.FileAccessLog": "path",
    "envoy.extensions.health_check.event_sinks.file.v3.HealthCheckEventFileSink": "event_log_path",
    # Libraries that Envoy would load, and so run.
    "envoy.extensions.filters.http.golang.v3alpha.Config": "library_path",
    "envoy.extensions.filters.network.golang.v3alpha.Config": "library_path",
    "envoy.extensions.key_value.file_based.v3.FileBasedKeyValueStoreConfig": "filename",
    f"{_TLS}TlsKeyLog": "path",
}
_FOLDER_FIELDS = {
    "envoy.config.core.v3.WatchedDirectory": "path",
    "envoy.extensions.http.cache.file_system_http_cache.v3.FileSystemHttpCacheConfig": "cache_path",
    "envoy.extensions.http.cache_v2.file_system_http_cache.v3.FileSystemHttpCacheV2Config": "cache_path",
}

# These load code or data of the target machine, which cannot be replaced.
_BEYOND_REACH = frozenset(
    {
        "envoy.config.trace.v3.DynamicOtConfig",
        "envoy.extensions.dynamic_modules.v3.DynamicModuleConfig",
        "envoy.extensions.filters.http.golang.v3alpha.Config",
        "envoy.extensions.filters.network.golang.v3alpha.Config",
        "envoy.extensions.geoip_providers.maxmind.v3.MaxMindConfig",
        "envoy.extensions.wasm.v3.VmConfig",
    }
)


class FileStubs:
    """Replaces files, folders and variables of the target machine.

    Attributes:
        is_complete: all content since the last reset has a valid stub.
    """

    def __init__(self, folder: str) -> None:
        """Use this folder, which must exist, and the file in it."""
        self._folder = folder
        self._file = f"{folder}/{STUB_FILE}"
        self._sources: dict[str, tuple[FieldDescriptor, ...]] = {}
        self.is_complete = True

    def changes(self) -> dict[str, Change]:
        """Return the changes by full name."""
        changes: dict[str, Change] = {
            f"{_TLS}TlsCertificate": _change_certificate,
            f"{_TLS}CertificateValidationContext": _change_validation,
            f"{_TLS}TlsSessionTicketKeys": _change_ticket_keys,
            f"{_HTTP_FILTERS}grpc_json_transcoder.v3.GrpcJsonTranscoder": _change_transcoder,
            "envoy.config.core.v3.ApiConfigSource": _change_api_source,
            "envoy.config.core.v3.ConfigSource": _change_config_source,
        }
        changes |= {full_name: _writer(field, self._file) for full_name, field in _FILE_FIELDS.items()}
        changes |= {full_name: _writer(field, self._folder) for full_name, field in _FOLDER_FIELDS.items()}
        changes |= {full_name: _lua_guard(fields) for full_name, fields in _LUA_SOURCES.items()}
        return changes

    def change_sources(self, message: DynamicMessage) -> None:
        """Replace any message's data sources."""
        descriptor = message.DESCRIPTOR
        if descriptor.full_name in _BEYOND_REACH:
            self.is_complete = False
        if (fields := self._sources.get(descriptor.full_name)) is None:
            fields = tuple(field for field in descriptor.fields if _held_type(field) == _DATA_SOURCE)
            self._sources[descriptor.full_name] = fields
        for field in fields:
            content = _CONTENTS.get(
                f"{field.message_type.full_name}.value" if field.message_type and is_map(field) else field.full_name
            )
            for source in _values(message, field):
                if _is_elsewhere(source):
                    source.Clear()
                    source.inline_string = content or _TEXT
                    self.is_complete &= content is not None


def _writer(field: str, path: str) -> Change:
    def change(message: DynamicMessage) -> None:
        if getattr(message, field):
            setattr(message, field, path)

    return change


def compiled_only(script: str) -> str:
    """Return a script, with equal line numbers, that is only compiled.

    Envoy runs scripts when it loads them (ENVOY.md E62): `os.execute` would run on this machine, and `require` not find
    modules.
    """
    functions = "".join(f"function {name}() end " for name in _LUA_FUNCTIONS if name in script)
    return f"{functions}do return end {script}"


def _lua_guard(fields: tuple[str, ...]) -> Change:
    def change(message: DynamicMessage) -> None:
        if getattr(message, "inline_code", ""):
            message.inline_code = compiled_only(message.inline_code)
        for field in fields:
            for source in _values(message, message.DESCRIPTOR.fields_by_name[field]):
                _guard_source(source)

    return change


def _guard_source(source: DynamicMessage) -> None:
    form = source.WhichOneof("specifier")
    if form == "inline_bytes" and source.inline_bytes.startswith(_BYTECODE):
        # It cannot be compiled without running it.
        source.inline_bytes = b"-- stub"
    elif form == "inline_bytes" and source.inline_bytes:
        guarded = compiled_only(source.inline_bytes.decode("utf-8", "surrogateescape"))
        source.inline_bytes = guarded.encode("utf-8", "surrogateescape")
    elif form == "inline_string" and source.inline_string:
        source.inline_string = compiled_only(source.inline_string)


def _values(message: DynamicMessage, field: FieldDescriptor) -> list[DynamicMessage]:
    value = getattr(message, field.name)
    if not field.is_repeated:
        return [value] if message.HasField(field.name) else []
    return list(value.values() if is_map(field) else value)


def _is_elsewhere(source: DynamicMessage) -> bool:
    """An empty name stays, so that Envoy rejects it."""
    specifier = source.WhichOneof("specifier")
    return specifier in {"filename", "environment_variable"} and bool(getattr(source, specifier))


def _change_certificate(certificate: DynamicMessage) -> None:
    """Chain and key have to match, so both are replaced."""
    certificate.ClearField("watched_directory")
    parts = ("certificate_chain", "private_key", "pkcs12", "password")
    if any(_is_elsewhere(getattr(certificate, part)) for part in parts):
        for part in (*parts, "ocsp_staple", "signed_certificate_timestamp"):
            certificate.ClearField(part)
        certificate.certificate_chain.inline_string = STUB_CERTIFICATE
        certificate.private_key.inline_string = STUB_PRIVATE_KEY
    elif _is_elsewhere(certificate.ocsp_staple):
        certificate.ClearField("ocsp_staple")
    elsewhere = [source for source in certificate.signed_certificate_timestamp if _is_elsewhere(source)]
    if elsewhere:
        certificate.ClearField("signed_certificate_timestamp")


def _change_validation(validation: DynamicMessage) -> None:
    validation.ClearField("watched_directory")
    if _is_elsewhere(validation.trusted_ca):
        validation.trusted_ca.Clear()
        validation.trusted_ca.inline_string = STUB_CERTIFICATE
    if _is_elsewhere(validation.crl):
        validation.ClearField("crl")


def _change_config_source(source: DynamicMessage) -> None:
    """A validating Envoy has no ADS, and crashes of it (ENVOY.md E64)."""
    specifier = source.WhichOneof("config_source_specifier")
    path = source.path_config_source.path if specifier == "path_config_source" else source.path
    # An empty path stays, so that Envoy rejects it.
    if specifier == "ads" or path:
        api = source.api_config_source
        api.api_type, api.transport_api_version = _GRPC, _V3
        api.grpc_services.add().envoy_grpc.cluster_name = STAND_IN


def _change_api_source(source: DynamicMessage) -> None:
    """Prevent calls: Envoy starts some subscriptions even when it validates."""
    for service in source.grpc_services:
        if service.HasField("google_grpc"):
            service.google_grpc.target_uri = f"unix:/{STAND_IN}"


def _change_ticket_keys(ticket_keys: DynamicMessage) -> None:
    for source in ticket_keys.keys:
        if _is_elsewhere(source):
            source.Clear()
            source.inline_bytes = _TICKET_KEY


def _change_transcoder(transcoder: DynamicMessage) -> None:
    if transcoder.proto_descriptor:
        transcoder.proto_descriptor_bin = b""
        transcoder.ClearField("services")
