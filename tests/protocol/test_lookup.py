"""What names stand for."""

from __future__ import annotations

from dataclasses import replace

from fsxds.model.resources import Resource, Rows
from fsxds.protocol.lookup import MOST_KEPT, Changes, DeltaNames, Lookup
from fsxds.protocol.messages import DeltaRequest
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.virtual_hosts import HostLookup
from tests.support.snapshots import resource, type_url

LEDS = type_url("LEDS")


def _rows(*resources: Resource) -> dict[str, Resource]:
    return {each.name: each for each in resources}


def test_own_names_come_before_aliases() -> None:
    """A name that one resource has and another has as an alias stands for the first."""
    own, other = resource("SDS", "web"), replace(resource("SDS", "other"), aliases=("web", "api"))
    lookup = Lookup(_rows(other, own))

    assert (own,) == lookup.find("web")
    assert (other,) == lookup.find("api")
    assert () == lookup.find("none")


def test_an_alias_of_two_resources_stands_for_the_first() -> None:
    """Where two resources have an alias, the first by name gets it, in every process the same."""
    first, second = (replace(resource("SDS", name), aliases=("x",)) for name in ("a", "b"))

    assert (first,) == Lookup(_rows(first, second)).find("x")


def test_a_collection_has_the_members_of_its_directory() -> None:
    """A glob stands for what is in its directory and nothing deeper, with its parameters and no others."""
    names = [
        "xdstp://x/t/d/a?p=1&q=2",
        "xdstp://x/t/d/b?p=1&q=2",
        "xdstp://x/t/d/c",
        "xdstp://x/t/d/e/f?p=1&q=2",
        "d/x",
    ]
    lookup = Lookup(_rows(*(resource("LEDS", name) for name in names)))

    assert {*names[:2]} == lookup.names({"xdstp://x/t/d/*?p=1&q=2"})
    assert {names[2]} == lookup.names({"xdstp://x/t/d/*"})
    assert () == lookup.find("xdstp://x/t/none/*")
    assert () == lookup.find("d/*")


def test_a_resource_may_be_named_like_a_collection() -> None:
    """A resource whose own name ends like that of a collection is found by it."""
    odd = resource("LEDS", "xdstp://x/t/d/*")

    assert (odd,) == Lookup(_rows(odd, resource("LEDS", "xdstp://x/t/d/a"))).find(odd.name)


def test_hosts_are_found_on_demand() -> None:
    """Of virtual hosts, names are those of hosts."""
    host = replace(resource("VHDS", "r/web"), aliases=("r/*.com",))

    assert (host,) == HostLookup(_rows(host)).find("r/a.com")
    assert () == Lookup(_rows(host)).find("r/a.com")


def test_names_of_clients_are_remembered_in_bounds() -> None:
    """Clients may ask for any number of names; what they stand for is not remembered without end."""
    lookup = Lookup(_rows(replace(resource("SDS", "own"), aliases=("web",))))

    for number in range(MOST_KEPT + 1):
        lookup.find(f"{number}")

    assert "own" == lookup.find("web")[0].name
    assert len(lookup._found) <= MOST_KEPT


def test_names_that_exist() -> None:
    """Of many names, those are found that are own names, aliases, or collections with members."""
    member, other = resource("LEDS", "xdstp://x/t/d/a"), replace(resource("LEDS", "own"), aliases=("web",))
    lookup = Lookup(_rows(member, other))
    names = {"own", "web", "none", "xdstp://x/t/d/*", "xdstp://x/t/none/*"}

    assert {"own", "web", "xdstp://x/t/d/*"} == lookup.existing(names)
    assert {name for name in names if lookup.find(name)} == lookup.existing(names)


def test_a_member_stays_when_its_alias_goes_to_another() -> None:
    """A member of a collection that loses an alias to another resource is neither removed nor sent again."""
    glob, member, other = "xdstp://x/t/d/*", resource("LEDS", "xdstp://x/t/d/b"), resource("LEDS", "a")
    member, other = (replace(each, aliases=("shared",)) for each in (member, other))
    old = Rows(LEDS, _rows(member))
    new = old.with_changes([other], ())
    for before, after, expected in (
        (old, new, Changes(fresh=frozenset({"a"}))),
        (new, new.with_changes((), ["a"]), Changes(removed=frozenset({"a"}))),
    ):
        names = DeltaNames(LEDS, SharedMemory())
        asked = names.receive(DeltaRequest(LEDS, subscribe=("shared", glob)))
        names.settle(asked, Lookup.of(before))
        change = after.changes_since(before)

        assert names.change(change.fresh, change.removed, Lookup.of(before), Lookup.of(after, before)) == expected
