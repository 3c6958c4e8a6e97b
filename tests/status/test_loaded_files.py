"""Which files are good, held or broken, since when, and which lines are shown of them."""

from __future__ import annotations

import asyncio
from pathlib import PurePosixPath

import pytest

from fsxds.model.resources import Document, ParsedFile
from fsxds.model.values import Problem, Severity, SourceFile
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.loaded_views import LoadedViews, whole_tree
from fsxds.status.loaded_files import LoadedFiles
from fsxds.transports.admin.admin_reports import FileCounts, FileList, ProblemCounts, ProblemReport, RowQuery
from tests.support.reachable import reachable
from tests.support.snapshots import resource
from tests.support.trees import tree_of

A, B = PurePosixPath("a.yaml"), PurePosixPath("b.yaml")
CONTENT = "resources:\n- name: hunter2\n  type: STATIC\n  connect_timeout: 5s\n  password: 12345\n  bad: hunter3\n"


def loaded_of(contents: dict[str, str], bad: frozenset[str], before: Loaded | None = None) -> Loaded:
    """Load files, of which each has one cluster; some are bad on line 6."""

    def parsed(file: SourceFile) -> ParsedFile:
        name = str(file.path)
        problem = Problem(file.path, 6, 3, "resources[0].bad", "unknown-field", "there is no such field", "remove it")
        document = Document(file.path, (resource("CDS", name, file.digest, path=name),), frozenset())
        return ParsedFile(file.path, file.digest, (document,), (problem,) if name in bad else ())

    return load(tree_of(contents), before, lambda files: tuple(map(parsed, files)), Acceptance())


class Seen:
    """What a test looks at."""

    def __init__(self) -> None:
        self.files = LoadedFiles(lambda word: word in {"resources", "name", "type", "STATIC", "connect_timeout"})

    def receive(self, views: LoadedViews, ago_s: float) -> None:
        """Take what was loaded, so long ago."""
        self.files.receive(views, asyncio.get_running_loop().time() - ago_s)

    async def rows(self, **query: object) -> FileList:
        """Return the files."""
        return await self.files.files(RowQuery(**query))  # type: ignore[arg-type]


async def test_states_and_their_ages() -> None:
    """A file that turns bad is held since then, and one that never was good is broken; the others are as they were."""
    seen = Seen()
    first = loaded_of({"a.yaml": CONTENT, "b.yaml": CONTENT}, frozenset())
    seen.receive(whole_tree(first), 100.0)
    bad = frozenset({"a.yaml", "c.yaml"})
    second = loaded_of({"a.yaml": CONTENT + "#", "b.yaml": CONTENT, "c.yaml": CONTENT}, bad, first)
    seen.receive(whole_tree(second), 10.0)
    rows = await seen.rows()
    counts, problems, count = await seen.files.problems()

    assert [(row.path, row.state, round(row.since_s), row.resources, row.problems) for row in rows.files] == [
        ("c.yaml", "broken", 10, 0, 1),
        ("a.yaml", "held", 10, 1, 1),
        ("b.yaml", "good", 100, 1, 0),
    ]
    assert (counts, count) == (FileCounts(1, 1, 1), ProblemCounts(error=2))
    assert [(each.path, each.state, round(each.since_s)) for each in problems] == [
        ("a.yaml", "held", 10),
        ("c.yaml", "broken", 10),
    ]
    assert [row.path for row in (await seen.rows(state="held")).files] == ["a.yaml"]
    assert [row.path for row in (await seen.rows(search="B.Y", limit=1)).files] == ["b.yaml"]
    assert (await seen.rows(offset=2)).total == 3


async def test_files_that_are_gone_are_forgotten() -> None:
    """Of files that come and go under ever new names, no more are known than twice as many as there are."""
    seen = Seen()
    loaded = loaded_of({"a.yaml": CONTENT}, frozenset())
    for number in range(100):
        for files in ({f"{number}.yaml": CONTENT}, {}):
            loaded = loaded_of({"a.yaml": CONTENT, **files}, frozenset(), loaded)
            seen.receive(whole_tree(loaded), 0.0)

    known = {each.name for each in reachable(seen.files) if isinstance(each, PurePosixPath)}
    assert "a.yaml" in known
    assert len(known) < 5


async def test_lines_show_names_of_the_api_alone() -> None:
    """Values that are no names, and what stands behind the name of a secret, are cut out."""
    seen = Seen()
    seen.receive(whole_tree(loaded_of({"a.yaml": CONTENT}, frozenset({"a.yaml"}))), 0.0)
    _, [problem], _ = await seen.files.problems()

    assert [(line.line, line.text) for line in problem.source][:2] == [(4, "  connect_timeout: 5s"), (5, "  …: …")]
    # What the message quotes anyway.
    assert (problem.source[2].line, problem.source[2].text) == (6, "  bad: …")
    shown = str(problem.source)
    assert not any(secret in shown for secret in ("hunter2", "hunter3", "12345"))


@pytest.mark.parametrize(
    "sign", ["private_key: x", "-----BEGIN PRIVATE KEY-----", "a: tls.v3.Secret", "genericSecret: {}"]
)
async def test_files_with_secrets_show_no_lines(sign: str) -> None:
    """Also where they cannot be parsed."""
    seen = Seen()
    seen.receive(whole_tree(loaded_of({"a.yaml": f"{CONTENT}# {sign}\n"}, frozenset({"a.yaml"}))), 0.0)
    _, [problem], _ = await seen.files.problems()

    assert problem.source == ()


async def test_what_clients_reject_is_a_problem_too() -> None:
    """Errors come first, and the rest is counted."""
    seen = Seen()
    warning = Problem(A, 1, 1, "", "rejected-by-client", "envoy-1 rejected it", "", Severity.WARNING)
    rejected = Problem(B, 2, 1, "", "rejected-by-client", "envoy-1 rejected it", "")
    seen.receive(whole_tree(loaded_of({"a.yaml": CONTENT}, frozenset({"a.yaml"}))), 0.0)
    seen.files.receive_holds((warning, rejected), asyncio.get_running_loop().time())
    _, problems, count = await seen.files.problems()
    found: list[ProblemReport] = list(problems)

    assert [(each.path, each.state, each.severity) for each in found] == [
        ("b.yaml", "rejected", "error"),
        ("a.yaml", "broken", "error"),
        ("a.yaml", "rejected", "warning"),
    ]
    assert count == ProblemCounts(error=2, warning=1)


async def test_what_is_held_back_for_another_reason_is_kept() -> None:
    """Nobody rejected it: it is served as it was."""
    seen = Seen()
    seen.receive(whole_tree(loaded_of({"a.yaml": CONTENT}, frozenset())), 0.0)
    seen.files.receive_holds((Problem(A, 1, 1, "", "removed-in-use", "it stays", ""),), 0.0)
    _, [problem], _ = await seen.files.problems()

    assert (problem.state, problem.rule) == ("kept", "removed-in-use")


async def test_before_the_first_load_there_is_nothing() -> None:
    """Nobody has to wait for it."""
    assert (await Seen().files.problems())[0] == FileCounts(0, 0, 0)
