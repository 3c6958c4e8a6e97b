"""An observer that remembers every event, and a supervisor for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TypeVar

from fsxds.events.client_events import (
    AckReceived,
    NackReceived,
    RequestRejected,
    ResponseSent,
    StreamClosed,
    StreamOpened,
)
from fsxds.events.event import Event
from fsxds.events.process_events import ComponentDegraded, ComponentRecovered, InternalError
from fsxds.model.values import BackOff, Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.runtime.supervisor import Supervisor

Kind = TypeVar("Kind", bound=Event)

# A component starts again at once.
AT_ONCE = BackOff(first_s=0.001, longest_s=0.01, well_after_s=0.1)


@dataclass
class Recorder:
    """An observer that remembers events, in their order."""

    events: list[Event] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Remember an event."""
        self.events.append(event)

    def of(self, event_class: type[Kind]) -> list[Kind]:
        """Return the events of a class."""
        return [event for event in self.events if isinstance(event, event_class)]

    @property
    def errors(self) -> list[tuple[str, BaseException]]:
        """Where errors of fsxds itself happened, and the exceptions."""
        return [(event.where, event.error) for event in self.of(InternalError)]

    @property
    def degraded(self) -> list[tuple[str, str, float]]:
        """Components that failed, each with the reason and the seconds until it starts again."""
        return [(event.component, event.reason, event.retry_s) for event in self.of(ComponentDegraded)]

    @property
    def recovered(self) -> list[str]:
        """Components that run again."""
        return [event.component for event in self.of(ComponentRecovered)]

    @property
    def opened(self) -> list[tuple[Node, str, str]]:
        """Streams that were opened: node, method, address of the client."""
        return [(event.node, event.service, event.peer) for event in self.of(StreamOpened)]

    @property
    def closed(self) -> list[tuple[Node, str, str]]:
        """Streams that are over."""
        return [(event.node, event.service, event.peer) for event in self.of(StreamClosed)]

    @property
    def sent(self) -> list[tuple[Node, Subscription, Version]]:
        """Versions sent to clients."""
        return [(event.node, event.subscription, event.version) for event in self.of(ResponseSent)]

    @property
    def acks(self) -> list[tuple[Node, Subscription, Version]]:
        """Versions that clients ACKed."""
        return [(event.node, event.subscription, event.version) for event in self.of(AckReceived)]

    @property
    def nacks(self) -> list[tuple[Subscription, Acknowledgement, tuple[PurePosixPath, ...]]]:
        """What clients NACKed, and the files that it came from."""
        return [(event.subscription, event.acknowledgement, event.files) for event in self.of(NackReceived)]

    @property
    def rejected(self) -> list[tuple[str, int | str, str]]:
        """Requests that were answered with an error: address, status, message."""
        return [(event.peer, event.status, event.reason) for event in self.of(RequestRejected)]


def make_supervisor() -> Supervisor:
    """Make a supervisor whose events nobody receives."""
    return Supervisor(Recorder(), AT_ONCE)
