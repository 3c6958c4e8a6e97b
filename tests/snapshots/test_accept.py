from __future__ import annotations

from pathlib import PurePosixPath

from hypothesis import given
from hypothesis import strategies as st

from fsxds.resources import ParsedFile
from fsxds.snapshots.accept import accept
from fsxds.snapshots.check import Conflicts, FileRecord, Proposal, Records
from fsxds.values import SourceFile
from tests.support.stories import parse_file, problem

A, B, C = PurePosixPath("a.yaml"), PurePosixPath("b.yaml"), PurePosixPath("c.yaml")


def parsed(path: PurePosixPath, content: str) -> ParsedFile:
    return parse_file(SourceFile.of(path, content.encode()))


def present(**contents: str) -> dict[PurePosixPath, FileRecord]:
    """Return the records of a new tree: `a="CDS a=1"` is what stands in a.yaml."""
    files = [parsed(PurePosixPath(f"{name}.yaml"), content) for name, content in contents.items()]
    return {file.path: FileRecord(file, None, file.problems) for file in files}


def no_conflicts(_proposals: tuple[Proposal, ...]) -> Conflicts:
    return {}


def accepted(tree: Records, before: Records | None = None) -> dict[PurePosixPath, FileRecord]:
    return accept(tree, before or {}, [no_conflicts], whole_trees=False)


def test_good_file_is_served_as_it_stands() -> None:
    """What parses is served, and is not held."""
    records = accepted(present(a="CDS a=1"))

    assert records[A].good is records[A].parsed
    assert not records[A].is_held
    assert not records[A].was_never_good


def test_broken_first_file_was_never_good() -> None:
    """What never parsed is not served at all."""
    records = accepted(present(a="!"))

    assert records[A].good is None
    assert records[A].is_held
    assert records[A].was_never_good


def test_what_is_said_to_be_good_is_not_looked_at() -> None:
    """The new tree is judged by what it parsed to, and by what was good before."""
    broken = parsed(A, "!")
    tree = {A: FileRecord(broken, parsed(A, "CDS x=1"), broken.problems)}

    assert accepted(tree)[A].good is None


def test_rules_hear_of_trusted_files_first() -> None:
    """A rule is given what was served before by path, then what is news by path, then what is gone."""
    before = accepted(present(a="CDS a=1", c="CDS c=1", d="CDS d=1", e="CDS e=1"))
    tree = present(f="!", b="CDS b=1", d="CDS d=1", a="CDS a=2")
    tree[PurePosixPath("d.yaml")] = before[PurePosixPath("d.yaml")]
    heard: list[tuple[str, bool, bool]] = []

    def listen(proposals: tuple[Proposal, ...]) -> Conflicts:
        heard.extend((proposal.path.stem, proposal.is_last_good, proposal.is_gone) for proposal in proposals)
        return {}

    accept(tree, before, [listen], whole_trees=False)

    expected = [
        ("d", True, False),
        ("a", False, False),
        ("b", False, False),
        ("c", True, True),
        ("e", True, True),
    ]
    assert expected == heard


def test_rule_cannot_take_away_what_is_served() -> None:
    """A rule that names a file which is served already, and still there, is not followed."""
    before = accepted(present(a="CDS a=1"))
    tree = {A: before[A]}

    records = accept(tree, before, [lambda _: {A: (problem(A, 1, "whim"),)}], whole_trees=False)

    assert records[A].good is before[A].good
    assert records[A].problems == ()


def test_later_rules_judge_what_the_first_left() -> None:
    """A rule is asked when the rules before it have nothing to say any more."""
    heard: list[set[PurePosixPath]] = []

    def no_b(proposals: tuple[Proposal, ...]) -> Conflicts:
        return {proposal.path: (problem(B, 1, "no-b"),) for proposal in proposals if proposal.path == B}

    def listen(proposals: tuple[Proposal, ...]) -> Conflicts:
        heard.append({proposal.path for proposal in proposals if not proposal.is_on_trial})
        return {}

    records = accept(present(a="CDS a=1", b="CDS b=1"), {}, [no_b, listen], whole_trees=False)

    assert heard == [{A}, {A}], "the second time, whether b may be served now"
    assert [found.rule for found in records[B].problems] == ["no-b"]


def test_rules_are_asked_again_after_each_conflict() -> None:
    """What is left after a conflict is judged anew, however the rules were handed in."""

    def first_b_then_a(proposals: tuple[Proposal, ...]) -> Conflicts:
        paths = {proposal.path for proposal in proposals} - {C}
        return {path: (problem(path, 1, "whim"),) for path in sorted(paths)[-1:]}

    tree = present(a="CDS a=1", b="CDS b=1", c="CDS c=1")
    records = accept(tree, {}, (rule for rule in (first_b_then_a,)), whole_trees=False)

    assert [C] == [path for path, record in records.items() if record.good]


def test_vanished_file_in_conflict_is_given_up() -> None:
    """A vanished file that a rule objects to, though nobody defines what it held, is not kept."""
    before = accepted(present(a="CDS a=1"))

    def no_a(proposals: tuple[Proposal, ...]) -> Conflicts:
        return {proposal.path: (problem(A, 1, "no-a"),) for proposal in proposals if proposal.path == A}

    records = accept(present(b="!"), before, [no_a], whole_trees=False)

    assert {B} == records.keys()


def test_what_is_left_of_a_vanished_file_is_no_file() -> None:
    """What is left of a vanished file has no digest, so that it is not taken for the file when that comes back."""
    before = accepted(present(a="CDS a=1 b=1"))

    def first_wins(proposals: tuple[Proposal, ...]) -> Conflicts:
        names = [resource.name for proposal in proposals for resource in proposal.parsed.resources]
        return {A: (problem(A, 1, "double"),)} if len(names) > len(set(names)) else {}

    records = accept(present(b="CDS a=2", c="!"), before, [first_wins], whole_trees=False)

    good = records[A].good
    assert good is not None
    assert good.digest == ""
    assert [resource.name for resource in good.resources] == ["b"]
    assert records[A].suspects == {C}


@given(st.lists(st.sets(st.sampled_from("abcd")), max_size=12))
def test_accepting_ends_whatever_rules_say(objections: list[set[str]]) -> None:
    """Rules that object at random are followed until there is nothing left to hold back."""
    before = accepted(present(a="CDS a=1", b="CDS b=1"))
    answers = iter(objections)

    def object_at_random(_proposals: tuple[Proposal, ...]) -> Conflicts:
        paths = {PurePosixPath(f"{name}.yaml") for name in next(answers, set())}
        return {path: (problem(path, 1, "whim"),) for path in paths}

    records = accept(present(a="CDS a=2", c="CDS c=1", d="!"), before, [object_at_random], whole_trees=False)

    assert records[A].good in (records[A].parsed, before[A].good)
