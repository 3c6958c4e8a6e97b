"""What a running fsxds serves, asked over REST.

The tree of a revision, read from git's objects; nothing is checked out.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import aiohttp

from fsxds.errors import UsageError
from fsxds.resource_types import RESOURCE_TYPES, ResourceType
from fsxds.source.listing import Exclusion, is_passed_over, is_text, problem_of
from fsxds.values import Problem, SourceFile, SourceTree

# An answer comes at once; what takes longer is not fsxds, or hangs.
CONNECT_PATIENCE_S = 5.0
READ_PATIENCE_S = 30.0

_UNIX, _HTTP = "unix:", ("http://", "https://")
_AT_ONCE = {"timeout": "0"}

# Of the second there are no resources that Envoy would take; of the third nothing good was loaded yet.
_OK, _NOTHING_TO_TELL, _UNAVAILABLE = 200, 304, 503


def is_running_address(text: str) -> bool:
    """Tell whether a text names a running fsxds, and not a directory."""
    return text.startswith((_UNIX, *_HTTP))


@dataclass(frozen=True, slots=True)
class Served:
    """What a running fsxds serves: one file for each type of which there is something.

    `unavailable` are the types of which it never loaded anything good.
    """

    tree: SourceTree
    unavailable: tuple[ResourceType, ...]


async def fetch_served(address: str) -> Served:
    """Return what a running fsxds serves of the types that have a REST form.

    Args:
        address: `http://host:port`, with a path before `/v3/` if need be, or `unix:` and the path of a socket.

    Raises:
        UsageError: nobody answers there, or someone else than fsxds.
    """
    is_unix = address.startswith(_UNIX)
    connector = aiohttp.UnixConnector(address.removeprefix(_UNIX)) if is_unix else aiohttp.TCPConnector()
    timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_PATIENCE_S, sock_read=READ_PATIENCE_S)
    base = "http://fsxds" if is_unix else address.rstrip("/")
    try:
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            answers = [(row, await _poll(session, base, row)) for row in RESOURCE_TYPES if row.rest_path]
    except TimeoutError as error:
        raise UsageError(f"{address}: no answer came in time; is fsxds running there?") from error
    except aiohttp.InvalidURL as error:
        raise UsageError(f"{address}: is no URL; write http://HOST:PORT or unix:PATH") from error
    except aiohttp.ClientError as error:
        raise UsageError(f"{address}: cannot be asked: {_words_of(error)}; is fsxds running there?") from error
    except _WrongAnswerError as error:
        raise UsageError(f"{address}: {error}; is this fsxds?") from error
    files = (SourceFile.of(PurePosixPath(f"{row.noun}.json"), body) for row, (_, body) in answers if body)
    tree = SourceTree(tuple(sorted(files, key=lambda file: file.path.parts)))
    return Served(tree, tuple(row for row, (status, _) in answers if status == _UNAVAILABLE))


class _WrongAnswerError(Exception):
    """The answer is not what fsxds says."""


async def _poll(session: aiohttp.ClientSession, base: str, row: ResourceType) -> tuple[int, bytes]:
    """Return the status, and the DiscoveryResponse with all resources of a type, empty where nothing is served."""
    path = f"/v3/discovery:{row.rest_path}"
    async with session.post(base + path, params=_AT_ONCE, json={}) as response:
        if response.status in (_NOTHING_TO_TELL, _UNAVAILABLE):
            return response.status, b""
        if response.status != _OK:
            raise _WrongAnswerError(f"{path} is answered with status {response.status}")
        if response.content_type != "application/json":
            raise _WrongAnswerError(f"{path} is answered with {response.content_type}, not with JSON")
        return response.status, await response.read()


def _words_of(error: aiohttp.ClientError) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        # The words of a name that is not found come with a number of their own, below zero.
        number = error.errno or 0
        return os.strerror(number) if number > 0 else error.strerror or "no connection"
    # aiohttp's words may hold whole objects, over several lines.
    return re.sub(r"\s+", " ", str(error))[:200] or type(error).__name__


_LINK, _SUBMODULE = "120000", "160000"
# A chain of more links than this is a circle.
_MOST_LINKS = 20
# Of a commit that has no other name; git takes it as the commit's name as long as no other begins alike.
_SHOWN_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Range:
    """Two revisions to compare; `after` is None for the work tree."""

    before: str
    after: str | None


@dataclass(frozen=True, slots=True)
class _Blob:
    """A file or link of a revision: its mode, its object and its size."""

    mode: str
    name: str
    size_bytes: int


class Repository:
    """The repository that a directory is in.

    Raises:
        UsageError: from every method: git is not there, the directory is in no repository, a revision is not known.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Where the directory is within the repository: empty, or ending with a slash.
        self.prefix = self._ask("rev-parse", "--show-prefix").decode(errors="surrogateescape").rstrip("\n")

    def range_of(self, text: str) -> Range:
        """Read `main..HEAD`, `main...HEAD` (from where they parted), or `main`, which is compared with the work tree."""
        if "..." in text:
            first, _, second = text.partition("...")
            first, second = self._commit(first or "HEAD"), self._commit(second or "HEAD")
            parted = self._ask("merge-base", first, second).decode().strip()
            return Range(parted[:_SHOWN_DIGITS], text.rpartition(".")[2] or "HEAD")
        first, dots, second = text.partition("..")
        if not dots:
            self._commit(first)
            return Range(first, None)
        first, second = first or "HEAD", second or "HEAD"
        self._commit(first)
        self._commit(second)
        return Range(first, second)

    def tree_at(
        self, revision: str, is_read: Callable[[str], bool], max_file_size_bytes: int, exclusion: Exclusion
    ) -> SourceTree:
        """Return the files below the directory as a revision has them.

        Symbolic links are followed as far as they stay within the repository.

        Args:
            revision: anything that git takes for a commit.
            is_read: tells by a file's name whether a format claims it; the others are listed as ignored.
            max_file_size_bytes: a larger file is a problem and is not read.
            exclusion: what the user excludes.
        """
        commit = self._commit(revision)
        blobs = self._list(commit, self.prefix)
        if any(blob.mode == _LINK for blob in blobs.values()):
            blobs = self._list(commit, "")
        found = _Finder(blobs, self._read, is_read, max_file_size_bytes)
        found.find_all(self.prefix)
        wanted = [(path, blob) for path, blob in found.files if not exclusion.covers(path)]
        contents = self._read([blob.name for _, blob in wanted])
        files = (SourceFile.of(PurePosixPath(path), contents[blob.name]) for path, blob in wanted)
        return SourceTree(
            tuple(sorted(files, key=lambda file: file.path.parts)),
            tuple(sorted(problem for problem in found.problems if not exclusion.covers(str(problem.path)))),
            tuple(sorted(path for path in found.ignored if not exclusion.covers(str(path)))),
            tuple(sorted(PurePosixPath(path) for path, _ in found.files if exclusion.covers(path))),
        )

    def _commit(self, revision: str) -> str:
        if revision.startswith("-"):
            raise UsageError(f"{revision}: is no revision")
        return self._ask("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", what=revision).decode().strip()

    def _list(self, commit: str, below: str) -> dict[str, _Blob]:
        """List the files of a commit by their paths from the top of the repository."""
        listing = self._ask("ls-tree", "-r", "-l", "-z", "--full-tree", commit, *([below] if below else []))
        rows = (row.decode(errors="surrogateescape").partition("\t") for row in listing.split(b"\0") if row)
        blobs = {path: _blob(facts.split()) for facts, _, path in rows}
        return {path: blob for path, blob in blobs.items() if blob.mode != _SUBMODULE}

    def _read(self, names: list[str]) -> dict[str, bytes]:
        """Return the contents of objects by their names."""
        wanted = list(dict.fromkeys(names))
        if not wanted:
            return {}
        batch = self._ask("cat-file", "--batch", stdin="".join(f"{name}\n" for name in wanted).encode())
        return dict(_contents(batch))

    def _ask(self, *arguments: str, stdin: bytes = b"", what: str = "") -> bytes:
        command = ["git", "-C", str(self._directory), *arguments]
        try:
            done = subprocess.run(command, input=stdin, capture_output=True, check=False)  # noqa: S603 - no shell
        except OSError as error:
            raise UsageError(f"git cannot be run: {error.strerror}; install git, or give two directories") from error
        if done.returncode:
            raise UsageError(_complaint(done.stderr, self._directory, what))
        return done.stdout


def _complaint(stderr: bytes, directory: Path, what: str) -> str:
    words = next(iter(stderr.decode(errors="replace").strip().splitlines()), "").removeprefix("fatal: ")
    if what and not words:
        return f"{directory}: git knows no revision {what}; name a branch, a tag or a commit, or fetch it first"
    if "not a git repository" in words:
        return f"{directory}: is not in a git repository; give a directory of a checkout"
    return f"{directory}: git: {words or 'failed'}"


def _blob(facts: list[str]) -> _Blob:
    mode, _, name, size = facts
    return _Blob(mode, name, int(size) if size.isdigit() else 0)


def _contents(batch: bytes) -> Iterator[tuple[str, bytes]]:
    """Take the output of `cat-file --batch` apart: `<name> blob <size>`, a newline, the content, a newline."""
    start = 0
    while start < len(batch):
        end = batch.index(b"\n", start)
        name, _, size = batch[start:end].decode().split()
        yield name, batch[end + 1 : end + 1 + int(size)]
        start = end + 1 + int(size) + 1


class _Finder:
    """Finds the files to read below a directory, through links, as a walk over a real directory would."""

    def __init__(
        self,
        blobs: dict[str, _Blob],
        read: Callable[[list[str]], dict[str, bytes]],
        is_read: Callable[[str], bool],
        max_file_size_bytes: int,
    ) -> None:
        self.files: list[tuple[str, _Blob]] = []
        self.problems: list[Problem] = []
        self.ignored: list[PurePosixPath] = []
        self._blobs = blobs
        self._is_read = is_read
        self._max_file_size_bytes = max_file_size_bytes
        links = {path: blob.name for path, blob in blobs.items() if blob.mode == _LINK}
        targets = read(list(links.values()))
        self._links = {path: targets[name].decode(errors="surrogateescape") for path, name in links.items()}
        self._visited: set[str] = set()

    def find_all(self, root: str) -> None:
        """Take in all files of a tree, each directory once; `root` is empty, or has a slash at its end."""
        # A link to a directory that holds the tree adds nothing.
        self._visited.update(f"{parent}/" for parent in PurePosixPath(root).parents)
        self._find(root, "")

    def _find(self, directory: str, shown_as: str) -> None:
        before = frozenset(self._visited)
        self._visited.add(directory)
        linked: list[tuple[str, str]] = []
        for path, blob in self._blobs.items():
            relative = path[len(directory) :]
            folder = path[: path.rfind("/") + 1]
            if not path.startswith(directory) or folder in before or any(map(is_passed_over, relative.split("/"))):
                continue
            self._visited.add(folder)
            if path in self._links:
                self._take_link(path, shown_as + relative, linked)
            else:
                self._take_file(blob, shown_as + relative)
        for shown, target in sorted(linked):
            if target not in self._visited:
                self._find(target, shown)

    def _take_link(self, path: str, shown: str, linked: list[tuple[str, str]]) -> None:
        target = self._target(path)
        blob = self._blobs.get(target or "")
        if blob is not None:
            self._take_file(blob, shown)
        elif target is not None and any(other.startswith(f"{target}/") for other in self._blobs):
            linked.append((f"{shown}/", f"{target}/"))
        elif target != ".":  # the top of the repository, which holds the tree
            fact = "the link leads nowhere in this revision"
            self.problems.append(problem_of(shown, "broken-link", fact, "mend or remove the link"))

    def _target(self, path: str) -> str | None:
        """Return the path that a link leads to in the end, through links of directories too; None for outside."""
        for _ in range(_MOST_LINKS):
            link = next((part for part in _beginnings(path) if part in self._links), None)
            if link is None:
                return path
            path = posixpath.normpath(posixpath.join(posixpath.dirname(link), self._links[link]) + path[len(link) :])
            if path.startswith(("/", "..")):
                return None
        return None

    def _take_file(self, blob: _Blob, shown: str) -> None:
        if not is_text(shown):
            self.problems.append(problem_of(shown, "unreadable-name", "the name is not valid UTF-8", "rename it"))
        elif not self._is_read(shown):
            self.ignored.append(PurePosixPath(shown))
        elif blob.size_bytes > self._max_file_size_bytes:
            fact = f"the file has {blob.size_bytes} bytes, more than the {self._max_file_size_bytes} that are read"
            self.problems.append(problem_of(shown, "file-too-large", fact, "split it, or raise --max-file-size"))
        else:
            self.files.append((shown, blob))


def _beginnings(path: str) -> Iterator[str]:
    """Yield the path's ancestors, the topmost first, and the path."""
    yield from (str(part) for part in reversed(PurePosixPath(path).parents) if str(part) != ".")
    yield path
