"""What README and the pages beside the code tell you to type works, and what they link to exists."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

from fsxds.cli.main import fsxds, main
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.settings.option import IN_FILE_ONLY
from tests.support.module_list import module_list
from tests.support.reference_pages import REFERENCE, reference_pages
from tests.support.server import Server

TOP = Path(__file__).parents[2]
README_BYTES = 8_000
PAGE_BYTES = 15_000
FLAGS_OF_OTHERS = {
    "--drain-time-s",  # Envoy
    "--include_imports",  # protoc
    "--auto-compaction-retention",  # etcd
    "--alternate",
    "--tcp",  # a program of tests/
}
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        "config/**/*.md",
        "docker/**/*.md",
        "fsxds/*.md",
        "fsxds/*/README.md",
        "tests/README.md",
        "tests/*/README.md",
    )
    for path in TOP.glob(pattern)
)
RULE_PAGES = sorted(TOP.glob("fsxds/lint/pages/*.md"))
CONFIG_PAGES = [page for page in PAGES if page.is_relative_to(TOP / "config")]

# The first line of a block that is a file: a file of a tree, or settings.
FILE_NAME = re.compile(r"# ([\w/.-]+\.yaml)$")
SETTINGS_FILE = "fsxds.yaml"

# What GitHub drops of a heading when it makes the anchor.
DROPPED = re.compile(r"[^\w\- ]")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code of a page. `marker` is the comment before it, empty where there is none."""

    page: Path
    line: int
    marker: str
    language: str
    text: str

    @property
    def file_name(self) -> str | None:
        """The file that the block is, by its first line; None where it is none."""
        named = FILE_NAME.match(self.text.partition("\n")[0])
        return named[1] if named else None

    def __str__(self) -> str:
        """Return the place, which names the block's tests."""
        return f"{self.page.relative_to(TOP)}:{self.line}"


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^(?:<!-- (.*?) -->\n)?```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [Block(page, text.count("\n", 0, each.start()) + 1, each[1] or "", each[2], each[3]) for each in found]


BLOCKS = [block for page in PAGES for block in _blocks(page)]


def blocks(language: str) -> list[Block]:
    """Return the blocks of a language on all pages."""
    return [block for block in BLOCKS if block.language == language]


LINES = [(str(block), line) for block in blocks("sh") for line in block.text.splitlines()]
COMMANDS = sorted(
    {command for _, line in LINES for command in re.findall(r"(?:^|/|\| )fsxds ([a-z].*?)(?: > \S+)?$", line)}
)
MODULES = sorted({module for _, line in LINES for module in re.findall(r"python -m (tests\.[\w.]+)", line)})
CURLS = [found for _, line in LINES for found in re.findall(r"^curl -s localhost:18001(\S+) .* -d '(.*)'$", line)]


@pytest.mark.parametrize("written", COMMANDS)
def test_commands_are_understood(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command line names a command, a directory that exists, and options that there are."""
    monkeypatch.chdir(TOP)
    name, *arguments = shlex.split(written)
    command = fsxds.get_command(click.Context(fsxds), name)

    assert command is not None
    assert command.make_context(name, arguments).params


@pytest.mark.parametrize("module", MODULES)
def test_modules_that_are_run_exist(module: str) -> None:
    """`python -m tests.…` names a module or a package that can be run."""
    path = TOP / module.replace(".", "/")

    assert path.with_suffix(".py").exists() or (path / "__main__.py").exists()


def test_polls_are_answered(tmp_path: Path) -> None:
    """The polls on the pages get resources from the sample tree."""
    assert len(CURLS) == 3
    with Server(TOP / "config" / "xds", tmp_path) as server:
        for path, body in CURLS:
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}{path}", body.encode(), {"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=30) as response:
                answer = json.loads(response.read())
                assert answer.get("resources") or answer["config"]


def _tree_pages() -> list[Path]:
    return sorted({block.page for block in blocks("yaml") if block.file_name not in {None, SETTINGS_FILE}})


@pytest.mark.parametrize("page", _tree_pages(), ids=lambda page: str(page.relative_to(TOP)))
def test_trees_have_no_errors(page: Path, tmp_path: Path) -> None:
    """The files of a page, whose first lines are their names, are a tree without errors, for a real Envoy too."""
    settings = []
    for block in _blocks(page):
        if block.language == "yaml" and block.file_name is not None:
            folder = tmp_path if block.file_name == SETTINGS_FILE else tmp_path / "xds"
            path = folder / block.file_name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            settings += ["--settings", str(path)] if block.file_name == SETTINGS_FILE else []

    assert main(["check", str(tmp_path / "xds"), "--with-envoy", *settings]) == 0


@pytest.mark.parametrize("name", ["views", "names", "relays"])
def test_files_of_a_page_stand_beside_it(name: str) -> None:
    """The pages about views, names and relays show the files of the tree and the settings that are beside them, as they are."""
    folder = TOP / "config" / name
    shown = {
        folder / ("" if block.file_name == SETTINGS_FILE else "xds") / str(block.file_name): block.text
        for block in _blocks(folder / "README.md")
        if block.file_name is not None
    }

    assert shown == {
        path: path.read_text(encoding="utf-8") for path in folder.rglob("*.yaml") if path.name != "envoy.yaml"
    }


def test_the_tree_of_readme_is_complete(tmp_path: Path) -> None:
    """What README shows as a complete tree has not even a note."""
    for block in _blocks(TOP / "README.md"):
        if block.file_name:
            (tmp_path / block.file_name).write_text(block.text, encoding="utf-8")

    assert main(["check", str(tmp_path), "--with-envoy", "--severity", "note"]) == 0


@pytest.mark.parametrize("block", [one for one in blocks("yaml") if one.file_name == SETTINGS_FILE], ids=str)
def test_settings_are_understood(block: Block, tmp_path: Path) -> None:
    """A block that is a settings file can be given to `check`."""
    path = tmp_path / SETTINGS_FILE
    path.write_text(block.text, encoding="utf-8")
    own, sample = block.page.parent / "xds", TOP / "config" / "xds"

    assert main(["check", "--no-envoy", "--settings", str(path), str(own if own.is_dir() else sample)]) == 0


@pytest.mark.parametrize("block", blocks("yaml") + blocks("json"), ids=str)
def test_data_is_well_formed(block: Block) -> None:
    """Every block of YAML or JSON can be read as such."""
    if block.language == "json":
        json.loads(block.text)
    else:
        yaml.safe_load(block.text)


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_runs(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of Python runs from the top of the checkout, and its assertions hold."""
    monkeypatch.chdir(TOP)

    exec(compile(block.text, str(block), "exec"), {"__name__": "example"})


def test_output_of_check_is_as_it_is() -> None:
    """What the pages show as the output of `check` begins the expected output of the seeded faults."""
    (shown,) = [block for block in BLOCKS if block.marker.startswith("check-output")]
    expected = (TOP / "tests/data/seeded_faults/expected.txt").read_text(encoding="utf-8")

    assert expected.startswith(shown.text)


def test_output_of_diff_is_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What a page shows as the difference of views is that of the sample tree after the edits that it names."""
    (shown,) = [block for block in BLOCKS if block.marker.startswith("diff-output")]
    shutil.copytree(TOP / "config" / "views" / "xds", tmp_path / "next")
    for path, before, after in (("common/listeners.yaml", "10000", "10001"), ("edge/layer.yaml", "3s", "5s")):
        file = tmp_path / "next" / path
        file.write_text(file.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    views = TOP / "config" / "views"

    assert main(["diff", str(views / "xds"), "next", "--settings", str(views / "fsxds.yaml")]) == 1
    assert capfd.readouterr().out == shown.text


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {DROPPED.sub("", re.sub(r"[`*]", "", heading).lower()).replace(" ", "-") for heading in headings}
    return anchors | set(re.findall(r'<a id="(.*?)">', text))


def _broken_links(page: Path) -> list[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES + RULE_PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_lead_somewhere(page: Path) -> None:
    """Links lead to files of the checkout, and to headings that their pages have."""
    assert [] == _broken_links(page)


def test_pages_that_other_files_name_exist() -> None:
    """Comments in code and in samples name pages that exist, from the top of the checkout."""
    named = {
        page: path
        for folder in ("config", "docker", "fsxds", "tests")
        for path in (TOP / folder).rglob("*")
        if path.suffix in {".py", ".yaml", ".conf"}
        for page in re.findall(r"\b((?:config|docker|fsxds|tests)/[\w/-]+\.md)", path.read_text(encoding="utf-8"))
    }

    assert len(named) > 5
    assert {} == {page: str(path) for page, path in named.items() if not (TOP / page).exists()}


@pytest.mark.parametrize("page", CONFIG_PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_flags_that_pages_for_users_name_exist(page: Path) -> None:
    """A flag in the text of a page is one of fsxds, or of the program that the page names."""
    flags = {flag for name in fsxds.commands for row in fsxds.commands[name].params for flag in row.opts}

    assert [] == sorted(set(re.findall(r"`(--[\w-]+)", page.read_text(encoding="utf-8"))) - flags - FLAGS_OF_OTHERS)


def test_pages_name_their_subjects() -> None:
    """In all pages, at most 3 of 1000 words are "what": a noun says more."""
    texts = [
        re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
        for page in PAGES + RULE_PAGES
    ]
    words = re.findall(r"[\w-]+", " ".join(texts).lower())

    assert 1000 * words.count("what") <= 3 * len(words)


def test_every_page_can_be_reached() -> None:
    """From README, links lead to every page."""
    reached, following = set[Path](), [TOP / "README.md"]
    while following:
        page = following.pop()
        reached.add(page)
        links = re.findall(r"\]\(([^)#\s]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
        following += {(page.parent / link).resolve() for link in links if "://" not in link} - reached

    assert [] == [str(page) for page in PAGES if page not in reached]


def test_ci_finds_the_command_of_the_tests() -> None:
    """`.ci/run` runs the one block that is marked as the command of the tests."""
    (marked,) = [block for block in BLOCKS if block.marker == "test-command"]

    assert marked.page == TOP / "README.md"
    assert marked.text.rstrip().endswith("-m pytest -n auto")
    assert "<!-- test-command -->" in (TOP / ".ci/run").read_text(encoding="utf-8")


def test_page_of_the_tests_names_what_ci_installs() -> None:
    """The packages of `.ci/run` are those of `tests/README.md`."""
    (pairs,) = re.findall(r"^for each in (.*); do$", (TOP / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE)
    packages = [pair.partition(":")[2] for pair in pairs.split()]

    assert f"`apt-get install {' '.join(packages)}`" in (TOP / "tests/README.md").read_text(encoding="utf-8")


def test_readme_is_short() -> None:
    """README can be read at once; everything else is on the pages that it links to."""
    assert len((TOP / "README.md").read_bytes()) <= README_BYTES


@pytest.mark.parametrize("name", reference_pages())
def test_reference_is_generated(name: str) -> None:
    """The pages of options and log events are as `python -m tests.support.reference_pages` writes them."""
    assert (REFERENCE / name).read_text(encoding="utf-8") == reference_pages()[name]


@pytest.mark.parametrize("page", CONFIG_PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_pages_of_users_are_short(page: Path) -> None:
    """A page for users has at most 15 kB."""
    assert len(page.read_bytes()) <= PAGE_BYTES


def test_pages_name_flags_that_exist() -> None:
    """No page names a flag of an option that is a setting of the file only; `fsxds watch --ttl` and `aws … --exclude` are others."""
    gone = "|".join(name.replace("_", "-") for name in IN_FILE_ONLY - {"ttl", "exclude"})
    texts = ((page, page.read_text(encoding="utf-8")) for page in PAGES)

    assert [] == [(page, flags) for page, text in texts if (flags := re.findall(rf"--(?:{gone})(?![\w-])", text))]


def test_every_command_is_described() -> None:
    """The table of `fsxds/cli/README.md` has every command."""
    page = (TOP / "fsxds/cli/README.md").read_text(encoding="utf-8")
    names = fsxds.list_commands(click.Context(fsxds))

    assert [] == [name for name in names if not re.search(rf"^\| \[?`fsxds {name}[ `]", page, re.MULTILINE)]


def test_every_resource_type_is_named() -> None:
    """The page about trees names every resource type by its short name."""
    page = (TOP / "config/trees/README.md").read_text(encoding="utf-8").lower()

    assert [] == [row.short_name for row in RESOURCE_TYPES if row.short_name not in page]


def _text_of_code_page() -> str:
    text = "".join((TOP / f"fsxds/{page}.md").read_text(encoding="utf-8") for page in ("README", "DECISIONS"))
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_modules_that_the_code_page_names_exist() -> None:
    """A name such as `protocol/sotw.py` is below fsxds/, or below the top."""
    names = set(re.findall(r"`([\w./]+(?:\.py|/))`", _text_of_code_page()))

    assert len(names) > 40
    assert set() == {name for name in names if not (TOP / "fsxds" / name).exists() and not (TOP / name).exists()}


def test_the_list_of_modules_is_generated() -> None:
    """It is as `python -m tests.support.module_list` writes it."""
    assert (TOP / "fsxds/MODULES.md").read_text(encoding="utf-8") == module_list()


def test_the_map_is_complete() -> None:
    """Every module and package at the top of fsxds is in the map, and the layers are those of the import contract."""
    map_of_code = _text_of_code_page().partition("## Map")[2].partition("\n## ")[0]
    tops = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (TOP / "fsxds").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    contracts = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["name"].startswith("The layers: ")]
    (shown,) = [block for block in BLOCKS if block.marker == "layers"]

    assert set() == {name for name in tops - {"__init__.py", "__main__.py"} if f"`{name}`" not in map_of_code}
    assert [layer.replace("fsxds.", "") for layer in layers] == shown.text.splitlines()


def test_every_dependency_has_its_reason() -> None:
    """The table of dependencies names every package that pyproject.toml demands, and those of the extras for users."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = (
        package for name, packages in project["optional-dependencies"].items() if name != "test" for package in packages
    )
    names = {re.split(r"[<>=\[]", package)[0] for package in (*project["dependencies"], *extras)}
    table = (TOP / "fsxds/README.md").read_text(encoding="utf-8").partition("## Dependencies")[2].lower()

    assert set() == {name for name in names if name not in table.partition("deliberately")[0]}


def _facts() -> dict[int, list[str]]:
    """Return the names of the tests of each fact about Envoy, by its number."""
    text = (TOP / "fsxds/ENVOY.md").read_text(encoding="utf-8")
    facts = re.findall(r"^\*\*E(\d+)\.\*\* .*\nShown by (.*)\.$", text, re.MULTILINE)
    return {int(number): re.findall(r"`(\w+)`", names) for number, names in facts}


def test_facts_about_envoy_are_shown_by_tests() -> None:
    """The facts are numbered from one on, and each names tests that exist."""
    facts = _facts()
    tests = {
        name
        for path in (TOP / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }

    assert list(range(1, len(facts) + 1)) == list(facts)
    assert {} == {number: names for number, names in facts.items() if not names or not tests.issuperset(names)}


def _citations(folder: str) -> dict[str, set[int]]:
    """Return which facts each file cites: `ENVOY.md E12`, `ENVOY.md E9, E10`, `ENVOY.md E1 to E11`."""
    cited: dict[str, set[int]] = {}
    for path in sorted((TOP / folder).rglob("*")):
        if path.suffix not in {".py", ".txt", ".md"}:
            continue
        for citation in re.findall(r"ENVOY\.md\s+(E\d+(?:(?:, | to )E\d+)*)", path.read_text(encoding="utf-8")):
            numbers = [[int(bound[1:]) for bound in part.split(" to ")] for part in citation.split(", ")]
            found = cited.setdefault(str(path.relative_to(TOP)), set())
            found.update(number for bounds in numbers for number in range(bounds[0], bounds[-1] + 1))
    return cited


def test_facts_about_envoy_are_cited() -> None:
    """Every number that is cited has a fact, and every fact is cited in the code."""
    facts, in_package = _facts(), _citations("fsxds")
    in_code = {number for path, numbers in in_package.items() if path.endswith(".py") for number in numbers}
    cited = {**in_package, **_citations("tests")}

    assert {} == {path: numbers - facts.keys() for path, numbers in cited.items() if not numbers <= facts.keys()}
    assert set() == facts.keys() - in_code


@pytest.mark.parametrize("names", [[], ["config/xds/routes.yaml", "config/xds/clusters.yaml"]])
def test_hook_passes_on_the_sample_tree(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pre-commit hook does what it says, with the names of changed files and without any."""
    (block,) = [block for block in blocks("yaml") if block.text.startswith("repos:\n- repo: local")]
    (hook,) = yaml.safe_load(block.text)["repos"][0]["hooks"]
    monkeypatch.chdir(TOP)

    assert hook["always_run"]
    assert main([*shlex.split(hook["entry"])[1:], *names]) == 0
