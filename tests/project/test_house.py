"""The rules of this code, as far as a machine can judge them: tools, layers, sizes, words, docstrings."""

from __future__ import annotations

import ast
import gc
import re
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
PACKAGE = TOP / "fsxds"

Function = ast.FunctionDef | ast.AsyncFunctionDef

# Sizes beyond which a module or a function is no longer one thing.
LONGEST_MODULE = 600
LONGEST_FUNCTION = 60
LONGEST_P90 = 30
LONGEST_MEDIAN = 8
MOST_PARAMETERS = 5

# Where `except Exception` stands, how often, and why: each is an edge that an error of fsxds does not pass.
EDGES = {
    "runtime/supervisor.py": (1, "a component ends no other"),
    "server/reload.py": (1, "a file on which loading fails is found and set aside; the others are served"),
    "server/parsing.py": (
        1,
        "an edit on which fsxds fails is parsed by a worker, whose errors are problems of the file",
    ),
    "server/parse_worker.py": (1, "an error of the worker process is raised in the process that asked it"),
    "observe/log.py": (
        2,
        "a line that cannot be written, or an event that cannot be counted, ends nobody's work; the event is logged",
    ),
    "editor/session.py": (1, "a load of the tree that fails ends no other"),
    "editor/language_server.py": (1, "a request of an editor is answered with an error, alone"),
    "transports/mirror/directory.py": (1, "what was made beside a file is removed, and the error raised on"),
    "transports/rest/http_edge.py": (1, "a request ends with 500 for its client alone"),
    "transports/grpc_streams/stream_requests.py": (1, "a call ends with INTERNAL for its client alone"),
    "transports/grpc_streams/stream.py": (
        2,
        "a stream that is woken, and one that writes beside its handler, end alone",
    ),
    "fleet/member.py": (1, "what another server asks of the publisher"),
}

VAGUE_MODULES = {"utils", "util", "common", "helpers", "base", "manager", "misc"}
# `entry` is a word of the protocol: that of a collection.
FORBIDDEN_WORDS = {"typ", "kind", "xds_type", "ver", "rev", "item"}
# Words that other words of the glossary in fsxds/README.md replace; no part of a name is one of them.
METAPHORS = {
    *("told", "tell", "tells", "news", "hear", "heard", "owed", "owes", "mended", "greet", "greeting", "introduce"),
    *("refuse", "refused", "refusal", "witness", "judge", "judged", "unjudged", "house", "rooms", "hearsay"),
    *("weigh", "hearing", "unheard", "barren", "heirs", "mercy", "goodbye", "departure", "departures", "vouched"),
    *("hurry", "nowhere", "nobody", "anybody", "restless", "surroundings", "telling", "complaint", "absent_names"),
}
SPAWNING = {"create_task", "ensure_future", "gather", "wait", "run_coroutine_threadsafe"}
# Kinds of tests that belong to a package as a whole, not to one module.
WHOLE_PACKAGE_TESTS = {"test_examples", "test_conversations", "test_convergence", "test_trees"}
PURE = (
    *("model/values.py", "model/errors.py", "model/memo.py", "model/resource_types.py", "model/resources.py"),
    *("api/", "comparison/", "formats/", "rules/", "snapshots/", "doctor/", "protocol/", "rollout/"),
)


@cache
def trees(folder: Path) -> dict[str, ast.Module]:
    """Return the syntax trees of all modules below a folder by their paths from the top."""
    paths = sorted(folder.rglob("*.py"))
    gc.disable()
    try:
        return {str(path.relative_to(TOP)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    finally:
        # A million nodes stay: no collection shall look at them.
        gc.freeze()
        gc.enable()


def nodes(of: type[ast.AST] | UnionType, folder: Path = PACKAGE) -> Iterator[tuple[str, Any]]:
    """Yield every node of these types with the place to show for it."""
    for path, tree in trees(folder).items():
        for node in ast.walk(tree):
            if isinstance(node, of):
                yield f"{path}:{getattr(node, 'lineno', 1)}", node


@cache
def functions(folder: Path = PACKAGE) -> list[tuple[str, Function]]:
    """Return every function with its place and name."""
    return [(f"{place} {node.name}", node) for place, node in nodes(Function, folder)]


def body_lines(function: Function) -> int:
    """Count the lines of a function without its docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        lines -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return lines


def run_tool(*arguments: str) -> None:
    """Run a tool of this Python on the checkout; its findings are the failure."""
    done = subprocess.run([sys.executable, *arguments], cwd=TOP, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(arguments)}\n{done.stdout}{done.stderr}", pytrace=False)


def test_ruff_format() -> None:
    """Every file is formatted as Ruff does it."""
    run_tool("-m", "ruff", "format", "--check", "--diff", ".")


def test_ruff_check() -> None:
    """Ruff finds nothing."""
    run_tool("-m", "ruff", "check", "--output-format", "concise", ".")


def test_mypy() -> None:
    """Mypy, strict, finds nothing."""
    run_tool("-m", "mypy")


def test_imports() -> None:
    """Imports point downwards, the server does without the linter and the tools, and pure packages are pure."""
    # The console script of import-linter has no module form of its own.
    run_tool("-c", "from importlinter.cli import lint_imports_command; lint_imports_command()")


def test_every_module_of_the_package_has_its_layer() -> None:
    """What stands at the top of the package is a layer of the import contract."""
    contract = (TOP / "pyproject.toml").read_text(encoding="utf-8")
    tops = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    missing = {name for name in tops - {"__init__", "__main__"} if f"fsxds.{name}" not in contract}

    assert set() == missing


def test_modules_are_small() -> None:
    """No module is over 600 lines: one idea is one module, however long it takes."""
    sizes = {path: len((TOP / path).read_text(encoding="utf-8").splitlines()) for path in trees(PACKAGE)}

    assert {} == {path: size for path, size in sizes.items() if size > LONGEST_MODULE}


def test_functions_are_small() -> None:
    """No function is over 60 lines, nine of ten are at most 30, half of them at most 8."""
    lengths = {place: body_lines(function) for place, function in functions()}
    ordered = sorted(lengths.values())

    assert {} == {place: length for place, length in lengths.items() if length > LONGEST_FUNCTION}
    assert ordered[int(len(ordered) * 0.9)] <= LONGEST_P90
    assert statistics.median(ordered) <= LONGEST_MEDIAN


def test_functions_are_narrow() -> None:
    """No function has more than five parameters, `self` included."""
    counts = {place: len(row.args.args) + len(row.args.kwonlyargs) for place, row in functions()}

    assert {} == {place: count for place, count in counts.items() if count > MOST_PARAMETERS}


def test_everything_public_is_documented() -> None:
    """Every module and every public class and function has a docstring."""
    bare = [path for path, tree in trees(PACKAGE).items() if not ast.get_docstring(tree)]
    bare += [
        f"{place} {node.name}"
        for place, node in public_definitions()
        if not ast.get_docstring(node) and not node.name.startswith("_")
    ]

    assert [] == bare


def public_definitions() -> Iterator[tuple[str, Function | ast.ClassDef]]:
    """Yield the classes and functions that others can reach: of modules, and of public classes."""
    for path, tree in trees(PACKAGE).items():
        holders: list[ast.Module | ast.ClassDef] = [tree]
        while holders:
            for node in holders.pop().body:
                if isinstance(node, Function | ast.ClassDef):
                    yield f"{path}:{node.lineno}", node
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    holders.append(node)


def test_every_test_states_its_fact() -> None:
    """Every test has a docstring."""
    tests = [row for row in functions(TOP / "tests") if row[1].name.startswith("test_")]

    assert [] == [place for place, function in tests if not ast.get_docstring(function)]


def test_tasks_belong_to_groups() -> None:
    """Tasks are made by task groups and by nothing else."""
    found = []
    for path, tree in trees(PACKAGE).items():
        groups = task_groups(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SPAWNING:
                owner = ast.unparse(node.func.value)
                is_asyncio = owner == "asyncio" or node.func.attr == "create_task"
                if is_asyncio and owner not in groups:
                    found.append(f"{path}:{node.lineno} {ast.unparse(node.func)}")

    assert [] == found


def task_groups(tree: ast.Module) -> set[str]:
    """Return the names that stand for task groups in a module: of `async with`, parameters and attributes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and ast.unparse(node.context_expr) == "asyncio.TaskGroup()":
            names.add(ast.unparse(node.optional_vars) if node.optional_vars else "")
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            target = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if ast.unparse(node.annotation) == "asyncio.TaskGroup":
                names |= {target, f"self.{target}", f"self._{target}"}
    return names


def test_broad_excepts_are_edges() -> None:
    """`except Exception` stands at the edges alone beyond which an error of fsxds must not come."""
    broad = Counter(
        path
        for path, tree in trees(PACKAGE).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
    )

    assert {f"fsxds/{path}": count for path, (count, _) in EDGES.items()} == broad


def test_only_settings_reads_the_environment() -> None:
    """`os.environ` and `os.getenv` appear where settings are read, where git inherits them, and where gRPC is told something."""
    readers = {
        place.partition(":")[0]
        for place, node in nodes(ast.Attribute)
        if ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}
    }

    assert readers <= {"fsxds/settings/reading.py", "fsxds/tools/diff/sides.py", "fsxds/cli/main.py"}


def test_names_are_the_fields_words() -> None:
    """No module is named vaguely, and no identifier is one of the words that this project does not use."""
    vague = [path for path in trees(PACKAGE) if Path(path).stem in VAGUE_MODULES]
    words = [
        f"{place} {name}"
        for place, node in nodes(ast.AST)
        for name in (getattr(node, "id", None), getattr(node, "arg", None), getattr(node, "name", None))
        if name in FORBIDDEN_WORDS
    ]

    assert [] == vague + words


def test_names_have_no_metaphors() -> None:
    """No part of a name of ours is a word that the glossary replaces."""
    found = {
        f"{place} {name}"
        for place, node in nodes(ast.AST)
        for name in (getattr(node, field, None) for field in ("id", "arg", "name", "attr"))
        if isinstance(name, str) and METAPHORS & {part.lower() for part in re.findall("[A-Z]?[a-z]+", name)}
        if name != "ConnectionRefusedError"
    }

    assert set() == found


def test_no_name_stands_for_two_things() -> None:
    """No two classes have one name, nor have two modules."""
    classes = Counter(node.name for _, node in nodes(ast.ClassDef))
    modules = Counter(Path(path).name for path in trees(PACKAGE) if not path.endswith("__init__.py"))

    assert {} == {name: count for name, count in (classes + modules).items() if count > 1}


def test_pure_packages_do_not_wait() -> None:
    """Nothing in the pure packages is `async`, and nothing in their tests sleeps."""
    waiting = [
        place
        for place, node in nodes(ast.AsyncFunctionDef | ast.Await)
        if place.removeprefix("fsxds/").startswith(PURE)
    ]
    sleeping = [
        place
        for place, node in nodes(ast.Attribute, TOP / "tests")
        if node.attr == "sleep" and place.removeprefix("tests/").startswith(PURE)
    ]

    assert [] == waiting + sleeping


def test_every_test_file_has_its_subject() -> None:
    """A test file of a package is named after the module that it tests, with or without more words."""
    packages = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))
    orphans = [
        str(test_file.relative_to(TOP))
        for package in packages[1:]
        for test_file in (TOP / "tests" / package.relative_to(PACKAGE)).glob("test_*.py")
        if test_file.stem not in WHOLE_PACKAGE_TESTS
        and not any(f"{test_file.stem}_".startswith(f"test_{module.stem}_") for module in package.glob("*.py"))
    ]

    assert [] == orphans
