"""The files of an export, computed from a snapshot without I/O.

| rule | why |
| --- | --- |
| A file has the path of its URL, decoded: `<type>/<path>`, with `?<parameters>` if the name has some. | Any web server finds it there. |
| If several names have one URL, the one that HTTP GET answers with takes it. | Both answer alike. |
| A name that no file can have is in the index alone, with its object. | Nothing may lead out of the directory. |
| `objects/<SHA-256>.json` has the same content for ever. | It may be cached, and an index and its objects are of one moment. |
| Secrets are left out, and resources with credentials unless allowed by name. | A file server does not check who reads. |

Rules: which resources are never exported.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import quote, unquote

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer, dump
from fsxds.api.secrets import CredentialFinder
from fsxds.events.file_events import Remark
from fsxds.model.errors import ProtocolError
from fsxds.model.resource_names import parse_or_none
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_TYPE_URL, RESOURCE_TYPES
from fsxds.model.resources import Resource, Snapshot, key_of
from fsxds.model.values import PlainValue
from fsxds.protocol.get import FoundList, find, read_target, url_of
from fsxds.tools.exporting.output import OBJECTS
from fsxds.transports.http_get.get_requests import JSON_CONTENT, content_of
from fsxds.transports.http_get.get_responses import LIST_COLLECTION, Urls, collection_content

LIST_COLLECTION_URL = BY_MESSAGE_TYPE[LIST_COLLECTION].type_url
INDEX = PurePosixPath("index.json")
# Limits of file systems for a part of a path, and for a path, with a margin for the directory's own.
LONGEST_PART_BYTES, LONGEST_PATH_BYTES = 255, 3000


@dataclass(frozen=True, slots=True)
class ExportRules:
    """The rules of an export.

    Attributes:
        host: of its URL; names with this authority are at its paths too.
        allowed: resources that may have credentials, such as `lds/edge`; `*` matches any text.
    """

    urls: Urls = field(default_factory=lambda: Urls(""))
    host: str = ""
    allowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pages:
    """The files of an export.

    Attributes:
        files: in the order of writing.
        secret_count: of secrets left out.
        withheld: with possible credentials.
        unnamed: without a file of their name.
    """

    files: Mapping[PurePosixPath, bytes]
    count: int
    secret_count: int
    withheld: tuple[Remark, ...]
    unnamed: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """`path` is None without a file."""

    resource: Resource
    content: bytes
    path: PurePosixPath | None = None
    url: str = ""

    @property
    def object_path(self) -> PurePosixPath:
        return PurePosixPath(OBJECTS, f"{hashlib.sha256(self.content).hexdigest()}.json")

    @property
    def title(self) -> str:
        return f"{BY_TYPE_URL[self.resource.type_url].short_name} {self.resource.name}"


def pages_of(snapshot: Snapshot, rules: ExportRules, catalogue: Catalogue) -> Pages:
    """Return the files to export."""
    credentials, printer = CredentialFinder(catalogue), Printer(catalogue)
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
            if row.type_url == LIST_COLLECTION_URL:
                plain = printer.resource_plain(row.type_url, resource.body)
                page = _Page(resource, dump([*collection_content(plain, rules.urls)]))
            else:
                page = _Page(resource, content_of(resource, JSON_CONTENT, printer))
            is_allowed = any(fnmatchcase(subject, each) for each in rules.allowed)
            if credentials.are_in(resource.type_url, resource.body) and not is_allowed:
                fact = "not exported: it has, or may have, a credential (`fsxds show` hides it)"
                withheld.append(Remark(page.title, f"{fact}; take it from a secret, or give --allow {subject}"))
            else:
                written.append(page)
        pages += _placed(snapshot, written, rules, unnamed)
    for (type_url, name), redirect in snapshot.unresolved.items():
        if name in snapshot.resources(type_url):
            continue
        subject = f"{BY_TYPE_URL[type_url].short_name} {name}"
        fact = f"not exported: it is a redirect to {redirect.redirect}, which is not here"
        withheld.append(Remark(subject, f"{fact}; a web server that answers with 302 has to know it"))
    files = dict(_files(pages, snapshot, rules))
    return Pages(files, len(pages), secret_count, tuple(withheld), tuple(unnamed))


# -- assignment of files to resources


def _placed(snapshot: Snapshot, pages: Iterable[_Page], rules: ExportRules, unnamed: list[Remark]) -> Iterator[_Page]:
    placed: dict[PurePosixPath, _Page] = {}
    rejected: list[tuple[_Page, str]] = []
    for page in pages:
        url, fault = _url_of(page.resource, snapshot, rules)
        path = None
        if not fault:
            path, fault = file_of(url)
        if path is None:
            rejected.append((page, fault))
        elif path in placed:
            rejected.append((page, f"its file is that of {placed[path].resource.name}; rename one of them"))
        else:
            placed[path] = replace(page, path=path, url=url)
    folders = {folder for path in placed for folder in path.parents}
    for path, page in placed.items():
        if path in folders:
            rejected.append((page, f"{path} is a folder of others, and cannot be a file too; rename it"))
        else:
            yield page
    for page, fault in rejected:
        unnamed.append(Remark(page.title, f"in the index alone: {fault}"))
        yield replace(page, path=None)


def _url_of(resource: Resource, snapshot: Snapshot, rules: ExportRules) -> tuple[str, str]:
    """The URL path, and why HTTP GET does not find it there."""
    structured, message_type = parse_or_none(resource.name), BY_TYPE_URL[resource.type_url].message_type
    own = rules.urls.authority
    fault = "HTTP GET does not find it"
    # If the authority of a name is the host, its path is its URL too.
    for authority in dict.fromkeys((own if structured is None else structured.authority, own)):
        url = url_of(message_type, resource.name, authority)
        try:
            target = read_target(url, rules.host, rules.urls.authority)
        except ProtocolError as error:
            return url, str(error)
        rows = snapshot.resources(resource.type_url)
        found = next((rows[name] for name in target.names if name in rows), None)
        if found is resource:
            return url, ""
        if found is not None:
            fault = f"its URL is that of {found.name}; rename one of them"
    return url, fault


def file_of(url: str) -> tuple[PurePosixPath | None, str]:
    """Return the file of a URL path, or None and the reason."""
    path, mark, query = url.partition("?")
    parts = unquote(path).removeprefix("/").split("/")
    parts[-1] += mark + query
    if any(part in {"", ".", ".."} for part in parts):
        return None, "web servers understand a path with an empty part, `.` or `..` otherwise; rename it"
    if "/" in query:
        return None, "a file cannot have a slash in its parameters; give them another value"
    if not all(part.isprintable() for part in parts):
        return None, "a file cannot have a control character in its name; rename it"
    lengths = [len(part.encode(errors="surrogatepass")) for part in parts]
    if max(lengths) > LONGEST_PART_BYTES or sum(lengths) + len(lengths) > LONGEST_PATH_BYTES:
        return None, f"a file cannot have so long a name; {LONGEST_PART_BYTES} bytes are allowed between slashes"
    return PurePosixPath(*parts), ""


# -- content of files


def _files(pages: Collection[_Page], snapshot: Snapshot, rules: ExportRules) -> Iterator[tuple[PurePosixPath, bytes]]:
    yield from ((page.object_path, page.content) for page in pages)
    yield from ((page.path, page.content) for page in pages if page.path is not None)
    by_key = {key_of(page.resource): page for page in pages if page.path is not None}
    paths = [page.path for page in pages if page.path is not None]
    taken = {*paths, *(folder for path in paths for folder in path.parents)}
    for url, path in _lists(pages).items():
        found = find(read_target(url, rules.host, rules.urls.authority), snapshot)
        if isinstance(found, FoundList) and path not in taken:
            listed = (by_key[key] for key in map(key_of, found.resources) if key in by_key)
            yield path, dump([{"name": rules.urls.own + page.url, "version": page.resource.version} for page in listed])
    by_type: defaultdict[str, list[PlainValue]] = defaultdict(list)
    for page in pages:
        row: dict[str, PlainValue] = {"name": page.resource.name, "version": page.resource.version}
        if page.path is not None:
            row["url"] = rules.urls.own + page.url
        by_type[page.resource.type_url].append({**row, "object": f"{rules.urls.own}/{page.object_path}"})
    types: list[PlainValue] = [
        {
            "type": row.message_type,
            "short_name": row.short_name,
            "version": snapshot.resources(row.type_url).version,
            "count": len(by_type[row.type_url]),
            "url": f"{rules.urls.own}/{row.message_type}/",
            "resources": by_type[row.type_url],
        }
        for row in RESOURCE_TYPES
        if row.type_url in by_type
    ]
    yield INDEX, dump({"authority": rules.urls.authority, "types": types})


def _lists(pages: Iterable[_Page]) -> dict[str, PurePosixPath]:
    """By URL: `<type>/index.json`, and `<folder>/*` for resources directly in a folder."""
    lists: dict[str, PurePosixPath] = {}
    for page in pages:
        if page.path is not None:
            type_folder, folder = PurePosixPath(page.path.parts[0]), page.path.parent
            lists[f"/{type_folder}/"] = type_folder / "index.json"
            lists[f"/{quote(str(folder))}/*"] = folder / "*"
    return lists
