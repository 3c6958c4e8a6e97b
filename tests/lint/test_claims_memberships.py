from __future__ import annotations

from types import MappingProxyType

import pytest

from fsxds.lint.claims import MOST_HINTS
from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.model.values import Severity
from fsxds.snapshots.load import Acceptance
from tests.support.mentions import MentionStory, held, load_mentions, served, tell

TABLE = "RDS r VHDS:r/*~\nLDS l RDS:r"
MEMBER = "xdstp://a/t/web/1"


def lowered(rule: str, severity: Severity | None) -> Acceptance:
    """Accept with another severity of one rule."""
    return Acceptance(check=Linter(RuleLevels(MappingProxyType({rule: severity}))))


def test_virtual_hosts_of_a_route_configuration_that_asks_for_them() -> None:
    """Where both are there, nothing is wrong."""
    assert [] == tell(load_mentions({"a": TABLE, "b": "VHDS r/a\nVHDS r/b"}))


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a": TABLE}, "a: no-virtual-hosts note"),
        ({"a": f"{TABLE}\nRDS q\nLDS q RDS:q", "b": "VHDS r/a\nVHDS q/a\nVHDS q/b"}, "b: unused-virtual-host warning"),
        ({"a": TABLE, "b": "VHDS r/a\nVHDS q/r/a"}, "b: unused-virtual-host warning"),
        ({"a": f"CDS c EDS:e\nEDS e LEDS:{MEMBER}~"}, "a: no-lb-endpoints note"),
    ],
)
def test_lonely_collections(files: dict[str, str], expected: str) -> None:
    """An empty collection is a note, a virtual host that no resource asks for a warning, reported once for a table."""
    told = [row for row in tell(load_mentions(files)) if "unused-cluster" not in row]

    assert [expected] == told


def test_words_about_a_route_configuration() -> None:
    """It is reported whether the route configuration is missing, and which was meant, or lacks something, and where it is."""
    loaded = load_mentions(
        {"a": f"{TABLE}\nRDS plain\nLDS q RDS:plain", "b": "VHDS r/a\nVHDS plain/a\nVHDS palin/a\nVHDS x/a"}
    )

    facts = [(found.message.partition(";")[0], found.remedy.partition(" ")[0]) for found in loaded.problems]
    assert facts == [
        ('route configuration "plain" at a:3 has no vhds', "add"),
        ('there is no route configuration "palin"', "did"),
        ('there is no route configuration "x"', "name"),
    ]


def test_tree_without_route_configurations() -> None:
    """Where a tree has none at all, they come from elsewhere."""
    assert [] == tell(load_mentions({"b": "VHDS r/a"}))


def test_type_that_may_be_in_a_broken_file_is_not_missing() -> None:
    """What a broken file may hold is not said to be missing."""
    assert ["rds.yaml: broken error"] == tell(load_mentions({"rds.yaml": "!", "a": TABLE, "b": "VHDS r/a\nVHDS q/a"}))
    assert "a: no-virtual-hosts note" not in tell(load_mentions({"vhds.yaml": "!", "a": TABLE}))


def test_members_of_a_collection_have_its_directory_and_parameters() -> None:
    """A member is in the collection of its directory, with the same parameters, and in none below."""

    def told(collection: str, member: str) -> list[str]:
        loaded = load_mentions({"a": f"CDS c EDS:e\nLDS l CDS:c\nEDS e LEDS:{collection}~", "b": f"LEDS {member}"})
        return tell(loaded)

    missing = ["a: no-lb-endpoints note"]
    assert [] == told("xdstp://a/t/web/*", MEMBER)
    assert [] == told("xdstp://a/t/web/*?x=1&y=2", f"{MEMBER}?x=1&y=2")
    assert missing == told("xdstp://a/t/web/*", "xdstp://a/t/web/deep/1")
    assert missing == told("xdstp://a/t/web/*", f"{MEMBER}?x=1")
    assert missing == told("xdstp://b/t/web/*", MEMBER)


def test_virtual_hosts_of_elsewhere_may_use_any_cluster() -> None:
    """A cluster is not called unused while virtual hosts are missing that may lead to it."""
    assert ["a: no-virtual-hosts note"] == tell(load_mentions({"a": TABLE, "c": "CDS c"}))
    assert ["c: unused-cluster note"] == tell(load_mentions({"a": TABLE, "b": "VHDS r/a", "c": "CDS c"}))
    assert [] == tell(load_mentions({"a": TABLE, "b": "VHDS r/a CDS:c", "c": "CDS c"}))


def test_rules_are_changed_by_their_names() -> None:
    """Each rule can be raised, which holds its file, or switched off."""
    files = {"a": TABLE, "b": "VHDS q/a"}
    raised = load_mentions(files, lowered("unused-virtual-host", Severity.ERROR))

    assert ["b"] == held(raised)
    assert {"r", "l"} == served(raised)
    assert ["a: no-virtual-hosts note"] == tell(load_mentions(files, lowered("unused-virtual-host", None)))
    assert ["b: unused-virtual-host warning"] == tell(load_mentions(files, lowered("no-virtual-hosts", None)))


def test_what_changes_later_is_noticed() -> None:
    """A warning goes with its cause, in whichever file that was."""
    story = MentionStory()
    assert ["b: unused-virtual-host warning"] == tell(story.step({"a": "RDS r\nLDS l RDS:r", "b": "VHDS r/a"}))
    assert [] == tell(story.step({"a": TABLE}))
    assert ["a: no-virtual-hosts note"] == tell(story.step({"b": None}))


def test_what_is_served_still_counts() -> None:
    """A held file's last good self asks for virtual hosts; what is reported of it has the place where it stands now."""
    story = MentionStory()
    story.step({"a": TABLE, "b": "VHDS r/a", "c": "VHDS q/a"})

    loaded = story.step({"a": "RDS q\n![0]", "c": "CDS\nVHDS q/a\n![1]"})

    assert ["a: broken error", "c: unused-virtual-host warning", "c: broken error"] == tell(loaded)
    assert [2, 3] == [found.line for found in loaded.problems if found.path.name == "c"]


def test_few_names_are_compared_with_all_others() -> None:
    """With very many names that no file defines, the first few are reported with what was meant, and soon."""
    tables = "\n".join(f"RDS table-{number}" for number in range(2000))
    hosts = "\n".join(f"VHDS tabel-{number}/a" for number in range(2000))

    remedies = [one.remedy for one in load_mentions({"a": tables, "b": hosts}).problems if one.path.name == "b"]

    assert len(remedies) == 2000
    assert MOST_HINTS == sum("did you mean" in remedy for remedy in remedies)
