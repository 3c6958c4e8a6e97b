from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, version_of_body
from fsxds.tools.exporting.output import write_files
from fsxds.tools.exporting.pages import ExportRules, Pages, file_of, pages_of
from fsxds.transports.http_get.get_responses import Urls
from tests.support.polls import envoy_catalogue

CLUSTER = "envoy.config.cluster.v3.Cluster"
LISTENER = "envoy.config.listener.v3.Listener"


def resource(short_name: str, name: str, **fields: Any) -> Resource:
    row = BY_SHORT_NAME[short_name]
    message = envoy_catalogue().message_class(row.message_type)(**{row.name_field or "name": name, **fields})
    body = message.SerializeToString(deterministic=True)
    return Resource(row.type_url, name, body, version_of_body(row.type_url, body), Origin(PurePosixPath("a.yaml"), 1))


def exported(*resources: Resource, base_url: str = "", authority: str = "", **rules: Any) -> Pages:
    urls = {one.type_url for one in resources}
    by_type = {url: Rows(url, {one.name: one for one in resources if one.type_url == url}) for url in urls}
    return pages_of(Snapshot(1, by_type), ExportRules(Urls(base_url, authority), **rules), envoy_catalogue())


def named(*names: str, **rules: Any) -> Pages:
    return exported(*(resource("cds", name) for name in names), **rules)


def files(pages: Pages) -> list[str]:
    """The paths of the files of resources."""
    return [
        str(path)
        for path in pages.files
        if path.parts[0] not in {"objects", "index.json"} and path.name not in {"*", "index.json"}
    ]


def content(pages: Pages, path: str) -> Any:
    return json.loads(pages.files[PurePosixPath(path)])


def test_each_resource_has_a_file_and_an_object() -> None:
    """Both have the JSON of HTTP GET; the object has the digest of its bytes for a name, and comes first."""
    pages = named("edge/api", "web")

    assert files(pages) == [f"{CLUSTER}/edge/api", f"{CLUSTER}/web"]
    assert content(pages, f"{CLUSTER}/web") == {"name": "web"}
    digest = hashlib.sha256(pages.files[PurePosixPath(CLUSTER, "web")]).hexdigest()
    assert pages.files[PurePosixPath(f"objects/{digest}.json")] == pages.files[PurePosixPath(CLUSTER, "web")]
    folders = [path.parts[0] for path in pages.files]
    assert folders == ["objects"] * 2 + [CLUSTER] * 5 + ["index.json"]


def test_lists_and_the_index_say_what_there_is() -> None:
    """A list of the type, one of each folder and not deeper, and an index with the object of each name."""
    pages = named("edge/api", "web", base_url="https://cdn.example.com/xds", host="cdn.example.com")
    url = f"https://cdn.example.com/xds/{CLUSTER}"
    lists = {str(path): content(pages, str(path)) for path in pages.files if path.name in {"*", "index.json"}}

    assert {path: [row["name"] for row in rows] for path, rows in lists.items() if path != "index.json"} == {
        f"{CLUSTER}/index.json": [f"{url}/edge/api", f"{url}/web"],
        f"{CLUSTER}/*": [f"{url}/web"],
        f"{CLUSTER}/edge/*": [f"{url}/edge/api"],
    }
    (clusters,) = lists["index.json"]["types"]
    assert {name: clusters[name] for name in ("type", "short_name", "count", "url")} == {
        "type": CLUSTER,
        "short_name": "cds",
        "count": 2,
        "url": f"{url}/",
    }
    assert [row["url"] for row in clusters["resources"]] == [f"{url}/edge/api", f"{url}/web"]
    objects = [row["object"].removeprefix("https://cdn.example.com/xds/") for row in clusters["resources"]]
    assert {PurePosixPath(each) for each in objects} <= pages.files.keys()


def test_structured_names_are_at_the_paths_of_their_authority() -> None:
    """Parameters are a part of the file; the own authority, none, and that of the host have paths."""
    names = (f"xdstp://own/{CLUSTER}/a?x=1&y=2", f"xdstp:///{CLUSTER}/b/c", f"xdstp://cdn.example.com/{CLUSTER}/d")
    pages = named(*names, authority="own", host="cdn.example.com")

    assert sorted(files(pages)) == [f"{CLUSTER}/a?x=1&y=2", f"{CLUSTER}/b/c", f"{CLUSTER}/d"]
    assert pages.unnamed == ()


@pytest.mark.parametrize(
    "name",
    [
        "../../../etc/passwd",
        "/etc/passwd",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        "..",
        "a\nb",
        "a\x00b",
        "x" * 256,
        "é" * 128,
        "a/" * 1600 + "a",
        "xdstp://elsewhere/envoy.config.cluster.v3.Cluster/a",
        "xdstp://elsewhere/broken",
        "xdstp:",
        f"xdstp:///{CLUSTER}/a?y=/../../../../x",
        f"xdstp:///{CLUSTER}/a?y=/",
    ],
)
def test_a_name_that_no_file_can_have_is_in_the_index_alone(name: str) -> None:
    """Nothing leads out of the directory; the object is there, and the remark says why the file is not."""
    pages = named(name, "web")

    assert files(pages) == [f"{CLUSTER}/web"]
    (remark,) = pages.unnamed
    assert remark.subject == f"cds {name}"
    rows = content(pages, "index.json")["types"][0]["resources"]
    assert [("url" in row, PurePosixPath(row["object"][1:]) in pages.files) for row in rows] == [
        (True, True),
        (False, True),
    ]


def test_a_file_cannot_be_a_folder_too() -> None:
    """Those in the folder have their files, the other one has none; it says which to rename."""
    pages = named("edge", "edge/api", "edge/api/v1")

    assert files(pages) == [f"{CLUSTER}/edge/api/v1"]
    assert [remark.subject for remark in pages.unnamed] == ["cds edge", "cds edge/api"]
    assert f"{CLUSTER}/edge is a folder of others" in pages.unnamed[0].reason


def test_of_names_with_one_url_that_counts_which_get_answers_with() -> None:
    """The structured name comes before the plain one."""
    pages = named("web", f"xdstp:///{CLUSTER}/web")

    assert content(pages, f"{CLUSTER}/web") == {"name": f"xdstp:///{CLUSTER}/web"}
    (remark,) = pages.unnamed
    assert (remark.subject, f"that of xdstp:///{CLUSTER}/web" in remark.reason) == ("cds web", True)


@pytest.mark.parametrize(
    "name", ["*", "index.json", "edge/*", "?a=b", "a?b", "a#b", "a%2Fb", "a b", ".hidden", "ä", "a:b"]
)
def test_odd_names_have_files(name: str) -> None:
    """Whatever a URL has to encode is in the name of the file as it is; a list does not take the place of a resource."""
    pages = named(name)

    assert content(pages, f"{CLUSTER}/{name}") == {"name": name}
    assert pages.unnamed == ()


def test_a_list_is_no_folder() -> None:
    """Where a name needs a folder in the place of a list, there is no such list."""
    pages = named("*/a", "index.json/b", "web")

    assert {
        path for path in pages.files if path in {folder for each in pages.files for folder in each.parents}
    } == set()
    assert len(files(pages)) == 3


def test_secrets_are_counted_and_nothing_else() -> None:
    """Not even their names are exported."""
    pages = exported(resource("sds", "precious"), resource("cds", "web"), allowed=("sds/*", "*"))

    assert pages.secret_count == 1
    assert not any(b"precious" in text or "precious" in str(path) for path, text in pages.files.items())


def test_credentials_are_withheld_unless_they_are_allowed() -> None:
    """A header may be a token; the remark says how to export it anyway, and nothing of it is in any file."""
    header = {"header": {"key": "x-token", "value": "s3cr3t"}}
    routes = resource("rds", "edge/web", request_headers_to_add=[header])
    pages = exported(routes, resource("rds", "plain"))

    assert not any(b"s3cr3t" in text or b"edge/web" in text for text in pages.files.values())
    (remark,) = pages.withheld
    assert (remark.subject, "--allow rds/edge/web" in remark.reason) == ("rds edge/web", True)
    for allowed in ("rds/edge/web", "rds/edge/*", "rds/*"):
        assert exported(routes, allowed=(allowed,)).withheld == ()
    assert exported(routes, allowed=("cds/*", "rds/edge")).withheld != ()


def test_types_have_files_of_their_own() -> None:
    """Equal names of two types are two files; of a type without resources nothing is written."""
    pages = exported(resource("cds", "web"), resource("lds", "web"), resource("sds", "web"))

    assert files(pages) == [f"{CLUSTER}/web", f"{LISTENER}/web"]
    assert [row["short_name"] for row in content(pages, "index.json")["types"]] == ["cds", "lds"]


def test_files_of_urls() -> None:
    """A path is decoded, its parameters are not."""
    assert file_of("/T/a%2Fb%3Fc?x=%20")[0] == PurePosixPath("T/a/b?c?x=%20")
    assert file_of("/T/%2E%2E/a")[0] is None


# Parts that lead elsewhere, that lists have, and that names of all kinds have.
PARTS = st.sampled_from(
    ["a", "b", "..", ".", "", "*", "index.json", "objects", "%2F", "é", "x?y=1", "xdstp:", "#e", "a" * 256]
)
PLAIN = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
PARAMETERS = st.sampled_from(["", "?a=1", "?a=..", "?a=/../../b", "?a=%2F..%2Fb"])
STRUCTURED = st.builds(
    "xdstp://{}/{}/{}{}".format, st.sampled_from(["", "own", "host", "other"]), st.just(CLUSTER), PLAIN, PARAMETERS
)


@given(st.lists(PLAIN | STRUCTURED, max_size=8, unique=True))
def test_whatever_names_there_are_the_files_can_be_written(names: list[str]) -> None:
    """Nothing leads outside, nothing is a file and a folder, and each resource has its object, a file or a remark."""
    pages = named(*(name for name in names if name), authority="own", host="host")

    folders = {folder for path in pages.files for folder in path.parents}
    assert not folders & pages.files.keys()
    assert all(".." not in path.parts and not path.is_absolute() for path in pages.files)
    assert len(files(pages)) <= pages.count
    assert pages.count == len({name for name in names if name})
    with TemporaryDirectory() as folder:
        report = write_files(Path(folder), pages.files)
        assert (report.blocked, set(report.written)) == ((), set(pages.files))
