"""What upstreams are told of their responses: ACK or NACK."""

from __future__ import annotations

from fsxds.upstream.upstream import Received


class Verdicts:
    """Says what an upstream is told of a response."""

    async def of(self, upstream: str, received: Received) -> str | None:
        """Return None for an ACK, or the words of a NACK.

        Args:
            upstream: the name of the upstream.
            received: what was taken in of its response.
        """
        del upstream
        return "; ".join(received.faults) or None
