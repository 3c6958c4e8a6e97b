from __future__ import annotations

from pathlib import Path

import pytest

from fsxds.model.errors import UsageError
from fsxds.settings.access_rules import LARGEST_FILE_BYTES, Tokens, read_token, read_tokens

FIRST, SECOND, THIRD = "first-token-0123456789", "second-token-0123456789", "third.token~0123456789+/=="


def written(tmp_path: Path, content: str | bytes) -> Path:
    """Write a file of tokens."""
    path = tmp_path / "tokens"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(0o600)
    return path


def test_tokens_have_names_or_none(tmp_path: Path) -> None:
    """A line is a token, or a name and a token; of one name there may be several; comments are none."""
    tokens = read_tokens(written(tmp_path, f"# ours\r\n\r\nedge: {FIRST}\r\nedge:{SECOND}\n  {THIRD}  \n"))

    assert [tokens.name_of(each) for each in (FIRST, SECOND, THIRD)] == ["edge", "edge", ""]
    assert tokens.names == {"edge"}
    assert not tokens.is_exposed


@pytest.mark.parametrize(
    "token", ["", FIRST[:-1], FIRST + "x", FIRST.upper(), "edge", f"edge: {FIRST}", "\udcff", "é" * 9]
)
def test_other_tokens_are_not_known(tmp_path: Path, token: str) -> None:
    """A token is known as a whole or not at all."""
    assert read_tokens(written(tmp_path, f"edge: {FIRST}")).name_of(token) is None


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("", "has no token"),
        ("# only a comment\n", "has no token"),
        (f"edge: {FIRST}\nbatch: {FIRST}", "has a token twice"),
        (f"a b: {FIRST}", ":1: no name stands before the colon"),
        (f"\n: {FIRST}", ":2: no name stands before the colon"),
        (f"edge: {FIRST} {SECOND}", ":1: has other characters"),
        (f"edge: {FIRST}é", ":1: has other characters"),
        ("edge:", ":1: has other characters"),
        ("edge: short-token-123", ":1: the token is shorter than 16 characters"),
        (b"\xff" + FIRST.encode(), "is not text"),
        (b"x" * (LARGEST_FILE_BYTES + 1), "is over 1048576 bytes"),
    ],
)
def test_mistakes_have_a_place_and_show_no_token(tmp_path: Path, content: str | bytes, fact: str) -> None:
    """The file and the line are named, and nothing that may be a token."""
    content = content.replace("short-token-123", "short-token-12") if isinstance(content, str) else content
    with pytest.raises(UsageError) as caught:
        read_tokens(written(tmp_path, content))

    assert f"{tmp_path}/tokens" in str(caught.value)
    assert fact in str(caught.value)
    assert not any(part in str(caught.value) for part in (FIRST, SECOND, "short-token"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """It is named, with what the system says; a directory is none either."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(UsageError, match="the tokens cannot be read: "):
            read_tokens(path)


def test_a_file_that_others_can_read_is_exposed(tmp_path: Path) -> None:
    """That is reported; a group may read it."""
    path = written(tmp_path, FIRST)
    for mode, exposed in ((0o640, False), (0o644, True), (0o604, True)):
        path.chmod(mode)
        assert read_tokens(path).is_exposed is exposed


def test_a_client_sends_the_first_token(tmp_path: Path) -> None:
    """Of a file with several of them."""
    assert read_token(written(tmp_path, f"# x\nme: {SECOND}\n{FIRST}\n")) == SECOND
    with pytest.raises(UsageError, match="has no token"):
        read_token(written(tmp_path, "\n"))


def test_tokens_are_not_shown(tmp_path: Path) -> None:
    """Neither they nor their digests."""
    tokens = read_tokens(written(tmp_path, FIRST))

    assert repr(tokens) == "Tokens(is_exposed=False)"
    assert tokens == Tokens(tokens.digests, is_exposed=True)
