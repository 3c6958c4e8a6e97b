"""The content of lists and of the index: names as URLs, and versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from types import MappingProxyType
from typing import cast
from urllib.parse import quote

from fsxds.model.resource_names import FileName, ResourceName, parse_or_none, query_of
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import PlainValue
from fsxds.protocol.get import FoundRedirect, Parameters, url_of
from fsxds.settings.upstream_rules import Authority

# The type of list resources.
LIST_COLLECTION = "envoy.config.listener.v3.ListenerCollection"

# Of one type in the index; its list has all.
MOST_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Urls:
    """URLs of resources.

    Attributes:
        base_url: of this server as the client has it, without a final slash.
        authority: of this server; empty for none.
        authorities: others, with their URLs.
        node: the parameters that name the node; URLs of this server repeat them, to lead into the node's view.
    """

    base_url: str
    authority: str = ""
    authorities: Mapping[str, Authority] = field(default_factory=lambda: MappingProxyType({}))
    node: Parameters = ()

    def of(self, message_type: str, name: str) -> str:
        """Return a resource's absolute URL, at its authority's if known."""
        structured = parse_or_none(name)
        if structured is not None and structured.authority != self.authority:
            known = self.authorities.get(structured.authority)
            if known is not None and known.url:
                return known.url + url_of(message_type, name, structured.authority)
        return self.own + self._for_node(url_of(message_type, name, self.authority), structured)

    def of_type(self, message_type: str) -> str:
        """Return the URL of a type's list."""
        return self.own + self._for_node(f"/{message_type}/")

    def _for_node(self, url: str, name: ResourceName | None = None) -> str:
        own = {key for key, _ in name.context} if name is not None else set()
        query = query_of(tuple(pair for pair in self.node if pair[0] not in own))
        return f"{url}{'&' if '?' in url else '?'}{query}" if query else url

    @property
    def own(self) -> str:
        """The base of this server's URLs, preferably of the settings."""
        known = self.authorities.get(self.authority) if self.authority else None
        return known.url if known is not None and known.url else self.base_url

    def of_locator(self, locator: Mapping[str, PlainValue]) -> str:
        """Return a locator's URL; an unknown authority is taken as host."""
        path, authority = str(locator.get("id", "")), str(locator.get("authority", ""))
        if locator.get("scheme") == "FILE":
            return str(FileName(f"/{path.lstrip('/')}"))
        context = cast("Mapping[str, Mapping[str, str]]", locator.get("exact_context", {}))
        parameters = tuple(sorted(context.get("params", {}).items()))
        name = ResourceName(authority or self.authority, str(locator.get("resource_type", "")), path, parameters)
        directives = cast("list[dict[str, PlainValue]]", locator.get("directives", []))
        entry = "".join(f"#entry={each['entry']}" for each in directives if "entry" in each)
        known = self.authorities.get(name.authority)
        if name.authority == self.authority or (known is not None and known.url):
            return f"{self.of(name.message_type, str(name))}{entry}"
        scheme = self.own.partition("://")[0]
        return (
            f"{scheme}://{quote(name.authority, ':[]@')}{url_of(name.message_type, str(name), name.authority)}{entry}"
        )

    def location_of(self, redirect: FoundRedirect, node: Parameters) -> str:
        """Return a redirect's URL for a node; relative if it leads here."""
        name = redirect.name
        entry = f"#entry={redirect.entry}" if redirect.entry else ""
        known = self.authorities.get(name.authority)
        if name.authority not in {"", self.authority} and known is not None and known.url:
            return f"{known.url}{url_of(name.message_type, str(name), name.authority)}{entry}"
        return f"{url_of(name.message_type, str(name.with_context(dict(node))), self.authority)}{entry}"


def collection_content(collection: Mapping[str, PlainValue], urls: Urls) -> list[PlainValue]:
    """Return a list collection's entries: URLs, or inline content (xRFC TP1, "HTTP transport")."""
    entries = cast("list[dict[str, dict[str, PlainValue]]]", collection.get("entries", []))
    return [
        {"name": urls.of_locator(each["locator"])} if "locator" in each else {"value": _inlined(each["inline_entry"])}
        for each in entries
        if each
    ]


def _inlined(entry: Mapping[str, PlainValue]) -> dict[str, PlainValue]:
    contents = cast("dict[str, PlainValue]", entry.get("resource", {}))
    named = {name: entry[name] for name in ("name", "version") if name in entry}
    return {**named, "contents": {name: value for name, value in contents.items() if name != "@type"}}


def list_content(row: ResourceType, resources: Iterable[Resource], urls: Urls) -> list[PlainValue]:
    """Return a list's URLs, with versions except of secrets."""
    return [_entry(row, resource, urls) for resource in resources]


def _entry(row: ResourceType, resource: Resource, urls: Urls) -> dict[str, PlainValue]:
    url = urls.of(row.message_type, resource.name)
    return {"name": url} if row.is_secret else {"name": url, "version": resource.version}


def index_content(snapshot: Snapshot, urls: Urls) -> dict[str, PlainValue]:
    """Return types with resources, with versions and first names."""
    types = [_type_content(row, snapshot.resources(row.type_url), urls) for row in RESOURCE_TYPES]
    return {"authority": urls.authority, "types": [each for each in types if each["count"]]}


def _type_content(row: ResourceType, rows: Rows, urls: Urls) -> dict[str, PlainValue]:
    content: dict[str, PlainValue] = {"type": row.message_type, "short_name": row.short_name}
    if not row.is_secret:
        content["version"] = rows.version
    content["count"] = len(rows)
    content["url"] = urls.of_type(row.message_type)
    content["resources"] = [_named(row, resource, urls) for resource in islice(rows.values(), MOST_NAMES)]
    return content


def _named(row: ResourceType, resource: Resource, urls: Urls) -> PlainValue:
    named: dict[str, PlainValue] = {"name": resource.name}
    if not row.is_secret:
        named["version"] = resource.version
    return {**named, "url": urls.of(row.message_type, resource.name)}


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fsxds{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem}}td{{padding-right:2rem}}code{{color:#555}}</style>
</head><body><h1>Resources{title}</h1>
{types}
</body></html>
"""


def index_page(content: Mapping[str, PlainValue]) -> bytes:
    """Return the index as HTML."""
    title = f" of {escape(str(content['authority']))}" if content["authority"] else ""
    types = cast("list[dict[str, PlainValue]]", content["types"])
    shown = "\n".join(map(_section, types)) or "<p>No resources.</p>"
    return _PAGE.format(title=title, types=shown).encode()


def _section(content: Mapping[str, PlainValue]) -> str:
    resources = cast("list[dict[str, str]]", content["resources"])
    rows = "".join(
        f'<tr><td><a href="{escape(each["url"])}">{escape(each["name"])}</a></td>'
        f"<td><code>{escape(each.get('version', ''))}</code></td></tr>\n"
        for each in resources
    )
    count = cast("int", content["count"])
    more = f"<p>The first {len(resources)} of {count}.</p>" if len(resources) < count else ""
    url, message_type = escape(str(content["url"])), escape(str(content["type"]))
    return f'<h2><a href="{url}">{message_type}</a></h2>\n{more}<table>\n{rows}</table>'
