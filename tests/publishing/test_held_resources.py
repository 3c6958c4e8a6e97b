"""What is held back of the tree, as problems of the files that have it or had it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fsxds.model.resources import Key
from fsxds.model.values import Problem
from fsxds.publishing.held_resources import MOST_PROBLEMS, hold_problems, noun_of, rejection_problems
from fsxds.rollout.holding import Hold, HoldReason
from fsxds.rollout.rejections import HeldVersion, Nack, Rejections
from fsxds.rollout.target import Target
from fsxds.settings.rollout_forms import NackLimit
from tests.support.publishing import version_of_content
from tests.support.rollouts import OneVoter, tree_snapshot
from tests.support.snapshots import resource, type_url

CDS, EDS, RDS, LDS, VHDS = map(type_url, ("CDS", "EDS", "RDS", "LDS", "VHDS"))
FRESH, HOST = (
    resource("LDS", "fresh", path="listeners.yaml", line=4),
    resource("VHDS", "r/b", path="hosts.yaml", line=2),
)
A, WEB = resource("CDS", "a", path="clusters.yaml", line=7), resource("RDS", "web", path="routes.yaml", line=3)


def said(problem: Problem) -> str:
    """Return a problem in one line."""
    place = f"{problem.path}:{problem.line}"
    return f"{problem.severity.value} {problem.rule} {place}: {problem.message}; {problem.remedy}"


@pytest.mark.parametrize(
    ("key", "hold", "expected"),
    [
        pytest.param(
            (CDS, "a"),
            Hold(HoldReason.IN_USE, A, None, (RDS, "web")),
            "error removed-in-use clusters.yaml:7: cluster a was removed, and is still served: route web names it; "
            "let route web name another one, or put it back",
            id="in use",
        ),
        pytest.param(
            (RDS, "web"),
            Hold(HoldReason.UNDEFINED, WEB, replace(WEB, body=b"2"), (CDS, "none")),
            "error undefined-name routes.yaml:3: route web would name cluster none, which is not defined; "
            "the last good version stays; define cluster none, or list it in `static_clusters` if the bootstrap defines it",
            id="undefined",
        ),
        pytest.param(
            (RDS, "web"),
            Hold(HoldReason.UNDEFINED, None, WEB, (EDS, "e")),
            "error undefined-name routes.yaml:3: route web would name endpoints e, which is not defined; "
            "it is not served; define endpoints e",
            id="new and undefined",
        ),
        pytest.param(
            (RDS, "web"),
            Hold(HoldReason.DEPENDS, WEB, WEB, (CDS, "a")),
            "error needs-held routes.yaml:3: route web would name cluster a, which is held back; "
            "the last good version stays; correct cluster a",
            id="depends",
        ),
        pytest.param(
            (LDS, "fresh"),
            Hold(HoldReason.CLAIMS, None, FRESH, (LDS, "old")),
            "error claims-held listeners.yaml:4: listener fresh would have the address of listener old, which is served "
            "with it; it is not served; wait until listener old is served without it, or give one of them another address",
            id="claims",
        ),
        pytest.param(
            (VHDS, "r/b"),
            Hold(HoldReason.CLAIMS, HOST, HOST, (VHDS, "r/a")),
            "error claims-held hosts.yaml:2: virtual-host r/b would have the domain or name of virtual-host r/a, which is "
            "served with it; the last good version stays; wait until virtual-host r/a is served without it, or give one of "
            "them another domain or name",
            id="claims a domain",
        ),
        pytest.param((CDS, "a"), Hold(HoldReason.REJECTED, None, A), None, id="rejected: said with the node"),
        pytest.param((CDS, "a"), Hold(HoldReason.PINNED, A, None), None, id="pinned: no mistake"),
        pytest.param((CDS, "a"), Hold(HoldReason.REMOVAL, A, None), None, id="waits for approval: said with its id"),
    ],
)
def test_what_is_held_says_where_why_and_what_to_do(key: Key, hold: Hold, expected: str | None) -> None:
    """At the file that has it, or had it."""
    assert [said(one) for one in hold_problems({key: hold})] == ([] if expected is None else [expected])


def test_of_very_many_the_first_are_said() -> None:
    """The status has the rest."""
    holds = {(CDS, str(number)): Hold(HoldReason.IN_USE, A, None, (RDS, "web")) for number in range(MOST_PROBLEMS + 5)}

    assert len(list(hold_problems(holds))) == MOST_PROBLEMS


def target_of(tree: Mapping[str, Mapping[str, str]]) -> Target:
    """Return what is to be served of a tree."""
    target = Target()
    target.receive_tree(tree_snapshot(tree))
    return target


def test_what_nodes_reject() -> None:
    """A warning while the others are served it, and an error when nobody is, or would be if a good one were known; not of what no tree has any more."""
    target = target_of({"CDS": {"a": "bad"}})
    version = (CDS, "a"), version_of_content("a", "bad")
    gone = (CDS, "b"), version_of_content("b", "bad")
    rejections = Rejections(NackLimit())
    rejections.receive_nack("n1", OneVoter("edge-1", "n1"), Nack(frozenset({version, gone}), words="no port"), 0.0)

    [warning] = rejection_problems(rejections, lambda: [Target(), target])
    assert said(warning) == (
        "warning rejected-by-client a.yaml:1: edge-1 rejects cluster a: no port; "
        "correct the resource, or that node; until then the node keeps its version, and all other nodes get the new one"
    )
    rejections.receive_nack("n2", OneVoter("edge-2", "n2"), Nack(frozenset({version})), 0.0)
    rejections.held = {version: HeldVersion(0.0, {})}
    [kept] = rejection_problems(rejections, lambda: [target])
    assert said(kept) == (
        "error rejected-by-client a.yaml:1: edge-1, edge-2 reject cluster a: no port; "
        "correct it; no good version of it is known, so it stays as it is until then"
    )
    target.remember({version}, tree_snapshot({"CDS": {"a": "good"}}))
    [error] = rejection_problems(rejections, lambda: [target])
    assert said(error) == (
        "error rejected-by-client a.yaml:1: edge-1, edge-2 reject cluster a: no port; "
        "correct it; until then no node is served it, or run `fsxds rollout retry a`"
    )


def test_no_secret_of_the_words_of_a_node_is_shown() -> None:
    """An Envoy may repeat what it was sent."""
    target = target_of({"SDS": {"a": "bad"}})
    version = (type_url("SDS"), "a"), version_of_content("a", "bad", "SDS")
    rejections = Rejections(NackLimit())
    words = "invalid value -----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----"
    rejections.receive_nack("n1", OneVoter("edge-1", "n1"), Nack(frozenset({version}), words=words), 0.0)

    assert "MIIEvQIBADAN" not in "".join(map(said, rejection_problems(rejections, lambda: [target])))


def test_trees_are_not_asked_for_without_rejections() -> None:
    """With a thousand views that takes long."""

    def targets() -> list[Target]:
        raise AssertionError

    assert list(rejection_problems(Rejections(NackLimit()), targets)) == []


@pytest.mark.parametrize(
    ("short_name", "expected"), [("CDS", "cluster a"), ("EDS", "endpoints a"), ("RDS", "route a"), ("SDS", "secret a")]
)
def test_what_a_resource_is_called(short_name: str, expected: str) -> None:
    """As an operator says."""
    assert noun_of((type_url(short_name), "a")) == expected
