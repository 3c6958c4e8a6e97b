"""Read the certificates of --verify-with."""

from __future__ import annotations

from pathlib import Path

from fsxds.errors import UsageError
from fsxds.tree_trust import TrustedSigners

_MOST_BYTES = 4 * 1024 * 1024


def read_anchors(path: Path) -> TrustedSigners:
    """Read the certificates of a file.

    Raises:
        UsageError: it cannot be read, has no certificate, or `cryptography` is not installed.
    """
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
