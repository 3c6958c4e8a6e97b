"""Bootstraps by themselves, and beside a tree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.doctor.examples import Doctor, file_source, none_there, rest_source, xds_of

RUNTIME = {"rtds.yaml": "[{name: one, layer: {a: 1}}]"}
CLUSTER = "[{name: c, type: STATIC, connect_timeout: 1s}]"


def layers(*names: str) -> Any:
    """Return a layered runtime with these RTDS layers, and one that is none."""
    rows = [{"name": name, "rtds_layer": {"name": name, "rtds_config": rest_source()}} for name in names]
    return {"layers": [*rows, {"name": "admin", "admin_layer": {}}]}


@pytest.mark.parametrize(
    ("node", "fact"),
    [({}, "node.id and node.cluster is missing"), ({"id": "n"}, "node.cluster is missing")],
)
def test_node(node: dict[str, str], fact: str, doctor: Doctor) -> None:
    """Polls and streams need id and cluster."""
    (fault,) = doctor.faults(lambda value: value.update(node=node))

    assert ("no-node", ("node",)) == (fault.rule, fault.field_path)
    assert fault.message.startswith(fact)


def test_files_need_no_node(doctor: Doctor) -> None:
    """Nobody is told the node where files are read."""

    def edit(value: Any) -> None:
        value["dynamic_resources"] = {"cds_config": file_source("/cds.pb")}
        del value["node"]

    assert [] == doctor.rules(edit)


@pytest.mark.parametrize(("address", "is_well"), [("0.0.0.0", False), ("::", False), ("127.0.0.1", True)])
def test_admin_page(address: str, *, is_well: bool, doctor: Doctor) -> None:
    """It is for this machine."""
    edit = lambda value: value["admin"]["address"]["socket_address"].update(address=address)  # noqa: E731
    expected = ["open-admin admin.address.socket_address.address"]

    assert ([] if is_well else expected) == doctor.rules(edit)


@pytest.mark.parametrize("api_type", ["REST", "AGGREGATED_GRPC"])
def test_ads_is_a_grpc_stream(api_type: str, doctor: Doctor) -> None:
    """Any other api_type is refused at the start."""
    ads = {**rest_source()["api_config_source"], "api_type": api_type}
    expected = ["impossible-transport dynamic_resources.ads_config.api_type"]

    assert expected == doctor.rules(lambda value: value["dynamic_resources"].update(ads_config=ads))


def test_collections_of_clusters_cannot_be_files(doctor: Doctor) -> None:
    """ENVOY.md E29: Envoy 1.40 cannot read them."""
    locator = {"cds_resources_locator": "file:///etc/cds.yaml"}
    expected = ["cluster-collection-file dynamic_resources.cds_resources_locator"]

    assert expected == doctor.rules(lambda value: value["dynamic_resources"].update(locator))


def test_collection_of_listeners_must_exist(doctor: Doctor) -> None:
    """Its file is there before Envoy starts."""
    locator = {"lds_resources_locator": "file:///etc/lds.yaml#entry=x"}
    looked: list[str] = []

    def look_at(path: str) -> Any:
        looked.append(path)
        return none_there(path)

    rules = doctor.rules(lambda value: value["dynamic_resources"].update(locator), {}, look_at)

    assert ["missing-file dynamic_resources.lds_resources_locator"] == rules
    assert looked == ["/etc/lds.yaml"]


def test_types_that_nobody_asks_for(doctor: Doctor) -> None:
    """A tree has clusters, and the bootstrap no cds_config."""

    def edit(value: Any) -> None:
        del value["dynamic_resources"]["cds_config"]

    assert ["not-asked-for dynamic_resources"] == doctor.rules(edit, {"cds.yaml": CLUSTER})
    assert [] == doctor.rules(None, {"cds.yaml": CLUSTER})


def test_runtime_layers_on_both_sides(doctor: Doctor) -> None:
    """A layer that the tree lacks delays the start; one that the bootstrap lacks is not used."""
    place = "layered_runtime.layers[0].rtds_layer.name"

    assert [] == doctor.rules(lambda value: value.update(layered_runtime=layers("one")), RUNTIME)
    assert [f"missing-runtime-layer {place}", "unused-runtime-layer layered_runtime"] == doctor.rules(
        lambda value: value.update(layered_runtime=layers("two")), RUNTIME
    )


def test_layers_count_as_subscriptions(doctor: Doctor) -> None:
    """Each layer holds a poll."""
    names = [f"l{number}" for number in range(1023)]
    tree = {"rtds.yaml": "\n".join(f"- {{name: {name}, layer: {{a: 1}}}}" for name in names)}
    edit = lambda value: (value.update(layered_runtime=layers(*names)), xds_of(value))  # noqa: E731
    (fault,) = doctor.faults(edit, tree)

    assert fault.rule == "few-connections"
