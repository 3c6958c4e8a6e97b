"""What clients say of versions that they reject, as far as it may be shown."""

from __future__ import annotations

import re

# Envoy prints the whole message that it refuses, secrets included, before or after the reason; until 1.36 without the
# mark in front of it.
_MESSAGE_BEFORE = re.compile(r"^(?:goo\.gle/debug|[^\n]*\n).*: (?=Proto constraint validation failed)", re.DOTALL)
_MESSAGE_AFTER = re.compile(r"(: goo\.gle/debug|\): \{).*$", re.DOTALL)


# Reasons are kept with each client, and shown as a line.
LONGEST_REASON = 4096


def without_message(reason: str) -> str:
    """Return a reason of Envoy's without the message that it prints beside it, and not longer than can be read."""
    short = _MESSAGE_AFTER.sub(lambda match: ")" if match[1] == "): {" else "", _MESSAGE_BEFORE.sub("", reason))
    return short.strip()[:LONGEST_REASON]
