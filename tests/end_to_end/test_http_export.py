"""An exported tree behind a real nginx, by the sample of `docker/`, beside the server that answers GET with the same tree."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest

from fsxds.cli.main import main
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.values import Severity
from fsxds.settings.reading import read_settings
from fsxds.testing import serve
from fsxds.testing.server import SETTLE_S
from tests.support.dockerfile import TOP
from tests.support.nginx import MISSING, NGINX, Nginx, running_nginx
from tests.support.resources import http_listener
from tests.support.server import Server

pytestmark = pytest.mark.skipif(NGINX is None, reason=MISSING)

REDIRECT = "/old-shop"
NAMES = TOP / "config/names"
SECRET = BY_SHORT_NAME["sds"].message_type
PLAIN = """\
- {name: web}
- {name: edge/api}
- {name: "a b"}
- {name: "ä?b"}
- {name: .hidden}
- {name: "xdstp://example.com/envoy.config.cluster.v3.Cluster/both?x=1&y=%20%C3%A4"}
- {name: "xdstp:///envoy.config.cluster.v3.Cluster/edge/deep/er"}
"""


@pytest.fixture(params=["names", "plain"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, ...]:
    """A tree, and its settings."""
    if request.param == "names":
        return NAMES / "xds", NAMES / "fsxds.yaml"
    (tmp_path / "xds").mkdir()
    (tmp_path / "xds" / "cds.yaml").write_text(PLAIN)
    (tmp_path / "fsxds.yaml").write_text("authority: example.com")
    return tmp_path / "xds", tmp_path / "fsxds.yaml"


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Nginx]:
    """Serves the directory `public`."""
    (tmp_path / "public").mkdir()
    with running_nginx("nginx-export.conf", tmp_path, {"root /www;": f"root {tmp_path}/public;"}) as nginx:
        yield nginx


def read(url: str, **headers: str) -> tuple[int, Any, bytes]:
    try:
        with urlopen(Request(url, headers=headers)) as answer:
            return answer.status, answer.headers, answer.read()
    except HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_files_are_what_get_answers(tree: tuple[Path, ...], files: Nginx, tmp_path: Path) -> None:
    """Every resource, every list of a type or folder and the index, byte for byte but for the host."""
    directory, settings = tree
    public = tmp_path / "public"
    assert main(["export", str(directory), str(public), "--settings", str(settings), "--url", files.url]) == 0

    with Server(directory, tmp_path, "--settings", str(settings)) as server:
        live = f"http://127.0.0.1:{server.port}"

        def same(path: str) -> bytes:
            status, _, expected = read(live + path)
            found = read(files.url + path)
            if path.endswith(REDIRECT):
                # The server says where it is; files have its content, under the name that was asked for.
                expected = expected.replace(b"/shop", REDIRECT.encode())
            assert (status, expected.replace(live.encode(), files.url.encode())) == (found[0], found[2]), path
            assert found[1]["content-type"] == "application/json"
            return expected

        index = json.loads(read(f"{live}/")[2])
        exported = json.loads(read(f"{files.url}/")[2])
        listed = {row["type"]: [one["name"] for one in row["resources"]] for row in index["types"]}
        assert listed == {row["type"]: [one["name"] for one in row["resources"]] for row in exported["types"]}
        paths = set()
        for row in index["types"]:
            members = json.loads(same(f"/{row['type']}/"))
            paths |= {urlsplit(one["name"])._replace(scheme="", netloc="").geturl() for one in members}
        for path in paths:
            same(path)
            same(f"{path.partition('?')[0].rpartition('/')[0]}/*")
        assert len(paths) >= 5


def test_nginx_answers_as_a_server_of_files_should(files: Nginx, tmp_path: Path) -> None:
    """Tags follow each change, objects may be kept for ever, and what is nobody's business is not there."""
    tree, public = tmp_path / "tree", tmp_path / "public"
    tree.mkdir()
    path = f"{files.url}/envoy.config.cluster.v3.Cluster/web"
    tags = set()
    for number in (1, 2, 3):
        (tree / "cds.yaml").write_text(f"[{{name: web, connect_timeout: {number}s}}]")
        assert main(["export", str(tree), str(public)]) == 0
        _, headers, content = read(path)
        assert json.loads(content)["connect_timeout"] == f"{number}s"
        assert headers["cache-control"] == "no-cache"
        tags.add(headers["etag"])
    assert len(tags) == 3
    assert read(path, **{"If-None-Match": headers["etag"]})[0] == 304
    assert read(f"{path}?xds.node.id=a&xds.node.cluster=b")[0] == 200
    (public / "envoy.config.cluster.v3.Cluster" / "web?").mkdir()
    for query in ("tier=gold", "/../index.json", "a=/../../index.json", "?", "x=%2F..%2F..%2Findex.json"):
        assert read(f"{path}?{query}")[0] == 404, query

    (row,) = json.loads(read(f"{files.url}/index.json")[2])["types"][0]["resources"]
    status, headers, content_of_object = read(files.url + row["object"])
    assert (status, content_of_object) == (200, content)
    assert "immutable" in headers["cache-control"]
    for private in ("/.fsxds/export.json", "/%2efsxds/lock", "/../fsxds.log", f"/{SECRET}/"):
        assert read(files.url + private)[0] in {400, 404}, private
    assert {row.message_type for row in RESOURCE_TYPES} >= {one.name for one in public.iterdir()} - {
        "objects",
        "index.json",
        ".fsxds",
    }


def test_a_relay_follows_an_export(files: Nginx, tmp_path: Path) -> None:
    """An exported directory behind nginx is an upstream: its resources come, change and go with each export."""
    tree, public = tmp_path / "tree", tmp_path / "public"
    tree.mkdir()
    (tree / "cds.yaml").write_text(PLAIN)
    (tree / "lds.yaml").write_text(http_listener("front", 10000, "main"))
    (tree / "rds.yaml").write_text("[{name: main}]")
    (tmp_path / "fsxds.yaml").write_text("authority: example.com")

    def export() -> None:
        options = ["--settings", str(tmp_path / "fsxds.yaml"), "--url", "https://cdn.example.com"]
        assert main(["export", str(tree), str(public), *options]) == 0

    export()
    settings = replace(read_settings({}), settle_s=SETTLE_S, linger_s=0, max_removal=1.0)
    with serve(upstream=files.url, settings=settings) as relay:
        relay.wait_for(lambda: len(relay.names("cds")) == PLAIN.count("name:") and relay.names("rds") == ("main",))
        assert "xdstp://example.com/envoy.config.cluster.v3.Cluster/both?x=1&y=%20%C3%A4" in relay.names("cds")

        before = relay.versions["cds"]
        (tree / "cds.yaml").write_text("[{name: web, connect_timeout: 3s}, {name: new}]")
        for path in ("lds.yaml", "rds.yaml"):
            (tree / path).write_text("resources: []")
        export()
        relay.wait_for(lambda: [relay.names(each) for each in ("cds", "lds", "rds")] == [("new", "web"), (), ()])
        assert relay.versions["cds"] != before
        assert not [problem for problem in relay.problems if problem.severity is Severity.ERROR]
