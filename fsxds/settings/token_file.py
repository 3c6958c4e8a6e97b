"""The files of --tokens and --admin-token: bearer tokens, one in a line, with or without a name."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from fsxds.errors import UsageError
from fsxds.settings.access_rules import TOKEN_NAME

# 16 random characters have more than 90 bits; what is shorter can be guessed, or is a password.
SHORTEST_TOKEN = 16
LARGEST_FILE_BYTES = 1024 * 1024
# `token68` of RFC 9110: what may stand behind `Bearer`.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_MAKE_ONE = "make one with `openssl rand -hex 32`"


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a file.

    Attributes:
        digests: the name and the SHA-256 of each. Several may have one name, and some have none, which is empty.
        is_exposed: other users of the machine can read the file.
    """

    digests: tuple[tuple[str, bytes], ...] = field(repr=False)
    is_exposed: bool = field(default=False, compare=False)

    @property
    def names(self) -> frozenset[str]:
        """The names of all tokens that have one."""
        return frozenset(name for name, _ in self.digests if name)

    def name_of(self, token: str) -> str | None:
        """Return the name of a token, None where there is no such token. It takes the same time for any of equal length."""
        digest = sha256(token.encode(errors="surrogateescape")).digest()
        found: str | None = None
        for name, each in self.digests:
            if compare_digest(each, digest):
                found = name
        return found


def read_tokens(path: Path) -> Tokens:
    """Read a file of tokens: `TOKEN` or `NAME: TOKEN` in a line; empty lines and those that begin with `#` are no tokens.

    Raises:
        UsageError: it cannot be read, or has a mistake. No token is in its text.
    """
    content, mode = _read(path)
    named = tuple((name, sha256(token.encode()).digest()) for name, token in _named_tokens(path, content))
    if not named:
        raise UsageError(f"{path}: has no token; write one in a line, {_MAKE_ONE}")
    if len({digest for _, digest in named}) < len(named):
        raise UsageError(f"{path}: has a token twice; each line takes a token of its own, {_MAKE_ONE}")
    return Tokens(named, bool(mode & stat.S_IROTH))


def read_token(path: Path) -> str:
    """Return the first token of a file, to send it. Raises UsageError as `read_tokens` does."""
    for _, token in _named_tokens(path, _read(path)[0]):
        return token
    raise UsageError(f"{path}: has no token; write one in a line")


def _read(path: Path) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            content, mode = file.read(LARGEST_FILE_BYTES + 1), path.stat().st_mode
    except OSError as error:
        raise UsageError(
            f"{path}: the tokens cannot be read: {error.strerror}; name a file that fsxds may read"
        ) from error
    if len(content) > LARGEST_FILE_BYTES:
        raise UsageError(
            f"{path}: is over {LARGEST_FILE_BYTES} bytes, and no file of tokens; write one token in a line"
        )
    try:
        return content.decode(), mode
    except UnicodeDecodeError:
        # Not with its cause: that has the content.
        raise UsageError(f"{path}: is not text; write one token in a line") from None


def _named_tokens(path: Path, content: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(content.split("\n"), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, colon, token = text.rpartition(":")
        name, token = name.strip(), token.strip()
        place = f"{path}:{number}"
        if colon and not TOKEN_NAME.fullmatch(name):
            raise UsageError(
                f"{place}: no name stands before the colon; write NAME: TOKEN, with letters, digits, `-`, `_`, `.`"
            )
        if not _TOKEN.fullmatch(token):
            raise UsageError(f"{place}: has other characters than tokens have; {_MAKE_ONE}")
        if len(token) < SHORTEST_TOKEN:
            raise UsageError(f"{place}: the token is shorter than {SHORTEST_TOKEN} characters; {_MAKE_ONE}")
        yield name, token
