"""The list of all modules: `python -m tests.support.module_list > fsxds/MODULES.md` writes it after a change.

A module's docstring begins with its job, and has its rules in a paragraph `Rules: ...`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "fsxds"

_HEAD = """\
# Modules

Each module with its job, and the rules that it decides, from its docstring. [How fsxds is built](README.md) has the map of the packages.
`python -m tests.support.module_list > fsxds/MODULES.md` writes this list anew.
"""


def module_list() -> str:
    """Return a Markdown table for each package, with a row for each module."""
    packages = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
    return "\n".join((_HEAD, *(_table(package) for package in packages)))


def _table(package: Path) -> str:
    rows = [
        f"| `{path.relative_to(PACKAGE)}` | {_cell(_parts(path)[0])} | {_cell(_parts(path)[1])} |"
        for path in sorted(package.glob("*.py"))
        if path.name != "__init__.py" or package == PACKAGE
    ]
    title = f"{package.relative_to(PACKAGE)}/" if package != PACKAGE else "fsxds/"
    job = [_parts(package / "__init__.py")[0], ""] if package != PACKAGE else []
    return "\n".join((f"## {title}", "", *job, "| module | job | rules |", "| --- | --- | --- |", *rows, ""))


def _parts(path: Path) -> tuple[str, str]:
    """Return the first paragraph of a docstring, and its rules."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraphs = [" ".join(paragraph.split()) for paragraph in docstring.split("\n\n")]
    rules = [each.removeprefix("Rules: ") for each in paragraphs if each.startswith("Rules: ")]
    return paragraphs[0], " ".join(rules)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(module_list())
