"""Collections that a bootstrap asks for: locators with which Envoy starts, and what of a tree is in them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tools.doctor.examples import Doctor, grpc_source, rest_source

C = "envoy.config.cluster.v3.Cluster"
GLOB = f"xdstp://a/{C}/edge/*"
PLACE = "dynamic_resources.cds_resources_locator"


def cluster(name: str) -> dict[str, str]:
    return {"cds.yaml": f"[{{name: '{name}', type: STATIC, connect_timeout: 1s}}]"}


def told(doctor: Doctor, locator: str, member: str, node: Any = None, **bootstrap: Any) -> list[str]:
    """Return the rules that a bootstrap with this locator breaks, beside a tree of one cluster."""

    def edit(value: Any) -> None:
        dynamic = value["dynamic_resources"]
        dynamic |= {
            "ads_config": grpc_source()["api_config_source"],
            "cds_config": {"ads": {}, "resource_api_version": "V3"},
        }
        dynamic |= {"cds_resources_locator": locator, **bootstrap.pop("dynamic", {})}
        value.update(bootstrap)
        value["node"] = value["node"] | (node or {})

    return [one for one in doctor.rules(edit, cluster(member)) if PLACE in one]


@pytest.mark.parametrize(
    ("locator", "source"),
    [
        (f"udpa://a/{C}/edge/*", None),
        ("xdstp://a/envoy.config.listener.v3.Listener/edge/*", None),
        ("xdstp://a/envoy.config.cluster.v3.ClusterCollection/edge", None),
        (f"xdstp://a/{C}/%zz/*", None),
        (f"{GLOB}#alt=xdstp://b/{C}/*", None),
        (GLOB, grpc_source("GRPC")),
        (GLOB, rest_source()),
    ],
)
def test_locators_with_which_envoy_does_not_start(doctor: Doctor, locator: str, source: Any) -> None:
    """A wrong scheme, type, form or transport is an error at the locator."""
    dynamic = {} if source is None else {"cds_config": source}

    assert told(doctor, locator, f"xdstp://a/{C}/edge/web", dynamic=dynamic) == [f"impossible-locator {PLACE}"]


@pytest.mark.parametrize(
    ("locator", "member", "is_in"),
    [
        (GLOB, f"xdstp://a/{C}/edge/web", True),
        (f"{GLOB}?b=1&a=x y", f"xdstp://a/{C}/edge/web?a=x%20y&b=1", True),
        (f"xdstp://a/{C}/*", f"xdstp://a/{C}/web", True),
        (GLOB, f"xdstp://b/{C}/edge/web", False),
        (GLOB, f"xdstp://a/{C}/edge/deep/web", False),
        (GLOB, f"xdstp://a/{C}/edge/web?a=1", False),
        (f"{GLOB}?a=1", f"xdstp://a/{C}/edge/web?a=2", False),
        (GLOB, "web", False),
    ],
)
def test_what_is_in_a_collection(doctor: Doctor, locator: str, member: str, *, is_in: bool) -> None:
    """A collection in which nothing of the tree is makes Envoy start without."""
    assert told(doctor, locator, member) == [f"no-members {PLACE}"] * (not is_in)
    assert told(doctor, locator, member, dynamic={"cds_config": grpc_source("DELTA_GRPC")}) == [
        f"no-members {PLACE}"
    ] * (not is_in)


NODE = {"id": "n 1", "cluster": "c", "locality": {"zone": "z"}, "metadata": {"tier": "gold", "shard": 3, "on": True}}


@pytest.mark.parametrize(
    ("fields", "parameters", "is_in"),
    [
        (["id"], "xds.node.id=n%201", True),
        (["id"], "xds.node.id=other", False),
        (["id"], "", False),
        (["id", "cluster"], "xds.node.id=n%201&xds.node.cluster=c", True),
        (["locality.zone"], "xds.node.locality.zone=z", True),
        (["locality.zone"], "xds.node.locality.zone=y", False),
        (["user_agent_name"], "xds.node.user_agent_name=envoy", True),
        (
            ["metadata"],
            "xds.node.metadata.on=true&xds.node.metadata.shard=3&xds.node.metadata.tier=%22gold%22",
            True,
        ),
        (["metadata"], "xds.node.metadata.on=true&xds.node.metadata.shard=3&xds.node.metadata.tier=gold", False),
    ],
)
def test_parameters_of_the_node(doctor: Doctor, fields: list[str], parameters: str, *, is_in: bool) -> None:
    """Members have what Envoy adds of its node, with the values that are known."""
    member = f"xdstp://a/{C}/edge/web?{parameters}"
    found = told(doctor, GLOB, member, NODE, node_context_params=fields)

    assert found == [f"no-members {PLACE}"] * (not is_in)


def test_the_node_may_be_named_by_flags(doctor: Doctor) -> None:
    """What the bootstrap does not say of the node may be anything."""
    member = f"xdstp://a/{C}/edge/web?xds.node.id=x"

    assert told(doctor, GLOB, member, {"id": ""}, node_context_params=["id"]) == []


def test_the_parameters_are_named(doctor: Doctor) -> None:
    """Where members have other parameters, both are told."""

    def edit(value: Any) -> None:
        value["node_context_params"] = ["id"]
        value["dynamic_resources"] |= {
            "ads_config": grpc_source()["api_config_source"],
            "cds_config": {"ads": {}},
            "cds_resources_locator": GLOB,
        }

    (fault,) = [one for one in doctor.faults(edit, cluster(f"xdstp://a/{C}/edge/web?b=1")) if one.rule == "no-members"]
    assert "it asks with the parameters xds.node.id, and resources in the directory have b" in fault.message
