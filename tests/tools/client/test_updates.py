"""Why a stream ended, as it is told."""

from __future__ import annotations

import grpc
import pytest

from fsxds.tools.client.updates import lost_by

_ALL_FAILED = "failed to connect to all addresses; last error:"


@pytest.mark.parametrize(
    ("details", "words"),
    [
        (
            f"{_ALL_FAILED} UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote host: connect: Connection refused (111)",
            "cannot connect: Connection refused (111)",
        ),
        (
            "errors resolving x:1: [field:hostname lookup error:address lookup failed for x:1: Domain name not found]",
            "cannot connect: Domain name not found",
        ),
        ("failed to connect to all addresses", 'the server ended the stream: UNAVAILABLE, "failed to connect'),
        ("", "the server ended the stream: UNAVAILABLE"),
        ("two\n  lines", 'the server ended the stream: UNAVAILABLE, "two lines"'),
    ],
)
def test_words_of_a_lost_connection(details: str, words: str) -> None:
    """Of gRPC's nested words, the innermost are told."""
    assert str(lost_by(grpc.StatusCode.UNAVAILABLE, details, "/s/m")).startswith(words)
