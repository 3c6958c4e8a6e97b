"""What becomes of each part of a bootstrap."""

from __future__ import annotations

import json

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.tools.importing.pieces import ImportLossError
from tests.tools.importing.planning import ROUTER, TYPE, files_of, left_of, plan_of

CLUSTER = "{name: web, type: STATIC, connect_timeout: 1s}"


def listener(name: str, port: int, inner: str = "") -> str:
    """Return a listener in flow style, with the network filters that are given."""
    return (
        f"{{{name}address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}, filter_chains: [{inner}]}}"
    )


def static(*parts: str) -> str:
    """Return a bootstrap with these fields of its static resources, in flow style."""
    return "static_resources:\n" + "".join(f"  {part}\n" for part in parts)


def test_each_resource_has_a_file_and_the_rest_stays(catalogue: Catalogue) -> None:
    """Listeners and clusters become files; what else is in a bootstrap stays in it, and it asks for them."""
    text = static(f"clusters: [{CLUSTER}]", f"listeners: [{listener('name: in, ', 1000)}]")
    plan = plan_of(f"admin: {{address: {{pipe: {{path: /a}}}}}}\n{text}", catalogue)
    left = left_of(plan)

    assert {"clusters/web.yaml", "listeners/in.yaml"} == set(files_of(plan))
    assert {"admin", "node", "static_resources", "dynamic_resources"} == set(left)
    assert ["xds"] == [cluster["name"] for cluster in left["static_resources"]["clusters"]]
    assert {"ads_config", "cds_config", "lds_config"} == set(left["dynamic_resources"])


@pytest.mark.parametrize("transport", ["rest", "ads", "delta", "files"])
def test_secrets_are_asked_for_where_the_transport_has_them(transport: str, catalogue: Catalogue) -> None:
    """What uses a static secret by its name gets a config source for it, as the secret is in the tree now."""
    text = static(
        "secrets: [{name: ca, validation_context: {trusted_ca: {filename: ca.pem}}}]",
        f"""clusters: [{{name: web, type: STATIC, transport_socket: {{name: tls, typed_config: {{
    "@type": {TYPE}.extensions.transport_sockets.tls.v3.UpstreamTlsContext,
    common_tls_context: {{validation_context_sds_secret_config: {{name: ca}}}}}}}}}}]""",
    )
    plan = plan_of(text, catalogue, transport)
    cluster = files_of(plan)["clusters/web.yaml"]

    assert [True, False] == [file.is_secret for file in sorted(plan.files, key=lambda file: -file.is_secret)]
    assert f"{'api_type: REST' if transport == 'rest' else 'ads: {}'}" in cluster
    assert "sds_config: {resource_api_version: V3" in cluster


def test_a_cluster_of_the_bootstraps_own_name_gives_fsxds_another(catalogue: Catalogue) -> None:
    """Where a cluster is named `xds`, the one of fsxds has another name, in all places."""
    left = left_of(plan_of(static("clusters: [{name: xds, type: STATIC}]"), catalogue))

    assert ["fsxds-1"] == [cluster["name"] for cluster in left["static_resources"]["clusters"]]
    assert "fsxds-1" in json.dumps(left["dynamic_resources"])
    assert '"xds"' not in json.dumps(left)


def test_a_node_and_sources_that_are_there(catalogue: Catalogue) -> None:
    """A node keeps what it has and gets what it lacks; sources of clusters and listeners are replaced, and that is said."""
    before = "node: {id: n-1, metadata: {a: b}}\ndynamic_resources: {cds_config: {path_config_source: {path: /c}}}\n"
    plan = plan_of(before + static(f"clusters: [{CLUSTER}]"), catalogue)
    left = left_of(plan)

    assert {"id": "n-1", "cluster": "envoy", "metadata": {"a": "b"}} == left["node"]
    assert "ads" in left["dynamic_resources"]["cds_config"]
    assert any(note.startswith("dynamic_resources.cds_config is replaced: clusters") for note in plan.notes)


def test_an_ads_stream_of_others_stays_where_fsxds_needs_none(catalogue: Catalogue) -> None:
    """By REST and files fsxds needs no `ads_config`: that of the bootstrap stays, and so does its cluster."""
    before = """dynamic_resources: {ads_config: {api_type: GRPC, transport_api_version: V3,
  grpc_services: [{envoy_grpc: {cluster_name: other}}]}}\n"""
    plan = plan_of(before + static("clusters: [{name: other, type: STATIC}]"), catalogue, "rest")

    assert "GRPC" == left_of(plan)["dynamic_resources"]["ads_config"]["api_type"]
    assert ["other"] == [one.resource.name for one in plan.kept]
    assert "dynamic_resources.ads_config stays as it was" in plan.notes


def test_listeners_without_names_are_named_after_their_addresses(catalogue: Catalogue) -> None:
    """Envoy takes several static listeners without a name, but only one by LDS: each gets a name."""
    plan = plan_of(static(f"listeners: [{listener('', 1000)}, {listener('', 1001)}]"), catalogue)

    assert ["unnamed-127.0.0.1:1000", "unnamed-127.0.0.1:1001"] == [file.resource.name for file in plan.files]
    assert 'name: "unnamed-127.0.0.1:1000"' in files_of(plan)["listeners/unnamed-127.0.0.1_1000.yaml"]


def test_a_name_twice_is_no_tree(catalogue: Catalogue) -> None:
    """Of two resources of one name and type only one could be served."""
    with pytest.raises(ImportLossError, match='two listeners are named "in"'):
        plan_of(static(f"listeners: [{listener('name: in, ', 1)}, {listener('name: in, ', 2)}]"), catalogue)


def test_secrets_of_one_name_stay(catalogue: Catalogue) -> None:
    """Envoy takes a certificate and a validation context of one name; a tree does not, so both stay."""
    secrets = "[{name: a, validation_context: {}}, {name: a, generic_secret: {secret: {inline_string: x}}}]"
    plan = plan_of(static(f"secrets: {secrets}", f"clusters: [{CLUSTER}]"), catalogue)

    assert ["a", "a"] == [one.resource.name for one in plan.kept]
    assert 2 == len(left_of(plan)["static_resources"]["secrets"])


def test_types_of_which_there_is_none_are_declared(catalogue: Catalogue) -> None:
    """A file says that there is no listener: the start does not wait, and one that is added is asked for."""
    plan = plan_of(static(f"clusters: [{CLUSTER}]"), catalogue)

    assert ["listeners/none.yaml"] == [str(file.path) for file in plan.empty]
    assert b"resources: []" in plan.empty[0].content


JSON_BOOTSTRAP = {"staticResources": {"clusters": {"name": "a", "type": "STATIC", "metadata": {"filterMetadata": {
    "x": {"ratio": 0.25, "text": "line\nline"}}}}}}  # fmt: skip


def test_json_stays_json(catalogue: Catalogue) -> None:
    """JSON in either spelling becomes JSON: a number with a fraction is one within a Struct there, and none in YAML."""
    plan = plan_of(json.dumps(JSON_BOOTSTRAP), catalogue, name="envoy.json")

    assert ".json" == plan.suffix
    assert JSON_BOOTSTRAP["staticResources"]["clusters"] == json.loads(files_of(plan)["clusters/a.json"])


def test_text_format_and_binary_become_yaml(catalogue: Catalogue) -> None:
    """Of formats without comments the values are written."""
    text = f'static_resources {{ clusters {{ name: "a" type: STATIC }} }} node {{ id: "n" cluster: "c" }} # {ROUTER}\n'
    plan = plan_of(text, catalogue, name="envoy.pb_text")
    message = catalogue.message_class("envoy.config.bootstrap.v3.Bootstrap")(
        static_resources={"clusters": [{"name": "a"}]}
    )
    binary = plan_of(message.SerializeToString(), catalogue, name="envoy.pb")

    assert "name: a\ntype: STATIC\n" == files_of(plan)["clusters/a.yaml"]
    assert "name: a\n" == files_of(binary)["clusters/a.yaml"]


def test_a_list_within_a_list_is_written_anew(catalogue: Catalogue) -> None:
    """Envoy reads the members of a list within a list as its own; then values are written, and that is said."""
    plan = plan_of(static(f"clusters: [[{CLUSTER}, {{name: b}}], {{name: c}}]"), catalogue)

    assert ["web", "b", "c"] == [file.resource.name for file in plan.files]
    assert "clusters/web.yaml: comments are not kept" in plan.notes
