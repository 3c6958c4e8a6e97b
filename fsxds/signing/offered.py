"""The message with a server's manifests, for relays below it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable

from fsxds.model.values import OfferedManifest
from fsxds.signing.tree_manifest import ManifestError, read_object

SERVICE = "fsxds.v1.Manifests"
METHOD = f"/{SERVICE}/StreamManifests"
PATH = "/fsxds/v1/manifest"

FORM = "fsxds-manifests-1"

# The maximum per server, for its own tree and its upstreams.
MOST_OFFERED = 20


def write_offers(offers: Iterable[OfferedManifest]) -> bytes:
    """Write JSON with manifest and signature in base64."""
    written = [
        {"manifest": base64.b64encode(one.manifest).decode(), "signature": base64.b64encode(one.signature).decode()}
        for one in dict.fromkeys(offers)
    ]
    return json.dumps({"form": FORM, "manifests": written[:MOST_OFFERED]}).encode()


def read_offers(content: bytes) -> tuple[OfferedManifest, ...]:
    """Read the message. Raises ManifestError if it is malformed."""
    written = read_object(content)
    rows = written.get("manifests")
    if written.get("form") != FORM or not isinstance(rows, list) or len(rows) > MOST_OFFERED:
        raise ManifestError(f"it is no {FORM} with up to {MOST_OFFERED} manifests")
    return tuple(map(_read_row, rows))


def _read_row(row: object) -> OfferedManifest:
    if not isinstance(row, dict):
        raise ManifestError("a manifest in it is no object")
    try:
        return OfferedManifest(
            base64.b64decode(str(row.get("manifest")), validate=True),
            base64.b64decode(str(row.get("signature")), validate=True),
        )
    except ValueError as error:
        raise ManifestError("a manifest in it cannot be read") from error
