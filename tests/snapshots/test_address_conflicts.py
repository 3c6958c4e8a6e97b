from __future__ import annotations

from types import MappingProxyType

from fsxds.rules.levels import RuleLevels
from fsxds.snapshots.load import Acceptance
from fsxds.values import Severity
from tests.support.mentions import MentionStory, load_mentions, served, tell


def lowered(rule: str, severity: Severity | None) -> Acceptance:
    """Accept with another weight of one rule."""
    return Acceptance(levels=RuleLevels(MappingProxyType({rule: severity})))


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
    """The second of two listeners in a file is told, and the file is held."""
    assert ["a: listener-address error"] == tell(load_mentions({"a": "LDS a @tcp:80\nLDS b @tcp:80"}))


def test_held_listeners_take_no_addresses() -> None:
    """A file that is held because of one address leaves its others to those that come after it."""
    loaded = load_mentions({"a": "LDS a @tcp:80\nLDS b @tcp:80\nLDS c @tcp:81", "d": "LDS d @tcp:81"})

    assert {"d"} == served(loaded)
    assert ["a: listener-address error"] == tell(loaded)


def test_address_that_moves() -> None:
    """An address may go from one listener to another in one step."""
    story = MentionStory()
    story.step({"a": "LDS a @tcp:80", "b": "LDS b @tcp:81"})

    loaded = story.step({"a": "LDS a @tcp:81", "b": "LDS b @tcp:80"})

    assert [] == tell(loaded)


def test_lowered_address_rule_is_told() -> None:
    """Where two listeners at one address are no error, they are served, and told."""
    files = {"a": "LDS a @tcp:80\nLDS b @tcp:80"}

    loaded = load_mentions(files, lowered("listener-address", Severity.WARNING))

    assert {"a", "b"} == served(loaded)
    assert ["a: listener-address warning"] == tell(loaded)
    assert [] == tell(load_mentions(files, lowered("listener-address", None)))
