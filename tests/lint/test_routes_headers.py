import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import Case, action, assert_accepted, assert_rejected, http_filter, virtual_host


def adding(header: str, more: str = "") -> Case:
    """A virtual host that adds a header."""
    return virtual_host(f"{{request_headers_to_add: [{{header: {header}{more}}}]}}")


def test_headers_that_envoy_takes(catalogue: Catalogue) -> None:
    """Other headers are added and removed as one likes."""
    assert_accepted(
        catalogue,
        adding("{key: a b, value: x}"),
        adding("{key: hosts, value: x}", ", append: false"),
        adding("{key: a, value: x}", ", append: false, append_action: APPEND_IF_EXISTS_OR_ADD"),
        virtual_host("{response_headers_to_remove: [a b, hosting]}"),
        http_filter("header_mutation.v3.HeaderMutation", "{mutations: {request_mutations: [{remove: host}]}}"),
        action("{internal_redirect_policy: {response_headers_to_copy: [a]}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        adding("{key: ':path', value: x}"),
        adding("{key: Host, value: x}"),
        adding("{key: a, value: x}", ", append: true, append_action: ADD_IF_ABSENT"),
        virtual_host("{request_headers_to_remove: [HOST]}"),
        virtual_host("{response_headers_to_remove: [':status']}"),
        action("{weighted_clusters: {clusters: [{name: a, weight: 1, request_headers_to_remove: [host]}]}}"),
        action("{internal_redirect_policy: {response_headers_to_copy: [host]}}"),
        http_filter(
            "header_mutation.v3.HeaderMutation",
            "{mutations: {request_mutations: [{append: {header: {key: ':path', value: x}}}]}}",
        ),
    ],
)
def test_headers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """The host and the headers that begin with a colon are not to be touched."""
    assert_rejected(catalogue, "wrong-header", case)
