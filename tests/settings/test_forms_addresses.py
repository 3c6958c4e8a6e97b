from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.model.errors import UsageError
from fsxds.settings.forms import Address, TcpAddress, UnixAddress, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:18001", TcpAddress("127.0.0.1", 18001)),
        ("[::1]:0", TcpAddress("::1", 0)),
        (":18001", TcpAddress("", 18001)),
        ("localhost:65535", TcpAddress("localhost", 65535)),
        ("unix:/run/x.sock", UnixAddress(Path("/run/x.sock"))),
        ("unix:x.sock", UnixAddress(Path("x.sock"))),
    ],
)
def test_addresses(text: str, expected: Address) -> None:
    """They are written as they are read."""
    assert parse_address(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text", ["", "18001", "127.0.0.1", "127.0.0.1:", "::1:18001", "x:65536", "x:-1", "unix:", "a:b:1"]
)
def test_no_address(text: str) -> None:
    """The message shows how addresses are written."""
    with pytest.raises(UsageError, match=r"is no address; write 127\.0\.0\.1:18001"):
        parse_address(text)
