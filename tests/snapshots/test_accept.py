"""What is held counts for nothing but itself, whatever rule holds it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.model.resources import CLAIMED, Document, Origin, ParsedFile, Snapshot
from fsxds.model.values import Problem, Severity, SourceFile
from fsxds.snapshots.accept import AuthoredVersions, TreeChange, accept, declarations_of
from fsxds.snapshots.load import Acceptance, load, merge
from fsxds.snapshots.names import unique_names
from fsxds.snapshots.proposals import Conflicts, FileRecord, FileRule, Proposal, Proposals, Records, ServedFiles
from tests.support.mentions import MentionStory
from tests.support.mentions import held as held_mentions
from tests.support.mentions import parse_file as parse_mentions
from tests.support.mentions import served as served_mentions
from tests.support.snapshots import snapshot
from tests.support.stories import Story, held, parse_file, problem, served, tell
from tests.support.trees import tree_of

A, B, C = PurePosixPath("a.yaml"), PurePosixPath("b.yaml"), PurePosixPath("c.yaml")


def parsed(path: PurePosixPath, content: str) -> ParsedFile:
    return parse_file(SourceFile.of(path, content.encode()))


def present(**contents: str) -> dict[PurePosixPath, FileRecord]:
    """Return the records of a new tree: `a="CDS a=1"` is what stands in a.yaml."""
    files = [parsed(PurePosixPath(f"{name}.yaml"), content) for name, content in contents.items()]
    return {file.path: FileRecord(file, None, file.problems) for file in files}


def no_conflicts(_proposals: Proposals) -> Conflicts:
    return {}


def accepted(
    tree: Records, before: Records | None = None, rules: Iterable[FileRule] = (no_conflicts,)
) -> dict[PurePosixPath, FileRecord]:
    served = ServedFiles(None, before)
    change = TreeChange(tree, frozenset(served.records.keys() - tree.keys()), served)
    return accept(change, rules, whole_trees=False)


def test_good_file_is_served_as_it_stands() -> None:
    """What parses is served, and is not held."""
    records = accepted(present(a="CDS a=1"))

    assert records[A].good is records[A].parsed
    assert not records[A].is_held
    assert records[A].good is not None


def test_broken_first_file_was_never_good() -> None:
    """What never parsed is not served at all."""
    records = accepted(present(a="!"))

    assert records[A].good is None
    assert records[A].is_held
    assert records[A].good is None


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

    def listen(proposals: Proposals) -> Conflicts:
        heard.extend((proposal.path.stem, proposal.is_last_good, proposal.is_gone) for proposal in proposals)
        return {}

    accepted(tree, before, [listen])

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

    records = accepted(tree, before, [lambda _: {A: (problem(A, 1, "whim"),)}])

    assert records[A].good is before[A].good
    assert records[A].problems == ()


def test_later_rules_judge_what_the_first_left() -> None:
    """A rule is asked when the rules before it have nothing to say any more."""
    heard: list[set[PurePosixPath]] = []

    def no_b(proposals: Proposals) -> Conflicts:
        return {proposal.path: (problem(B, 1, "no-b"),) for proposal in proposals if proposal.path == B}

    def listen(proposals: Proposals) -> Conflicts:
        heard.append({proposal.path for proposal in proposals if not proposal.is_on_trial})
        return {}

    records = accepted(present(a="CDS a=1", b="CDS b=1"), {}, [no_b, listen])

    assert heard == [{A}, {A}], "the second time, whether b may be served now"
    assert [found.rule for found in records[B].problems] == ["no-b"]


def test_rules_are_asked_again_after_each_conflict() -> None:
    """What is left after a conflict is judged anew, however the rules were handed in."""

    def first_b_then_a(proposals: Proposals) -> Conflicts:
        paths = {proposal.path for proposal in proposals} - {C}
        return {path: (problem(path, 1, "whim"),) for path in sorted(paths)[-1:]}

    tree = present(a="CDS a=1", b="CDS b=1", c="CDS c=1")
    records = accepted(tree, {}, (rule for rule in (first_b_then_a,)))

    assert [C] == [path for path, record in records.items() if record.good]


def test_vanished_file_in_conflict_is_given_up() -> None:
    """A vanished file that a rule objects to, though nobody defines what it held, is not kept."""
    before = accepted(present(a="CDS a=1"))

    def no_a(proposals: Proposals) -> Conflicts:
        return {proposal.path: (problem(A, 1, "no-a"),) for proposal in proposals if proposal.path == A}

    records = accepted(present(b="!"), before, [no_a])

    assert {B} == records.keys()


def test_what_is_left_of_a_vanished_file_is_no_file() -> None:
    """What is left of a vanished file has no digest, so that it is not taken for the file when that comes back."""
    before = accepted(present(a="CDS a=1 b=1"))

    def first_wins(proposals: Proposals) -> Conflicts:
        names = [resource.name for proposal in proposals for resource in proposal.parsed.resources]
        return {A: (problem(A, 1, "double"),)} if len(names) > len(set(names)) else {}

    records = accepted(present(b="CDS a=2", c="!"), before, [first_wins])

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

    def object_at_random(_proposals: Proposals) -> Conflicts:
        paths = {PurePosixPath(f"{name}.yaml") for name in next(answers, set())}
        return {path: (problem(path, 1, "whim"),) for path in paths}

    records = accepted(present(a="CDS a=2", c="CDS c=1", d="!"), before, [object_at_random])

    assert records[A].good in (records[A].parsed, before[A].good)


def proposal(name: str, content: str, *, is_last_good: bool = False, was: str | None = None) -> Proposal:
    path = PurePosixPath(f"{name}.yaml")
    parsed = parse_file(SourceFile.of(path, content.encode()))
    served = () if was is None else (parse_file(SourceFile.of(path, was.encode())),)
    return Proposal(path, parsed, is_last_good, was=(parsed,) if is_last_good else served)


def of(*proposals: Proposal) -> Proposals:
    """Put proposals beside what is served of their files."""
    records = {one.path: FileRecord(was, was) for one in proposals for was in one.was}
    return Proposals(ServedFiles(merge(records, ServedFiles().changes_to(records, ()), None), records), proposals)


def disagreements(served: Snapshot, *proposals: Proposal) -> dict[PurePosixPath, tuple[Problem, ...]]:
    """Return what is wrong with the versions of files beside what is served."""
    records = {one.path: FileRecord(was, was) for one in proposals for was in one.was}
    declared = declarations_of(record.good for record in records.values() if record.good)
    return dict(AuthoredVersions(declared)(Proposals(ServedFiles(served, records), proposals)))


def told(found: dict[PurePosixPath, tuple[Problem, ...]]) -> dict[str, list[str]]:
    return {path.stem: [str(problem) for problem in problems] for path, problems in found.items()}


def test_name_in_two_files_is_put_to_the_less_trusted() -> None:
    """The file that comes later is named, with the place of each name that it takes."""
    found = unique_names(
        of(proposal("new", "LDS l=1\nCDS a=1", is_last_good=True), proposal("b", "CDS b=1\nCDS a=2 l=1\nLDS l=2"))
    )

    expected = {
        "b": [
            'b.yaml:2:1: error: Cluster "a" is already defined at new.yaml:2; rename or remove one of the two',
            'b.yaml:3:1: error: Listener "l" is already defined at new.yaml:1; rename or remove one of the two',
        ]
    }
    assert expected == told(dict(found))


def test_name_in_two_types_is_no_conflict() -> None:
    """Names are unique within a type."""
    assert unique_names(of(proposal("a", "CDS a=1"), proposal("b", "EDS a=1"))) == {}


def test_name_repeated_within_a_file_is_not_for_this_rule() -> None:
    """What stands twice in one file is found where that file is read."""
    assert unique_names(of(proposal("a", "CDS a=1 a=1\nCDS a=1"))) == {}


def test_versions_agree_within_a_type() -> None:
    """One version for all documents of a type is what is asked for; types may differ."""
    check = AuthoredVersions({})

    assert check(of(proposal("a", "CDS@1 a=1\nLDS@2 l=1"), proposal("b", "CDS@1 b=1"))) == {}


def test_version_that_disagrees_is_put_to_the_less_trusted() -> None:
    """The file whose version is not that of a more trusted one is named."""
    found = disagreements(snapshot({}), proposal("b", "CDS@1 b=1", is_last_good=True), proposal("a", "CDS@2 a=1"))

    expected = {
        "a": [
            (
                'a.yaml:1:1: error: version_info: version "2" is not that of b.yaml, "1"; '
                "give all documents of a type one version"
            )
        ]
    }
    assert expected == told(dict(found))


def test_versions_of_one_file_agree_too() -> None:
    """Two documents of a file may disagree as two files do."""
    found = AuthoredVersions({})(of(proposal("a", "CDS@1 a=1\nCDS@2 b=1")))

    assert [path.stem for path in found] == ["a"]


def test_missing_version_is_a_problem() -> None:
    """Where the authors' versions are served, every document needs one."""
    found = AuthoredVersions({})(of(proposal("a", "CDS a=1"), proposal("b", "CDS@1 b=1")))

    expected = {
        "a": ["a.yaml:1:1: error: there is no version_info for its clusters; add one, or set `versions: content`"]
    }
    assert expected == told(dict(found))


@pytest.mark.parametrize("content", ["CDS@1 a=2", "CDS@1 a=1 b=1", "CDS@1"])
def test_content_must_not_change_under_its_version(content: str) -> None:
    """A resource that is other than, new in, or gone from what was served under a version is a problem of its file."""
    served = snapshot({"CDS": {"a": "1"}}, authored={"CDS": "1"})

    expected = {
        "a": [
            (
                'a.yaml:1:1: error: version_info: the clusters changed under the unchanged version "1"; '
                "give new content a new version"
            )
        ]
    }
    assert expected == told(dict(disagreements(served, proposal("a", content, was="CDS@1 a=1"))))


def test_same_content_may_keep_its_version() -> None:
    """A file that changed in its comments alone needs no new version."""
    served = snapshot({"CDS": {"a": "1"}}, authored={"CDS": "1"})

    assert disagreements(served, proposal("a", "CDS@1 a=1")) == {}


def test_new_version_may_have_any_content() -> None:
    """New content under a new version is what versions are for, also next to another type that kept both."""
    served = snapshot({"CDS": {"a": "1"}, "LDS": {"l": "1"}}, authored={"CDS": "1", "LDS": "1"})

    assert disagreements(served, proposal("a", "CDS@2 a=2\nLDS@1 l=1")) == {}


def test_stale_version_is_put_to_what_is_news() -> None:
    """Only a file that changed, and speaks of the type, can have changed the content of the type."""
    served = snapshot({"CDS": {"a": "1", "b": "1"}}, authored={"CDS": "1"})

    found = disagreements(
        served,
        *(proposal("a", "CDS@1 a=1", is_last_good=True), proposal("b", "CDS@1 b=2"), proposal("c", "LDS@1 l=1")),
    )

    assert [path.stem for path in found] == ["b"]


def test_names_of_what_is_served_are_found_in_the_snapshot() -> None:
    """A new file is compared with what is served already, as far as the files that are served so stay as they are."""
    served = proposal("a", "CDS a=1", is_last_good=True)
    new, other = proposal("b", "CDS a=2"), proposal("c", "CDS c=1")

    assert unique_names(of(served, new, other)).keys() == {PurePosixPath("b.yaml")}
    assert unique_names(of(served, other)) == {}
    # The file that had the name has another content now.
    assert unique_names(of(proposal("a", "CDS x=1", was="CDS a=1"), new, other)) == {}


@pytest.mark.parametrize(
    ("owned", "other"),
    [("CDS gamma", "CDS gamma"), ("LDS b @tcp:80", "LDS a @tcp:80"), ("VHDS r/b #r/web.com", "VHDS r/a #r/web.com"),
     ("VHDS r/b &all", "VHDS r/a &all")],
)  # fmt: skip
def test_owner_goes_on_beside_a_held_file(owned: str, other: str) -> None:
    """What wants a name, address, domain or virtual host of another file is held; edits of the owner are served, in any order."""
    for newcomer, owner in (("a", "b"), ("b", "a")):
        story = MentionStory()
        story.step({owner: owned, newcomer: "RTDS own"})
        assert [newcomer] == held_mentions(story.step({newcomer: f"RTDS own\n{other}"}))

        loaded = story.step({owner: f"{owned}\nRTDS more"})

        assert [newcomer] == held_mentions(loaded)
        assert "more" in served_mentions(loaded)
        assert [] == held_mentions(story.step({owner: "RTDS more"})), "the owner let go of it"


def test_only_newcomers_are_held_of_three_files() -> None:
    """Of three files that define a name its owner is served; when it gives up, the first of the others follows it."""
    story = Story()
    story.step({"b": "CDS g=b"})
    story.step({"a": "CDS g=a", "c": "CDS g=c"})

    assert {"CDS g=b2"} == served(story.step({"b": "CDS g=b2"}).snapshot)
    loaded = story.step({"b": "CDS x=1"})
    assert {"CDS g=a", "CDS x=1"} == served(loaded.snapshot)
    assert {"c": False} == held(loaded)


def test_restart_beside_a_duplicate() -> None:
    """A first look at two files of one name serves the first path, whatever the order in which they are given."""
    for files in ({"a": "CDS g=a", "b": "CDS g=b h=1"}, {"b": "CDS g=b h=1", "a": "CDS g=a"}):
        assert {"CDS g=a"} == served(Story().step(files).snapshot)


def test_renamed_owner_owns_its_names() -> None:
    """A file that takes the place of one that is gone owns what that one was served with; a held file does not."""
    story = Story()
    story.step({"b": "CDS g=b h=1"})
    story.step({"a": "CDS g=a x=1"})

    loaded = story.step({"b": None, "c": "CDS g=b h=2"})

    assert {"CDS g=b", "CDS h=2"} == served(loaded.snapshot)
    assert {"a": False} == held(loaded)


def test_rename_into_a_held_file_loses_nothing() -> None:
    """Where the new form of a renamed file is held by a rule, what the file was served with stays until it is accepted."""
    story = Story()
    story.step({"a": "CDS g=a", "b": "CDS h=1 i=1"})

    loaded = story.step({"b": None, "c": "CDS g=c h=2 i=1"})
    assert {"CDS g=a", "CDS h=1", "CDS i=1"} == served(loaded.snapshot)
    assert {"b: vanished", "c: duplicate-name"} == set(tell(loaded))
    assert {"CDS g=a", "CDS h=1", "CDS i=1"} == served(story.step({}).snapshot)

    loaded = story.step({"c": "CDS h=2"})
    assert {"CDS g=a", "CDS h=2"} == served(loaded.snapshot)
    assert not loaded.problems


def test_name_of_a_file_that_is_held_for_another_reason_is_free() -> None:
    """A file that is held for what it refers to takes no new name from those after it."""
    story = MentionStory()
    story.step({"a": "CDS a", "z": "LDS l"})

    loaded = story.step({"a": "CDS a\nCDS delta\nLDS m CDS:nowhere!", "b": "CDS delta"})

    assert ["a"] == held_mentions(loaded)


def test_name_that_only_a_held_file_defines_is_not_defined() -> None:
    """What refers to a name of a held file is held until that file is served."""
    story = MentionStory()
    story.step({"b": "CDS g"})

    loaded = story.step({"a": "CDS g\nCDS new", "c": "LDS l CDS:new!"})
    assert ["a", "c"] == held_mentions(loaded)
    assert [] == held_mentions(story.step({"b": "CDS other"}))


def test_author_of_one_version_is_not_held_by_another() -> None:
    """A file that is held for its version, or for content under an old one, holds no other file that speaks of the type."""
    story = Story(authored_versions=True)
    story.step({"b": "CDS@1 b=1\nLDS@1 l=1"})
    story.step({"a": "CDS@9 a=1"})
    loaded = story.step({"b": "CDS@2 b=2\nLDS@1 l=1"})
    assert {"a": False} == held(loaded)
    assert {"CDS b=2", "LDS l=1"} == served(loaded.snapshot)

    story.step({"a": "CDS@2 a=1"})
    assert {"a": False} == held(story.step({})), "content changed under its version"
    loaded = story.step({"b": "CDS@2 b=2\nLDS@2 l=2"})
    assert {"CDS b=2", "LDS l=2"} == served(loaded.snapshot)


LINES = st.sampled_from(
    ["CDS x", "CDS y", "CDS z", "LDS l CDS:x!", "LDS m CDS:y! @tcp:80", "LDS n CDS:z! @tcp:80", "RTDS r", "RTDS s"]
)
FILES = st.dictionaries(
    st.sampled_from("abcd"), st.one_of(st.none(), st.lists(LINES, max_size=3, unique=True).map("\n".join)), max_size=4
)  # fmt: skip


def wants(parsed: ParsedFile | None) -> set[tuple[str, str]]:
    """Return the names and claims in a file, which no other may have."""
    resources = parsed.resources if parsed else ()
    claims = {
        (claim.type_url, claim.name) for one in resources for claim in one.references if claim.type_url in CLAIMED
    }
    return claims | {(one.type_url, one.name) for one in resources}


@given(st.lists(FILES, min_size=1, max_size=4))
def test_nothing_depends_on_what_is_held(steps: list[dict[str, str | None]]) -> None:
    """Who wants no more than it is served with owns that; and no file is held that could be served beside all the others."""
    story = MentionStory()
    for edits in steps:
        before = story.loaded
        loaded = story.step(edits)
        known = before.records if before else {}
        for file in loaded.held:
            record, was = loaded.records[file.path], known.get(file.path)
            if was is not None and was.good is not None and wants(record.parsed) <= wants(was.good):
                assert {found.rule for found in record.problems}.isdisjoint({"duplicate-name", "listener-address"})
            if {str(path) for path in known} - story.files.keys():
                continue  # a broken file may be the new form of one that is gone
            files = {**story.files, str(file.path): "!"}
            without = load(
                tree_of(files), before, lambda found: list(map(parse_mentions, found)), Acceptance(check=Linter())
            )
            assert not set(held_mentions(without)) < set(held_mentions(loaded)), (file.path, story.files)


@pytest.mark.parametrize(
    ("field_path", "pointers", "is_sound"),
    [
        (("resources", 1), ["resources[0].name", "resources[10].name", ""], True),
        (("resources", 1), ["resources[1].name"], False),
        (("resources", 1), ["resources[1][…]"], False),
        (("resources", 1, "resource"), ["resources[1].ttl"], False),
        ((1,), ["[0]"], True),
        ((1,), ["[1]"], False),
        ((), ["name"], False),
        ((), [], True),
    ],
)
def test_what_is_sound_in_a_broken_file(
    field_path: tuple[str | int, ...], pointers: list[str], *, is_sound: bool
) -> None:
    """A resource in which no error is, nor around it in its list; a redirect has no content, and a warning is no error."""
    (resource,) = parsed(A, "CDS a=1").resources
    resource = replace(resource, origin=Origin(A, 1, 0, field_path))
    problems = tuple(Problem(A, 1, 1, pointer, "rule", "fact", "remedy") for pointer in pointers)
    warning = Problem(A, 1, 1, "resources[1]", "rule", "fact", "remedy", Severity.WARNING)
    document = Document(A, (resource, replace(resource, redirect="xdstp:///x")), frozenset())
    record = FileRecord(ParsedFile(A, "", (document,)), None, (*problems, warning))

    assert record.sound == ((resource,) if is_sound else ())
    assert FileRecord(None, None).sound == ()
