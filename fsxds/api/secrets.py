"""Decides which values are secret, and masks them wherever fsxds shows them.

A value is secret because of

* its field: Envoy's `sensitive` option, `SECRET_FIELDS` and `SECRET_PLACES` for fields that Envoy does not mark, and
  messages in `_SECRET_TYPES`, of which only the source stays visible (`_OPEN_FIELDS`);
* the name of its header: values added to requests are hidden unless the header is one of `_HARMLESS_HEADERS`; values to
  compare with if the name is that of a credential (`is_secret_name`);
* its key in a Struct or a map, if that names a credential;
* its part of a URI or an authority: user info, and query parameters that name a credential. PEM blocks, JSON Web Tokens
  and credentials after `Bearer` or `Basic` are found in any text.
"""

from __future__ import annotations

import base64
import re
from binascii import Error as Base64Error
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from hashlib import sha256
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, LIST_VALUE, SPECIAL_JSON, STRUCT, VALUE, is_map, map_parts, owner_of, type_of_url
from fsxds.api.printing import Printer
from fsxds.model.memo import Lru
from fsxds.model.values import PlainValue, TypeUrl

# The number of resources whose answer is remembered, so that an edit checks only the changed ones again.
MOST_KNOWN = 100_000

HIDDEN: Final = "<hidden>"

Hide = Callable[[str], str]
"""Returns the text that replaces a secret."""

_SECRET_TYPES = frozenset(
    f"envoy.extensions.transport_sockets.tls.v3.{name}"
    for name in ("Secret", "TlsCertificate", "TlsSessionTicketKeys", "GenericSecret")
)

# Fields that hold secrets, by name: many have no option that marks them, and texts and Structs have no options.
SECRET_FIELDS = frozenset({
    "access_key_id", "access_token", "api_key", "auth_password", "auth_passwords", "auth_token", "auth_username",
    "authorization_token", "backend_token", "client_secret", "context_extensions", "credential", "credentials",
    "credentials_data_source", "downstream_auth_password", "downstream_auth_passwords", "downstream_auth_username",
    "google_refresh_token", "hmac_secret", "json_key", "key_values", "local_jwks", "password", "pkcs12", "private_key",
    "secret", "secret_access_key", "secret_data", "secrets", "session_ticket_keys", "session_token", "token",
    "token_secret", "users", "web_identity_token_data_source",
})  # fmt: skip

# Inline content of a DataSource; and programs, which have secrets written into them.
INLINE_FIELDS = frozenset({"inline_bytes", "inline_string"})
_CODE_FIELDS = frozenset({"default_source_code", "inline_code", "source_code", "source_codes"})
_SECRET_OR_CODE = SECRET_FIELDS | _CODE_FIELDS

# Fields whose names are harmless elsewhere.
SECRET_PLACES = frozenset({
    "envoy.config.core.v3.HealthCheck.Payload.binary",
    "envoy.config.core.v3.HealthCheck.Payload.text",
    "envoy.config.core.v3.TlvEntry.value",
    "envoy.extensions.common.aws.v3.AssumeRoleCredentialProvider.external_id",
    "envoy.extensions.filters.http.api_key_auth.v3.Credential.key",
    "envoy.extensions.filters.http.gcp_authn.v3.Audience.IAMAccessToken.authorization",
    "envoy.extensions.http.injected_credentials.oauth2.v3.OAuth2.EndpointParameter.value",
})  # fmt: skip

# The fields of a secret that stay visible: its source.
_OPEN_FIELDS = frozenset({"@type", "environment_variable", "filename", "name", "sds_config", "watched_directory"})

# Fields with a page or a format as inline content, whose changes users want to see.
_OPEN_CONTENT = frozenset({"body", "body_format", "response", "text_format_source"})

# Fields whose value is an authority: all before its last `@` is a credential.
_AUTHORITY_FIELDS = frozenset({
    "address", "authority", "domains", "host", "host_redirect", "host_rewrite", "host_rewrite_literal", "hostname", "sni",
})  # fmt: skip

_HARMLESS_HEADERS = re.compile(
    r"accept(-\w+)*|access-control-[\w-]+|age|allow|alt-svc|cache-control|connection|content-[\w-]+|date|etag|expect"
    r"|expires|forwarded|host|if-[\w-]+|keep-alive|last-modified|location|origin|permissions-policy|pragma|priority|range"
    r"|referer|referrer-policy|retry-after|server|strict-transport-security|te|trailer|transfer-encoding|upgrade"
    r"|user-agent|vary|via|x-content-type-options|x-envoy-[\w-]+|x-forwarded-[\w-]+|x-frame-options|x-robots-tag"
    r"|x-xss-protection|:(authority|method|path|protocol|scheme|status)",
    re.IGNORECASE,
)
_ADDED_HEADER = "envoy.config.core.v3.HeaderValue"
_NAMING_FIELDS = ("key", "name", "header_name", "header", "cookie", "object_key", "descriptor_key", "query_param")
_NAMED_FIELDS = re.compile(
    r"(raw_|string_|default_|fixed_|descriptor_|bytes_)?value|exact|format_string"
    r"|(exact|prefix|suffix|contains|safe_regex|regex|string|value)_match"
)

# Matchers by the value of an input have the values as keys.
_MATCH_MAPS = frozenset({"exact_match_map", "prefix_match_map"})

# Any text may be the configuration of a foreign extension; actions of matchers are names.
_FREE_TEXT = frozenset({"google.protobuf.BytesValue", "google.protobuf.StringValue"})
_TYPED_CONFIG = "typed_config"

_PIECES = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SECRET_WORD = re.compile(
    r"password|passwd|passphrase|passcode|credential|secret|apikey|accesskey|privatekey|signingkey|encryptionkey"
    r"|masterkey|accountkey|sharedkey|sessionkey|sessionid|authkey|authorization|authentication|cookie|hmac|bearer|jwt|jwk"
    r"|token|signature|assertion|connectionstring"
)
_SECRET_PIECES = frozenset({"auth", "otp", "pass", "pin", "psk", "pw", "pwd", "salt", "sig"})
# A name with such an end denotes a place or a quantity, not a value.
_HARMLESS_ENDS = frozenset({
    "algorithm", "bucket", "cluster", "count", "duration", "enabled", "endpoint", "expiration", "expires", "file",
    "filename", "fill", "header", "headers", "interval", "length", "limit", "name", "names", "path", "provider", "scopes",
    "size", "timeout", "ttl", "type", "uri", "url",
})  # fmt: skip
_LONGEST_NAME = 100
_HARMLESS_STARTS = frozenset({"max", "min", "sds"})

_PARAMETER_NAME = r"[\w.~%\[\]-]++"
_PARAMETER = re.compile(rf"([?&;#]({_PARAMETER_NAME})=)([^&;#\s\"'<>\\]+)")
_USER_INFO = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*+://)([^\s/?#\"'<>]+)(?=@)")
# `user:password@host` without a scheme. Bounded, so that a megabyte of text without `@` takes no longer than other
# texts.
_USER_INFO_OF_AUTHORITY = re.compile(
    r"(?<![^\s/\"'`<>=(\[{,;])[^\s/?#\"'<>@:=(\[{,;]{0,200}+:[^\s/?#\"'<>]{1,200}(?=@(?!sha256:)[\w\[%])"
)
_USER_INFO_ALONE = re.compile(r"\A[^\s/@]+(?:@[^\s/@]+)*(?=@)")
_PEM = re.compile(r"-----BEGIN [^-]{1,60}-----.*?(?:-----END [^-]{1,60}-----|\Z)", re.DOTALL)
_TOKEN = re.compile(
    r"(\b(?:[Bb]earer|[Bb]asic|BEARER|BASIC) +)([A-Za-z0-9._~+/=-]{6,})|()(\beyJ[\w-]{5,}\.[\w-]{2,}\.[\w-]*)"
)
_MAY_HOLD_SECRETS = re.compile(r"-----BEGIN|://|@|[?&;#][\w.~%\[\]-]++=|earer |asic |EARER |ASIC |eyJ")


def _hidden(_: str) -> str:
    return HIDDEN


def _pieces(name: str) -> list[str]:
    return [piece.lower() for piece in _PIECES.findall(name[-_LONGEST_NAME:])]


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Whether a header, key or parameter is secret: `X-Api-Key`, `db_password`.

    Places and numbers are not: `token_endpoint`, `secret_name`, `max_tokens`.
    """
    pieces = _pieces(name)
    if not pieces or pieces[-1] in _HARMLESS_ENDS or pieces[0] in _HARMLESS_STARTS:
        return False
    return _SECRET_WORD.search("".join(pieces)) is not None or not _SECRET_PIECES.isdisjoint(pieces)


@lru_cache(maxsize=4096)
def is_secret_field(name: str) -> bool:
    """Whether a field is secret, even if misspelled."""
    snake = "_".join(_pieces(name))
    known = _SECRET_OR_CODE | INLINE_FIELDS
    return snake in known or is_secret_name(name) or bool(get_close_matches(snake, known, 1, 0.85))


def mask_uris(text: str, hide: Hide = _hidden) -> str:
    """Hide parts of URIs, PEM blocks, and tokens."""
    if _MAY_HOLD_SECRETS.search(text) is None:
        return text
    text = _PEM.sub(lambda match: hide(match[0]), text)
    text = _TOKEN.sub(lambda match: (match[1] or "") + hide(match[2] or match[4]), text)
    text = _USER_INFO.sub(lambda match: match[1] + hide(match[2]), text)
    if "@" in text:
        text = _USER_INFO_OF_AUTHORITY.sub(lambda match: hide(match[0]), text)
    return _PARAMETER.sub(lambda match: match[1] + hide(match[3]) if _is_secret_parameter(match[2]) else match[0], text)


def _is_secret_parameter(name: str) -> bool:
    return is_secret_name(name) or name.lower() in ("key", "code", "state", "nonce", "user", "username")


# Possessive, and only at the start of a word, so that a megabyte of text without a colon takes no longer than other
# texts.
_NAME_IN_TEXT = re.compile(r"""(?<![\w-])(?P<name>[\w-]++)\\*+["']?\s*+(?P<mark>[:=])\s*+""")
_VALUE_IN_TEXT = re.compile(
    r"""  "(?:\\.|[^"\\])*(?:"|\\?\Z)                  # a quoted value, perhaps cut off, also within an escape
        | \\+"(?:(?!\\+").)*(?:\\+"|\Z)              # a quoted value inside a quoted text
        | '[^']*(?:'|\Z)
        | (?<==)[^\s,;&}"']+                           # behind a colon, words of our own follow the name of a field
    """,
    re.DOTALL | re.VERBOSE,
)
_DOUBLE_QUOTED = re.compile(r"""\\*"(?:\\.|[^"\\])*(?:\\*"|\\?\Z)""", re.DOTALL)
_HEADER_IN_TEXT = re.compile(
    r"""(\b(?:key|name)\\*["']?\s*:\s*\\*"(?P<name>[\w-]+)\\*"[\s,]*\\*"?(?:raw_)?value\\*["']?\s*:\s*)
        (?:"(?:\\.|[^"\\])*(?:"|\\?\Z)|\\+"(?:(?!\\+").)*(?:\\+"|\Z))""",
    re.DOTALL | re.VERBOSE,
)

# An apostrophe begins no quotation (`can't`), and no quotation ends within a word.
_IN_ANY_QUOTES = re.compile(
    r"""[bru]?(?!(?<=\w)'(?:t|s|d|m|ll|re|ve)\b)'(?:\\.|'(?=\w)|[^'\n\\])*(?:'|\\?\Z)|b?"[^"\n]*(?:"|\Z)"""
)
# The parts of an expression that RE2 repeats, and of a program that Lua repeats.
_REPEATED = re.compile(
    r"(?P<fact>(?:missing (?:closing )?\S+|repetition operator|invalid (?:perl operator|escape sequence"
    r"|character class(?: range)?|named capture group|nested repetition operator|repetition size)|unexpected \S+): )(?P<regex>\S.*)"
    r"|(?P<near>\bnear )'(?P<code>[^\n]*)'"
)
# Lua names a script by its beginning, which may be anything. Without an end, a line is not searched again.
_LUA_CHUNK = re.compile(r'\[string "(?:[^\n]*?"\]:(\d+): |[^\n]*)')
# Tokens of Lua itself: its keywords, its marks, and the end of the file.
_LUA_TOKEN = re.compile(
    r"and|break|do|else|elseif|end|false|for|function|goto|if|in|local|nil|not|or|repeat|return|then|true|until|while"
    r"|[^\w\s\"']{1,3}|<\w+>"
)
# Long enough for a credential; shorter words and marks of a regular expression explain the fault.
_LONG_WORD = re.compile(r"\w{4,}")
_HARMLESS_IN_QUOTES = re.compile(
    r"""\\*"(?:-?[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ns|us|ms|s|m|h|%)?|[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5}|/[0-9]{1,2})?)\\*\""""
)


def mask_text(text: str) -> str:
    """Hide secrets in quoted configuration."""
    text = _HEADER_IN_TEXT.sub(
        lambda match: match[0] if _HARMLESS_HEADERS.fullmatch(match["name"]) else match[1] + HIDDEN, text
    )
    text = _without_values(text, _is_secret_in_text)
    return mask_uris(text)


def _is_secret_in_text(name: str) -> bool:
    snake = "_".join(_pieces(name))
    return snake in _SECRET_OR_CODE or snake.endswith(tuple(INLINE_FIELDS)) or is_secret_name(name)


def mask_reason(text: str, secrets: Collection[str] | None = None) -> str:
    """Hide secrets in Envoy's text, except names and numbers.

    `secrets` are the resource's; None if unknown.
    """
    text = _LUA_CHUNK.sub(lambda match: f"line {match[1]}: " if match[1] else match[0], text)
    text = _REPEATED.sub(lambda match: _repeated(match, secrets), mask_text(text))
    # Envoy puts names in single quotes, the texts of its messages in double ones.
    return _without_values(text, lambda name: not _is_name(name), _DOUBLE_QUOTED, _HARMLESS_IN_QUOTES)


def _repeated(match: re.Match[str], secrets: Collection[str] | None) -> str:
    if match["near"] is not None:
        return match[0] if _LUA_TOKEN.fullmatch(match["code"]) else match["near"] + HIDDEN
    regex = match["regex"]
    if secrets is None:
        return match["fact"] + _LONG_WORD.sub(HIDDEN, regex)
    is_secret = HIDDEN in regex or any(regex in secret for secret in secrets)
    return match["fact"] + (HIDDEN if is_secret else regex)


def mask_error(error: BaseException) -> str:
    """Return the first line, without quoted data."""
    return _IN_ANY_QUOTES.sub(HIDDEN, mask_text(str(error).partition("\n")[0]))


def _without_values(
    text: str,
    is_secret: Callable[[str], bool],
    quoted: re.Pattern[str] = _VALUE_IN_TEXT,
    harmless: re.Pattern[str] | None = None,
) -> str:
    """Harmless values are hidden only after credentials' names."""
    shown: list[str] = []
    end = 0
    for match in _NAME_IN_TEXT.finditer(text):
        if match.start() >= end and is_secret(match["name"]):
            value = quoted.match(text, match.end())
            if value is None or (harmless and not is_secret_name(match["name"]) and harmless.fullmatch(value[0])):
                continue
            shown += (text[end : match.end()], HIDDEN)
            end = value.end()
    return "".join((*shown, text[end:]))


def _is_name(field: str) -> bool:
    ends = ("name", "cluster", "type_url", "typeUrl", "Name", "stat_prefix")
    return field.endswith(ends) and not is_secret_name(field)


class Secrecy:
    """Knows secret fields."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._answers: dict[str, bool] = {}

    def covers(self, field: FieldDescriptor) -> bool:
        """Whether a field's value is secret."""
        answer = self._answers.get(field.full_name)
        if answer is None:
            owner = owner_of(field).full_name
            answer = self._answers[field.full_name] = (
                field.name in _SECRET_OR_CODE | INLINE_FIELDS
                or (owner in _SECRET_TYPES and field.name not in _OPEN_FIELDS)
                or field.full_name in SECRET_PLACES
                or (owner == _ADDED_HEADER and field.name != "key")
                or any(
                    extension.full_name == "udpa.annotations.sensitive" and value is True
                    for extension, value in self._catalogue.options_of(field).ListFields()
                )
            )
        return answer


@dataclass(frozen=True, slots=True)
class _MaskedPlace:
    holder: str = ""
    is_secret: bool = False


class Masker:
    """Masks resources, as written by `Printer` with `@type`."""

    def __init__(self, catalogue: Catalogue, hide: Hide = _hidden, hide_bytes: Hide | None = None) -> None:
        """`hide` replaces secrets, `hide_bytes` those in base64."""
        self._catalogue = catalogue
        self._secrecy = catalogue.once(Secrecy)
        self._hide = hide
        self._hide_bytes = hide_bytes or hide
        self._printer = Printer(catalogue)

    def shown(self, type_url: TypeUrl, body: bytes) -> dict[str, PlainValue]:
        """Mask a resource; ApiError if its type is unknown."""
        return self.masked(self._printer.any_plain(type_url, body))

    def masked(self, resource: Mapping[str, PlainValue]) -> dict[str, PlainValue]:
        """Return it without secrets."""
        return self._any(resource, _MaskedPlace())

    def masked_message(self, message: Mapping[str, PlainValue], message_type: str) -> dict[str, PlainValue]:
        """Mask a message without `@type`."""
        return self._fields(message, self._catalogue.descriptor(message_type), _MaskedPlace())

    def secrets_in(self, resource: Mapping[str, PlainValue]) -> frozenset[str]:
        """Return every hidden text."""
        found: set[str] = set()

        def collect(text: str) -> str:
            found.add(text)
            return HIDDEN

        Masker(self._catalogue, collect).masked(resource)
        return frozenset(found)

    def _any(self, value: Mapping[str, PlainValue], site: _MaskedPlace) -> dict[str, PlainValue]:
        message_type = type_of_url(str(value.get("@type", "")))
        descriptor = None if message_type is None else self._catalogue.descriptor(message_type)
        if descriptor is not None and descriptor.full_name in SPECIAL_JSON:
            is_config = descriptor.full_name in _FREE_TEXT and site.holder != _TYPED_CONFIG
            inner = replace(site, is_secret=site.is_secret or is_config)
            return {
                name: part if name == "@type" else self._message(part, descriptor, inner)
                for name, part in value.items()
            }
        return self._fields(value, descriptor, site)

    def _fields(
        self, value: Mapping[str, PlainValue], descriptor: Descriptor | None, site: _MaskedPlace
    ) -> dict[str, PlainValue]:
        if descriptor is None:
            return self._struct(value, site)
        is_secret = site.is_secret or descriptor.full_name in _SECRET_TYPES
        names_secret = not is_secret and _names_secret(value)
        masked: dict[str, PlainValue] = {}
        for name, part in value.items():
            field = descriptor.fields_by_name.get(name)
            if name == "@type" or field is None:
                masked[name] = part
                continue
            if is_secret:
                covered = name not in _OPEN_FIELDS
            else:
                covered = self._covers(field, value, site) or (
                    names_secret and _NAMED_FIELDS.fullmatch(name) is not None
                )
            masked[name] = self._field(part, field, _MaskedPlace(name, covered))
            if names_secret and name in _MATCH_MAPS:
                masked[name] = self._without_keys(masked[name])
        return masked

    def _without_keys(self, match_map: PlainValue) -> PlainValue:
        """Keys may be compared with a credential."""
        rows = match_map.get("map") if isinstance(match_map, dict) else None
        if not isinstance(rows, dict):
            return match_map
        return {"map": {f"{self._hide(key)}{number or ''}": row for number, (key, row) in enumerate(rows.items())}}

    def _covers(self, field: FieldDescriptor, owner: Mapping[str, PlainValue], site: _MaskedPlace) -> bool:
        """Added headers and inline content may be harmless."""
        if not self._secrecy.covers(field):
            return False
        if owner_of(field).full_name == _ADDED_HEADER:
            return _HARMLESS_HEADERS.fullmatch(str(owner.get("key", ""))) is None
        return field.name not in INLINE_FIELDS or site.holder not in _OPEN_CONTENT

    def _field(self, value: PlainValue, field: FieldDescriptor, site: _MaskedPlace) -> PlainValue:
        if is_map(field):
            part = map_parts(field)[1]
            # The keys of other maps of messages are names of objects or extensions.
            is_plain = part.message_type is None or field.name == "args"
            return {
                name: self._one(member, part, _MaskedPlace(name, site.is_secret or (is_plain and is_secret_name(name))))
                for name, member in (value if isinstance(value, dict) else {}).items()
            }
        if isinstance(value, list) and field.is_repeated:
            return [self._one(member, field, site) for member in value]
        return self._one(value, field, site)

    def _one(self, value: PlainValue, field: FieldDescriptor, site: _MaskedPlace) -> PlainValue:
        if field.message_type is not None:
            return self._message(value, field.message_type, site)
        if field.type == FieldDescriptor.TYPE_STRING:
            return self._text(value, site)
        return self._bytes(value, site) if field.type == FieldDescriptor.TYPE_BYTES else value

    def _message(self, value: PlainValue, descriptor: Descriptor, site: _MaskedPlace) -> PlainValue:
        name = descriptor.full_name
        if name == ANY:
            return self._any(value, site) if isinstance(value, dict) else value
        if name in SPECIAL_JSON:
            if name == "google.protobuf.BytesValue":
                return self._bytes(value, site)
            if name == "google.protobuf.StringValue":
                return self._text(value, site)
            return self._free(value, site) if name in (STRUCT, VALUE, LIST_VALUE) else value
        return self._fields(value, descriptor, site) if isinstance(value, dict) else value

    def _free(self, value: PlainValue, site: _MaskedPlace) -> PlainValue:
        """In a Struct, only keys show a value's meaning."""
        if isinstance(value, dict):
            return self._struct(value, site)
        if isinstance(value, list):
            return [self._free(member, site) for member in value]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._hide(str(value)) if site.is_secret else value
        return self._text(value, site)

    def _struct(self, value: Mapping[str, PlainValue], site: _MaskedPlace) -> dict[str, PlainValue]:
        names_secret = _names_secret(value)
        is_header = value.keys() & {"key", "value"} == {"key", "value"} and site.holder.endswith(("_to_add", "header"))
        masked: dict[str, PlainValue] = {}
        for name, part in value.items():
            if site.is_secret:
                covered = name not in _OPEN_FIELDS
            else:
                covered = name in _SECRET_OR_CODE or is_secret_name(name)
                covered |= name in INLINE_FIELDS and site.holder not in _OPEN_CONTENT
                covered |= (names_secret or (is_header and name == "value")) and bool(_NAMED_FIELDS.fullmatch(name))
            masked[name] = self._free(part, _MaskedPlace(name, covered))
        return masked

    def _text(self, value: PlainValue, site: _MaskedPlace) -> PlainValue:
        if not isinstance(value, str) or not value:
            return value
        if site.is_secret or _PEM.search(value):
            return self._hide(value)
        if site.holder in _AUTHORITY_FIELDS:
            value = _USER_INFO_ALONE.sub(lambda match: self._hide(match[0]), value)
        return mask_uris(value, self._hide)

    def _bytes(self, value: PlainValue, site: _MaskedPlace) -> PlainValue:
        if not isinstance(value, str) or not value:
            return value
        if site.is_secret:
            return self._hide_bytes(value)
        try:
            text = base64.b64decode(value).decode()
        except (Base64Error, ValueError):
            return value
        return value if mask_uris(text) == text else self._hide_bytes(value)


def _names_secret(value: Mapping[str, PlainValue]) -> bool:
    if any(isinstance(name := value.get(field), str) and is_secret_name(name) for field in _NAMING_FIELDS):
        return True
    path = value.get("path")
    last = path[-1] if isinstance(path, list) and path else None
    if isinstance(last, dict) and isinstance(key := last.get("key"), str):
        return is_secret_name(key)
    given = value.get("input")
    config = given.get("typed_config") if isinstance(given, dict) else None
    return isinstance(config, dict) and "input" not in config and _names_secret(config)


class CredentialFinder:
    """Finds resources with credentials; remembers answers."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._printer, self._masker = Printer(catalogue), Masker(catalogue, lambda _: "")
        self._known: Lru[tuple[TypeUrl, bytes], bool] = Lru(MOST_KNOWN)

    def are_in(self, type_url: TypeUrl, body: bytes) -> bool:
        """Whether `fsxds show` would hide parts."""
        return self._known.find((type_url, sha256(body).digest()), lambda: self._hides_any(type_url, body))

    def _hides_any(self, type_url: TypeUrl, body: bytes) -> bool:
        plain = self._printer.any_plain(type_url, body)
        return self._masker.masked(plain) != plain
