"""What is exported of a snapshot: which files there are, and what is in them. Pure.

| rule | why |
| --- | --- |
| A file has the path of its URL, decoded: `<type>/<path>`, with `?<parameters>` where the name has some. | Any web server finds it there. |
| Where several names have one URL, that comes first which HTTP GET answers with. | Both answer alike. |
| A name that no file can have is in the index alone, with its object. | Nothing may lead out of the directory. |
| `objects/<SHA-256>.json` has the same content, and never another. | It may be cached for ever, and an index and its objects are of one moment. |
| Secrets are left out, and resources with credentials in them, unless each is allowed by name. | Who serves files does not ask who reads them. |
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import Masker
from fsxds.events import Remark
from fsxds.resource_names import parse_or_none
from fsxds.resource_types import BY_TYPE_URL, RESOURCE_TYPES, ResourceType
from fsxds.resources import Resource, Snapshot
from fsxds.tools.exporting.output import OBJECTS
from fsxds.transports.http_get.representations import JSON_CONTENT, content_of, url_of
from fsxds.values import PlainValue

INDEX = PurePosixPath("index.json")
# What file systems take as a part of a path; and as a path, with room for that of the directory.
LONGEST_PART_BYTES, LONGEST_PATH_BYTES = 255, 3000


@dataclass(frozen=True, slots=True)
class ExportRules:
    """How a snapshot is exported.

    Attributes:
        authority: that of the server, by the settings; empty for none.
        host: that of the URL; names of this authority are at its paths too.
        base_url: where the directory will be served, without a slash at its end; empty for the top of any host.
        allowed: the resources that may have credentials: `<type>/<name>`, such as `lds/edge`; `*` stands for anything.
    """

    authority: str = ""
    host: str = ""
    base_url: str = ""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pages:
    """The files of an export.

    Attributes:
        files: their content by path, in the order in which they are to be written.
        count: how many resources are in them.
        secret_count: how many secrets were left out.
        withheld: resources that are not exported, because of what they hold.
        unnamed: resources that have no file of their own name.
    """

    files: Mapping[PurePosixPath, bytes]
    count: int
    secret_count: int
    withheld: tuple[Remark, ...]
    unnamed: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """One resource, its content, and the path of its file; None where it has none."""

    resource: Resource
    content: bytes
    path: PurePosixPath | None = None

    @property
    def object_path(self) -> PurePosixPath:
        return PurePosixPath(OBJECTS, f"{hashlib.sha256(self.content).hexdigest()}.json")

    @property
    def title(self) -> str:
        return f"{BY_TYPE_URL[self.resource.type_url].short_name} {self.resource.name}"


def pages_of(snapshot: Snapshot, rules: ExportRules, catalogue: Catalogue) -> Pages:
    """Return what is to be exported of a snapshot."""
    credentials, printer = _CredentialFinder(catalogue), Printer(catalogue)
    pages: list[_Page] = []
    withheld: list[Remark] = []
    unnamed: list[Remark] = []
    secret_count = 0
    for row in RESOURCE_TYPES:
        resources = snapshot.resources(row.type_url).values()
        if row.is_secret:
            secret_count += len(resources)
            continue
        written = []
        for resource in resources:
            subject = f"{row.short_name}/{resource.name}"
            page = _Page(resource, content_of(resource, JSON_CONTENT, printer))
            if credentials.are_in(resource) and not any(fnmatchcase(subject, each) for each in rules.allowed):
                fact = "not exported: something in it is, or may be, a credential (`fsxds show` hides it)"
                withheld.append(Remark(page.title, f"{fact}; take it from a secret, or give --allow {subject}"))
            else:
                written.append(page)
        pages += _placed(row, written, rules, unnamed)
    files = dict(_files(pages, snapshot, rules))
    return Pages(files, len(pages), secret_count, tuple(withheld), tuple(unnamed))


class _CredentialFinder:
    """Finds resources in which something would be masked."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._found = False
        self._masker = Masker(catalogue, self._hide)

    def _hide(self, _: str) -> str:
        self._found = True
        return ""

    def are_in(self, resource: Resource) -> bool:
        """Return whether a resource has what `fsxds show` would hide."""
        self._found = False
        self._masker.shown(resource.type_url, resource.body)
        return self._found


# -- which resource has which file


def _placed(row: ResourceType, pages: Iterable[_Page], rules: ExportRules, unnamed: list[Remark]) -> Iterator[_Page]:
    """Yield the resources of a type with their files; those that have none are reported."""
    claims: dict[PurePosixPath, _Page] = {}
    rejected: list[tuple[_Page, str]] = []
    for page in sorted(pages, key=lambda page: _rank(page.resource.name, rules)):
        path, fault = file_of(url_of(row.message_type, page.resource.name, _authority_of(page.resource.name, rules)))
        if path is None:
            rejected.append((page, fault))
        elif path in claims:
            rejected.append((page, f"its URL is that of {claims[path].resource.name}; rename one of them"))
        else:
            claims[path] = page
    folders = {folder for path in claims for folder in path.parents}
    for path, page in claims.items():
        if path in folders:
            fault = f"{path} is a folder of others, and cannot be a file too; rename it"
            rejected.append((page, fault))
        else:
            yield replace(page, path=path)
    for page, fault in rejected:
        unnamed.append(Remark(page.title, f"in the index alone: {fault}"))
        yield page


def _authority_of(name: str, rules: ExportRules) -> str:
    """Return the authority whose names are at the paths of the server: that of the name, if it is one of its own."""
    structured = parse_or_none(name)
    is_of_host = structured is not None and bool(rules.host) and structured.authority == rules.host
    return rules.host if is_of_host else rules.authority


def _rank(name: str, rules: ExportRules) -> int:
    """Return which of several names with one URL comes first, as HTTP GET chooses."""
    structured = parse_or_none(name)
    if structured is None:
        return 3
    order = (rules.authority, "", rules.host)
    return order.index(structured.authority) if structured.authority in order else len(order)


def file_of(url: str) -> tuple[PurePosixPath | None, str]:
    """Return the file for a path of HTTP GET; or None, and why there cannot be one."""
    path, mark, query = url.partition("?")
    parts = unquote(path).removeprefix("/").split("/")
    parts[-1] += mark + query
    if any(part in {"", ".", ".."} for part in parts):
        return None, "web servers understand a path with an empty part, `.` or `..` otherwise; rename it"
    if not all(part.isprintable() for part in parts):
        return None, "a file cannot have a control character in its name; rename it"
    lengths = [len(part.encode(errors="surrogatepass")) for part in parts]
    if max(lengths) > LONGEST_PART_BYTES or sum(lengths) + len(lengths) > LONGEST_PATH_BYTES:
        return None, f"a file cannot have so long a name; {LONGEST_PART_BYTES} bytes are allowed between slashes"
    return PurePosixPath(*parts), ""


# -- what is in files


def _files(pages: Collection[_Page], snapshot: Snapshot, rules: ExportRules) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Yield path and content: objects, then what they are copies of, then lists, and at last the index."""
    yield from ((page.object_path, page.content) for page in pages)
    yield from ((page.path, page.content) for page in pages if page.path is not None)
    taken = {page.path for page in pages}
    for path, members in _lists(pages).items():
        if path not in taken:
            yield path, dump([{"name": _url(page, rules), "version": page.resource.version} for page in members])
    yield INDEX, dump(_index(pages, snapshot, rules))


def _lists(pages: Iterable[_Page]) -> dict[PurePosixPath, list[_Page]]:
    """Return the lists by their paths: `<type>/index.json` of all, and `<folder>/*` of those in it, and not deeper."""
    lists: dict[PurePosixPath, list[_Page]] = {}
    for page in pages:
        if page.path is not None:
            for path in (PurePosixPath(page.path.parts[0], "index.json"), page.path.parent / "*"):
                lists.setdefault(path, []).append(page)
    return lists


def _url(page: _Page, rules: ExportRules) -> str:
    row, name = BY_TYPE_URL[page.resource.type_url], page.resource.name
    return rules.base_url + url_of(row.message_type, name, _authority_of(name, rules))


def _index(pages: Iterable[_Page], snapshot: Snapshot, rules: ExportRules) -> PlainValue:
    by_type: dict[str, list[PlainValue]] = {}
    for page in pages:
        by_type.setdefault(page.resource.type_url, []).append(_index_row(page, rules))
    types: list[PlainValue] = [
        {
            "type": row.message_type,
            "short_name": row.short_name,
            "version": snapshot.resources(row.type_url).version,
            "count": len(by_type[row.type_url]),
            "url": f"{rules.base_url}/{row.message_type}/",
            "resources": by_type[row.type_url],
        }
        for row in RESOURCE_TYPES
        if row.type_url in by_type
    ]
    return {"authority": rules.authority, "types": types}


def _index_row(page: _Page, rules: ExportRules) -> PlainValue:
    return {
        "name": page.resource.name,
        "version": page.resource.version,
        **({} if page.path is None else {"url": _url(page, rules)}),
        "object": f"{rules.base_url}/{page.object_path}",
    }
