"""Read the certificates of --verify-with."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from fsxds.errors import UsageError

_MOST_BYTES = 4 * 1024 * 1024


class TrustedSigners(Protocol):
    """Who is trusted to sign. Equal ones trust the same."""

    def verify(self, manifest: bytes, signature: bytes, now_s: float) -> str:
        """Verify that a manifest is signed by one who is trusted, and return who that is; see `signatures.TrustAnchors`."""


def read_anchors(path: Path | None) -> TrustedSigners | None:
    """Read the certificates of a file; None for no file, where nothing is verified.

    Raises:
        UsageError: it cannot be read, has no certificate, or `cryptography` is not installed.
    """
    if path is None:
        return None
    try:
        # The extra "certificates", which nobody needs who verifies nothing.
        from fsxds.signing.signatures import TrustAnchors
    except ImportError as error:
        raise UsageError("verify_with: needs cryptography; pip install 'fsxds[certificates]'") from error
    remedy = "give a file that has the certificate of the CA in PEM"
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"verify_with: {path}: cannot be read: {error.strerror}; {remedy}") from error
    if len(content) > _MOST_BYTES:
        raise UsageError(f"verify_with: {path}: is larger than {_MOST_BYTES} bytes; {remedy}")
    try:
        return TrustAnchors.of(content)
    except UsageError as error:
        raise UsageError(f"verify_with: {path}: {error}; {remedy}") from error
