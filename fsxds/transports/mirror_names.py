"""Resource names as file names: safe for a file system, and reversible."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import quote, unquote

# Most file systems end at 255 bytes; the suffix, and whoever copies a file as `name.bak`, need some of them.
LONGEST_BYTES = 200
# Neither is a percent escape, so no other name can come out like it.
EMPTY = "%empty"
CUT = "%~"
_KEPT_BYTES = 150


def file_name_of(name: str) -> str:
    """Return a file name, without suffix, that no other resource name has.

    Letters, digits, `_`, `-` and dots stay; everything else, and a leading dot, becomes `%XX` per byte of UTF-8. What is
    then longer than 200 bytes is cut and ends in `%~` and a digest of the name; only the manifest leads back from there.
    Names that differ in case alone have names of files that differ in case alone: OUT wants a file system that can tell
    them apart.
    """
    if not name:
        return EMPTY
    safe = quote(name, safe="").replace("~", "%7E")
    if safe.startswith("."):
        safe = "%2E" + safe[1:]
    if len(safe) <= LONGEST_BYTES:
        return safe
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    return re.sub(r"%.?$", "", safe[:_KEPT_BYTES]) + CUT + digest


def name_of_file(file_name: str) -> str | None:
    """Return the resource name of a file name without suffix, None where it was cut."""
    if file_name == EMPTY:
        return ""
    return None if CUT in file_name else unquote(file_name)
