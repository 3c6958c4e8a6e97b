"""The setting `authorities`: where the resources of other authorities are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from fsxds.settings.structured import SettingPart, object_schema, structured


@dataclass(frozen=True, slots=True)
class Authority:
    """Who else is responsible for resources.

    Attributes:
        url: the base of the URLs of its resources, without a slash at its end: a resource is at `<url>/<type>/<path>`.
    """

    url: str


def _read_authorities(part: SettingPart) -> Mapping[str, Authority]:
    return MappingProxyType({name: Authority(_read_url(each)) for name, each in part.any_members().items()})


def _read_url(part: SettingPart) -> str:
    members = part.members(("url",), ("url",))
    if "url" not in members:
        return ""
    text = members["url"].text()
    if text and (fact := _fault_of(text)):
        members["url"].reject(f"{fact}; write https://<host>[:<port>][/<path>]")
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


_AUTHORITY = object_schema(
    {
        "url": {
            "type": "string",
            "pattern": "^https?://",
            "description": "The base of the URLs of its resources, to which redirects lead over HTTP.",
        }
    },
    ("url",),
)

AUTHORITIES = structured(_read_authorities, {"type": "object", "additionalProperties": _AUTHORITY, "minProperties": 1})
