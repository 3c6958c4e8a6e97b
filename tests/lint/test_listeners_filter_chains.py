import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    listener,
    read,
    rules_found,
)


def matching(*matches: str) -> Case:
    """A listener whose filter chains match so."""
    return listener({"filter_chains": [{**TCP_CHAIN, "filter_chain_match": read(match)} for match in matches]})


def chosen(*names: str) -> Case:
    """A listener whose filter chains are chosen by name."""
    config = {"@type": TYPE + "google.protobuf.StringValue", "value": "a"}
    return listener(
        {
            "filter_chains": [{**TCP_CHAIN, "name": name} for name in names],
            "filter_chain_matcher": {"on_no_match": {"action": {"name": "x", "typed_config": config}}},
        }
    )


def within(*ranges: str) -> str:
    """A match by addresses."""
    listed = ", ".join(
        "{{address_prefix: '{}', prefix_len: {}}}".format(*one.split("/"))
        if "/" in one
        else f"{{address_prefix: '{one}'}}"
        for one in ranges
    )
    return f"{{prefix_ranges: [{listed}]}}"


def test_chains_that_envoy_takes(catalogue: Catalogue) -> None:
    """Chains that differ in anything."""
    assert_accepted(
        catalogue,
        matching("{}", "{server_names: [a]}", "{server_names: ['*.a']}", "{server_names: [a.a]}"),
        matching("{server_names: [a], destination_port: 1}", "{server_names: [a], destination_port: 2}"),
        matching("{source_type: EXTERNAL}", "{}", "{source_ports: [1]}", within("10.0.0.0/8"), within("10.0.0.0/9")),
        chosen("a", "b"),
    )


@pytest.mark.parametrize(
    "case",
    [
        matching("{}", "{}"),
        matching("{server_names: [a, b]}", "{server_names: [b, c]}"),
        matching("{server_names: [a]}", "{server_names: [A]}"),
        matching("{server_names: [.a]}", "{server_names: ['*.a']}"),
        matching("{server_names: [a, a]}"),
        matching("{application_protocols: [h2, h2]}"),
        matching("{source_ports: [1, 2]}", "{source_ports: [2]}"),
        matching(within("10.0.0.0/8"), within("10.1.0.0/8")),
        matching(within("10.0.0.0/33"), within("10.0.0.0/32")),
        matching(within("10.0.0.0"), within("0.0.0.0/0")),
        chosen("a", ""),
        chosen("a", "a"),
    ],
)
def test_chains_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """No connection may fit two chains just so, and chains that are chosen by name have one."""
    assert_rejected(catalogue, "filter-chain", case)


def test_very_many_combinations_are_left_to_envoy(catalogue: Catalogue) -> None:
    """A match of too many alternatives is not looked at."""
    names = ", ".join(f"a{number}" for number in range(200))
    many = f"{{server_names: [{names}], source_ports: [{', '.join(map(str, range(1, 200)))}]}}"

    assert set() == rules_found(catalogue, matching(many, many))
