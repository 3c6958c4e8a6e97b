"""A real nginx as a cache before HTTP GET, by the sample of `docker/`: what a thousand clients cost fsxds."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.support.nginx import MISSING, NGINX, Nginx, running_nginx
from tests.support.patience import PATIENCE_S
from tests.support.server import Server
from tests.support.settings_files import file_flags

pytestmark = pytest.mark.skipif(NGINX is None, reason=MISSING)

PATH = "/envoy.config.cluster.v3.Cluster/web"
CLIENTS = 1000
VERSIONS = 4
# Each of those who waited looks for the answer within half a second; with a thousand of them on a busy machine some come later
# than the three seconds of the sample. Whoever comes after that is a request of its own to fsxds, and no mistake.
LONG_ENOUGH = {"proxy_cache_valid 200 302 404 3s;": "proxy_cache_valid 200 302 404 120s;"}


def write(tree: Path, number: int) -> None:
    """Change the resource as editors do: another file is renamed over it."""
    (tree / ".next").write_text(f"[{{name: web, connect_timeout: {number}s}}]")
    (tree / ".next").rename(tree / "cds.yaml")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "xds"
    path.mkdir()
    write(path, 1)
    return path


@pytest.fixture
def cache(tree: Path, tmp_path: Path) -> Iterator[Nginx]:
    """A server with the tree, and nginx before it."""
    with (
        Server(tree, tmp_path, *file_flags(allowed_hosts="xds")) as server,
        running_nginx(
            "nginx-cache.conf", tmp_path, {"fsxds:18001": f"127.0.0.1:{server.port}", **LONG_ENOUGH}
        ) as nginx,
    ):
        yield nginx


class Client:
    """Follows a resource as the page says: it sends the tag that it has, and waits for another one."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.seen: list[int] = []
        self._address = address
        self._tag = ""

    async def run(self) -> None:
        """Ask until cancelled."""
        reader, writer = await asyncio.open_connection(*self._address)
        try:
            while True:
                asked = f"{PATH}?wait=60 HTTP/1.1\r\nIf-None-Match: {self._tag}" if self._tag else f"{PATH} HTTP/1.1"
                writer.write(f"GET {asked}\r\nHost: xds\r\n\r\n".encode())
                await self._receive(reader)
        finally:
            writer.close()
            await writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().splitlines()
        named = dict(header.split(": ", 1) for header in headers if header)
        if status.split()[1] == "304":
            await asyncio.sleep(1)
            return
        assert status.split()[1] == "200", status
        content = json.loads(await reader.readexactly(int(named["content-length"])))
        self.seen.append(int(content["connect_timeout"].removesuffix("s")))
        self._tag = named["etag"]


async def test_of_a_thousand_clients_that_wait_the_origin_sees_one(cache: Nginx, tree: Path) -> None:
    """Each version is asked for once, and every client gets every version, once and in order."""
    clients = [Client(cache.address) for _ in range(CLIENTS)]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(client.run()) for client in clients]
        for number in range(1, VERSIONS + 1):
            if number > 1:
                await until(lambda: waiting(cache) >= CLIENTS)
                write(tree, number)
            await until(lambda number=number: all(client.seen[-1:] == [number] for client in clients))  # type: ignore[misc]
        for task in running:
            task.cancel()

    assert Counter(tuple(client.seen) for client in clients) == {tuple(range(1, VERSIONS + 1)): CLIENTS}
    await until(lambda: origin(cache)["200"] >= VERSIONS)
    assert origin(cache)["200"] == VERSIONS


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(is_true):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


def waiting(nginx: Nginx) -> int:
    """How many requests nginx is at now; that for its own status is one."""
    with urlopen(f"http://{nginx.status_address[0]}:{nginx.status_address[1]}/") as answer:
        found = re.search(rb"Writing: (\d+)", answer.read())
    assert found is not None
    return int(found[1]) - 1


def origin(nginx: Nginx) -> Counter[str]:
    """How often fsxds answered with each status; nginx logs a request when its client has the answer."""
    return Counter(line.rpartition("origin=")[2] for line in nginx.lines())


def read(nginx: Nginx, path: str, **headers: str) -> tuple[int, Any]:
    try:
        with urlopen(Request(nginx.url + path, headers=headers)) as answer:
            return answer.status, answer.headers
    except HTTPError as error:
        with error:
            return error.code, error.headers


async def test_what_was_kept_is_asked_about_and_not_fetched_again(cache: Nginx, tree: Path) -> None:
    """After a second fsxds says that it is still the same; the client has a change as soon as fsxds said it."""
    tag = read(cache, PATH)[1]["etag"]
    await until(lambda: read(cache, PATH)[0] == 200 and origin(cache)["304"] > 0)
    assert origin(cache)["200"] == 1
    assert read(cache, PATH, **{"If-None-Match": tag})[0] == 304

    write(tree, 2)
    await until(lambda: read(cache, PATH)[1]["etag"] != tag)
    await until(lambda: origin(cache)["200"] == 2)


def test_what_does_not_belong_into_a_cache(cache: Nginx) -> None:
    """Polls, and secrets; what is not there is not there by nginx either, and names with encoded parts are."""
    assert read(cache, "/envoy.extensions.transport_sockets.tls.v3.Secret/x")[0] == 403
    assert read(cache, "/envoy%2Eextensions.transport_sockets.tls.v3.Secret/x?wait=1")[0] == 403
    with pytest.raises(HTTPError, match="403") as caught:
        urlopen(Request(f"{cache.url}/v3/discovery:clusters", b"{}", {"content-type": "application/json"}))
    caught.value.close()
    assert read(cache, f"{PATH}%2Fdeeper")[0] == 404
    assert read(cache, f"{PATH[:-3]}%77eb?xds.node.id=a")[0] == 200
    assert read(cache, PATH, Accept="application/yaml")[1]["content-type"] == "application/yaml"
    assert read(cache, PATH)[1]["content-type"] == "application/json"


def test_what_came_with_a_token_is_for_nobody_else(tree: Path, tmp_path: Path) -> None:
    """Nothing of it is kept: who has no token gets nothing, before and after somebody who has one, waiting or not."""
    (tmp_path / "tokens").write_text("me: s3cr3t-t0k3n-of-a-client\n")
    with (
        Server(tree, tmp_path, "--tokens", str(tmp_path / "tokens")) as server,
        running_nginx("nginx-cache.conf", tmp_path, {"fsxds:18001": f"127.0.0.1:{server.port}"}) as nginx,
    ):
        for query in ("", "?wait=1"):
            asked = [
                read(nginx, PATH + query, **headers)[0]
                for headers in (
                    {},
                    {"Authorization": "Bearer s3cr3t-t0k3n-of-a-client"},
                    {},
                    {"Authorization": "Bearer other"},
                )
            ]
            assert asked == [401, 200, 401, 401]
        assert not any("HIT" in line for line in nginx.lines())
