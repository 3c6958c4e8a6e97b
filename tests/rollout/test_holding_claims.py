"""What is served claims nothing twice, such as an address, though some of the tree is held."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resources import Snapshot, claims_of
from fsxds.rollout.holding import Composed, HoldingRules, HoldReason, compose
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.target import Target
from tests.support.rollouts import Tree, tree_of, tree_snapshot
from tests.support.snapshots import type_url

LDS = type_url("LDS")
CLAIMS, REMOVAL, REJECTED = HoldReason.CLAIMS, HoldReason.REMOVAL, HoldReason.REJECTED
SIX: Tree = {"LDS": {f"l{number}": f"1 @{number}" for number in range(6)}}
STRICT = HoldingRules(max_removal=0.1)


def listeners(**contents: str) -> Tree:
    """Return a tree of listeners."""
    return {"LDS": contents}


def reasons(composed: Composed | None) -> dict[str, tuple[HoldReason, str | None]]:
    """Return why each resource is held, by its name, with the name of the other one that matters."""
    assert composed is not None
    return {name: (hold.reason, hold.other and hold.other[1]) for (_, name), hold in composed.holds.items()}


def rejected_in(snapshot: Snapshot, name: str) -> ResourceVersion:
    """Return the version of a listener, which nodes reject."""
    return (LDS, name), snapshot.resources(LDS)[name].version


Option = TypeVar("Option")


class Served:
    """What one channel is to serve, and serves."""

    def __init__(self, tree: Tree, rules: HoldingRules = STRICT) -> None:
        self.target, self.rules = Target(), rules
        self.tree = self.base = tree_snapshot(tree)
        self.rejected: set[ResourceVersion] = set()
        self.target.receive_tree(self.tree)
        self.compose()

    def save(self, tree: Tree) -> None:
        """Take another tree."""
        self.tree = tree_snapshot(tree, self.tree)
        self.target.receive_tree(self.tree)
        self.compose()

    def reject(self, name: str) -> None:
        """Hold back the version of a listener that the tree has."""
        self.rejected.add(rejected_in(self.tree, name))
        self.compose()

    def compose(self) -> None:
        """Compose what is to be served."""
        self.target.compose(self.base, self.rejected, self.rules)

    def reach(self) -> None:
        """Have all clients take that."""
        self.base = self.composed.snapshot
        self.compose()

    @property
    def composed(self) -> Composed:
        """What is to be served."""
        assert self.target.composed is not None
        return self.target.composed

    @property
    def has(self) -> dict[str, str]:
        """The listeners that are served."""
        return tree_of(self.composed.snapshot).get("LDS", {})


def test_a_new_listener_waits_for_the_address_of_one_whose_removal_waits() -> None:
    """It is served when the removal is approved; what claims another address does not wait."""
    tree = listeners(fresh="1 @0", other="1 @9", l3="1 @3", l4="1 @4")
    run = Served(SIX)
    run.save(tree)

    assert run.has == {**SIX["LDS"], "other": "1 @9"}
    assert reasons(run.composed) == {
        **{f"l{number}": (REMOVAL, None) for number in (0, 1, 2, 5)},
        "fresh": (CLAIMS, "l0"),
    }
    run.reach()
    assert "fresh" not in run.has
    assert run.target.approve(run.composed.approval_id or "", run.base)
    run.compose()
    assert (run.has, run.composed.holds) == (tree["LDS"], {})


def test_addresses_that_move_on_wait_for_each_other() -> None:
    """One of which a version is rejected keeps its address, and so does all that would move up."""
    run = Served(listeners(a="1 @1", b="1 @2", c="1 @3", d="1 @8"))
    run.save(listeners(a="2 @9", b="2 @1", c="2 @2", d="2 @8"))
    assert not run.composed.holds
    run.reject("a")

    assert run.has == {"a": "1 @1", "b": "1 @2", "c": "1 @3", "d": "2 @8"}
    assert reasons(run.composed) == {"a": (REJECTED, None), "b": (CLAIMS, "a"), "c": (CLAIMS, "b")}


def test_who_names_what_waits_for_an_address_waits_and_keeps_what_it_named() -> None:
    """Until nothing follows any more: the cluster of the old listener stays for it, too."""
    base: Tree = {"CDS": {"c": "1"}, "LDS": {"a": "1 @1", "b": "1 @2 CDS:c"}}
    tree: Tree = {"CDS": {"d": "1"}, "LDS": {"a": "2 @2", "b": "2 @1 CDS:d"}}
    run = Served(base)
    run.save(tree)
    run.reject("a")

    assert tree_of(run.composed.snapshot) == {"CDS": {"c": "1", "d": "1"}, "LDS": base["LDS"]}
    assert reasons(run.composed) == {"a": (REJECTED, None), "b": (CLAIMS, "a"), "c": (HoldReason.IN_USE, "b")}


def test_what_took_the_address_of_a_listener_that_is_taken_back_gives_it_back() -> None:
    """All had taken both before nodes rejected the one: what was good is served again."""
    run = Served(listeners(a="1 @1", b="1 @5"))
    run.save(listeners(a="2 @2", b="2 @1", c="1 @5"))
    run.target.remember([rejected_in(run.tree, "a")], run.base)
    run.reach()
    run.reject("a")

    assert run.has == {"a": "1 @1", "b": "1 @5"}
    assert reasons(run.composed) == {"a": (REJECTED, None), "b": (CLAIMS, "a"), "c": (CLAIMS, "b")}


def test_its_rejecter_gets_no_address_twice() -> None:
    """It has what was good, and not what took the address of that."""
    run = Served(listeners(a="1 @1"))
    run.save(listeners(a="2 @2", b="1 @1", c="1 @3"))
    versions = [rejected_in(run.tree, "a")]
    run.target.remember(versions, run.base)

    assert tree_of(run.target.without(run.tree, versions)) == listeners(a="1 @1", c="1 @3")


def test_a_rollback_takes_no_address_of_what_is_served() -> None:
    """What is served stays, and the rollback of the other one waits for that."""
    first = listeners(a="1 @1", b="1 @5")
    run = Served(first)
    earlier = run.base
    run.save(listeners(a="2 @2", b="2 @1"))
    run.reach()
    run.target.pin(earlier, 0.0)
    run.compose()
    assert run.has == first["LDS"]
    run.save(listeners(a="2 @2", b="3 @1"))

    assert run.has == {"a": "2 @2", "b": "3 @1"}
    assert reasons(run.composed) == {"a": (CLAIMS, "b")}


@pytest.mark.parametrize(
    ("base", "tree", "served"),
    [
        # Two of the tree.
        (listeners(a="1 @1"), listeners(a="2 @1", b="1 @1"), {"a": "1 @1", "b": "1 @1"}),
        # Two that are served already.
        (listeners(a="1 @1", b="1 @1"), listeners(a="2 @2", b="2 @1"), {"a": "1 @1", "b": "2 @1"}),
    ],
)
def test_what_is_claimed_twice_anyway_is_no_obstacle(base: Tree, tree: Tree, served: dict[str, str]) -> None:
    """To hold it would change nothing."""
    run = Served(base)
    run.save(tree)
    run.reject("a")

    assert run.has == served


def test_references_that_may_break_are_no_reason_to_claim_twice() -> None:
    """An address is claimed once with `--references warn`, too."""
    run = Served(SIX, replace(STRICT, keeps_references=False))
    run.save(listeners(fresh="1 @0"))

    assert reasons(run.composed)["fresh"] == (CLAIMS, "l0")


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Return a tree in which everything that is named is there, and no address twice."""
    content = st.sampled_from("12")
    clusters = {name: draw(content) for name in draw(st.sets(st.sampled_from("cde"), min_size=1))}
    routes = {
        name: f"{draw(content)} CDS:{draw(st.sampled_from(sorted(clusters)))}"
        for name in draw(st.sets(st.sampled_from("qr")))
    }
    used = [*(f"RDS:{name}" for name in routes), *(f"CDS:{name}" for name in clusters)]
    names, ports = draw(st.permutations("abuvwxyz")), draw(st.permutations(range(7)))
    made = {
        name: f"{draw(content)} @{port} {draw(st.sampled_from(used))}"
        for name, port in zip(names[: draw(st.integers(0, 7))], ports, strict=False)
    }
    return {"CDS": clusters, "RDS": routes, "LDS": made}


@given(first=trees(), then=st.lists(trees(), min_size=1, max_size=4), data=st.data())
def test_no_address_is_served_twice_whatever_is_held(first: Tree, then: list[Tree], data: st.DataObject) -> None:
    """Versions are rejected and offered again, what is served is rolled back, and removals wait: each by chance."""
    run = Served(first, HoldingRules(max_removal=data.draw(st.sampled_from((None, 0.1, 0.5)))))
    earlier = [run.base]
    for tree in then:
        run.save(tree)
        check(run)
        for _ in range(data.draw(st.integers(0, 3))):
            event = data.draw(st.sampled_from(("reject", "reach", "reach", "roll back", "retry")))
            fresh = [
                (url, name)
                for url, rows in run.tree.by_type.items()
                for name in sorted(rows.changes_since(run.base.resources(url)).fresh)
            ]
            if event == "reject" and fresh:
                key = data.draw(st.sampled_from(fresh))
                run.rejected.add((key, run.tree.resources(key[0])[key[1]].version))
            elif event == "retry":
                run.rejected.clear()
            elif event == "roll back":
                run.target.pin(data.draw(st.sampled_from(earlier)), 0.0)
            elif event == "reach":
                run.target.remember(
                    [((LDS, name), one.version) for name, one in run.tree.resources(LDS).items()], run.base
                )
                run.reach()
                earlier.append(run.base)
                if run.tree.resources(LDS) and data.draw(st.booleans()):
                    # All have taken it, and reject it late.
                    name = data.draw(st.sampled_from(sorted(run.tree.resources(LDS))))
                    run.rejected.add(rejected_in(run.tree, name))
            run.compose()
            check(run)


def check(run: Served) -> None:
    """Check that no address is served twice, and that nothing waits for one without a reason."""
    served = run.composed.snapshot.resources(LDS)
    claims = Counter(claim for one in served.values() for claim in claims_of(one))
    assert max(claims.values(), default=0) <= 1, tree_of(run.composed.snapshot)
    for (_, name), hold in run.composed.holds.items():
        if hold.reason is CLAIMS:
            assert hold.other is not None
            pin = run.target.pins.get((LDS, name))
            wanted = (hold.asked, None if pin is None else pin.kept, *run.target._chain(hold.asked))
            assert any(one and claims_of(one) & claims_of(served[hold.other[1]]) for one in wanted)
    if not run.rejected and not run.target.pins and run.rules.max_removal is None:
        assert run.composed.snapshot is run.tree


def test_nothing_is_looked_at_where_nothing_is_held() -> None:
    """The tree is served as it is."""
    base = tree_snapshot(SIX)
    tree = tree_snapshot(listeners(**{f"m{number}": f"1 @{number}" for number in range(6)}), base)

    assert compose(tree, base, {}, STRICT).snapshot is tree
