from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.snapshots.accept import AuthoredVersions
from fsxds.snapshots.check import Proposal
from fsxds.snapshots.names import UniqueNames
from fsxds.values import Problem, SourceFile
from tests.support.snapshots import snapshot
from tests.support.stories import parse_file


def proposal(name: str, content: str, *, is_last_good: bool = False, was: str | None = None) -> Proposal:
    path = PurePosixPath(f"{name}.yaml")
    parsed = parse_file(SourceFile.of(path, content.encode()))
    served = () if was is None else (parse_file(SourceFile.of(path, was.encode())),)
    return Proposal(path, parsed, is_last_good, was=(parsed,) if is_last_good else served)


def told(found: dict[PurePosixPath, tuple[Problem, ...]]) -> dict[str, list[str]]:
    return {path.stem: [str(problem) for problem in problems] for path, problems in found.items()}


def test_name_in_two_files_is_put_to_the_less_trusted() -> None:
    """The file that comes later is named, with the place of each name that it takes."""
    found = UniqueNames(None)(
        (proposal("new", "LDS l=1\nCDS a=1", is_last_good=True), proposal("b", "CDS b=1\nCDS a=2 l=1\nLDS l=2"))
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
    assert UniqueNames(None)((proposal("a", "CDS a=1"), proposal("b", "EDS a=1"))) == {}


def test_name_repeated_within_a_file_is_not_for_this_rule() -> None:
    """What stands twice in one file is found where that file is read."""
    assert UniqueNames(None)((proposal("a", "CDS a=1 a=1\nCDS a=1"),)) == {}


def test_versions_agree_within_a_type() -> None:
    """One version for all documents of a type is what is asked for; types may differ."""
    check = AuthoredVersions(None)

    assert check((proposal("a", "CDS@1 a=1\nLDS@2 l=1"), proposal("b", "CDS@1 b=1"))) == {}


def test_version_that_disagrees_is_put_to_the_less_trusted() -> None:
    """The file whose version is not that of a more trusted one is named."""
    found = AuthoredVersions(None)((proposal("b", "CDS@1 b=1"), proposal("a", "CDS@2 a=1")))

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
    found = AuthoredVersions(None)((proposal("a", "CDS@1 a=1\nCDS@2 b=1"),))

    assert [path.stem for path in found] == ["a"]


def test_missing_version_is_a_problem() -> None:
    """Where the authors' versions are served, every document needs one."""
    found = AuthoredVersions(None)((proposal("a", "CDS a=1"), proposal("b", "CDS@1 b=1")))

    expected = {
        "a": ["a.yaml:1:1: error: there is no version_info for its clusters; add one, or serve `--versions content`"]
    }
    assert expected == told(dict(found))


@pytest.mark.parametrize("content", ["CDS@1 a=2", "CDS@1 a=1 b=1", "CDS@1"])
def test_content_must_not_change_under_its_version(content: str) -> None:
    """A resource that is other than, new in, or gone from what was served under a version is a problem of its file."""
    check = AuthoredVersions(snapshot({"CDS": {"a": "1"}}, authored={"CDS": "1"}))

    expected = {
        "a": [
            (
                'a.yaml:1:1: error: version_info: the clusters changed under the unchanged version "1"; '
                "give new content a new version"
            )
        ]
    }
    assert expected == told(dict(check((proposal("a", content, was="CDS@1 a=1"),))))


def test_same_content_may_keep_its_version() -> None:
    """A file that changed in its comments alone needs no new version."""
    check = AuthoredVersions(snapshot({"CDS": {"a": "1"}}, authored={"CDS": "1"}))

    assert check((proposal("a", "CDS@1 a=1"),)) == {}


def test_new_version_may_have_any_content() -> None:
    """New content under a new version is what versions are for, also next to another type that kept both."""
    check = AuthoredVersions(snapshot({"CDS": {"a": "1"}, "LDS": {"l": "1"}}, authored={"CDS": "1", "LDS": "1"}))

    assert check((proposal("a", "CDS@2 a=2\nLDS@1 l=1"),)) == {}


def test_stale_version_is_put_to_what_is_news() -> None:
    """Only a file that changed, and speaks of the type, can have changed the content of the type."""
    check = AuthoredVersions(snapshot({"CDS": {"a": "1", "b": "1"}}, authored={"CDS": "1"}))

    found = check(
        (proposal("a", "CDS@1 a=1", is_last_good=True), proposal("b", "CDS@1 b=2"), proposal("c", "LDS@1 l=1"))
    )

    assert [path.stem for path in found] == ["b"]


def test_names_of_what_is_served_are_found_in_the_snapshot() -> None:
    """A new file is compared with what is served already, as far as the files that are served so stay as they are."""
    served = proposal("a", "CDS a=1", is_last_good=True)
    new, other = proposal("b", "CDS a=2"), proposal("c", "CDS c=1")
    current = snapshot({"CDS": {"a": "1"}})

    assert UniqueNames(current)((served, new, other)).keys() == {PurePosixPath("b.yaml")}
    assert UniqueNames(current)((served, other)) == {}
    # The file that had the name has another content now.
    assert UniqueNames(current)((proposal("a", "CDS x=1"), new, other)) == {}
