"""What gRPC streams tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from fsxds.errors import TreeLost
from fsxds.protocol.messages import Acknowledgement, ClientStatus, Node
from fsxds.protocol.subscription import Subscription
from fsxds.snapshots.load import Loaded
from fsxds.supervisor import ErrorObserver
from fsxds.values import SourceTree, Version


class PollObserver(ErrorObserver, Protocol):
    """Who wants to hear of polls. Called on the event loop, so it must be quick."""

    def response_sent(self, node: Node, subscription: Subscription, version: Version) -> None:
        """A version was handed over to a client."""

    def ack_received(self, node: Node, subscription: Subscription, version: Version) -> None:
        """A client took a version."""

    def nack_received(
        self, node: Node, subscription: Subscription, verdict: Acknowledgement, files: tuple[PurePosixPath, ...]
    ) -> None:
        """A client refused a version, which came from `files` (none where that is not known any more)."""

    def request_refused(self, peer: str, status: int, message: str) -> None:
        """A request was answered with an error."""


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """Something that was not done as asked: `subject` is a path or a resource, `reason` a sentence with the remedy."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class MirrorReport:
    """What one snapshot did to the directory.

    `written` are in order, and a bundle is twice in it that let clusters go. `unchanged` counts the files that were as
    they should be. `kept` tells what stays although the snapshot does not have it, `left_sources` which config sources
    were not pointed at a file, `refused` which files of somebody else stood in the way. `restored` are those of the
    written files that somebody had removed or changed.
    """

    generation: int
    written: tuple[PurePosixPath, ...]
    removed: tuple[PurePosixPath, ...]
    unchanged: int
    kept: tuple[Remark, ...]
    left_sources: tuple[Remark, ...]
    refused: tuple[Remark, ...]
    restored: tuple[PurePosixPath, ...]
    duration_s: float


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


class ClientLedger(Protocol):
    """Who knows all clients."""

    def opened(self, status: Callable[[], ClientStatus]) -> object:
        """Note a stream; `status` tells of it."""

    def closed(self, token: object) -> None:
        """Forget a stream."""


class MirrorObserver(Protocol):
    """Hears what became of the files."""

    def files_written(self, report: MirrorReport) -> None:
        """A snapshot is in the directory."""

    def mirror_failed(self, error: OSError, retry_s: float) -> None:
        """The directory could not be written; it is tried again in `retry_s` seconds, or with the next snapshot."""

    def snapshot_set_aside(self, error: BaseException) -> None:
        """Writing a snapshot failed three times in a row by an error of fsxds; the next one is tried."""


class WatchObserver(Protocol):
    """Who is told how the watching goes."""

    def watching(self, mode: str, reason: str) -> None:
        """The tree is watched from now on by `inotify` or `poll`, because of `reason`."""

    def tree_lost(self, error: TreeLost) -> None:
        """The tree, or all its files, went away; what was served last stays."""

    def tree_found(self) -> None:
        """The tree is back."""

    def files_ignored(self, paths: tuple[PurePosixPath, ...]) -> None:
        """No format claims these files; told once as long as they are there."""

    def waiting_for_files(self, root: Path, tree: SourceTree) -> None:
        """Nothing in the tree is configuration so far; the first file that is will be served."""

    def queue_overflowed(self) -> None:
        """The kernel dropped notifications; the tree is looked at again."""


class ReloadObserver(Protocol):
    """Who wants to hear of reloads."""

    def problems_found(self, loaded: Loaded) -> None:
        """A tree was loaded; its problems may have changed even where nothing is published."""

    def snapshot_published(self, loaded: Loaded, noticed_s: float) -> None:
        """A snapshot is served from now on."""
