import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import TCP_CHAIN, TYPE, Case, assert_accepted, assert_rejected, listener, virtual_host

HEADER = "envoy.type.matcher.v3.HttpRequestHeaderMatchInput"
PORT = "envoy.extensions.matching.common_inputs.network.v3.DestinationPortInput"


def extension(message_type: str, **fields: object) -> dict[str, object]:
    """An extension of a type."""
    return {"name": "x", "typed_config": {"@type": TYPE + message_type, **fields}}


CHAIN = {"action": extension("google.protobuf.StringValue", value="a")}
ROUTE = {"action": extension("envoy.config.route.v3.Route", match={"prefix": "/"}, direct_response={"status": 200})}
EXACT = {"value_match": {"exact": "a"}}


def tree(source: dict[str, object], outcome: object) -> dict[str, object]:
    """A matcher that looks something up."""
    return {"matcher_tree": {"input": source, "exact_match_map": {"map": {"80": outcome}}}}


def listed(source: dict[str, object], outcome: object) -> dict[str, object]:
    """A matcher that asks one thing after another."""
    single = {"single_predicate": {"input": source, **EXACT}}
    predicate = {"or_matcher": {"predicate": [single, {"not_matcher": single}]}}
    return {"matcher_list": {"matchers": [{"predicate": predicate, "on_match": outcome}]}}


def chains(matcher: object) -> Case:
    """A listener whose filter chains are chosen by a matcher."""
    return listener({"filter_chains": [{**TCP_CHAIN, "name": "a"}], "filter_chain_matcher": matcher})


def routes(matcher: object) -> Case:
    """A virtual host whose routes are chosen by a matcher."""
    return virtual_host({"matcher": matcher})


def test_matchers_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Ports choose chains, headers choose routes, also within other matchers."""
    header = extension(HEADER, header_name="a")
    assert_accepted(
        catalogue,
        chains(tree(extension(PORT), {"matcher": tree(extension(PORT), CHAIN)})),
        chains({"on_no_match": CHAIN}),
        chains({"on_no_match": {"action": extension("envoy.config.core.v3.Node"), "keep_matching": True}}),
        routes(listed(header, ROUTE)),
    )


@pytest.mark.parametrize(
    "case",
    [
        chains(tree(extension(HEADER, header_name="a"), CHAIN)),
        chains(tree(extension(PORT), {"matcher": {"on_no_match": ROUTE}})),
        routes(tree(extension(HEADER, header_name="a"), CHAIN)),
        routes({"on_no_match": {"action": extension("envoy.config.core.v3.Node")}}),
        routes({"on_no_match": {**ROUTE, "keep_matching": True}}),
    ],
)
def test_matchers_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Connections have no headers, and a route is not a filter chain."""
    assert_rejected(catalogue, "wrong-extension", case)
