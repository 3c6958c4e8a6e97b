"""Config sources of bootstraps and of resources."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fsxds.model.values import Severity
from fsxds.tools.doctor.examine import Case, examine
from tests.tools.doctor.examples import (
    Doctor,
    all_there,
    cds_of,
    eds_clusters,
    file_source,
    grpc_source,
    rest_source,
    xds_of,
)

CDS = "dynamic_resources.cds_config.api_config_source"


def test_healthy_bootstrap_has_no_fault(doctor: Doctor) -> None:
    """Nothing is said of what is well."""
    assert [] == doctor.rules(None, {"cds.yaml": eds_clusters(2), "eds.yaml": "[{cluster_name: c0}]"})


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"refresh_delay": "30s"}, f"slow-refresh {CDS}.refresh_delay"),
        ({"request_timeout": None}, f"short-request-timeout {CDS}"),
        ({"request_timeout": "1s"}, f"short-request-timeout {CDS}.request_timeout"),
        ({"cluster_names": ["other"]}, f"no-xds-cluster {CDS}.cluster_names[0]"),
    ],
)
def test_polling_in_the_bootstrap(changes: dict[str, Any], expected: str, doctor: Doctor) -> None:
    """Each value that hurts is told at its place."""
    edit = lambda value: value["dynamic_resources"].update(cds_config=rest_source(**changes))  # noqa: E731

    assert [expected] == doctor.rules(edit)


@pytest.mark.parametrize("delay", ["0.001s", "5s"])
def test_pauses_that_are_well(delay: str, doctor: Doctor) -> None:
    """One millisecond works, and so do five seconds."""
    assert [] == doctor.rules(lambda value: cds_of(value).update(refresh_delay=delay))


@pytest.mark.parametrize("timeout", ["5s", "0.0001s"])
def test_time_limits_that_are_well(timeout: str, doctor: Doctor) -> None:
    """Five seconds are enough; a tenth of a millisecond is no limit at all (ENVOY.md E3)."""
    assert [] == doctor.rules(lambda value: cds_of(value).update(request_timeout=timeout))


def test_sources_within_resources(doctor: Doctor) -> None:
    """The sources that resources bring along are looked at as those of the bootstrap."""
    clusters = eds_clusters(1, rest_source(refresh_delay="6s", request_timeout=None))
    source = "eds_cluster_config.eds_config.api_config_source"

    assert [f"slow-refresh {source}.refresh_delay", f"short-request-timeout {source}"] == doctor.rules(
        None, {"cds.yaml": clusters}
    )


def test_without_a_bootstrap_clusters_are_not_asked_for(doctor: Doctor) -> None:
    """What a bootstrap would have to offer is not missed where none is given."""
    clusters = eds_clusters(1, rest_source(cluster_names=["other"])) + eds_clusters(1, {"ads": {}}).replace("c0", "c1")
    found = examine(Case(None, doctor.snapshot({"cds.yaml": clusters})), doctor.catalogue, all_there)

    assert ((), ()) == (found.bootstrap, found.resources)


def test_ads_needs_a_stream(doctor: Doctor) -> None:
    """`ads: {}` without ads_config is an error, in bootstrap and resources."""
    ads = {"resource_api_version": "V3", "ads": {}}
    edit = lambda value: value["dynamic_resources"].update(lds_config=ads)  # noqa: E731
    rules = doctor.rules(edit, {"cds.yaml": eds_clusters(1, ads)})

    assert ["no-ads dynamic_resources.lds_config.ads", "no-ads eds_cluster_config.eds_config.ads"] == rules


def test_ads_with_a_stream(doctor: Doctor) -> None:
    """With ads_config it is well."""

    def edit(value: Any) -> None:
        value["dynamic_resources"]["ads_config"] = grpc_source()["api_config_source"]
        xds_of(value)["http2_protocol_options"] = {}
        value["dynamic_resources"]["cds_config"] = value["dynamic_resources"]["lds_config"] = {"ads": {}}

    assert [] == doctor.rules(edit, {"cds.yaml": eds_clusters(1, {"ads": {}})})


def test_start_without_end(doctor: Doctor) -> None:
    """An initial_fetch_timeout of 0 is told where a server answers; a file is read at once."""
    edit = lambda value: value["dynamic_resources"]["cds_config"].update(initial_fetch_timeout="0s")  # noqa: E731
    clusters = eds_clusters(1, {**file_source("/eds.yaml"), "initial_fetch_timeout": "0s"})

    assert ["endless-start dynamic_resources.cds_config.initial_fetch_timeout"] == doctor.rules(
        edit, {"cds.yaml": clusters}
    )


def test_secrets_may_come_from_other_clusters(doctor: Doctor) -> None:
    """Envoy asks for secrets later than for the rest, also by clusters that came by CDS."""
    sds = {"name": "s", "sds_config": rest_source(cluster_names=["web"])}
    tls = "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"
    context = {"common_tls_context": {"validation_context_sds_secret_config": sds}}
    socket = {"name": "tls", "typed_config": {"@type": f"type.googleapis.com/{tls}", **context}}
    cluster = {"name": "api", "type": "STATIC", "connect_timeout": "1s", "transport_socket": socket}
    web = {"name": "web", "type": "STATIC", "connect_timeout": "1s"}

    assert [] == doctor.rules(None, {"cds.yaml": yaml.safe_dump([cluster, web])})
    (fault,) = doctor.faults(None, {"cds.yaml": yaml.safe_dump([cluster])})
    assert ("no-xds-cluster", Severity.WARNING) == (fault.rule, fault.severity)


def test_eds_clusters_give_no_configuration(doctor: Doctor) -> None:
    """A static cluster whose endpoints are discovered cannot be where configuration comes from."""

    def edit(value: Any) -> None:
        del xds_of(value)["load_assignment"]
        xds_of(value).update(type="EDS", eds_cluster_config={"eds_config": file_source("/eds.yaml")})

    assert f"no-xds-cluster {CDS}.cluster_names[0]" in doctor.rules(edit)


def test_sources_that_are_mirrored_are_not_those_of_envoy(doctor: Doctor) -> None:
    """With --mirror-config-sources, servers that resources name are never asked, and hold no polls."""
    elsewhere = {"cds.yaml": eds_clusters(1, rest_source(cluster_names=["other"], refresh_delay="30s"))}

    assert [] == doctor.rules(None, elsewhere, is_rewritten=True)
    assert [] == doctor.rules(None, {"cds.yaml": eds_clusters(1100)}, is_rewritten=True)
    assert [] != doctor.rules(None, {"cds.yaml": eds_clusters(1100)})
