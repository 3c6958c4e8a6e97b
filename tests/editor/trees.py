"""Trees as editors see them, and places in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.editor.edited_tree import EditedTree
from fsxds.editor.navigation import Navigator
from fsxds.lint.linter import linter_of
from fsxds.settings.options import Settings

CURSOR = "⌖"

CLUSTERS = """\
- name: web
  type: STATIC
  connect_timeout: 1s
- name: api
  type: STATIC
"""
ROUTES = """\
- name: main
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {prefix: /api}
      route: {cluster: api}
    - match: {prefix: /}
      route:
        cluster: web
"""
FILES = {"clusters.yaml": CLUSTERS, "routes.yaml": ROUTES}


def placed(text: str) -> tuple[str, int]:
    """Return a text without its cursor, and where that was."""
    index = text.index(CURSOR)
    return text.replace(CURSOR, ""), index


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Write files, letter by letter as they are given."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())


@dataclass(frozen=True)
class Workbench:
    """A tree that is edited, and its state."""

    tree: EditedTree
    navigator: Navigator

    def at(self, name: str, words: str, offset: int = 1) -> tuple[PurePosixPath, int]:
        """Return a file and the place of some words in it."""
        path = PurePosixPath(name)
        return path, self.navigator.text(path).index(words) + offset


def workbench(directory: Path, catalogue: Catalogue, files: Mapping[str, str], **settings: object) -> Workbench:
    """Return a tree with these files."""
    write(directory, files)
    chosen = Settings(**settings)  # type: ignore[arg-type]
    tree = EditedTree(directory, chosen, catalogue, linter_of(chosen))
    return Workbench(tree, Navigator(tree.load({}, is_disk_read=True), catalogue))
