"""A tree that is loaded on top of another gives what it gives by itself, and costs what changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.model.resources import ParsedFile, Resource
from fsxds.model.values import Severity, SourceFile, SourceTree
from fsxds.snapshots.load import Acceptance, Loaded, changed_files, load
from tests.support import mentions, stories
from tests.support.trees import tree_of

LINES = st.sampled_from(
    [
        *(
            "CDS a EDS:a",
            "CDS b EDS:b",
            "CDS c SDS:s!",
            "CDS a",
            "CDS d =SDS:t!",
            "EDS a",
            "EDS b",
            "EDS",
            "SDS s",
            "SDS t",
        ),
        *("LDS l CDS:a!", "LDS m CDS:b! @tcp:80", "LDS n RDS:r @tcp:80", "LDS o CDS:*~ ?", "LDS p SRDS:* ?", "LDS"),
        *(
            "RDS r CDS:a CDS:c",
            "RDS q VHDS:q/*~ #q/x",
            "RDS long-name",
            "VHDS q/a #q/x",
            "VHDS r/a &all",
            "VHDS r/b &all",
        ),
        *("VHDS long-nam/a CDS:d", "LEDS xdstp://a/t/web/1", "EDS e LEDS:xdstp://a/t/web/1~", "SRDS v RDS:r"),
        *("!", "! [0].x", "! [1]"),
    ]
)
TOY_LINES = st.sampled_from(
    ["CDS@1 a=1", "CDS@1 a=2 b=1", "CDS@2 b=1 b=1", "CDS b=1+60s a=1", "EDS@1 a=1 a=1", "EDS@1 a=1", "CDS@1", "LDS@3 l=1", "?", "!"]
)  # fmt: skip
# More missing names than are compared with others.
MANY = " ".join(f"CDS:m{number:02}" for number in range(30))
PATHS = st.sampled_from(["a.cds.yaml", "b.yaml", "b/c.yaml", "d", "lds.yaml"])
LEVELS: tuple[dict[str, Severity | None], ...] = (
    {},
    {"no-cluster": Severity.ERROR, "unused-virtual-host": Severity.ERROR},
    {"listener-address": Severity.WARNING, "duplicate-domain": Severity.NOTE, "unused-cluster": None},
)


def edits_of(lines: st.SearchStrategy[str]) -> st.SearchStrategy[list[dict[str, str | None]]]:
    """Change some files at a time; None removes one. A file with the lines of another may be its new name."""
    contents = st.one_of(st.none(), st.lists(lines, max_size=3).map("\n".join))
    return st.lists(st.dictionaries(PATHS, contents, max_size=3), min_size=1, max_size=6)


def facts(loaded: Loaded) -> dict[str, object]:
    """Return all that is to be the same, however a tree was loaded."""
    snapshot = loaded.snapshot
    rows = {type_url: [(*row,) for row in map(values, found.values())] for type_url, found in snapshot.by_type.items()}
    return {
        "rows": rows,
        "snapshot": replace(snapshot, by_type={}),
        "versions": dict(snapshot.versions),
        "problems": [(problem, problem.severity) for problem in loaded.problems],
        "held": [(file, file.digest) for file in loaded.held],
        "records": [(path, record.good, record.problems, record.suspects) for path, record in loaded.records.items()],
    }


def values(resource: Resource) -> Iterator[Any]:
    """Return all that a resource holds, its place as well."""
    return (getattr(resource, one.name) for one in fields(Resource))


class Parser:
    """Parses a toy format; lines that stand where they were give the same resources, as parsing by items does."""

    def __init__(self, parse: Any) -> None:
        self._parse = parse
        self._known: dict[object, Resource] = {}

    def __call__(self, files: Iterable[SourceFile]) -> list[ParsedFile]:
        """Parse files."""
        return [self._shared(self._parse(file)) for file in files]

    def _shared(self, parsed: ParsedFile) -> ParsedFile:
        documents = tuple(
            replace(document, resources=tuple(self._same(one, number) for number, one in enumerate(document.resources)))
            for document in parsed.documents
        )
        return replace(parsed, documents=documents)

    def _same(self, resource: Resource, number: int) -> Resource:
        return self._known.setdefault((number, *values(resource)), resource)


def check_steps(parser: Parser, acceptance: Acceptance, steps: list[dict[str, str | None]]) -> None:
    """Load each tree on top of the one before, again, without its memory, and on top of one with an edit that is undone."""
    files: dict[str, str] = {}
    loaded: Loaded | None = None
    for edits in steps:
        files = {path: text for path, text in {**files, **edits}.items() if text is not None}
        tree, before = tree_of(files), loaded
        loaded = load(tree, before, parser, acceptance)
        known = facts(loaded)
        bare = None if before is None else replace(before, memory=None)

        assert facts(load(tree, bare, parser, acceptance)) == known
        load(tree_of({**files, "b.yaml": "!", "e": "LDS z CDS:a"}), before, parser, acceptance)
        assert facts(load(tree, before, parser, acceptance)) == known, "what was loaded is never changed"


@given(steps=edits_of(LINES), levels=st.sampled_from(LEVELS), whole=st.booleans())
def test_memory_makes_no_difference(
    steps: list[dict[str, str | None]], levels: dict[str, Severity | None], *, whole: bool
) -> None:
    """Whatever changes, what is served and reported is what it would be if nothing were remembered but what is served."""
    acceptance = Acceptance(whole_trees=whole, check=Linter(RuleLevels(MappingProxyType(levels))))
    check_steps(Parser(mentions.parse_file), acceptance, steps)


@given(steps=edits_of(TOY_LINES), whole=st.booleans(), authored=st.booleans())
def test_memory_makes_no_difference_to_versions(
    steps: list[dict[str, str | None]], *, whole: bool, authored: bool
) -> None:
    """The same of authors' versions, and of names that are repeated in a file."""
    check_steps(Parser(stories.parse_file), Acceptance(whole, authored, Linter()), steps)


@pytest.mark.parametrize(
    "steps",
    [
        # What only a broken file defines is known as long as that is there.
        [{"a.cds.yaml": "CDS z\n! [0].x", "d": f"RDS r CDS:z {MANY}\nCDS c"}, {"a.cds.yaml": None}],
        # What a file would define that is not accepted, because of another one, is not defined any more.
        [
            {"a.cds.yaml": "CDS z", "d": f"RDS r CDS:z {MANY}"},
            {"a.cds.yaml": "CDS y", "e.rtds.yaml": "!"},
            {"a.cds.yaml": "CDS z", "e.rtds.yaml": None},
        ],
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_memory_makes_no_difference_to_what_is_held(steps: list[dict[str, str | None]], *, whole: bool) -> None:
    """What was reported of files that are held back is otherwise when these change or go."""
    check_steps(Parser(mentions.parse_file), Acceptance(whole, check=Linter()), steps)


def test_failed_load_changes_nothing() -> None:
    """Where loading fails, the next tree is loaded on top of what was loaded as if nothing had been."""
    story = mentions.MentionStory()
    before = story.step({"a": "CDS a\nLDS l CDS:a!", "b": "CDS b EDS:b"})
    known = facts(before)

    class FailingError(Exception):
        pass

    def fail(_: object) -> list[ParsedFile]:
        raise FailingError

    with pytest.raises(FailingError):
        load(tree_of({"a": "CDS c"}), before, fail, Acceptance(check=Linter()))
    nothing = [ParsedFile(PurePosixPath("a"), "", (None,))]  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        load(tree_of({"a": "CDS c", "b": "CDS b EDS:b"}), before, lambda _: nothing, Acceptance(check=Linter()))

    assert facts(before) == known
    assert mentions.tell(story.step({"b": "CDS b"})) == ["b: unused-cluster note"]


# What it costs


class Touched:
    """How often anything of any resource was read."""

    count = 0


class CountedResource(Resource):
    """A resource that counts how often anything of it is read."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> object:
        """Count, and read. Versions do not count: those of many resources are digested in blocks of bounded size."""
        Touched.count += name != "version"
        return super().__getattribute__(name)


class CountedTree:
    """A tree of many files, whose resources count how often they are read."""

    def __init__(self, count: int) -> None:
        self._parse = Parser(self._counted)
        self._files: dict[str, SourceFile] = {}
        self._loaded: Loaded | None = None
        files = {f"cds/{number:05}": f"CDS c{number} EDS:e{number}\nCDS d{number}" for number in range(count)}
        # Of each file, something is reported: one cluster has no endpoints, the other is not used.
        self.step({**files, "rds": "RDS r CDS:c1 CDS:c2\nLDS l RDS:r CDS:c3!", "eds": "EDS e1\nEDS e2"})

    def _counted(self, file: SourceFile) -> ParsedFile:
        parsed = mentions.parse_file(file)
        documents = tuple(
            replace(document, resources=tuple(CountedResource(*values(one)) for one in document.resources))
            for document in parsed.documents
        )
        return replace(parsed, documents=documents)

    def step(self, edits: dict[str, str | None]) -> int:
        """Change files and load them; return how often resources were read, but for parsing."""
        for path, text in edits.items():
            self._files.pop(path, None)
            if text is not None:
                self._files[path] = SourceFile.of(PurePosixPath(path), text.encode())
        tree = SourceTree(tuple(sorted(self._files.values(), key=lambda file: file.path.parts)))
        parsed = self._parse(changed_files(tree, self._loaded))
        before = Touched.count
        self._loaded = load(tree, self._loaded, lambda _: parsed, Acceptance(check=Linter()))
        return Touched.count - before


@pytest.mark.parametrize(
    "steps",
    [
        [{"cds/00007": "CDS c7 EDS:e7\nCDS d7 CDS:x"}],
        [{"cds/00007": "CDS c7 EDS:e7"}],
        [{"cds/00007": None}],
        [{"cds/00003": "CDS other"}],
        [{"new": "\n".join(f"CDS new{number}" for number in range(9))}, {"new": None}],
        [{"eds": "EDS e1\nEDS e2\nEDS e9"}, {"eds": "EDS e1\nEDS e2"}],
        [{"cds/00007": "!"}, {"cds/00008": "CDS c7"}, {"cds/00007": "CDS c7"}],
        [{"cds/00007": "CDS c8"}, {"cds/00008": None}],
        [{"cds/00007": None, "cds/moved": "CDS c7 EDS:e7\nCDS d7"}],
        [{"rds": "RDS r CDS:c1 CDS:c2\nLDS l RDS:r CDS:nowhere!"}, {"cds/00009": "CDS nowhere"}],
    ],
)
def test_edit_costs_what_changed(steps: list[dict[str, str | None]]) -> None:
    """However many resources a tree has, as many are looked at when something changes, and few of them."""
    small, large = CountedTree(40), CountedTree(400)
    for edits in steps:
        cost = small.step(edits)

        assert large.step(edits) == cost
        assert cost < 1000
