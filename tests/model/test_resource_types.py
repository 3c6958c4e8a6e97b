from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.model.resource_types import (
    BY_MESSAGE_TYPE,
    BY_REST_PATH,
    BY_SHORT_NAME,
    BY_TYPE_URL,
    RESOURCE_TYPES,
    lowered,
    name_of_domain,
    route_configuration_of,
    type_from_path,
)
from fsxds.source.envoy_api import find_api


def test_every_row_is_found_by_each_of_its_names() -> None:
    """Short names, message types, type URLs and REST paths each name one row."""
    assert len(RESOURCE_TYPES) == len(BY_SHORT_NAME) == len(BY_MESSAGE_TYPE) == len(BY_TYPE_URL)
    assert {
        "clusters",
        "listeners",
        "routes",
        "endpoints",
        "secrets",
        "runtime",
        "scoped-routes",
        "extension_configs",
    } == (BY_REST_PATH.keys())


def test_words_of_types_are_their_own() -> None:
    """No word speaks of two types."""
    words = [word for row in RESOURCE_TYPES for word in row.words]

    assert len(words) == len(set(words))
    assert all(word == word.lower() for word in words)


def test_rows_are_in_push_order() -> None:
    """What is used comes before what uses it: clusters, endpoints, listeners, routes, scopes, virtual hosts."""
    ordered = {"cds", "eds", "leds", "lds", "rds", "srds", "vhds"}

    assert [row.short_name for row in RESOURCE_TYPES if row.short_name in ordered] == [
        "cds",
        "eds",
        "leds",
        "lds",
        "rds",
        "srds",
        "vhds",
    ]


def test_full_state_is_that_of_three_types() -> None:
    """In a state-of-the-world answer only CDS, LDS and SRDS remove what they leave out."""
    assert {row.short_name for row in RESOURCE_TYPES if row.full_state_in_sotw} == {"cds", "lds", "srds"}


def test_empty_answers_are_rejected_for_three_types() -> None:
    """Envoy rejects an empty answer of SDS, RTDS and ECDS (ENVOY.md E15)."""
    rejected = {row.short_name for row in RESOURCE_TYPES if row.rest_path and not row.may_be_empty}

    assert rejected == {"sds", "rtds", "ecds"}


def test_envoy_knows_every_message_and_its_name_field() -> None:
    """Every row names a message of Envoy's API, and a text field of it; those of LEDS and of collections have no name."""
    catalogue = find_api(envoy=None, descriptors=None, cache_dir=None)

    assert ["leds", "lcds"] == [row.short_name for row in RESOURCE_TYPES if row.name_field is None]
    for row in RESOURCE_TYPES:
        fields = catalogue.message_class(row.message_type).DESCRIPTOR.fields_by_name
        if row.name_field is None:
            assert "name" not in fields
        else:
            assert fields[row.name_field].type == fields[row.name_field].TYPE_STRING


def test_virtual_hosts_and_collections_are_for_delta_alone() -> None:
    """Two services have no state-of-the-world method, and no form over REST; collections of listeners are for ADS alone."""
    assert {row.short_name for row in RESOURCE_TYPES if not row.has_sotw} == {"vhds", "leds", "lcds"}
    assert {row.short_name for row in RESOURCE_TYPES if row.rest_path is None} == {"vhds", "leds", "lcds"}
    assert ["lcds"] == [row.short_name for row in RESOURCE_TYPES if not row.grpc]


def test_absence_hangs_envoy_for_two_types() -> None:
    """Envoy waits for good for routes and extensions that it was told, by Delta, not to exist."""
    assert {row.short_name for row in RESOURCE_TYPES if row.absence_hangs_envoy} == {"rds", "ecds"}


def test_types_that_others_follow_name_a_row() -> None:
    """With clusters Envoy needs their endpoints again, with routes their virtual hosts."""
    followed = {row.short_name: row.followed_by for row in RESOURCE_TYPES if row.followed_by}

    assert followed == {"cds": "eds", "eds": "leds", "rds": "vhds"}
    assert {row.short_name for row in RESOURCE_TYPES if row.is_user} == {"ecds", "lds", "lcds", "rds", "srds", "vhds"}


@pytest.mark.parametrize(
    ("path", "short_name"),
    [
        ("cds.yaml", "cds"),
        ("clusters.yaml", "cds"),
        ("CDS.YAML", "cds"),
        ("edge.clusters.yaml", "cds"),
        ("clusters.edge.yaml", "cds"),
        ("lds.clusters.yaml", "cds"),
        ("clusters/edge.yaml", "cds"),
        ("clusters/team/edge.yaml", "cds"),
        ("listeners/clusters/edge.yaml", "cds"),
        ("clusters/lds.yaml", "lds"),
        ("listeners.json", "lds"),
        ("routes.pb", "rds"),
        ("scoped-routes.yaml", "srds"),
        ("scoped_routes.yaml", "srds"),
        ("endpoints.yaml", "eds"),
        ("leds.yaml", "leds"),
        ("lcds.yaml", "lcds"),
        ("listener-collections.yaml", "lcds"),
        ("listeners/collections.yaml", "lds"),
        ("lb-endpoints.yaml", "leds"),
        ("lb_endpoints/web.yaml", "leds"),
        ("secrets.yaml", "sds"),
        ("runtime.yaml", "rtds"),
        ("extension-configs.yaml", "ecds"),
        ("extension_configs.yaml", "ecds"),
        ("virtual-hosts.yaml", "vhds"),
        ("edge.yaml", None),
        ("mycds.yaml", None),
        ("runtime-route.yaml", "rds"),
        ("edge-clusters.yaml", "cds"),
        ("my_clusters.yaml", "cds"),
        ("clusters-edge.yaml", "cds"),
        ("Prod-Cluster.yaml", "cds"),
        ("cluster.yaml", "cds"),
        ("edge.listener.yaml", "lds"),
        ("cluster-routes.yaml", "rds"),
        ("prod-scoped-route.yaml", "srds"),
        ("virtual_host.yaml", "vhds"),
        ("my-lb_endpoint.yaml", "leds"),
        ("a-lds/edge.yaml", "lds"),
        # A whole part between dots comes first, also that of a folder.
        ("clusters/edge-routes.yaml", "cds"),
        ("clusters/prod-routes/edge.yaml", "cds"),
        ("cds.edge-routes.yaml", "cds"),
        ("myclusters.yaml", None),
        ("clustered.yaml", None),
        ("edge.cds", None),
        ("cds", None),
    ],
)
def test_type_of_a_file_by_its_name(path: str, short_name: str | None) -> None:
    """Whole parts between dots come first, then words between any separators; the last one decides, the nearest name."""
    row = type_from_path(PurePosixPath(path))

    assert short_name == (row.short_name if row else None)


def test_route_configurations_may_have_slashes() -> None:
    """The name of the table is all before the last slash."""
    assert route_configuration_of("team/web/shop") == "team/web"
    assert route_configuration_of("web") == ""


def test_domains_are_asked_for_in_lower_case() -> None:
    """Letters of ASCII alone have a case, and a port stays."""
    assert lowered("*.ÄRGER.Example:80") == "*.Ärger.example:80"
    assert name_of_domain("team/Web", "Shop.Example") == "team/Web/shop.example"
