from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import TypeUrl
from fsxds.tools.diff.compare import ChangeAction, Comparer, FieldChange
from tests.support.costs import cost_s

CDS, VHDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["vhds"].type_url


def resource(catalogue: Catalogue, name: str, stat_name: str = "", type_url: TypeUrl = CDS) -> Resource:
    """Return a cluster, or what else has a name."""
    message = catalogue.message_class(type_url.rpartition("/")[2])(name=name)
    if stat_name:
        setattr(message, "alt_stat_name", stat_name)  # noqa: B010 - its class is made at run time
    body = message.SerializeToString()
    return Resource(type_url, name, body, version_of_body(type_url, body), Origin(PurePosixPath("a.yaml"), 1))


def snapshot(*resources: Resource) -> Snapshot:
    """Return a snapshot that holds these resources."""
    types = {
        type_url: Rows(type_url, {member.name: member for member in resources if member.type_url == type_url})
        for type_url in {member.type_url for member in resources}
    }
    return Snapshot(1, types)


def test_what_became_of_resources(catalogue: Catalogue) -> None:
    """Resources are compared by type and name, and are listed by name."""
    before = snapshot(*(resource(catalogue, name) for name in ("a", "b", "c")))
    after = snapshot(*(resource(catalogue, name, "x" * (name == "b")) for name in ("z", "d", "c", "b")))

    (found,) = Comparer(catalogue).compare(before, after).types

    assert CDS == found.type_url
    assert (["d", "z"], ["a"]) == ([row.name for row in found.added], [row.name for row in found.removed])
    (change,) = found.changed
    assert ("b", (FieldChange("alt_stat_name", ChangeAction.CHANGED, "", "x"),)) == (change.after.name, change.fields)


def test_no_difference(catalogue: Catalogue) -> None:
    """Another place is no difference: what is served is the same."""
    there = resource(catalogue, "a")
    moved = replace(there, origin=Origin(PurePosixPath("b.yaml"), 9))

    assert () == Comparer(catalogue).compare(snapshot(there), snapshot(moved)).types


def test_what_stands_around(catalogue: Catalogue) -> None:
    """TTL and aliases are compared, but not where REST does not tell them."""
    plain = resource(catalogue, "a")
    before, after = snapshot(plain), snapshot(replace(plain, ttl_s=5.0, aliases=("b",)))

    (found,) = Comparer(catalogue).compare(before, after).types

    assert found.changed[0].fields == (
        FieldChange("(Resource).ttl", ChangeAction.ADDED, None, "5s"),
        FieldChange("(Resource).aliases", ChangeAction.ADDED, None, ["b"]),
    )
    assert () == Comparer(catalogue, over_rest=True).compare(before, after).types


def test_aliases_that_are_domains(catalogue: Catalogue) -> None:
    """Of a virtual host, an author's aliases are compared; those that come of its domains are told as these."""

    def host(domains: list[str], *aliases: str) -> Snapshot:
        made = catalogue.message_class("envoy.config.route.v3.VirtualHost")(name="r/h", domains=domains)
        body = made.SerializeToString()
        origin = Origin(PurePosixPath("a.yaml"), 1)
        names = (*(f"r/{domain.lower()}" for domain in domains), *aliases)
        return snapshot(Resource(VHDS, "r/h", body, version_of_body(VHDS, body), origin, names))

    def fields(before: Snapshot, after: Snapshot) -> list[tuple[str, ChangeAction]]:
        (found,) = Comparer(catalogue).compare(before, after).types
        return [(field.path, field.act) for field in found.changed[0].fields]

    assert fields(host(["A.com"]), host(["b.com"])) == [("domains[0]", ChangeAction.CHANGED)]
    assert fields(host(["a.com"]), host(["a.com"], "r/x")) == [("(Resource).aliases", ChangeAction.ADDED)]
    assert fields(host(["a.com"], "r/x"), host(["b.com"], "r/y")) == [
        ("(Resource).aliases", ChangeAction.CHANGED),
        ("domains[0]", ChangeAction.CHANGED),
    ]


def test_virtual_hosts_are_not_told_over_rest(catalogue: Catalogue) -> None:
    """A type without a REST form is not compared with what REST tells."""
    host = snapshot(resource(catalogue, "a", type_url=VHDS))

    assert () == Comparer(catalogue, over_rest=True).compare(snapshot(), host).types
    assert 1 == len(Comparer(catalogue).compare(snapshot(), host).types)


def test_other_bytes(catalogue: Catalogue) -> None:
    """Of a resource that has the same fields in other bytes there is a change without fields."""
    there = resource(catalogue, "a", "x")
    swapped = there.body[3:] + there.body[:3]
    other = replace(there, body=swapped, version=version_of_body(CDS, swapped))

    (found,) = Comparer(catalogue).compare(snapshot(there), snapshot(other)).types

    assert () == found.changed[0].fields


def test_large_snapshots_are_quick(catalogue: Catalogue) -> None:
    """One change among ten thousand resources is found without looking into the others: that costs what they cost."""
    many = [resource(catalogue, f"c{number}") for number in range(10_000)]
    others = [resource(catalogue, f"c{number}", "x") for number in range(10_000)]
    before, after = snapshot(*many), snapshot(*many[1:], others[0])
    comparer = Comparer(catalogue)
    (found,) = comparer.compare(before, after).types

    assert 1 == len(found.changed)
    all_changed = snapshot(*others)
    one_s, all_s = (cost_s(partial(comparer.compare, before, each)) for each in (after, all_changed))
    assert one_s < all_s / 2, (one_s, all_s)
