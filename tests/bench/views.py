"""(v) What views cost: each one beside those that share its layers, and an edit that all or one of them see."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.resources import ParsedFile
from fsxds.model.values import Severity, SourceFile, SourceTree
from fsxds.runtime.views import Views
from fsxds.settings.view_rules import ViewRule
from fsxds.snapshots.layers import Patching
from fsxds.snapshots.layers_load import ViewsLoad
from fsxds.snapshots.load import Acceptance
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.snapshots.parse import FileParser
from tests.bench.data import lean_clusters
from tests.bench.figures import Figure, cpu_of

FILES = 100
OWN = 5


class _Tree:
    """A tree with a common layer, and one layer for each node."""

    def __init__(self, catalogue: Catalogue, views: int, clusters: int) -> None:
        check = Linter()
        self._parser = FileParser(catalogue, check=check)
        self._acceptance = Acceptance(check=check, patching=Patching(catalogue, Severity.ERROR, check))
        self._files: dict[PurePosixPath, SourceFile] = {}
        self._parsed: dict[SourceFile, ParsedFile] = {}
        each = clusters // FILES
        for number in range(FILES):
            self.write(f"common/{number:03}.cds.yaml", lean_clusters(number * each, each))
        for number in range(views):
            self.write(f"nodes/n{number}/cds.yaml", lean_clusters(clusters + number * OWN, OWN))
        self.views = tuple(("common", f"nodes/n{number}") for number in range(views))
        self.loaded: LoadedViews | None = None

    @property
    def files(self) -> list[SourceFile]:
        """All files."""
        return list(self._files.values())

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        file = SourceFile.of(PurePosixPath(path), text.encode())
        self._files[file.path] = file

    def parse(self, files: Iterable[SourceFile]) -> list[ParsedFile]:
        """Parse files, each once."""
        for file in files:
            if file not in self._parsed:
                self._parsed[file] = self._parser.parse(file)
        return [self._parsed[file] for file in files]

    def load(self, views: int) -> tuple[float, LoadedViews]:
        """Load so many views; return the processor time without that of parsing."""
        tree = SourceTree(tuple(sorted(self._files.values(), key=lambda file: file.path.parts)))
        before = self.loaded
        prepared, load = cpu_of(lambda: ViewsLoad(tree, self.views[:views], _RULES, before), collector=False)
        parsed = self.parse(load.unparsed)
        loaded_s, self.loaded = cpu_of(lambda: load.load(parsed, self._acceptance), collector=False)
        return prepared + loaded_s, self.loaded


_RULES = Views((ViewRule("all", (), ("common", "nodes/{node.id}")),))


def _memory_kb() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * 4


def measure(catalogue: Catalogue, views: int = 1000, clusters: int = 10_000) -> Iterator[Figure]:
    """Load views of 5 own clusters each over a common layer; then edit a common cluster, and one of a node."""
    tree = _Tree(catalogue, views, clusters)
    tree.load(1)
    # What their files hold is that of any file; the parser remembers more of them, for all files together.
    tree.parse(tree.files)
    before = _memory_kb()
    first_s, _ = tree.load(views)
    size_kb = (_memory_kb() - before) / (views - 1)
    tree.write("common/050.cds.yaml", lean_clusters(clusters // FILES * 50, clusters // FILES, port=9000))
    common_s, _ = tree.load(views)
    tree.write("nodes/n7/cds.yaml", lean_clusters(clusters + 7 * OWN, OWN, port=9000))
    assert tree.loaded is not None
    was = tree.loaded.by_layers
    own_s, now = tree.load(views)
    assert not now.held
    others = sum(now.by_layers[view].snapshot is not was[view].snapshot for view in was)
    many = f"{views} views of {OWN} own clusters over {clusters} common ones"
    yield Figure("(v) memory of a view, kB", size_kb, 20, "kB", many)
    yield Figure(
        "(v) a common edit, CPU for each view",
        common_s / views * 1000,
        1.0,
        "ms",
        f"{common_s:.2f} s in all; {first_s:.2f} s at first",
    )
    yield Figure("(v) an edit of one view: snapshots that change", others, 1, "", f"{own_s * 1000:.0f} ms CPU")
