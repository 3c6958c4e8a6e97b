"""What Envoy's log says against a resource; every line is one that Envoy 1.40 wrote."""

from __future__ import annotations

import pytest

from fsxds.envoy.envoy_log import EnvoyLogLine, LoggedRejection, origin_of, read_log_line, read_rejection
from fsxds.model.resources import Resource
from tests.envoy.snapshots import snapshot_of, type_url
from tests.support.costs import cost_s


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"warning config it\'s \"no\"\n good\t", EnvoyLogLine("warning", "config", 'it\'s "no"\n good')),
        (r"info main caf\303\251", EnvoyLogLine("info", "main", "café")),
        (r"error main C:\\temp", EnvoyLogLine("error", "main", r"C:\temp")),
        ("Failed to parse: no such option", EnvoyLogLine("", "", "Failed to parse: no such option")),
        ("", EnvoyLogLine("", "", "")),
    ],
)
def test_log_line_is_level_logger_and_message(text: str, line: EnvoyLogLine) -> None:
    """A line of the format that we ask for is taken apart and unescaped; any other is all message."""
    assert line == read_log_line(text)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (
            "cds: cluster 'secure-web' config rejected: malformed IP address: nope",
            LoggedRejection("malformed IP address: nope", type_url("cds"), "secure-web"),
        ),
        (
            "lds: listener 'web' config rejected: cannot bind '127.0.0.1:18001': Address already in use",
            LoggedRejection("cannot bind '127.0.0.1:18001': Address already in use", type_url("lds"), "web"),
        ),
        (
            "REST config for /v3/discovery:routes rejected: Only a single wildcard domain is permitted in route web",
            LoggedRejection("Only a single wildcard domain is permitted in route web", type_url("rds")),
        ),
        (
            "REST config for /v3/discovery:scoped-routes rejected: no",
            LoggedRejection("no", type_url("srds")),
        ),
        (
            "Filesystem config update rejected: malformed IP address: nope",
            LoggedRejection("malformed IP address: nope"),
        ),
    ],
)
def test_complaint_tells_type_and_resource_where_envoy_does(message: str, complaint: LoggedRejection) -> None:
    """The log names the resource for clusters and listeners, the type for polls, and neither for files."""
    assert complaint == read_rejection(message)


@pytest.mark.parametrize(
    "message",
    ["all dependencies initialized. starting workers", "cds: added/updated 0 cluster(s)", "fetch failure: rejected"],
)
def test_other_messages_are_no_complaints(message: str) -> None:
    """A message that is about no update is let pass."""
    assert read_rejection(message) is None


UNKNOWN_TYPE = "Unable to parse JSON as proto (INVALID_ARGUMENT: could not find @type 'type.googleapis.com/nope')"
CONSTRAINT = "Proto constraint validation failed (SocketAddressValidationError.PortValue: value must be less)"
DURATION = "Invalid duration: Expected positive duration"


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (f'Filesystem config update failure: in m/cds.json, {UNKNOWN_TYPE}: {{"private_key": "hush"}}', UNKNOWN_TYPE),
        (f"REST config for /v3/discovery:endpoints rejected: goo.gle/debugstr   \nk: hush\n: {CONSTRAINT}", CONSTRAINT),
        (f"REST config for /v3/discovery:clusters rejected: {DURATION}: goo.gle/debugonly   \nk: -1\n", DURATION),
    ],
)
def test_reason_leaves_out_the_message_that_was_refused(message: str, reason: str) -> None:
    """Envoy prints what it refuses, secrets included: none of that is in the reason."""
    complaint = read_rejection(message)

    assert complaint is not None
    assert reason == complaint.reason


def test_file_that_cannot_be_read_is_a_failure() -> None:
    """Envoy counts it as a failed update rather than as a rejected one."""
    complaint = read_rejection("Filesystem config update failure: in m/cds.json, unexpected EOF")

    assert complaint == LoggedRejection("unexpected EOF", is_failure=True)


def clusters(*names: str) -> list[Resource]:
    return list(snapshot_of({"cds": dict.fromkeys(names, "1")}).resources(type_url("cds")).values())


@pytest.mark.parametrize(
    ("reason", "place"),
    [
        ("duplicate cluster web-tls found", "cds/web-tls.yaml:7"),
        ("duplicate cluster 'web' found", "cds/web.yaml:7"),
        ("Error adding/updating cluster(s) web: malformed", "cds/web.yaml:7"),
        ("the website is malformed", None),
        ("", None),
    ],
)
def test_origin_is_that_of_the_longest_name_in_the_reason(reason: str, place: str | None) -> None:
    """A name counts as a whole word, and a longer one goes before one that is a part of it."""
    origin = origin_of(reason, clusters("web", "web-tls"))

    assert place == (str(origin) if origin else None)


def test_resources_that_no_reason_names_cost_little() -> None:
    """A NACK is looked at again and again, beside any number of resources."""
    many, reason = clusters(*(f"cluster-{number}" for number in range(10_000))), "no such thing" * 10

    assert cost_s(lambda: origin_of(reason, many)) < 10 * cost_s(lambda: [one for one in many if one.name in reason])
