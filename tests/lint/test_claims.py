from __future__ import annotations

from types import MappingProxyType

from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.snapshots.load import Acceptance
from fsxds.values import Severity
from tests.support.mentions import MentionStory, load_mentions, served, tell


def lowered(rule: str, severity: Severity | None) -> Acceptance:
    """Accept with another severity of one rule."""
    return Acceptance(check=Linter(RuleLevels(MappingProxyType({rule: severity}))))


def test_two_listeners_at_one_address() -> None:
    """Of two listeners at one address, the one that came later is held."""
    story = MentionStory()
    story.step({"b": "LDS b @tcp:80 CDS:x", "c": "CDS x"})

    loaded = story.step({"a": "LDS a @tcp:80", "d": "LDS d @tcp:81"})

    assert {"b", "x", "d"} == served(loaded)
    assert ["a: listener-address error"] == tell(loaded)
    assert 'listener "b" at b:1' in loaded.problems[0].message
    assert {"a", "x", "d"} == served(story.step({"b": None}))


def test_two_listeners_of_one_file_at_one_address() -> None:
    """The second of two listeners in a file is reported, and the file is held."""
    assert ["a: listener-address error"] == tell(load_mentions({"a": "LDS a @tcp:80\nLDS b @tcp:80"}))


def test_held_listeners_take_no_addresses() -> None:
    """A file that is held because of one address leaves its others to those that come after it."""
    loaded = load_mentions({"a": "LDS a @tcp:80\nLDS b @tcp:80\nLDS c @tcp:81", "d": "LDS d @tcp:81"})

    assert {"d"} == served(loaded)
    assert ["a: listener-address error"] * 2 == tell(loaded), "within a, and now with d"


def test_address_that_moves() -> None:
    """An address may go from one listener to another in one step."""
    story = MentionStory()
    story.step({"a": "LDS a @tcp:80", "b": "LDS b @tcp:81"})

    loaded = story.step({"a": "LDS a @tcp:81", "b": "LDS b @tcp:80"})

    assert [] == tell(loaded)


def test_lowered_address_rule_is_told() -> None:
    """Where two listeners at one address are no error, they are served, and reported."""
    files = {"a": "LDS a @tcp:80\nLDS b @tcp:80"}

    loaded = load_mentions(files, lowered("listener-address", Severity.WARNING))

    assert {"a", "b"} == served(loaded)
    assert ["a: listener-address warning"] == tell(loaded)
    assert [] == tell(load_mentions(files, lowered("listener-address", None)))


def test_one_domain_of_two_virtual_hosts() -> None:
    """A domain of a route configuration is that of one virtual host; the file that came later is held."""
    story = MentionStory()
    story.step({"b": "VHDS r/b #r/web.com"})

    loaded = story.step({"a": "VHDS r/a #r/api.com #r/web.com", "c": "VHDS s/c #s/web.com"})

    assert {"r/b", "s/c"} == served(loaded)
    assert ["a: duplicate-domain error"] == tell(loaded)
    assert '"r/web.com" is already a domain or name of virtual host "r/b" at b:1' in loaded.problems[0].message


def test_domain_of_the_route_configuration_itself() -> None:
    """A domain that stands in the route configuration is of no other one."""
    loaded = load_mentions({"a": "RDS r #r/web.com VHDS:r/*~", "b": "VHDS r/b #r/web.com"})

    assert ["b: duplicate-domain error"] == tell(loaded)
    assert 'route configuration "r" at a:1' in loaded.problems[0].message


def test_one_name_of_two_virtual_hosts() -> None:
    """Of two virtual hosts that have one name in Envoy, the second is reported by that name."""
    loaded = load_mentions({"a": "RDS r VHDS:r/*~", "b": "VHDS r/a &all\nVHDS r/b &all"})

    assert ["b: duplicate-name error"] == tell(loaded)
    assert 'a VirtualHost named "all" is already in virtual host "r/a" at b:1' in loaded.problems[0].message


def test_sorts_of_claims_are_apart() -> None:
    """An address, a domain and a name that read alike are no conflict."""
    assert [] == tell(load_mentions({"a": "LDS a @x CDS:c\nVHDS r/a #x\nVHDS r/b &x", "c": "CDS c"}))


def test_lowered_domain_rule_leaves_addresses_alone() -> None:
    """The severity of one sort of claims does not change the others."""
    files = {"a": "VHDS r/a #x\nVHDS r/b #x", "b": "LDS a @x\nLDS b @x"}

    assert ["a: duplicate-domain note", "b: listener-address error"] == tell(
        load_mentions(files, lowered("duplicate-domain", Severity.NOTE))
    )
    assert ["a: duplicate-domain error"] == tell(load_mentions(files, lowered("listener-address", None)))


def test_two_listeners_without_a_name() -> None:
    """One listener of a tree may be without a name; the file with the second one is held."""
    story = MentionStory()
    story.step({"b": "LDS unnamed-1 ?"})

    loaded = story.step({"a": "LDS unnamed-2 ?", "c": "LDS c"})

    assert {"unnamed-1", "c"} == served(loaded)
    assert ["a: missing-name error"] == tell(loaded)
    assert 'listener "unnamed-1" at b:1 has no name either' in loaded.problems[0].message
