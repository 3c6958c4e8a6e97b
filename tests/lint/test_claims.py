from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.walk import addresses_taken, field_path_of
from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.model.values import FieldPath, Severity
from fsxds.snapshots.load import Acceptance
from tests.lint.envoy_answers import TCP_CHAIN, Case, envoy_accepts, read
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


LOOPBACK = "{socket_address: {address: 127.0.0.1, port_value: 1}}"
ANY = "{socket_address: {address: 0.0.0.0, port_value: 1}}"
NO_PORT = "{socket_address: {address: 127.0.0.1, port_value: 0}}"
UDP = "{socket_address: {address: 127.0.0.1, port_value: 1, protocol: UDP}}"
SHORT = '{socket_address: {address: "::1", port_value: 1}}'
LONG = '{socket_address: {address: "0:0:0:0:0:0:0:1", port_value: 1}}'
PIPE = "{pipe: {path: /tmp/fsxds-test-listener}}"


def taken(catalogue: Catalogue, listener: Any) -> dict[str, FieldPath]:
    """Return the addresses that a listener takes, and where it says so."""
    message = Converter(catalogue).convert(listener, "envoy.config.listener.v3.Listener").message
    return {name: field_path_of(place) for place, name in addresses_taken(message)}


@pytest.mark.parametrize(
    ("first", "second", "is_conflict"),
    [
        (LOOPBACK, LOOPBACK, True),
        (SHORT, LONG, True),
        (PIPE, PIPE, True),
        (LOOPBACK, ANY, False),
        (LOOPBACK, UDP, False),
        (NO_PORT, NO_PORT, False),
    ],
)
def test_two_listeners(catalogue: Catalogue, first: str, second: str, is_conflict: bool) -> None:
    """Listeners collide where Envoy says so: at one address and protocol, unless the port is any."""
    listeners = []
    for number, address in enumerate((first, second)):
        chains = [] if "UDP" in address else [TCP_CHAIN]
        listeners.append({"name": f"l{number}", "address": read(address), "filter_chains": chains})

    both = taken(catalogue, listeners[0]).keys() & taken(catalogue, listeners[1]).keys()

    assert is_conflict is bool(both)
    assert is_conflict is not envoy_accepts(*(Case("listeners", one) for one in listeners))[0]


def test_more_addresses_count(catalogue: Catalogue) -> None:
    """An additional address is taken as the first one is, and has a place of its own."""
    listener = {"name": "b", "address": read(ANY), "additional_addresses": [{"address": read(LOOPBACK)}]}

    assert {
        "0.0.0.0:1 tcp": ("address",),
        "127.0.0.1:1 tcp": ("additional_addresses", 0, "address"),
    } == taken(catalogue, listener)


def test_names_and_no_addresses_are_passed_over(catalogue: Catalogue) -> None:
    """What is no IP address is reported elsewhere, and internal listeners have none."""
    named = read("{socket_address: {address: localhost, port_value: 1}}")
    internal = read("{envoy_internal_address: {server_listener_name: x}}")
    listeners = (
        {"name": "a", "address": named},
        {"name": "b", "address": internal},
        {"name": "c", "internal_listener": {}},
    )

    assert [{}, {}, {}] == [taken(catalogue, listener) for listener in listeners]
