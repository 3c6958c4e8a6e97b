from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.lint.linter import Linter
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from tests.support.trees import EXPECTED, read_tree, written

TREES = sorted(path for path in (Path(__file__).parent.parent / "trees").iterdir() if path.is_dir())


@pytest.mark.parametrize("folder", TREES, ids=lambda folder: folder.name)
def test_tree(folder: Path, parser: FileParser) -> None:
    """A tree serves what its expected.txt says, and has these problems and no others."""
    loaded = load(read_tree(folder), None, lambda files: map(parser.parse, files), Acceptance(check=Linter()))

    assert (folder / EXPECTED).read_text() == written(loaded)
