"""Events of a fleet: whether it can be followed, and who publishes."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.events.event import Event, LogMessage, Measure, log_row


@dataclass(frozen=True, slots=True)
class FleetLost(Event):
    """The fleet's store is silent, or rejects this server."""

    rows = (
        log_row(
            "fleet_lost",
            "warning",
            "The store of the fleet cannot be reached; the last publication is served on.",
            "reason",
        ),
    )
    measures = (Measure("fleet_reached", 0),)

    reason: str

    def _message(self) -> str:
        return f"fleet: {self.reason}; what was published until now is served on, and nothing new is heard of"


@dataclass(frozen=True, slots=True)
class FleetReached(Event):
    """The store answers again after `elapsed_s` seconds, or first (0)."""

    rows = (log_row("fleet_reached", "info", "The fleet is followed again, or from now on.", "elapsed_s"),)
    measures = (Measure("fleet_reached", 1),)

    elapsed_s: float

    def _message(self) -> LogMessage:
        if not self.elapsed_s:
            return LogMessage("fleet: what is published is followed", {"elapsed_s": None})
        text = f"fleet: what is published is followed again, after {self.elapsed_s:.1f} s"
        return LogMessage(text, {"elapsed_s": round(self.elapsed_s, 1)})


@dataclass(frozen=True, slots=True)
class SnapshotUnreadable(Event):
    """A publication is incomplete or damaged."""

    rows = (
        log_row(
            "fleet_content_damaged",
            "error",
            "The publication of the fleet cannot be read; the content before is served on.",
            "reason",
        ),
    )
    measures = (Measure("fleet_damages_total"),)

    reason: str

    def _message(self) -> str:
        return f"fleet: what is published cannot be read ({self.reason}); it is tried again, and what was served stays"


@dataclass(frozen=True, slots=True)
class SecretsNotPublished(Event):
    """A tree is not published: its secret at `place` would be in clear."""

    rows = (
        log_row(
            "fleet_secrets_exposed",
            "error",
            "A tree has secrets, which are not encrypted in etcd; it is not published.",
            "place",
        ),
    )

    place: str

    def _message(self) -> str:
        remedy = "give --fleet-encryption-key FILE to all servers, or allow it with --insecure-secrets"
        return f"fleet: {self.place}: is a secret, and would be kept in clear; nothing new is published: {remedy}"


@dataclass(frozen=True, slots=True)
class PublicationFailed(Event):
    """Writing a publication failed; it is tried again."""

    rows = (log_row("fleet_publication_failed", "error", "The publisher cannot write its next publication.", "reason"),)

    reason: str

    def _message(self) -> str:
        return f"fleet: a change cannot be published ({self.reason}); it is tried again, and what was published stays"


@dataclass(frozen=True, slots=True)
class PublisherElected(Event):
    """This server publishes from now on."""

    rows = (log_row("fleet_publisher_elected", "info", "This server publishes for the fleet from now on.", "count"),)
    measures = (Measure("fleet_publishes", 1), Measure("fleet_elections_total"))

    epoch: int

    def _message(self) -> LogMessage:
        return LogMessage(f"fleet: this server publishes from now on, as number {self.epoch}", {"count": self.epoch})


@dataclass(frozen=True, slots=True)
class PublisherWaits(Event):
    """The tree is older than the last publication: wait up to `retry_s` seconds."""

    rows = (
        log_row(
            "fleet_publisher_waits",
            "warning",
            "The new publisher has an older tree than the last one had, and waits for it to change.",
            "retry_s",
        ),
    )

    retry_s: float

    def _message(self) -> str:
        fact = "the tree of this server is older than what was published last"
        return f"fleet: {fact}; it is published when it changes, or in {self.retry_s:g} s"


@dataclass(frozen=True, slots=True)
class PublisherLost(Event):
    """This server lost its lease, or could not write."""

    rows = (
        log_row("fleet_publisher_lost", "warning", "This server does not publish for the fleet any more.", "reason"),
    )
    measures = (Measure("fleet_publishes", 0),)

    reason: str

    def _message(self) -> str:
        return f"fleet: this server publishes no more ({self.reason}); who has a source may be elected"
