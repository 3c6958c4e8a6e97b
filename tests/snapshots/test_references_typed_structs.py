import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_verdicts import ROUTER, TYPE, Case, assert_refused, assert_taken, http_filter, manager, told

HTTP = "envoy.extensions.filters.http."


def struct(message_type: str, value: dict[str, object], package: str = "xds.type.v3") -> Case:
    """A filter that is configured by plain values."""
    config = {"@type": f"{TYPE}{package}.TypedStruct", "type_url": TYPE + message_type, "value": value}
    return manager({"http_filters": [{"name": "f", "typed_config": config}, ROUTER]})


def test_structs_that_envoy_takes(catalogue: Catalogue) -> None:
    """Plain values that the message takes, in either TypedStruct."""
    assert_taken(
        catalogue,
        struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": 5}),
        struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": "5"}, "udpa.type.v1"),
        http_filter("lua.v3.Lua"),
    )


@pytest.mark.parametrize("value", ["many", 5.5])
def test_values_that_envoy_refuses(catalogue: Catalogue, value: object) -> None:
    """A value that the message does not take is refused."""
    assert_refused(catalogue, "wrong-typed-struct", struct(HTTP + "buffer.v3.Buffer", {"max_request_bytes": value}))


def test_rules_hold_within(catalogue: Catalogue) -> None:
    """Rules over messages hold for what a TypedStruct stands for."""
    headers = [{"name": "a", "safe_regex_match": {"regex": "("}}]

    assert_refused(catalogue, "wrong-regex", struct(HTTP + "fault.v3.HTTPFault", {"headers": headers}))


def test_unknown_types_are_left_alone(catalogue: Catalogue) -> None:
    """Of a type that the catalogue does not have nothing is said."""
    assert set() == told(catalogue, struct("example.Own", {"a": 1}))
