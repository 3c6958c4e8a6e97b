"""What resources hold besides config sources."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from fsxds.model.values import Severity
from tests.tools.doctor.examples import Doctor, file_source, listener, none_there, rest_source

ROUTES: dict[str, Any] = {
    "name": "r",
    "virtual_hosts": [
        {"name": "v", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "c"}}]}
    ],
}
MANAGER = "filter_chains[0].filters[0].typed_config"


def scoped(source: dict[str, Any]) -> dict[str, Any]:
    """Return scoped routes whose scopes are discovered, and whose route tables come from a source."""
    extractor = {"name": "x", "element": {"separator": "=", "key": "k"}, "element_separator": ";"}
    return {
        "scoped_routes": {
            "name": "s",
            "scope_key_builder": {"fragments": [{"header_value_extractor": extractor}]},
            "rds_config_source": source,
            "scoped_rds": {"scoped_rds_config_source": rest_source()},
        }
    }


@pytest.mark.parametrize(
    ("names", "source", "is_well"),
    [
        (["a", "b"], file_source("/rds.pb"), False),
        (["a", "a"], file_source("/rds.pb"), True),
        (["a", "b"], rest_source(), True),
    ],
)
def test_one_file_has_one_route_table(
    names: list[str], source: dict[str, Any], *, is_well: bool, doctor: Doctor
) -> None:
    """ENVOY.md E28: two route tables behind one path are both rejected."""
    scopes = "\n".join(
        f"- {{name: s{i}, route_configuration_name: {name}, key: {{fragments: [{{string_key: x{i}}}]}}}}"
        for i, name in enumerate(names)
    )
    tree = {"lds.yaml": listener(scoped(source)), "srds.yaml": scopes}
    expected = [] if is_well else [f"one-file-for-routes {MANAGER}.scoped_routes.rds_config_source"]

    assert expected == doctor.rules(None, tree)


@pytest.mark.parametrize(("changes", "is_well"), [({}, False), ({"validate_clusters": False}, True)])
def test_inline_route_tables_check_their_clusters(changes: dict[str, Any], *, is_well: bool, doctor: Doctor) -> None:
    """ENVOY.md E55: an inline table is refused while a cluster of it is missing."""
    faults = doctor.faults(None, {"lds.yaml": listener({"route_config": {**ROUTES, **changes}})})

    assert ([] if is_well else [("eager-cluster-check", Severity.NOTE)]) == [(f.rule, f.severity) for f in faults]


@pytest.mark.parametrize(
    ("routes", "is_well"),
    [
        (ROUTES, True),
        ({**ROUTES, "validate_clusters": True}, False),
        ({"name": "r", "validate_clusters": True}, True),
    ],
)
def test_discovered_route_tables(routes: dict[str, Any], *, is_well: bool, doctor: Doctor) -> None:
    """By RDS the clusters are not looked up, unless the table says so and has any."""
    expected = [] if is_well else ["eager-cluster-check validate_clusters"]

    assert expected == doctor.rules(None, {"rds.yaml": yaml.safe_dump([routes])})


def test_files_of_data_sources(doctor: Doctor) -> None:
    """A file that a secret names is read when the secret arrives."""
    secret = "[{name: s, validation_context: {trusted_ca: {filename: /ca.pem}}}]"
    (fault,) = doctor.faults(None, {"sds.yaml": secret}, none_there)

    assert ("missing-data-file", Severity.WARNING) == (fault.rule, fault.severity)
    # It may be the secret itself, in the wrong field.
    assert "ca.pem" not in f"{fault.message} {fault.remedy}"
    assert [] == doctor.rules(None, {"sds.yaml": secret})
