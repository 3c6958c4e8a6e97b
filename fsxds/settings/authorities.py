"""The setting `authorities`: where the resources of other authorities are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from fsxds.settings.structured import SettingPart, object_schema, structured
from fsxds.settings.upstream_rules import SERVERS_SCHEMA, read_server


@dataclass(frozen=True, slots=True)
class Authority:
    """Who else is responsible for resources.

    Attributes:
        url: the base of the URLs of its resources, without a slash at its end: a resource is at `<url>/<type>/<path>`; empty
            where they are at none.
        upstream: the servers that have its resources; the first that answers is asked.
    """

    url: str = ""
    upstream: tuple[str, ...] = ()


def at_urls(authorities: Mapping[str, Authority] | None) -> Mapping[str, Authority]:
    """Return those authorities whose resources are at URLs; others have servers alone."""
    return MappingProxyType({name: each for name, each in (authorities or {}).items() if each.url})


def _read_authorities(part: SettingPart) -> Mapping[str, Authority]:
    return MappingProxyType({name: _read_authority(each) for name, each in part.any_members().items()})


def _read_authority(part: SettingPart) -> Authority:
    members = part.members(("url", "upstream"))
    if isinstance(part.written, dict) and not members:
        part.reject("has neither url nor upstream; give one of them, or both")
    servers = members["upstream"].list_members() if "upstream" in members else ()
    return Authority(
        _read_url(members["url"]) if "url" in members else "",
        tuple(read_server(each) for each in servers),
    )


def _read_url(part: SettingPart) -> str:
    text = part.text()
    if text and (fact := _fault_of(text)):
        part.reject(f"{fact}; write https://<host>[:<port>][/<path>]")
    return text.rstrip("/")


def _fault_of(text: str) -> str | None:
    """Return why a text is no base of URLs, without the text, which may have a password."""
    try:
        parts = urlsplit(text)
        is_url = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        is_url = False
    else:
        if parts.username is not None:
            return "has a user or a password, which every client would see"
        if parts.query or parts.fragment:
            return "has a query or a fragment"
    if not is_url or not text.isascii() or not text.isprintable() or " " in text:
        return "is no URL of http or https"
    return None


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

AUTHORITIES = structured(_read_authorities, {"type": "object", "additionalProperties": _AUTHORITY, "minProperties": 1})
