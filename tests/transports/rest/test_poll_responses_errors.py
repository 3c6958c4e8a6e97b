import json

import pytest

from fsxds.transports.rest.poll_responses import ErrorResponse, error_response, not_modified, takes_gzip


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ("gzip", True),
        ("GZip", True),
        ("x-gzip", True),
        ("br, gzip ;q=0.1", True),
        ("gzip;q=1.0", True),
        ("gzip;q=0.000", False),
        ("gzip; q=0", False),
        ("identity", False),
        ("*", False),
        ("", False),
        ("notgzip", False),
    ],
)
def test_who_takes_gzip(accepted: str, *, expected: bool) -> None:
    """Who names it, unless with a weight of zero."""
    assert takes_gzip(accepted) is expected


def test_a_refusal_has_the_form_of_grpc_gateways() -> None:
    """Code, message and details; more headers go along."""
    response = error_response(ErrorResponse(405, 12, "no", {"Allow": "POST"}))

    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {"code": 12, "message": "no", "details": []}
    assert (response.status, response.headers["Allow"]) == (405, "POST")


def test_not_modified_has_no_body() -> None:
    """304 and nothing else."""
    response = not_modified()

    assert (response.status, response.body) == (304, None)
