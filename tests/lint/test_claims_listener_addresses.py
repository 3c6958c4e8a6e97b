from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.convert import Converter
from fsxds.api.walk import field_path_of
from fsxds.lint.claims import addresses_taken
from fsxds.values import FieldPath
from tests.lint.envoy_answers import TCP_CHAIN, Case, envoy_accepts, read

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
