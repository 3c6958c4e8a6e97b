import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import TYPE, Case, assert_accepted, assert_rejected, http_filter, route

HTTP = "envoy.extensions.filters.http."
WRAPPER = "envoy.config.route.v3.FilterConfig"


def saying(message_type: str, **fields: object) -> Case:
    """A route that says something to a filter."""
    config = {"f": {"@type": TYPE + message_type, **fields}}
    return route({"direct_response": {"status": 200}, "typed_per_filter_config": config})


def test_what_routes_may_say(catalogue: Catalogue) -> None:
    """Settings for routes, none at all, and what is said in case that the filter is known."""
    node = {"@type": TYPE + "envoy.config.core.v3.Node"}
    assert_accepted(
        catalogue,
        saying(HTTP + "cors.v3.CorsPolicy"),
        saying(HTTP + "lua.v3.Lua"),
        saying(HTTP + "buffer.v3.BufferPerRoute", disabled=True),
        saying(WRAPPER, disabled=True),
        saying(WRAPPER, is_optional=True, config=node),
        # It lacks a field that it must have; nobody reads it.
        saying(WRAPPER, is_optional=True, config={"@type": TYPE + "envoy.config.core.v3.HttpUri"}),
    )


@pytest.mark.parametrize(
    "case",
    [
        saying("envoy.config.core.v3.Node"),
        saying(HTTP + "router.v3.Router"),
        saying(HTTP + "buffer.v3.Buffer", max_request_bytes=5),
        saying(WRAPPER, config={"@type": TYPE + "envoy.config.core.v3.Node"}),
        saying(WRAPPER, is_optional=True),
        saying(WRAPPER, is_optional=True, config={"@type": TYPE + HTTP + "buffer.v3.Buffer", "max_request_bytes": 5}),
        route("{direct_response: {status: 200}, typed_per_filter_config: {f: {}}}"),
        http_filter("buffer.v3.BufferPerRoute", "{disabled: true}"),
    ],
)
def test_what_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A filter's own settings are not for routes, nor those for routes for the filter."""
    assert_rejected(catalogue, "wrong-extension", case)
