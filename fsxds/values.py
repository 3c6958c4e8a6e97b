"""The values that every part of fsxds shares: names, versions, problems, source files; immutable, no I/O."""

from __future__ import annotations

import hashlib
import zlib
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath
from typing import NewType, Self, TypeAlias

TypeUrl = NewType("TypeUrl", str)
"""A full type URL, for example `type.googleapis.com/envoy.config.cluster.v3.Cluster`."""

Version = NewType("Version", str)
"""A digest of content: equal content has an equal version in every process and on every replica."""

Nonce = NewType("Nonce", str)
"""Identifies one response."""

PlainValue: TypeAlias = "dict[str, PlainValue] | list[PlainValue] | str | int | float | bool | None"
"""What YAML and JSON are made of."""

FieldPath: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the top of a document down to a value, as the author spelled them."""


class Severity(Enum):
    """How bad a problem is: an ERROR holds its file back, the others do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in one text, reported before its file is known.

    `line` and `column` count from 1; None where only `field_path` is known, of which `formats.positions` finds them.
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
    """What is wrong in a file: its place, the fact and the remedy. Sorts by place.

    `line` and `column` count from 1; 1:1 is the whole file. `pointer` is a field path as text
    (`resources[2].name`), or empty. `rule` is the stable name of the rule that was broken.
    """

    path: PurePosixPath
    line: int
    column: int
    pointer: str
    rule: str
    message: str
    remedy: str
    severity: Severity = field(default=Severity.ERROR, compare=False)

    @classmethod
    def of_file(cls, path: PurePosixPath, rule: str, message: str, remedy: str) -> Self:
        """Make an error of a whole file."""
        return cls(path, 1, 1, "", rule, message, remedy)

    def __str__(self) -> str:
        """`edge/routes.yaml:3:5: error: resources[2].name: the fact; the remedy`."""
        place = f"{self.path}:{self.line}:{self.column}"
        pointer = f"{self.pointer}: " if self.pointer else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}: {self.severity.value}: {pointer}{self.message}{remedy}"


def pointer_of(field_path: FieldPath) -> str:
    """Write a field path as users read it: `resources[2].virtual_hosts[0].name`."""
    text = ""
    for step in field_path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


# Level 1 packs a hundred megabytes of text or more in a second, and other threads go on meanwhile.
PACKING_LEVEL = 1

# Smaller files gain little when they are packed, and there may be a hundred thousand of them.
SMALLEST_PACKED_BYTES = 16 * 1024


class SourceFile:
    """One file as it was read; equal to another one of the same path and content.

    Attributes:
        path: is relative to the tree.
        digest: the SHA-256 of the content.
        size_bytes: of the content.
    """

    __slots__ = ("_content", "_packed", "digest", "path", "size_bytes")

    def __init__(self, path: PurePosixPath, content: bytes, digest: str) -> None:
        self.path, self.digest, self.size_bytes = path, digest, len(content)
        self._content: bytes | None = content
        self._packed = b""

    @classmethod
    def of(cls, path: PurePosixPath, content: bytes) -> SourceFile:
        """Make the value and compute its digest."""
        return cls(path, content, hashlib.sha256(content).hexdigest())

    @property
    def content(self) -> bytes:
        """What was read."""
        # Read once: another thread may pack it meanwhile.
        content = self._content
        return zlib.decompress(self._packed) if content is None else content

    def begins_with(self, other: SourceFile) -> bool:
        """Whether the content begins with all of another."""
        if self.size_bytes < other.size_bytes:
            return False
        return hashlib.sha256(memoryview(self.content)[: other.size_bytes]).hexdigest() == other.digest

    def pack(self) -> None:
        """Keep the content compressed from now on: it is seldom needed when it was parsed, and a tree may take gigabytes."""
        if self._content is not None and self.size_bytes >= SMALLEST_PACKED_BYTES:
            self._packed = zlib.compress(self._content, PACKING_LEVEL)
            self._content = None

    def __eq__(self, other: object) -> bool:
        """Whether the other is a file of this path and content."""
        return isinstance(other, SourceFile) and (self.path, self.digest) == (other.path, other.digest)

    def __hash__(self) -> int:
        """Hash what makes files equal."""
        return hash((self.path, self.digest))

    def __repr__(self) -> str:
        """Without the content, which may have secrets."""
        return f"SourceFile({str(self.path)!r}, digest={self.digest!r})"


@dataclass(frozen=True, slots=True)
class SourceTree:
    """All files of a tree at one settled moment, sorted by path.

    `problems` name files that exist and could not be read (too large, no permission): what they last held stays.
    `ignored` are the files whose suffix no format claims, `excluded` the files and directories that the user excludes.
    """

    files: tuple[SourceFile, ...]
    problems: tuple[Problem, ...] = ()
    ignored: tuple[PurePosixPath, ...] = ()
    excluded: tuple[PurePosixPath, ...] = ()

    def file_at(self, path: PurePosixPath) -> SourceFile | None:
        """Return the file at a path; None where there is none. It costs a look at few of the files."""
        place = bisect_left(self.files, path.parts, key=lambda file: file.path.parts)
        return self.files[place] if place < len(self.files) and self.files[place].path == path else None


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file of which something older is served, or nothing.

    `problem` is the first thing that is wrong with it, None where it waits for others; `digest` is that of what it has now.
    """

    path: PurePosixPath
    problem: Problem | None
    has_last_good: bool
    digest: str = field(default="", compare=False)


class SpelledFloat(float):
    """A float with the text it was read from.

    Envoy 1.40 keeps YAML's plain decimals as text: `version_info: 1.0` is the string "1.0", and so is a `1.0` within a
    Struct (ENVOY.md E51). A number field takes the number, everything else the text.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str, value: float) -> Self:
        """Make the number `value`, spelled `text`."""
        spelled = super().__new__(cls, value)
        spelled.text = text
        return spelled

    def __reduce__(self) -> tuple[type[SpelledFloat], tuple[str, float]]:
        """Copy and pickle with the text."""
        return SpelledFloat, (self.text, float(self))


@dataclass(frozen=True, slots=True)
class BackOff:
    """How long to wait before something that failed is tried again: 1, 2, 4, … 30 seconds.

    Attributes:
        first_s: the first pause, which doubles with each failure.
        longest_s: the longest pause.
        well_after_s: what went well for so long begins with the first pause when it fails again.
    """

    first_s: float = 1.0
    longest_s: float = 30.0
    well_after_s: float = 10.0

    def pause_s(self, failures: int) -> float:
        """Return the pause after so many failures in a row, from 1."""
        return float(min(self.first_s * 2 ** min(max(failures, 1) - 1, 30), self.longest_s))
