"""The settings for upstreams and authorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from fsxds.model.errors import UsageError
from fsxds.model.values import PlainValue
from fsxds.settings.forms import PATH, OptionForm, TcpAddress, parse_address
from fsxds.settings.structured import DEEPEST, MistakesFound, SettingPart, object_schema, structured

_CREDENTIALS = (
    "has a user or a password, which logs would show; put a token into a file, and name it by `upstream_token`"
)
URLS = ("http://", "https://")


@dataclass(frozen=True, slots=True)
class UpstreamRule:
    """One upstream: servers with the same resources.

    Attributes:
        servers: in the order of attempts: `host:port`, `unix:/path`, or a URL, which means REST.
        authority: limits its names; empty for all names without an authority, or of authorities without another upstream.
        ca: None for plain text, or this machine's CAs with https.
        token: the bearer token's file, or None.
    """

    servers: tuple[str, ...]
    authority: str = ""
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    token: Path | None = None

    @property
    def name(self) -> str:
        """Its authority, or its first address."""
        return self.authority or self.servers[0]

    def seen_from(self, directory: Path) -> UpstreamRule:
        """Resolve paths from a directory."""
        ca, cert, key, token = (each and directory / each for each in (self.ca, self.cert, self.key, self.token))
        return replace(self, ca=ca, cert=cert, key=key, token=token)


def fault_of_server(text: str) -> str | None:
    """Return why a text is no server's address, without passwords, or None."""
    if text.startswith(URLS):
        return _fault_of_url(text, _CREDENTIALS)
    try:
        address = parse_address(text)
    except UsageError:
        return "is no address of an xDS server; write HOST:PORT, unix:/path, or http://HOST:PORT for REST"
    if "@" in text and isinstance(address, TcpAddress):
        return _CREDENTIALS
    if isinstance(address, TcpAddress) and not (address.host and address.port):
        return "has no host or no port to connect to; write HOST:PORT"
    return None


def _fault_of_url(text: str, of_credentials: str) -> str | None:
    fact = "is no URL of http or https"
    with suppress(ValueError):
        parts = urlsplit(text)
        if parts.username is not None:
            return of_credentials
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
        if parts.query or parts.fragment:
            fact = "has a query or a fragment"
        elif is_url and text.isascii() and text.isprintable() and " " not in text:
            return None
    return f"{fact}; write https://HOST[:PORT][/PATH]"


def read_server(part: SettingPart) -> str:
    """Return a server's address."""
    text = part.text()
    if text and (fault := fault_of_server(text)):
        part.reject(fault)
    return text


def _read_upstreams(written: object) -> tuple[UpstreamRule, ...]:
    """In a text, commas separate servers, spaces upstreams."""
    part = SettingPart(written)
    if isinstance(written, str):
        rules = [_rule_of_text(SettingPart(text, (), part.mistakes)) for text in written.split()]
        if not rules:
            part.reject("is empty; write HOST:PORT")
    else:
        rules = [*_read_list(part)]
    if part.mistakes:
        raise MistakesFound(part.mistakes)
    return tuple(rules)


def _read_list(part: SettingPart) -> Iterator[UpstreamRule]:
    names: set[str] = set()
    for each in part.list_members():
        rule = _rule_of_object(each) if isinstance(each.written, dict) else _rule_of_text(each)
        if rule is None:
            continue
        if rule.name in names - {""}:
            each.reject("is another upstream already; give each server once")
        names.add(rule.name)
        yield rule


def _rule_of_text(part: SettingPart) -> UpstreamRule:
    if not isinstance(part.written, str):
        part.reject("is neither an address nor a mapping; write HOST:PORT, or servers: [HOST:PORT]")
        return UpstreamRule(("",))
    text = part.text()
    servers = tuple(server for server in text.split(",") if server)
    for server in servers:
        if fault := fault_of_server(server):
            part.reject(fault)
    if text and not servers:
        part.reject("has no address; write HOST:PORT")
    return UpstreamRule(servers or ("",))


_KEYS = ("servers", "ca", "cert", "key", "token")


def _rule_of_object(part: SettingPart) -> UpstreamRule | None:
    members = part.members(_KEYS, ("servers",))
    if "servers" not in members:
        return None
    servers = tuple(read_server(each) for each in members["servers"].list_members())
    ca, cert, key, token = (members[name].of_form(PATH) if name in members else None for name in _KEYS[1:])
    if ("cert" in members) != ("key" in members):
        part.reject("has one of cert and key, which belong together; give both, or neither")
    return UpstreamRule(servers or ("",), "", ca, cert, key, token)


_FILE = {"type": "string", "minLength": 1}
_SERVER = {"type": "string", "minLength": 1, "description": "HOST:PORT or unix:/path for streams, a URL for REST."}
SERVERS_SCHEMA = {"type": "array", "items": _SERVER, "minItems": 1}
_UPSTREAM = object_schema(
    {
        "servers": {**SERVERS_SCHEMA, "description": "Servers of the same resources; the first that answers is asked."},
        "ca": {**_FILE, "description": "In place of upstream_ca; relative to this file, as the others are."},
        "cert": {**_FILE, "description": "In place of upstream_cert."},
        "key": {**_FILE, "description": "In place of upstream_key."},
        "token": {**_FILE, "description": "In place of upstream_token."},
    },
    ("servers",),
)

UPSTREAMS = OptionForm(
    "ADDRESS[,ADDRESS…]",
    "an address of an xDS server, or several with commas between them (write 10.0.0.1:18000, unix:/run/xds.sock or "
    "https://xds.example.com)",
    _read_upstreams,
    {"anyOf": [{"type": "array", "items": {"anyOf": [_SERVER, _UPSTREAM]}, "minItems": 1}, _SERVER]},
    is_repeatable=True,
)


@dataclass(frozen=True, slots=True)
class UpstreamNode:
    """The node sent to upstreams; an empty `id` means this machine's name."""

    id: str = ""
    cluster: str = ""
    region: str = ""
    zone: str = ""
    sub_zone: str = ""
    metadata: Mapping[str, PlainValue] = field(default_factory=lambda: MappingProxyType({}), repr=False)


_LOCALITY = ("region", "zone", "sub_zone")


def _read_node(part: SettingPart) -> UpstreamNode:
    members = part.members(("id", "cluster", "metadata", "locality"))
    locality = members["locality"].members(_LOCALITY) if "locality" in members else {}
    texts = {name: each.scalar() for name, each in (*members.items(), *locality.items()) if name in _TEXTS}
    metadata = members.get("metadata")
    return UpstreamNode(**texts, metadata=MappingProxyType({} if metadata is None else _read_metadata(metadata)))


_TEXTS = ("id", "cluster", *_LOCALITY)


def _read_metadata(part: SettingPart) -> dict[str, PlainValue]:
    return {key: _read_value(each) for key, each in part.any_members().items()}


def _read_value(part: SettingPart) -> PlainValue:
    if len(part.path) > DEEPEST:
        part.reject(f"is nested more than {DEEPEST} deep; write it flatter")
        return None
    if isinstance(part.written, dict):
        return _read_metadata(part)
    if isinstance(part.written, list):
        return [_read_value(each) for each in part.list_members()] if part.written else []
    if part.written is None or isinstance(part.written, str | int | float | bool):
        return part.written
    part.reject("is no value of JSON; write it in quotes")
    return None


_TEXT = {"type": ["string", "number", "boolean"]}

UPSTREAM_NODE = structured(
    _read_node,
    object_schema(
        {
            "id": {**_TEXT, "description": "Node id; default: the name of this machine."},
            "cluster": {**_TEXT, "description": "Node cluster."},
            "metadata": {"type": "object", "description": "Node metadata; any JSON."},
            "locality": {**object_schema(dict.fromkeys(_LOCALITY, _TEXT)), "description": "Locality of the node."},
        }
    ),
)


@dataclass(frozen=True, slots=True)
class Authority:
    """Another owner of resources.

    Attributes:
        url: a resource is at `<url>/<type>/<path>`; may be empty.
        upstream: in the order of attempts.
    """

    url: str = ""
    upstream: tuple[str, ...] = ()


def at_urls(authorities: Mapping[str, Authority] | None) -> Mapping[str, str]:
    """Return the URLs of authorities that have one."""
    return MappingProxyType({name: each.url for name, each in (authorities or {}).items() if each.url})


def _read_authority(part: SettingPart) -> Authority:
    members = part.members(("url", "upstream"))
    if isinstance(part.written, dict) and not members:
        part.reject("has neither url nor upstream; give one of them, or both")
    servers = members["upstream"].list_members() if "upstream" in members else ()
    return Authority(_read_url(members["url"]) if "url" in members else "", tuple(map(read_server, servers)))


def _read_url(part: SettingPart) -> str:
    text = part.text()
    if text and (fact := _fault_of_url(text, "has a user or a password, which every client would see; remove it")):
        part.reject(fact)
    return text.rstrip("/")


_AUTHORITY = {
    **object_schema(
        {
            "url": {
                "type": "string",
                "pattern": "^https?://",
                "description": "The base of the URLs of its resources, to which redirects lead over HTTP.",
            },
            "upstream": {
                **SERVERS_SCHEMA,
                "description": "Servers that have its resources, which are asked for its names; the first that answers.",
            },
        }
    ),
    "minProperties": 1,
}

AUTHORITIES: OptionForm[Mapping[str, Authority]] = structured(
    lambda part: MappingProxyType({name: _read_authority(each) for name, each in part.any_members().items()}),
    {"type": "object", "additionalProperties": _AUTHORITY, "minProperties": 1},
)
