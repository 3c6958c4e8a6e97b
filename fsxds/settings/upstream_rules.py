"""The other xDS servers that are sources: the form of `--upstream`, and what a rule about one says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UpstreamRule:
    """One upstream: servers that have the same resources.

    Attributes:
        servers: their addresses as the user wrote them, the first that answers is asked: `host:port`, `unix:/path`, or a
            URL of http or https, which means REST.
        authority: the authority whose names it is asked for, and whose resources are taken from it; empty for all names of
            authorities that no other upstream has, and for names without one.
    """

    servers: tuple[str, ...]
    authority: str = ""

    @property
    def name(self) -> str:
        """What it is called: its authority, or its first address."""
        return self.authority or self.servers[0]
