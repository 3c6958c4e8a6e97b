"""What faults are done to: an fsxds with a tree, mirrored files and a state directory, and clients that follow it.

Each resource of the tree has its number, and names never change. So one look at a client or at a mirrored file says whether it
is whole, whether something was removed, and which edit it is of.
"""

from __future__ import annotations

import asyncio
import random
import re
import sqlite3
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
from envoy.service.discovery.v3 import discovery_pb2

from fsxds.history.entries import read_object
from fsxds.history.rollout_rows import channel_text, decode_state
from fsxds.history.state_directory import DATABASE
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.runtime.channels import ChannelKey
from fsxds.snapshots.encoding import snapshot_near
from tests.end_to_end.killing import StreamFollower
from tests.support.server import Server, write_file

# A machine with other things to do may take that long for a moment's work.
PATIENCE_S = 900.0

_NUMBER = re.compile(rb"number-(\d+)-")
_NAMES = {"cds": {"api", "web"}, "eds": {"api"}, "lds": {"l"}, "rds": {"r"}}
FILES = tuple(f"{word}.yaml" for word in _NAMES)
MIRRORED = ("cds.pb", "lds.pb", "eds/api.pb", "rds/r.pb")
URLS = {word: BY_SHORT_NAME[word].type_url for word in _NAMES}


# The converter remembers 4096 different filters, some megabytes: these fill what they need of that within minutes.
DIFFERENT_FILTERS = 64

BY_ADS = "resource_api_version: V3, ads: {}"
BY_REST = """\
resource_api_version: V3, initial_fetch_timeout: 15s, api_config_source: {api_type: REST, transport_api_version: V3, \
cluster_names: [xds], refresh_delay: 0.05s, request_timeout: 20s}"""


def files_of(number: int, source: str = BY_ADS) -> dict[str, str]:
    """Return the files of a tree, each resource of which has this number; endpoints and routes come from this source."""
    mark = f"number-{number}-"
    return {
        "cds.yaml": f"""\
- {{name: web, alt_stat_name: {mark}, type: STATIC, connect_timeout: 1s}}
- {{name: api, alt_stat_name: {mark}, type: EDS, connect_timeout: 1s, eds_cluster_config: {{eds_config: {{{source}}}}}}}
""",
        "eds.yaml": f"[{{cluster_name: api, endpoints: [{{locality: {{zone: {mark}}}}}]}}]\n",
        "rds.yaml": f"""\
- name: r
  virtual_hosts: [{{name: {mark}, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: web}}}}]}}]
""",
        "lds.yaml": f"""\
- name: l
  stat_prefix: {mark}
  address: {{socket_address: {{address: 127.0.0.1, port_value: 0}}}}
  filter_chains:
  - filters:
    - name: hcm
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
        stat_prefix: edit-{number % DIFFERENT_FILTERS}
        rds: {{route_config_name: r, config_source: {{{source}}}}}
        http_filters:
        - name: router
          typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
""",
    }


def number_in(body: bytes) -> int:
    """Return the number of a resource, or of several that have the same one; AssertionError when they are of several edits."""
    found = numbers_in(body)
    assert len(found) == 1, f"of several edits, or of none: {sorted(found)}"
    return found.pop()


def numbers_in(body: bytes) -> set[int]:
    """Return the numbers of resources."""
    return set(map(int, _NUMBER.findall(body)))


@dataclass
class StreamWitness(StreamFollower):
    """A client of a stream, which also looks whether something that it holds is ever removed, or has two versions.

    Attributes:
        contents: of SotW, the numbers by versions, and the versions by numbers: content has one version for ever.
        mixed: how many responses of SotW were of several edits.
    """

    contents: dict[tuple[str, object], object] = field(default_factory=dict)
    mixed: int = 0

    def _take(self, received: Any) -> None:
        super()._take(received)
        held = self.held[received.type_url]
        word = next(word for word, url in URLS.items() if url == received.type_url)
        if missing := _NAMES[word] - held.keys():
            self.broken.append(f"{word}: {sorted(missing)} gone")
        if self.is_delta:
            return
        numbers = numbers_in(b"".join(held.values()))
        if len(numbers) != 1:
            self.mixed += 1
            return
        number, version = numbers.pop(), str(received.version_info)
        for key, value in ((version, number), (number, version)):
            known = self.contents.setdefault((word, key), value)
            if known != value:
                self.broken.append(f"{word}: {key} was {known}, and is {value}")

    @property
    def numbers(self) -> set[int]:
        """The numbers of all that it holds; 0 for a type of which it holds nothing."""
        found = {number_in(body) for held in self.held.values() for body in tuple(held.values())}
        return found if all(self.held.values()) else found | {0}


@dataclass
class PollWitness:
    """A client that polls for clusters over and over.

    Attributes:
        node: its id.
        numbers: of what it holds.
        version: of what it holds.
        answers: how many polls were answered, by their status.
        broken: what it should not have been sent.
    """

    node: str = "poll-witness"
    numbers: set[int] = field(default_factory=set)
    version: str = ""
    answers: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    async def follow(self, path: Path) -> None:
        """Poll until cancelled."""
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as session:
            while True:
                try:
                    await self._poll(session)
                except (aiohttp.ClientError, OSError, TimeoutError):
                    await asyncio.sleep(0.02)

    async def _poll(self, session: aiohttp.ClientSession) -> None:
        request = {"node": {"id": self.node}, "version_info": self.version}
        async with session.post("http://fsxds/v3/discovery:clusters?timeout=20s", json=request) as response:
            self.answers[response.status] += 1
            if response.status == 200:
                content = await response.json()
                self.version = content["version_info"]
                if missing := _NAMES["cds"] - {each["name"] for each in content["resources"]}:
                    self.broken.append(f"REST: {sorted(missing)} gone")
                self.numbers = numbers_in(await response.read())
            elif response.status != 304:
                self.broken.append(f"REST: {response.status} {await response.text()}")
                await asyncio.sleep(0.02)


class Site:
    """An fsxds in a folder. Use `running` around everything else."""

    def __init__(self, folder: Path, *options: str, source: str = BY_ADS, **start: Any) -> None:
        """Prepare a folder with the tree of number 1.

        Args:
            folder: is empty.
            options: further ones of `fsxds serve`.
            source: where Envoys get endpoints and routes.
            start: as `Server` has it.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.tree = folder, folder / "tree"
        self.kept = folder / "kept"
        self.out, self.state = self.kept / "out", self.kept / "state"
        where = ("--mirror", str(self.out), "--state", str(self.state))
        self._settings = folder / "settings.yaml"
        self.write_settings()
        usual = ("--settle", "10ms", "--step-timeout", "500ms", "--settings", str(self._settings))
        sockets: dict[str, Any] = {"http": f"unix:{folder / 'h'}", "grpc": f"unix:{folder / 'g'}"}
        self.server = Server(self.tree, folder, *where, *usual, *options, **sockets, **start)
        self.kept.mkdir()
        rng = random.Random(1)
        self.streams = tuple(StreamWitness(is_delta, rng) for is_delta in (False, True))
        self.polls = PollWitness()
        self.number = 0
        self._source = source
        self.edit()

    def write_settings(self, more: str = "") -> None:
        """Write the settings file: its waits are short, and `more` are further lines."""
        write_file(self._settings, f"mirror_pause: 0s\nrescan: 2s\npoll: 200ms\n{more}")

    def edit(self, *but: str) -> int:
        """Write the tree with the next number, save for these files; return the number."""
        self.number += 1
        for name, text in files_of(self.number, self._source).items():
            if name not in but:
                write_file(self.tree / name, text)
        return self.number

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Start fsxds and the clients; in the end nothing may have been removed from any of them."""
        await asyncio.to_thread(self.server.start, wait=False)
        try:
            await self.until(self.server.ready_file.exists, "the ready file")
            files = [self.out / name for name in MIRRORED]
            await self.until(lambda: all(file.exists() for file in files), "the first mirrored files")
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(each.follow(f"unix:{self.folder / 'g'}")) for each in self.streams]
                running.append(tasks.create_task(self.polls.follow(self.folder / "h")))
                await self.until_served()
                yield
                await self.until(self.is_ready, "/readyz")
                for task in running:
                    task.cancel()
        finally:
            await asyncio.to_thread(self.server.kill)
        assert [] == [*self.polls.broken, *(one for each in self.streams for one in each.broken)]
        assert self.server.log_events("internal_error") == []

    def is_ready(self) -> bool:
        """Whether `/readyz` says so."""
        try:
            with urllib.request.urlopen(f"http://{self.server.admin}/readyz", timeout=PATIENCE_S) as response:
                return bool(response.status == HTTPStatus.OK)
        # It says that it is not, or the ready file has yet to say where this process is asked.
        except OSError:
            return False

    def clients_are_at(self, number: int) -> bool:
        """Whether all clients hold all of an edit."""
        return self.polls.numbers == {number} and all(each.numbers == {number} for each in self.streams)

    async def until_served(self) -> None:
        """Wait until all clients have the last edit."""
        await self.until(lambda: self.clients_are_at(self.number), f"all clients at {self.number}")

    async def until_answered(self) -> None:
        """Wait until a client that holds nothing is sent the last edit by REST, whatever becomes of the tree."""
        witness = PollWitness()
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(witness.follow(self.folder / "h"))
            await self.until(lambda: witness.numbers == {self.number}, "an answer to a new client")
            following.cancel()
        assert witness.broken == []

    async def until_mirrored(self) -> None:
        """Wait until the mirrored files are of the last edit."""
        await self.until(lambda: set(self.mirrored().values()) == {self.number}, f"a mirror at {self.number}")

    async def until_kept(self) -> None:
        """Wait until the state directory has the last edit."""
        await self.until(lambda: set(self.kept_numbers().values()) == {self.number}, f"the state of {self.number}")

    async def until_all(self) -> None:
        """Wait until the last edit is everywhere."""
        await self.until_served()
        await self.until_mirrored()
        await self.until_kept()

    async def until_logged(self, event: str, more_than: int = 0, **fields: object) -> dict[str, Any]:
        """Wait for a line of the log after so many others of its sort; return it."""

        def found() -> list[dict[str, Any]]:
            lines = self.server.log_events(event)[more_than:]
            return [line for line in lines if fields.items() <= line.items()]

        await self.until(found, f"{event} {fields}")
        return found()[0]

    async def until(self, predicate: Callable[[], Any], what: str) -> None:
        """Wait until a fact holds, while fsxds runs."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + PATIENCE_S
        while not await asyncio.to_thread(predicate):
            if loop.time() > deadline_s or not self.server.is_running:
                clients = [self.polls.numbers, *(each.numbers for each in self.streams)]
                log = self.server.log_file.read_text()[-5000:]
                message = f"waited in vain for {what}; clients are at {clients}\n{log}"
                raise AssertionError(message)
            await asyncio.sleep(0.02)

    def mirrored(self) -> dict[str, int]:
        """Return the numbers of the mirrored files; AssertionError when one is torn, or lacks something."""
        numbers = {}
        for path in (self.out / name for name in MIRRORED):
            content = path.read_bytes()
            response = discovery_pb2.DiscoveryResponse.FromString(content)
            word = path.relative_to(self.out).parts[0].removesuffix(".pb")
            assert len(response.resources) >= len(_NAMES[word]), f"{path.name}: {len(response.resources)} resources"
            numbers[str(path.relative_to(self.out))] = number_in(content)
        return numbers

    def kept_numbers(self) -> dict[str, int]:
        """Return the numbers of what the state directory serves, by types; AssertionError when it is damaged."""
        return numbers_of(self.kept_snapshot())

    def kept_snapshot(self) -> Snapshot:
        """Return what the state directory serves.

        It is another process that reads it, as SQLite allows at any time.
        """
        with closing(self._database()) as connection:
            # What is read in several steps is of one moment.
            connection.execute("BEGIN")
            # Nodes that reject something, or are slower, have places of their own.
            query = "SELECT facts FROM rollouts WHERE channel = ?"
            rows = connection.execute(query, (channel_text(ChannelKey()),)).fetchall()
            restore = partial(snapshot_near, read=partial(read_object, connection))
            (state,) = (decode_state(facts, restore, 0.0) for (facts,) in rows)
        return state.served

    def check_state(self) -> None:
        """AssertionError when SQLite finds damage."""
        with closing(self._database()) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{(self.state / DATABASE).as_uri()}?mode=rw", uri=True, timeout=PATIENCE_S, isolation_level=None
        )


def numbers_of(snapshot: Snapshot) -> dict[str, int]:
    """Return the numbers of what a snapshot has, by types; AssertionError when something lacks."""
    numbers = {}
    for word, names in _NAMES.items():
        rows = snapshot.resources(URLS[word])
        assert set(rows) >= names, f"{word}: {sorted(rows)}"
        numbers[word] = number_in(b"".join(row.body for row in rows.values()))
    return numbers
