"""Values shared by all; immutable, no I/O."""

from __future__ import annotations

import hashlib
import math
import zlib
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from typing import NewType, Protocol, Self, TypeAlias

TypeUrl = NewType("TypeUrl", str)
"""Such as `type.googleapis.com/envoy.config.cluster.v3.Cluster`."""

Version = NewType("Version", str)
"""A digest of content, equal in every process and on every replica."""

Nonce = NewType("Nonce", str)
"""Identifies one response."""

PlainValue: TypeAlias = "dict[str, PlainValue] | list[PlainValue] | str | int | float | bool | None"
"""The values of YAML and JSON."""

FieldPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the top of a document, as the author spelled them."""

Layers: TypeAlias = tuple[str, ...]
"""The layers of a view for one node: folders of the tree as posix paths; later ones win.

Folders that replace a template exist. `()` is the whole tree. A name that begins with `/` has no files: `/staging`,
always the last, means that the variables of the view `staging` apply; `NO_LAYERS` is an empty view.
"""

WHOLE_TREE: Layers = ()
NO_LAYERS: Layers = ("/",)


class Severity(Enum):
    """Only an ERROR holds its file back."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake in a text, before its file is known.

    `line` and `column` count from 1; None for `formats.positions` to find `field_path`.
    """

    rule: str
    message: str
    remedy: str
    field_path: FieldPath = ()
    line: int | None = None
    column: int | None = None
    severity: Severity = Severity.ERROR


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A mistake in a file: place, fact and remedy. Sorts by place.

    `line` and `column` count from 1; 1:1 is the whole file. `pointer` is a field path as text (`resources[2].name`), or
    empty. `elsewhere` is the problem in the file that wrote the mistake, or None.
    """

    path: PurePosixPath
    line: int
    column: int
    pointer: str
    rule: str
    message: str
    remedy: str
    severity: Severity = field(default=Severity.ERROR, compare=False)
    elsewhere: Problem | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of_file(cls, path: PurePosixPath, rule: str, message: str, remedy: str) -> Self:
        """Create a whole file's error."""
        return cls(path, 1, 1, "", rule, message, remedy)

    def __str__(self) -> str:
        """Return `edge/routes.yaml:3:5: error: resources[2].name: the fact; the remedy`."""
        place = f"{self.path}:{self.line}:{self.column}"
        pointer = f"{self.pointer}: " if self.pointer else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}: {self.severity.value}: {pointer}{self.message}{remedy}"


def pointer_of(field_path: FieldPath) -> str:
    """Format a path: `resources[2].virtual_hosts[0].name`."""
    text = ""
    for step in field_path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def scalar_text(value: object) -> str | None:
    """Return a scalar as in JSON, without quotes; None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, int | float):
        return None
    # Numbers of metadata are floats on the wire: 3 is 3.0 there.
    try:
        number = float(value)
    except OverflowError:
        return None
    is_whole = math.isfinite(number) and number.is_integer() and abs(number) < 2**53
    return str(int(number)) if is_whole else repr(number)


# Level 1 packs a hundred megabytes of text or more per second, and other threads continue meanwhile.
PACKING_LEVEL = 1

# Smaller files gain little from packing, and there may be a hundred thousand of them.
SMALLEST_PACKED_BYTES = 16 * 1024


VARIABLES_MARK = b"# fsxds: variables"
"""The first line of a file in which variables are replaced."""


class SourceFile:
    """One file as read; compares by path and content.

    `has_variables`: its first line requests their replacement. `path` is in the tree, `digest` the content's SHA-256.
    """

    __slots__ = ("_content", "_packed", "digest", "has_variables", "path", "size_bytes")

    def __init__(self, path: PurePosixPath, content: bytes, digest: str) -> None:
        self.path, self.digest, self.size_bytes = path, digest, len(content)
        self._content: bytes | None = content
        self._packed = b""
        begins = content.startswith(VARIABLES_MARK)
        self.has_variables = begins and not content[len(VARIABLES_MARK) :].split(b"\n", 1)[0].strip()

    @classmethod
    def of(cls, path: PurePosixPath, content: bytes) -> SourceFile:
        """Create a file and compute its digest."""
        return cls(path, content, hashlib.sha256(content).hexdigest())

    @property
    def content(self) -> bytes:
        """The bytes that were read."""
        # Read once: another thread may pack it meanwhile.
        content = self._content
        return zlib.decompress(self._packed) if content is None else content

    def begins_with(self, other: SourceFile) -> bool:
        """Whether the content begins with another file's content."""
        if self.size_bytes < other.size_bytes:
            return False
        return hashlib.sha256(memoryview(self.content)[: other.size_bytes]).hexdigest() == other.digest

    def pack(self) -> None:
        """Content is seldom needed after parsing; trees may take gigabytes."""
        if self._content is not None and self.size_bytes >= SMALLEST_PACKED_BYTES:
            self._packed = zlib.compress(self._content, PACKING_LEVEL)
            self._content = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceFile) and (self.path, self.digest) == (other.path, other.digest)

    def __hash__(self) -> int:
        return hash((self.path, self.digest))

    def __repr__(self) -> str:
        """Omits the content, which may have secrets."""
        return f"SourceFile({str(self.path)!r}, digest={self.digest!r})"


class ProjectedFile(SourceFile):
    """A file served differently from its content."""

    __slots__ = ("_original",)

    def __init__(self, original: SourceFile, digest: str) -> None:
        self.path, self.digest, self.size_bytes = original.path, digest, original.size_bytes
        self.has_variables = original.has_variables
        self._original = original

    @property
    def content(self) -> bytes:
        """The bytes that were read."""
        return self._original.content

    def pack(self) -> None:
        """Compress the content."""
        self._original.pack()


class VariedFile(ProjectedFile):
    """A file with a view's values for its variables.

    `unset` are environment names without a value there.
    """

    __slots__ = ("texts", "unset")

    def __init__(self, original: SourceFile, texts: Mapping[str, str], unset: Mapping[str, str]) -> None:
        values = repr((original.digest, sorted(texts.items()), sorted(unset.items())))
        super().__init__(original, hashlib.sha256(values.encode("utf-8", "surrogatepass")).hexdigest())
        # Plain dicts, which can be sent to a process that parses.
        self.texts, self.unset = dict(texts), dict(unset)


class Tree(Protocol):
    """Files at one settled moment, sorted by path."""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files; a tree over another visits each."""

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The files that could not be read."""

    def file_at(self, path: PurePosixPath) -> SourceFile | None:
        """Return the file at a path, or None."""


MANIFEST = ".fsxds-manifest"
"""The file at the top of a signed tree that lists its content."""

MANIFEST_SIGNATURE = ".fsxds-manifest.sig"
"""The file with its signature."""


@dataclass(frozen=True, slots=True)
class OfferedManifest:
    """A manifest and its signature file as read, trusted or not."""

    manifest: bytes = field(repr=False)
    signature: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ManifestFiles:
    """A tree's manifest and signature; None if missing or unreadable."""

    manifest: SourceFile | None = None
    signature: SourceFile | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """Both, for relays; empty if one is missing."""
        if self.manifest is None or self.signature is None:
            return ()
        return (OfferedManifest(self.manifest.content, self.signature.content),)


NO_MANIFEST = ManifestFiles()


@dataclass(frozen=True, slots=True)
class SourceTree:
    """All files of a tree at one settled moment, sorted by path.

    `problems` name unreadable files: their last content stays. `ignored` ones have an unknown suffix, `excluded` are
    the user's choice.
    """

    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[PurePosixPath, ...] = ()
    excluded: tuple[PurePosixPath, ...] = ()
    signed: ManifestFiles = NO_MANIFEST

    def file_at(self, path: PurePosixPath) -> SourceFile | None:
        """A binary search."""
        place = bisect_left(self.files, path.parts, key=lambda file: file.path.parts)
        return self.files[place] if place < len(self.files) and self.files[place].path == path else None


@dataclass(frozen=True, slots=True)
class OverlaidTree:
    """A tree with changed and new files, which it costs."""

    below: Tree
    changed: Mapping[PurePosixPath, SourceFile]
    problems: tuple[Problem, ...] = ()

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """All files, sorted by path."""
        below = {file.path: file for file in self.below.files}
        return tuple(sorted({**below, **self.changed}.values(), key=lambda file: file.path.parts))

    def file_at(self, path: PurePosixPath) -> SourceFile | None:
        """Return the file at a path, or None."""
        return self.changed.get(path) or self.below.file_at(path)


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file served in an older version, or not at all.

    `problem` is None if it waits for other files; `digest` is its current content's.
    """

    path: PurePosixPath
    problem: Problem | None
    has_last_good: bool
    digest: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class LostLayer:
    """The settings' layer without a folder.

    `folders` are former or possible ones; `is_kept`: the tree before had it.
    """

    problem: Problem
    folders: frozenset[str]
    is_kept: bool

    @property
    def held(self) -> HeldFile | None:
        """None if the layer is just empty: no error."""
        is_error = self.problem.severity is Severity.ERROR
        return HeldFile(self.problem.path, self.problem, self.is_kept) if is_error else None


class PlainText(str):
    """Text that YAML has without quotes, if that matters: `${NAME}`."""

    __slots__ = ()


class SpelledFloat(float):
    """A float with the text it was read from.

    Envoy 1.40 keeps YAML's plain decimals as text: `version_info: 1.0` is "1.0", as within a Struct (ENVOY.md E51). A
    number field takes the number.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str, value: float) -> Self:
        """Create the number `value`, spelled `text`."""
        spelled = super().__new__(cls, value)
        spelled.text = text
        return spelled

    def __reduce__(self) -> tuple[type[SpelledFloat], tuple[str, float]]:
        return SpelledFloat, (self.text, float(self))


@dataclass(frozen=True, slots=True)
class BackOff:
    """Pauses between retries: 1, 2, 4, ... 30 seconds; a success of `well_after_s` begins anew."""

    first_s: float = 1.0
    longest_s: float = 30.0
    well_after_s: float = 10.0

    def pause_s(self, failures: int) -> float:
        """Failures in a row count from 1."""
        return float(min(self.first_s * 2 ** min(max(failures, 1) - 1, 30), self.longest_s))
