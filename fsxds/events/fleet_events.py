"""Events of a fleet: whether it can be followed, and who publishes."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.events.event import Event, LogMessage, Measure, single_row


@dataclass(frozen=True, slots=True)
class FleetLost(Event):
    """The store is silent, or rejects this server."""

    rows = single_row(
        "fleet_lost",
        "warning",
        "The store of the fleet cannot be reached; fsxds keeps serving the last publication.",
        "reason",
    )
    measures = (Measure("fleet_reached", 0),)

    reason: str

    def _message(self) -> str:
        return f"fleet: {self.reason}; fsxds serves the last publication, and gets no new ones until the store answers"


@dataclass(frozen=True, slots=True)
class FleetReached(Event):
    """The store answers again after `elapsed_s` seconds, or first (0)."""

    rows = single_row(
        "fleet_reached",
        "info",
        "This server follows the publications of its fleet, for the first time or again.",
        "elapsed_s",
    )
    measures = (Measure("fleet_reached", 1),)

    elapsed_s: float

    def _message(self) -> LogMessage:
        if not self.elapsed_s:
            return LogMessage("fleet: following its publications", {"elapsed_s": None})
        text = f"fleet: following its publications again, after {self.elapsed_s:.1f} s"
        return LogMessage(text, {"elapsed_s": round(self.elapsed_s, 1)})


@dataclass(frozen=True, slots=True)
class SnapshotUnreadable(Event):
    """A publication is incomplete or damaged."""

    rows = single_row(
        "fleet_content_damaged",
        "error",
        "The publication of the fleet cannot be read; fsxds keeps serving the previous one.",
        "reason",
    )
    measures = (Measure("fleet_damages_total"),)

    reason: str

    def _message(self) -> str:
        return f"fleet: the publication cannot be read ({self.reason}); fsxds tries again, and serves the previous one"


@dataclass(frozen=True, slots=True)
class SecretsNotPublished(Event):
    """The secret at `place` would be published in clear."""

    rows = single_row(
        "fleet_secrets_exposed",
        "error",
        "A tree has secrets, which etcd would hold unencrypted; it is not published.",
        "place",
    )

    place: str

    def _message(self) -> str:
        remedy = "give --fleet-encryption-key FILE to all servers, or allow it with --insecure-secrets"
        return f"fleet: {self.place}: is a secret, which etcd would hold unencrypted, so the tree is not published; {remedy}"


@dataclass(frozen=True, slots=True)
class PublicationFailed(Event):
    """Writing a publication failed, and is tried again."""

    rows = single_row("fleet_publication_failed", "error", "The publisher cannot write its next publication.", "reason")

    reason: str

    def _message(self) -> str:
        return f"fleet: cannot publish a change ({self.reason}); fsxds tries again, and the last publication stays"


@dataclass(frozen=True, slots=True)
class PublisherElected(Event):
    """This server publishes from now on."""

    rows = single_row("fleet_publisher_elected", "info", "This server publishes for the fleet from now on.", "count")
    measures = (Measure("fleet_publishes", 1), Measure("fleet_elections_total"))

    epoch: int

    def _message(self) -> LogMessage:
        return LogMessage(f"fleet: this server publishes from now on, as number {self.epoch}", {"count": self.epoch})


@dataclass(frozen=True, slots=True)
class PublisherWaits(Event):
    """The tree is older than the last publication: wait up to `retry_s` seconds."""

    rows = single_row(
        "fleet_publisher_waits",
        "warning",
        "The tree of the new publisher is older than the last publication; the publisher waits for a change.",
        "retry_s",
    )

    retry_s: float

    def _message(self) -> str:
        fact = "the tree of this server is older than the last publication"
        return f"fleet: {fact}; the server publishes it when it changes, or in {self.retry_s:g} s"


@dataclass(frozen=True, slots=True)
class PublisherLost(Event):
    """This server lost its lease, or could not write."""

    rows = single_row("fleet_publisher_lost", "warning", "This server no longer publishes for the fleet.", "reason")
    measures = (Measure("fleet_publishes", 0),)

    reason: str

    def _message(self) -> str:
        return f"fleet: this server no longer publishes ({self.reason}); a server with a source may be elected"
