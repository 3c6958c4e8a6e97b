"""Running servers, git revisions, and kept snapshots as sides."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import cast

import aiohttp

from fsxds.client.client_tls import ClientTls
from fsxds.client.polls import error_message, open_session, plain_node, url_of
from fsxds.history.entries import History, HistoryEntry
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.model.resources import Snapshot
from fsxds.model.values import PlainValue, SourceFile, SourceTree
from fsxds.protocol.messages import Node

# A poll that is not held is answered at once; a slower server is not fsxds, or hangs.
READ_PATIENCE_S = 30.0

_AT_ONCE = {"timeout": "0"}

# 304: there are no resources of the type. 503: no good version of it was loaded yet.
_OK, _NOTHING_NEW, _NO_VIEW, _UNAVAILABLE = 200, 304, 404, 503


def is_running_address(text: str) -> bool:
    """Return whether a text is an address, not a directory."""
    return text.startswith(("unix:", "http://", "https://"))


@dataclass(frozen=True, slots=True)
class Served:
    """A running fsxds, a file per type; `unavailable` types have no good version yet."""

    tree: SourceTree
    unavailable: tuple[ResourceType, ...]


async def fetch_served(address: str, node: Node | None = None, tls: ClientTls | None = None) -> Served:
    """Fetch the resources of types with a REST form.

    Args:
        address: `http://host:port`, possibly with a path before `/v3/`, or `unix:PATH`.
        node: None gets everything if there are no views.
        tls: None for the system's CAs.

    Raises:
        UsageError: no fsxds answers.
    """
    try:
        async with open_session(address, READ_PATIENCE_S, tls) as session:
            asked = {"node": plain_node(node)} if node is not None else {}
            rows = [row for row in RESOURCE_TYPES if row.rest_path]
            answers = [(row, await _poll(session, (address, url_of(address, row)), asked)) for row in rows]
    except TimeoutError as error:
        raise UsageError(f"{address}: no response came in time; is fsxds running there?") from error
    except aiohttp.InvalidURL as error:
        raise UsageError(f"{address}: is no URL; write http://HOST:PORT or unix:PATH") from error
    except aiohttp.ClientError as error:
        raise UsageError(f"{address}: request failed: {error_message(error)}; is fsxds running there?") from error
    files = (SourceFile.of(PurePosixPath(f"{row.noun}.json"), body) for row, (_, body) in answers if body)
    tree = SourceTree(tuple(sorted(files, key=lambda file: file.path.parts)))
    return Served(tree, tuple(row for row, (status, _) in answers if status == _UNAVAILABLE))


async def _poll(
    session: aiohttp.ClientSession, place: tuple[str, str], asked: Mapping[str, PlainValue]
) -> tuple[int, bytes]:
    address, url = place
    async with session.post(url, params=_AT_ONCE, json=asked) as response:
        if response.status in (_NOTHING_NEW, _UNAVAILABLE):
            return response.status, b""
        if response.status == _NO_VIEW and (message := _message_of(await response.read())):
            raise UsageError(f"{url}: {message}; give the node by --node-id, --node-cluster and --node-metadata")
        if response.status != _OK:
            fact = f"{response.url.path} is answered with status {response.status}"
            raise UsageError(f"{address}: {fact}; is this fsxds?")
        if response.content_type != "application/json":
            fact = f"{response.url.path} is answered with {response.content_type}, not with JSON"
            raise UsageError(f"{address}: {fact}; is this fsxds?")
        return response.status, await response.read()


def _message_of(body: bytes) -> str:
    try:
        error = json.loads(body)
    except ValueError:
        return ""
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else ""


# For a commit without a name; git accepts the prefix while it is unique.
_SHOWN_DIGITS = 16
_LINK_MODE = b"120000"


@dataclass(frozen=True, slots=True)
class Range:
    """Two revisions; `after` is None for the work tree."""

    before: str
    after: str | None


class Repository:
    """The repository around a directory.

    Raises:
        UsageError: from every method: there is no git, no repository, or no such revision.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # The path of the directory within the repository: empty, or ending with a slash.
        self.prefix = self._answer("rev-parse", "--show-prefix")

    def range_of(self, text: str) -> Range:
        """Parse `main..HEAD`, `main...HEAD` (from their merge base), or `main` (with the work tree)."""
        first, dots, second = text.partition("..")
        if not dots:
            self._commit(first)
            return Range(first, None)
        from_fork, second = second.startswith("."), second.removeprefix(".") or "HEAD"
        commits = self._commit(first or "HEAD"), self._commit(second)
        if from_fork:
            first = self._answer("merge-base", *commits)[:_SHOWN_DIGITS]
        return Range(first or "HEAD", second)

    def tree_at(self, revision: str, scan: Callable[[Path], SourceTree]) -> SourceTree:
        """Return the directory's files at a revision; `scan` reads a directory, following links.

        They are checked out into a temporary directory, with the work tree's line endings and filters.
        """
        commit = self._commit(revision)
        with TemporaryDirectory(prefix="fsxds-diff-") as temporary:
            top = Path(os.path.realpath(temporary), "top")
            top.mkdir()
            self._check_out(commit, top)
            _break_links_out_of(top)
            directory = top / self.prefix
            return scan(directory) if directory.is_dir() else SourceTree(())

    def _check_out(self, commit: str, top: Path) -> None:
        """If a file is a link, write the whole repository."""
        apart = {
            "GIT_DIR": self._answer("rev-parse", "--absolute-git-dir"),
            "GIT_WORK_TREE": str(top),
            "GIT_INDEX_FILE": str(top.with_name("index")),
        }
        git = partial(_run_git, top, environment=os.environ | apart)
        git("read-tree", commit)
        listed = git("ls-files", "--stage", "-z", "--", self.prefix or ".").split(b"\0")[:-1]
        if any(row.startswith(_LINK_MODE) for row in listed):
            git("checkout-index", "--all")
        else:
            git("checkout-index", "-z", "--stdin", stdin=b"".join(row.partition(b"\t")[2] + b"\0" for row in listed))

    def _commit(self, revision: str) -> str:
        if revision.startswith("-"):
            raise UsageError(f"{revision}: is no revision")
        return self._answer("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", what=revision)

    def _answer(self, *arguments: str, what: str = "") -> str:
        return os.fsdecode(_run_git(self._directory, *arguments, what=what)).rstrip("\n")


def _run_git(
    directory: Path, *arguments: str, stdin: bytes = b"", environment: Mapping[str, str] | None = None, what: str = ""
) -> bytes:
    """`what` is the revision for an error without a reason."""
    # A split index would write a part of itself into the repository.
    command = ["git", "-C", str(directory), "-c", "core.splitIndex=false", "-c", "core.fsmonitor=false", *arguments]
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, env=environment)  # noqa: S603 - no shell
    except OSError as error:
        raise UsageError(f"git cannot be run: {error.strerror}; install git, or give two directories") from error
    if done.returncode:
        words = next(iter(done.stderr.decode(errors="replace").strip().splitlines()), "").removeprefix("fatal: ")
        fact = f"git: {words or 'failed'}"
        if what and not words:
            fact = f"git knows no revision {what}; name a branch, a tag or a commit, or fetch it first"
        elif "not a git repository" in words:
            fact = "is not in a git repository; give a directory of a checkout"
        raise UsageError(f"{directory}: {fact}")
    return done.stdout


def _break_links_out_of(top: Path) -> None:
    """Otherwise a link's author could have other files read."""
    for folder, folders, files in os.walk(top):
        for path in (Path(folder, name) for name in (*folders, *files)):
            if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(top):
                path.unlink()
                path.symlink_to(path.name)


NOW = "@now"
_NUMBER = re.compile("@([1-9][0-9]{0,8})", re.ASCII)


def is_kept(text: str) -> bool:
    """Return whether a text names a kept snapshot, `@3` or `@now`."""
    return text == NOW or _NUMBER.fullmatch(text) is not None


def read_kept(directory: Path, names: Collection[str]) -> dict[str, Snapshot]:
    """Return snapshots by name, of one moment. Blocking.

    `@now` is the newest, of the other snapshot's nodes if there is one. `directory` is the `--state` of fsxds.

    Raises:
        UsageError: there is no history or snapshot, or `@now` is ambiguous.
        StateError: the history cannot be read.
    """
    with History.opened(directory) as history:
        entries = history.entries()
        found = {f"@{kept.number}": kept for kept in entries if f"@{kept.number}" in names}
        for name in names:
            if name not in found and name != NOW:
                raise UsageError(f"{name}: the history in {directory} has no such snapshot; fsxds history lists them")
        if NOW in names:
            layers = {kept.layers for kept in found.values() or entries}
            found[NOW] = _newest([kept for kept in entries if kept.layers in layers], directory)
        # They are there: entries and snapshots are of one moment.
        return {name: cast("Snapshot", history.snapshot(kept.layers, kept.number)) for name, kept in found.items()}


def _newest(entries: Collection[HistoryEntry], directory: Path) -> HistoryEntry:
    by_layers = {kept.layers: kept for kept in sorted(entries, key=lambda kept: kept.number)}
    if len(by_layers) == 1:
        return next(iter(by_layers.values()))
    if not by_layers:
        raise UsageError(f"{NOW}: the history in {directory} has no snapshot yet")
    there = ", ".join(f"@{kept.number} of {'+'.join(layers)}" for layers, kept in sorted(by_layers.items()))
    raise UsageError(f"{NOW}: nodes have different layers; the newest snapshots are {there}")
