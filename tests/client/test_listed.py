"""Read a type by GET at a server of files that a test writes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

import pytest

from fsxds.api.converter import Converter
from fsxds.client import listed
from fsxds.client.listed import MOST_TRIES, Fetched, ListReader
from fsxds.client.updates import TOO_LARGE_RESPONSE, ConnectionLostError, UpdateContents
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import PlainValue
from tests.support.polls import envoy_catalogue, named

CDS = BY_SHORT_NAME["cds"]
FOLDER = f"/{CDS.message_type}"
LIST = f"{FOLDER}/index.json"


class Files:
    """What a server has by path, and what was asked of it."""

    def __init__(self) -> None:
        self.contents: dict[str, PlainValue] = {}
        self.headers: dict[str, str] = {}
        self.statuses: dict[str, int] = {}
        self.asked: list[str] = []
        self.waits: list[str] = []

    def put(self, *names: str, **others: PlainValue) -> None:
        """Have these clusters, and a list of them; `others` by name with another content."""
        contents: dict[str, PlainValue] = {**{name: {"name": name} for name in names}, **others}
        self.contents = {f"{FOLDER}/{name}": content for name, content in contents.items()}
        self.put_list(*contents)

    def put_list(self, *names: str, base: str = "") -> None:
        """List these names, with the versions that their contents have."""
        self.contents[LIST] = [
            {"name": f"{base}{FOLDER}/{name}", "version": version_of(self.contents[f"{FOLDER}/{name}"])}
            for name in names
        ]

    async def fetch(self, path: str, headers: Mapping[str, str]) -> Fetched:
        """Answer as a server of files does."""
        self.asked.append(path.removeprefix(f"{FOLDER}/"))
        if "Prefer" in headers:
            self.waits.append(headers["Prefer"])
        if path in self.statuses or path not in self.contents:
            return Fetched(self.statuses.get(path, 404), {}, b"")
        body = json.dumps(self.contents[path]).encode()
        tag = hashlib.sha256(body).hexdigest()
        if headers.get("If-None-Match") == tag:
            return Fetched(304, self.headers, b"")
        return Fetched(200, {**self.headers, "etag": tag}, body)

    def take_asked(self) -> list[str]:
        """Return what was asked since the last call, in order of the names."""
        asked, self.asked = sorted(self.asked), []
        return asked


def version_of(content: PlainValue) -> str:
    """Return the version that the list has of a cluster."""
    converted = Converter(envoy_catalogue()).convert(content, CDS.message_type)
    assert converted.message is not None
    contents = UpdateContents(CDS.type_url)
    contents.add_body(converted.message.SerializeToString(deterministic=True))
    (resource,) = contents.resources.values()
    return resource.version


@pytest.fixture
def files() -> Files:
    """A server that has nothing."""
    return Files()


@pytest.fixture
def reader(files: Files) -> ListReader:
    """Reads its clusters."""
    return ListReader(CDS, Converter(envoy_catalogue()), files.fetch)


async def names_of(reader: ListReader) -> list[str] | None:
    """Return the names of the next update; None for nothing new."""
    answer = await reader.read(0.0)
    return None if answer is None else list(answer[0].resources)


async def test_what_changed_is_read_alone(files: Files, reader: ListReader) -> None:
    """First everything is read; later the list, by its tag, and of its members those with another version."""
    files.put("a", "b")
    answer = await reader.read(0.0)
    assert answer is not None
    assert (answer[0].bodies, answer[0].is_full) == ({"a": named("cds", "a").body, "b": named("cds", "b").body}, True)
    assert files.take_asked() == ["a", "b", "index.json"]

    assert (await names_of(reader), files.take_asked()) == (None, ["index.json"])
    files.put("b", a={"name": "a", "alt_stat_name": "x"})
    assert (await names_of(reader), files.take_asked()) == (["a", "b"], ["a", "index.json"])
    files.put("b")
    assert (await names_of(reader), files.take_asked()) == (["b"], ["index.json"])


async def test_a_list_is_not_asked_for_before_its_age_is_over(files: Files, reader: ListReader) -> None:
    """`max-age` counts from when the origin sent it."""
    files.headers["cache-control"] = "public, max-age=100"
    files.put("a")
    assert await names_of(reader) == ["a"]
    files.put("b")
    assert await names_of(reader) is None

    aged = ListReader(CDS, Converter(envoy_catalogue()), files.fetch)
    files.headers["age"] = "100"
    assert await names_of(aged) == ["b"]
    files.put("c")
    assert await names_of(aged) == ["c"]


async def test_no_age_is_trusted_for_longer_than_a_minute(
    files: Files, reader: ListReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A year of `max-age` would hide every change for a year."""
    monkeypatch.setattr(listed, "LONGEST_FRESH_S", 0.0)
    files.headers["cache-control"] = "max-age=31536000"
    files.put("a")
    assert await names_of(reader) == ["a"]
    files.put("b")
    assert await names_of(reader) == ["b"]


async def test_a_server_that_can_wait_is_let(files: Files, reader: ListReader) -> None:
    """It may hold its answer when all is read that it lists."""
    files.put("a")
    await reader.read(30.0)
    await reader.read(30.0)

    assert files.waits == ["wait=30"]


async def test_an_old_copy_in_a_cache_is_read_again(files: Files, reader: ListReader) -> None:
    """A member is read until it is what the list says; after some rounds more seldom."""
    files.put("a")
    await reader.read(0.0)
    old = files.contents[f"{FOLDER}/a"]
    files.put(a={"name": "a", "alt_stat_name": "new"})
    new, files.contents[f"{FOLDER}/a"] = files.contents[f"{FOLDER}/a"], old
    assert [await names_of(reader) for _ in range(3)] == [None, None, None]
    files.contents[f"{FOLDER}/a"] = new
    assert await names_of(reader) == ["a"]

    files.contents[f"{FOLDER}/a"] = old
    files.contents[LIST] = [{"name": f"{FOLDER}/a", "version": "of no content"}]
    files.take_asked()
    for _ in range(MOST_TRIES * 2):
        await reader.read(0.0)
    assert files.take_asked().count("a") == MOST_TRIES + 1


async def test_a_member_without_a_version_is_always_read(files: Files, reader: ListReader) -> None:
    """As secrets are listed: their content has to be asked for, by its tag."""
    files.put("a")
    files.contents[LIST] = [{"name": f"{FOLDER}/a"}]
    assert await names_of(reader) == ["a"]
    assert await names_of(reader) is None
    files.contents[f"{FOLDER}/a"] = {"name": "a", "alt_stat_name": "new"}
    assert await names_of(reader) == ["a"]


@pytest.mark.parametrize("fault", [500, 404, "[]", '{"name": "b", "no_field": 1}'])
async def test_a_member_that_cannot_be_read_is_a_fault(files: Files, reader: ListReader, fault: int | str) -> None:
    """It counts when it is there twice, the others are read, nothing is removed, and the next good answer is taken."""
    files.put("a", "b")
    if isinstance(fault, int):
        files.statuses[f"{FOLDER}/b"] = fault
    else:
        good, files.contents[f"{FOLDER}/b"] = files.contents[f"{FOLDER}/b"], json.loads(fault)
    assert await names_of(reader) is None
    answer = await reader.read(0.0)
    assert answer is not None
    update = answer[1].accepted(answer[0])
    assert (list(update.resources), update.is_full, len(update.faults)) == (["a"], False, 1)
    assert await names_of(reader) is None

    files.statuses.clear()
    if isinstance(fault, str):
        files.contents[f"{FOLDER}/b"] = good
    assert await names_of(reader) == ["a", "b"]


async def test_a_list_that_is_missing_is_empty_if_the_index_says_so(files: Files, reader: ListReader) -> None:
    """An export without clusters has no list of them; without an index, or with another one, nothing is known."""
    with pytest.raises(ConnectionLostError, match="no list"):
        await reader.read(0.0)
    files.put("a")
    assert await names_of(reader) == ["a"]
    own: PlainValue = {"types": [{"type": CDS.message_type}]}
    indexes: list[tuple[int, PlainValue]] = [(404, None), (403, own), (404, {"types": "none"})]
    for status, index in indexes:
        files.contents, files.statuses = {} if index is None else {"/index.json": index}, {LIST: status}
        with pytest.raises(ConnectionLostError, match="no list"):
            await reader.read(0.0)
    files.contents["/index.json"] = {"types": [{"type": "another"}]}
    assert await names_of(reader) == []


@pytest.mark.parametrize("content", [{}, [{}], [{"name": "/other/a"}], [{"name": f"{FOLDER}/a b"}], ["a"]])
async def test_what_is_no_list_is_not_taken_for_one(files: Files, reader: ListReader, content: PlainValue) -> None:
    """Pages of other programs have no resources."""
    files.contents[LIST] = content

    with pytest.raises(ConnectionLostError, match="no list"):
        await reader.read(0.0)


async def test_folders_are_lists_as_well(files: Files, reader: ListReader) -> None:
    """A server that knows an index of a folder is asked for the folder, when it has no file of that name."""
    files.put("a")
    files.contents[f"{FOLDER}/"] = files.contents.pop(LIST)
    assert await names_of(reader) == ["a"]
    files.take_asked()
    await reader.read(0.0)
    assert files.take_asked() == [""]


async def test_no_other_host_is_asked(files: Files, reader: ListReader) -> None:
    """Whatever host the list says, its members are read where the list was."""
    files.put("a")
    files.put_list("a", base="https://elsewhere.example/path")

    assert await names_of(reader) == ["a"]


async def test_names_can_be_asked_for(files: Files, reader: ListReader) -> None:
    """Of others nothing is read; structured names are at their paths, and a glob is all that is in its folder."""
    inside = f"xdstp://east{FOLDER}/shop/b"
    folders: dict[str, PlainValue] = {"shop/b": {"name": inside}}
    folders["shop/deep/d"] = {"name": f"xdstp://east{FOLDER}/shop/deep/d"}
    files.put("a", "c", **folders)
    reader.names = frozenset({"a", "none"})
    assert (await names_of(reader), files.take_asked()) == (["a"], ["a", "index.json"])
    reader.names = frozenset({inside})
    assert (await names_of(reader), files.take_asked()) == ([inside], ["index.json", "shop/b"])
    reader.names = frozenset({f"xdstp://east{FOLDER}/shop/*"})
    assert (await names_of(reader), files.take_asked()) == ([inside], ["index.json"])
    reader.names = frozenset({f"xdstp://west{FOLDER}/shop/b"})
    answer = await reader.read(0.0)
    assert answer is not None
    assert (answer[0].unpopulated, answer[0].bodies) == (tuple(reader.names), {})


async def test_more_than_is_taken_ends_it(files: Files, reader: ListReader) -> None:
    """All members together are as large as a response may be."""
    files.put("a", "b")
    reader.most_bytes = 20

    with pytest.raises(ConnectionLostError) as lost:
        await reader.read(0.0)
    assert lost.value.code == TOO_LARGE_RESPONSE
