"""The settings file as it was written: its values, and the place of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsxds.model.errors import UsageError
from fsxds.model.values import FieldPath, pointer_of


@dataclass(frozen=True, slots=True, order=True)
class PlacedMistake:
    """A mistake of a settings file; sorts by place. Lines and columns count from 1."""

    line: int
    column: int
    message: str


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a settings file says.

    Attributes:
        path: leads to it.
        written: its values, by the names of settings as they were written.
        node: the YAML node of all of it, None of an empty file.
    """

    path: Path
    written: dict[str, object]
    node: Any

    @classmethod
    def read(cls, path: Path) -> SettingsFile:
        """Read a settings file.

        Raises:
            UsageError: it cannot be read, or is no YAML mapping.
        """
        # Most commands have no settings file.
        import yaml

        try:
            loader = yaml.SafeLoader(path.read_bytes())
            node = loader.get_single_node()
            written = {} if node is None else loader.construct_document(node)
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}; --settings names a YAML file") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
            raise UsageError(f"{path}:{place}: {getattr(error, 'problem', None) or 'is not YAML'}") from error
        except RecursionError as error:
            raise UsageError(f"{path}:1:1: is nested too deeply; write the settings without that") from error
        if not isinstance(written, dict):
            raise UsageError(f"{path}:1:1: is not a mapping; write one option per line, such as settle: 50ms")
        return cls(path, {str(key): value for key, value in written.items()}, node)

    def fault(self, field_path: FieldPath, fact: str) -> PlacedMistake:
        """Return a mistake at a value, which its pointer names."""
        return self.placed(field_path, f"{pointer_of(field_path)}: {fact}")

    def placed(self, field_path: FieldPath, message: str) -> PlacedMistake:
        """Return a mistake at a value: at its key, or at what it is in where it has no place of its own."""
        node, mark = self.node, self.node.start_mark
        for step in field_path:
            if isinstance(step, int):
                node = node.value[step]
                mark = node.start_mark
                continue
            found = [pair for pair in _pairs(node) if pair[0].value == step]
            if not found:
                break
            mark, node = found[0][0].start_mark, found[0][1]
        return PlacedMistake(mark.line + 1, mark.column + 1, message)

    def duplicates(self) -> Iterator[PlacedMistake]:
        """Yield a mistake for each key that a mapping has twice, of which YAML takes the last."""
        waiting: list[tuple[FieldPath, Any]] = [((), self.node)] if self.node else []
        # An alias may lead back to what it is in.
        seen: set[int] = set()
        while waiting:
            path, node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            keys: set[object] = set()
            for key, value in _pairs(node):
                name = str(key.value)
                if name in keys:
                    mark = key.start_mark
                    fact = f"{pointer_of((*path, name))}: is set twice; keep one of them"
                    yield PlacedMistake(mark.line + 1, mark.column + 1, fact)
                keys.add(name)
                waiting.append(((*path, name), value))
            if node.id == "sequence":
                waiting += [((*path, index), value) for index, value in enumerate(node.value)]

    def error_of(self, faults: list[PlacedMistake]) -> UsageError:
        """Return the exception that lists all mistakes in order, one in a line."""
        return UsageError(
            "\n".join(f"{self.path}:{each.line}:{each.column}: {each.message}" for each in sorted(faults))
        )


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    """Return the keys and values of a mapping, none of another node."""
    return node.value if node.id == "mapping" else []
