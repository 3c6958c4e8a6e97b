"""What gRPC streams tell of themselves."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Protocol

from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.supervisor import ErrorObserver
from fsxds.values import Version


class StreamObserver(ErrorObserver, Protocol):
    """Who wants to hear of streams. Called on the event loop, so it must be quick."""

    def stream_opened(self, node: Node, service: str, peer: str) -> None:
        """A client sent its first request on a stream of `service` (`StreamAggregatedResources`)."""

    def stream_closed(self, node: Node, service: str, peer: str) -> None:
        """A stream that was opened is over."""

    def response_sent(self, node: Node, subscription: Subscription, version: Version) -> None:
        """A version was handed over to a client."""

    def ack_received(self, node: Node, subscription: Subscription, version: Version) -> None:
        """A client took a version."""

    def nack_received(
        self, node: Node, subscription: Subscription, verdict: Acknowledgement, files: tuple[PurePosixPath, ...]
    ) -> None:
        """A client refused a version, which came from `files` (none where that is not known any more)."""

    def request_refused(self, peer: str, status: int | str, message: str) -> None:
        """A request was answered with an error, or ignored; `status` is the name of a gRPC status."""
