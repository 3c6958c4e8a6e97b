"""What client status says of a relay as a client of its upstreams."""

from __future__ import annotations

import json
from typing import Any

from envoy.admin.v3 import config_dump_shared_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2
from envoy.service.status.v3 import csds_pb2

from fsxds.api.catalogue import Catalogue
from fsxds.client.updates import ConnectionLostError
from fsxds.protocol.messages import Node
from fsxds.transports.client_status.status_service import ClientReports
from fsxds.transports.exchange import Clients
from fsxds.upstream.subscriptions import PATIENCE_S, NameScope
from fsxds.upstream.upstream import Upstream
from fsxds.upstream.upstreams import Rejected, own_statuses
from tests.support.snapshots import type_url
from tests.upstream.made import CDS, EDS, NOW_S, SERVER, came, cluster, update, update_of, upstream_of

SDS = type_url("sds")
NODE = Node("relay-1", "edge")
ACKED = config_dump_shared_pb2.ACKED


def connected(catalogue: Catalogue) -> Upstream:
    """Return an upstream that is connected and asked for what clients name."""
    upstream = upstream_of(catalogue, NameScope(is_asked_only=True))
    upstream.connected(SERVER, "Delta ADS", NOW_S)
    return upstream


def reports_of(catalogue: Catalogue, upstream: Upstream, rejected: Rejected) -> ClientReports:
    """Return what answers requests for the status of clients, of which there is none but this process."""
    return ClientReports(Clients(), catalogue, lambda: own_statuses([upstream], rejected, lambda _: NODE))


async def config_of(catalogue: Catalogue, upstream: Upstream, rejected: Rejected | None = None) -> Any:
    """Return the only ClientConfig of the answer, as JSON."""
    answer = await reports_of(catalogue, upstream, rejected or {}).answer_json(b"{}")
    (config,) = json.loads(answer.body)["config"]
    return config


async def test_what_was_taken_in_is_acked_with_the_version_of_the_upstream(catalogue: Catalogue) -> None:
    """As in the status of an Envoy: node, upstream, and each resource with its content and the time at which it came."""
    upstream = connected(catalogue)
    upstream.ask({CDS: frozenset({"web"})}, NOW_S)
    upstream.receive(update_of(CDS, came(CDS, "web", cluster("web"), version="v7")), SERVER, NOW_S)
    config = await config_of(catalogue, upstream)

    assert config["node"]["id"] == "relay-1"
    assert config["client_scope"] == f"upstream {SERVER}: connected {SERVER} Delta ADS"
    (row,) = config["generic_xds_configs"]
    assert row["xds_config"]["name"] == "web"
    assert {name: row[name] for name in row.keys() - {"xds_config"}} == {
        "type_url": CDS, "name": "web", "version_info": "v7", "client_status": "ACKED",
        "last_updated": "1970-01-12T13:46:40.000Z",
    }  # fmt: skip


async def test_what_was_rejected_is_nacked_with_the_words(catalogue: Catalogue) -> None:
    """By the relay itself, and by a client of it; the content that stays is shown."""
    upstream = connected(catalogue)
    upstream.ask({CDS: frozenset({"web", "api", "new"})}, NOW_S)
    good = {name: cluster(name) for name in ("web", "api")}
    upstream.receive(update(CDS, good), SERVER, NOW_S)
    upstream.receive(update_of(CDS, *(came(CDS, name, b"\xff") for name in ("web", "new"))), SERVER, NOW_S)
    config = await config_of(
        catalogue, upstream, {(SERVER, (CDS, "api")): 'node edge-1: no such inline_string: "hunter2"'}
    )
    rows = {row["name"]: row for row in config["generic_xds_configs"]}

    assert {name: row["client_status"] for name, row in rows.items()} == dict.fromkeys(("web", "api", "new"), "NACKED")
    assert rows["web"]["xds_config"]["name"] == "web"
    assert rows["web"]["error_state"]["details"]
    assert rows["api"]["error_state"]["details"].startswith("node edge-1: no such")
    assert "hunter2" not in json.dumps(config)
    assert "xds_config" not in rows["new"]


async def test_names_without_a_resource(catalogue: Catalogue) -> None:
    """Asked for and not answered, or answered with nothing; a wildcard that was answered is neither."""
    upstream = connected(catalogue)
    upstream.ask({EDS: frozenset({"gone", "late"}), CDS: frozenset({"*"})}, NOW_S)
    upstream.receive(update(EDS, {}, "gone"), SERVER, NOW_S)
    rows = (await config_of(catalogue, upstream))["generic_xds_configs"]

    assert {(row["name"], row["client_status"]) for row in rows} == {
        ("gone", "DOES_NOT_EXIST"), ("late", "REQUESTED"), ("*", "REQUESTED")
    }  # fmt: skip
    upstream.expire(NOW_S + PATIENCE_S + 1)
    rows = (await config_of(catalogue, upstream)).get("generic_xds_configs", [])
    assert {(row["name"], row["client_status"]) for row in rows} == {
        ("gone", "DOES_NOT_EXIST"), ("late", "DOES_NOT_EXIST")
    }  # fmt: skip


async def test_a_secret_is_not_shown(catalogue: Catalogue) -> None:
    """It is named, and that is all."""
    upstream = connected(catalogue)
    upstream.ask({SDS: frozenset({"key"})}, NOW_S)
    secret = secret_pb2.Secret(name="key", generic_secret={"secret": {"inline_string": "hunter2"}})
    upstream.receive(update(SDS, {"key": secret}), SERVER, NOW_S)
    config = await config_of(catalogue, upstream)

    assert "hunter2" not in json.dumps(config)
    assert [row["name"] for row in config["generic_xds_configs"]] == ["key"]


async def test_one_that_is_away_keeps_what_it_has(catalogue: Catalogue) -> None:
    """Its status says so, and every resource stays as it was."""
    upstream = connected(catalogue)
    upstream.ask({CDS: frozenset({"web"})}, NOW_S)
    upstream.receive(update(CDS, {"web": cluster("web")}), SERVER, NOW_S)
    upstream.lost(ConnectionLostError("it is gone", "UNAVAILABLE"), NOW_S)
    config = await config_of(catalogue, upstream)

    assert config["client_scope"] == f"upstream {SERVER}: away"
    assert [row["client_status"] for row in config["generic_xds_configs"]] == ["ACKED"]


async def test_bytes_and_json_say_the_same(catalogue: Catalogue) -> None:
    """Over gRPC, the answer is a message that clients read."""
    upstream = connected(catalogue)
    upstream.ask({CDS: frozenset({"web"})}, NOW_S)
    upstream.receive(update_of(CDS, came(CDS, "web", cluster("web"), version="v7")), SERVER, NOW_S)
    answer = csds_pb2.ClientStatusResponse.FromString(await reports_of(catalogue, upstream, {}).answer(b""))
    (row,) = answer.config[0].generic_xds_configs

    assert (row.name, row.version_info, row.client_status, row.config_status) == ("web", "v7", ACKED, 0)
    assert row.last_updated.ToSeconds() == NOW_S
