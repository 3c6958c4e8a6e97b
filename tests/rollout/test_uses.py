"""Which served resources name which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.model.resources import Reference
from fsxds.model.values import Severity, TypeUrl
from fsxds.rollout import uses
from fsxds.rollout.uses import demands_of, dependencies_of, is_pattern, names_any, names_meant, users_of
from tests.support.rollouts import Tree, tree_snapshot
from tests.support.snapshots import resource, type_url

CDS, EDS, RDS, LDS = (type_url(name) for name in ("CDS", "EDS", "RDS", "LDS"))
TREE: Tree = {
    "CDS": {"a": "1 EDS:e", "b": "1"},
    "EDS": {"e": "1"},
    "RDS": {"r": "1 CDS:a CDS:none", "q": "1 CDS:b"},
    "LDS": {"l": "1 RDS:r"},
}


@pytest.mark.parametrize(
    ("name", "expected"), [("a", ["a"]), ("b", []), ("x/*", ["x/1", "x/2"]), ("*", ["a", "x/1", "x/2"])]
)
def test_names_that_a_mention_means(name: str, expected: list[str]) -> None:
    """One that exists, or all that begin like a pattern."""
    assert sorted(names_meant(name, ["a", "x/1", "x/2"])) == expected
    assert is_pattern(name) is name.endswith("*")


@pytest.mark.parametrize(
    ("reference", "is_demanded"),
    [
        (Reference(CDS, "a", (), Severity.WARNING), True),
        (Reference(CDS, "a", (), Severity.ERROR), True),
        (Reference(CDS, "a", (), Severity.NOTE), False),
        (Reference(CDS, "a", (), Severity.WARNING, is_static=True), False),
        (Reference(TypeUrl("type.googleapis.com/other"), "a", (), Severity.WARNING), False),
    ],
)
def test_what_has_to_exist(reference: Reference, *, is_demanded: bool) -> None:
    """Not what the bootstrap has, what Envoy can do without, and what is no resource of xDS."""
    route = replace(resource("RDS", "r"), references=(reference,))

    assert demands_of(route) == ({(CDS, "a")} if is_demanded else frozenset())


def test_users_are_found_by_what_they_name() -> None:
    """Also of names that do not exist, and after a change."""
    served = tree_snapshot(TREE)
    changed = tree_snapshot({**TREE, "RDS": {**TREE["RDS"], "q": "2 CDS:none"}}, served)

    assert [one.name for one in users_of(served, {(CDS, "none"), (EDS, "e")})] == ["a", "r"]
    assert {one.name for one in users_of(changed, {(CDS, "none")})} == {"r", "q"}
    assert list(users_of(changed, {(CDS, "b")})) == []
    assert names_any(served.resources(LDS)["l"], {(RDS, "r"), (CDS, "b")})
    assert not names_any(served.resources(LDS)["l"], {(CDS, "a")})


def test_what_a_resource_depends_on() -> None:
    """What it names, directly or not, with the version of each: another version of one is another answer."""
    served = tree_snapshot(TREE)
    found = dependencies_of(served, (LDS, "l"))

    assert {key: bool(version) for key, version in found} == {
        (RDS, "r"): True,
        (CDS, "a"): True,
        (CDS, "none"): False,
        (EDS, "e"): True,
    }
    assert dependencies_of(tree_snapshot({**TREE, "EDS": {"e": "2"}}, served), (LDS, "l")) != found
    assert dependencies_of(tree_snapshot({**TREE, "CDS": {**TREE["CDS"], "b": "2"}}), (LDS, "l")) == found
    assert dependencies_of(served, (LDS, "none")) == frozenset()


def test_of_very_many_dependencies_the_first_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A listener that reaches a whole tree costs no more than a bounded look."""
    monkeypatch.setattr(uses, "MOST_DEPENDENCIES", 10)
    chain = {f"c{number}": f"1 CDS:c{number + 1}" for number in range(1000)}

    assert len(dependencies_of(tree_snapshot({"CDS": chain}), (CDS, "c0"))) == 10
