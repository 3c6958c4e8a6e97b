"""The log: what the rooms tell, worded line by line, on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Never

from rich.console import Console

from fsxds.api.secrets import mask_reason
from fsxds.formats import FORMATS
from fsxds.operations.change_reports import ChangeReports, count_of, some_of, type_name
from fsxds.operations.internal_errors import InternalErrors, set_aside_line
from fsxds.operations.library_logs import library_logs
from fsxds.operations.log_lines import Level, LineSink, LogLine, Renderer, human_renderer, json_renderer, shortened
from fsxds.operations.problem_ledger import ProblemLedger
from fsxds.operations.refusal_limit import RefusalLimit
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.subscription import Subscription
from fsxds.snapshots.load import Loaded
from fsxds.values import PlainValue, SourceTree, TypeUrl, Version

# Names of files in one line for machines.
MOST_FILES = 20

LAST_FLUSH_S = 1.0

# Events that read like the success of an edit, of which a part may be held back.
ENDS_WELL = frozenset({"snapshot_published", "envoy_took"})


def _now() -> datetime:
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class Clock:
    """The two clocks of the log: one that only counts seconds, and the time of day."""

    now_s: Callable[[], float] = time.monotonic
    moment: Callable[[], datetime] = _now


@dataclass(frozen=True, slots=True)
class Paper:
    """What the log is written on: how lines are worded, where they go, and from which level on."""

    render: Renderer
    write: Callable[[str], None]
    level: Level = Level.INFO


class Log:
    """Listens to all rooms; `app.py` passes it to each of them as its observer.

    It has the methods of their `…Observer` protocols, under the same names; `MirrorLog` and `LocalEnvoyLog` have those of
    the file mirror and of a local Envoy, and write through `write`. `report_changes` has to run as a task.
    """

    def __init__(self, paper: Paper, clock: Clock | None = None) -> None:
        self._paper = paper
        self._clock = clock or Clock()
        self._reports = ChangeReports(self.write, self._clock.now_s)
        self._ledger = ProblemLedger(paper.level)
        self._refusals = RefusalLimit()
        self.internal_errors = InternalErrors(self._clock.now_s)

    def write(self, line: LogLine) -> None:
        """Write one line, if it is weighty enough; what was served or taken says what is not served beside it.

        A line that cannot be written is counted, and ends nobody's work.
        """
        if (line.admitted_as or line.level) < self._paper.level:
            return
        try:
            self._write(line)
        # The edge of the log: everybody logs, in the midst of their own work.
        except Exception:  # noqa: BLE001
            self.internal_errors.counts["log"] += 1

    def _write(self, line: LogLine) -> None:
        if line.event in ENDS_WELL and self._ledger.held:
            held = [str(path) for path in self._ledger.held]
            line = replace(
                line, text=f"{line.text}; not served: {some_of(held)}", details={**line.details, "held": [*held]}
            )
        self._paper.write(self._paper.render(line, self._clock.moment()))

    def say(self, level: Level, event: str, text: str, **details: PlainValue) -> None:
        """Make one line and write it."""
        self.write(LogLine(level, event, text, details))

    async def report_changes(self) -> Never:
        """Report each published change, once its clients were answered."""
        await self._reports.report()

    # What app.py tells.

    def api_found(self, description: str) -> None:
        """Tell which API catalogue was chosen: `Envoy 1.40.0 from …, 557 files`."""
        self.say(Level.INFO, "api_found", f"API: {description}", api=description)

    def transport_chosen(self, transport: str, reason: str) -> None:
        """Tell how the Envoy of `fsxds dev` gets its resources, and why so."""
        self.say(
            Level.INFO, "transport_chosen", f"transport: {transport}, {reason}", transport=transport, reason=reason
        )

    @property
    def level(self) -> Level:
        """The minimum level to write."""
        return self._paper.level

    def write_from(self, level: Level) -> None:
        """Write from another level on."""
        self._paper = replace(self._paper, level=level)
        self._ledger.show_from(level)

    def listening(self, name: str, address: str) -> None:
        """Tell an address that was really bound, or a directory that is written to."""
        self.say(Level.INFO, "listening", f"{name}: {address}", name=name, address=address)

    def stopping(self, reason: str) -> None:
        """Tell that the process ends, and why."""
        self.say(Level.INFO, "stopping", f"stopping: {reason}", reason=reason)

    def settings_reloaded(self, changed: tuple[str, ...], needs_restart: tuple[str, ...]) -> None:
        """Report which settings changed after SIGHUP, and which of those that are others cannot while it runs."""
        text = f"settings reloaded: {', '.join(changed) or 'nothing'} changed"
        if needs_restart:
            text += f"; restart to change {', '.join(needs_restart)}"
        details: dict[str, PlainValue] = {"changed": [*changed], "needs_restart": [*needs_restart]}
        self.say(Level.WARNING if needs_restart else Level.INFO, "settings_reloaded", text, **details)

    def settings_kept(self, reason: str) -> None:
        """Report that the settings were read again in vain: those in use stay."""
        text = f"settings not reloaded, those in use stay: {shortened(reason)}; correct them, and send SIGHUP again"
        self.say(Level.ERROR, "settings_kept", text, reason=reason)

    def waiting(self, what: str, elapsed_s: float) -> None:
        """Report what the start waits for."""
        text = f"waiting for {what}, {elapsed_s:g} s so far"
        self.say(Level.WARNING, "waiting", text, waits_for=what, elapsed_s=elapsed_s)

    # supervisor.SupervisorObserver

    def internal_error(self, where: str, error: BaseException) -> None:
        """Report an error of fsxds itself with its traceback; the same one at most once a minute."""
        if (line := self.internal_errors.line(where, error)) is not None:
            self.write(line)

    def component_degraded(self, component: str, reason: str, retry_s: float) -> None:
        """Report that a component failed, and when it starts again."""
        text = f"degraded: {component} restarts in {retry_s:g} s ({shortened(reason)}); what is served stays"
        self.say(Level.ERROR, "component_degraded", text, component=component, reason=reason, retry_s=retry_s)

    def component_recovered(self, component: str) -> None:
        """Report that a component runs well again."""
        self.say(Level.INFO, "component_recovered", f"recovered: {component} runs again", component=component)

    def snapshot_set_aside(self, component: str, error: BaseException) -> None:
        """Report that a component gave up on a snapshot, until the next one."""
        self.write(set_aside_line(component, error))

    # sources.watch.WatchObserver

    def watching(self, mode: str, reason: str) -> None:
        """Tell how changes are noticed."""
        self.say(Level.INFO, "watching", f"watching by {mode}: {reason}", mode=mode, reason=reason)

    def tree_lost(self, error: Exception) -> None:
        """Tell that the tree is not there any more; what was served stays."""
        text = f"{error}; what was served last stays until it is back"
        self.say(Level.ERROR, "tree_lost", text, error=str(error))

    def tree_found(self) -> None:
        """Tell that the tree is back."""
        self.write(LogLine(Level.INFO, "tree_found", "the tree is back", admitted_as=Level.ERROR))

    def files_ignored(self, paths: tuple[PurePosixPath, ...]) -> None:
        """Report files whose suffix no format has."""
        names = [str(path) for path in paths]
        text = f"{some_of(names)}: ignored, no format has {'this suffix' if len(names) == 1 else 'these suffixes'}"
        self.say(Level.INFO, "files_ignored", text, count=len(names), files=[*names[:MOST_FILES]])

    def waiting_for_files(self, root: Path, tree: SourceTree) -> None:
        """Report that nothing in the directory is configuration yet."""
        suffixes = ", ".join(suffix for row in FORMATS for suffix in row.suffixes)
        others = ((tree.ignored, "ignored"), (tree.excluded, "excluded"))
        there = "".join(f"; {word}: {some_of([str(path) for path in paths])}" for paths, word in others if paths)
        text = f"waiting for configuration: no file in {root} has one of the suffixes {suffixes}{there}"
        counts: dict[str, PlainValue] = {word: len(paths) for paths, word in others}
        self.say(Level.WARNING, "waiting_for_files", text, directory=str(root), **counts)

    def queue_overflowed(self) -> None:
        """Tell that the kernel dropped events, which a rescan makes up for."""
        self.say(Level.WARNING, "queue_overflowed", "too many file events at once: reading the whole tree again")

    # reload.ReloadObserver

    def snapshot_published(self, loaded: Loaded, noticed_s: float) -> None:
        """Take in a snapshot that became current; `report_changes` tells it when its clients were answered.

        Args:
            loaded: what was loaded.
            noticed_s: reading of `time.monotonic()` at the first sign of the change.
        """
        self._reports.publish(loaded.snapshot, noticed_s)

    def problems_found(self, loaded: Loaded) -> None:
        """Tell what is new about the problems of a tree: those that appeared, those that are gone, and what is held."""
        for line in self._ledger.update(loaded.problems, loaded.held, self._clock.moment()):
            self.write(line)

    # transports.rest_json.PollObserver

    def response_sent(self, node: Node, subscription: Subscription, version: Version) -> None:
        """Count an answer as news of the change it belongs to."""
        self._reports.answer(subscription.type_url, name_of(node))
        self._tell_client(Level.DEBUG, "response_sent", "was sent", (node, subscription, version))

    def ack_received(self, node: Node, subscription: Subscription, version: Version) -> None:
        """Tell that a client took a version."""
        self._tell_client(Level.DEBUG, "ack_received", "took", (node, subscription, version))

    def nack_received(
        self, node: Node, subscription: Subscription, verdict: Acknowledgement, files: tuple[PurePosixPath, ...]
    ) -> None:
        """Tell that a client refused a version, why, and which files that version came from."""
        self.rejected(subscription.type_url, name_of(node))
        names = [str(path) for path in files]
        reason = mask_reason(verdict.reason or "it asked again with the version before; its own log says why")
        text = (
            f"NACK: {name_of(node)} refused {type_name(subscription.type_url)} {verdict.version[:12]}"
            f"{f' from {some_of(names)}' if names else ''}: {shortened(reason)}"
        )
        self.say(
            Level.WARNING,
            "nack_received",
            text,
            **_client(node, subscription, verdict.version),
            reason=shortened(reason),
            is_inferred=verdict.reason is None,
            files=[*names],
        )

    def rejected(self, type_url: TypeUrl, client: str) -> None:
        """Take in that a client rejected what is served of a type: the report of the change says so too."""
        self._reports.reject(type_url, client)

    def request_refused(self, peer: str, status: int | str, message: str) -> None:
        """Tell that a request was answered with an error; the same one at most every ten seconds."""
        untold = self._refusals.admit(peer, message, self._clock.now_s())
        if untold is None:
            return
        before = f" ({count_of(untold, 'refusal')} before it went untold)" if untold else ""
        text = f"refused a request of {peer or 'a local client'} with {status}: {shortened(message)}{before}"
        details: dict[str, PlainValue] = {"peer": peer, "status": status, "reason": shortened(message)}
        self.say(Level.WARNING, "request_refused", text, **details, untold=untold)

    # transports.grpc_streams.StreamObserver, which has the methods of PollObserver too.

    def stream_opened(self, node: Node, service: str, peer: str) -> None:
        """Tell that a client began a stream; `service` is the method that it called."""
        self._tell_stream("stream_opened", "opened", (node, service, peer))

    def stream_closed(self, node: Node, service: str, peer: str) -> None:
        """Tell that a stream is over, whoever ended it."""
        self._tell_stream("stream_closed", "left", (node, service, peer))

    def _tell_stream(self, event: str, verb: str, whom: tuple[Node, str, str]) -> None:
        node, service, peer = whom
        if self._paper.level <= Level.DEBUG:
            text = f"{name_of(node)} {verb} {service}"
            self.say(Level.DEBUG, event, text, node=node.id, cluster=node.cluster, service=service, peer=peer)

    def _tell_client(self, level: Level, event: str, verb: str, whom: tuple[Node, Subscription, Version]) -> None:
        if level < self._paper.level:
            return  # Thousands of polls may be answered at once; what nobody reads is not worded.
        node, subscription, version = whom
        text = f"{name_of(node)} {verb} {type_name(subscription.type_url)} {version[:12]}"
        self.say(level, event, text, **_client(node, subscription, version))


def _client(node: Node, subscription: Subscription, version: Version) -> dict[str, PlainValue]:
    return {"node": node.id, "cluster": node.cluster, "type": type_name(subscription.type_url), "version": version}


def name_of(node: Node) -> str:
    """Return what a client is called in the log: its node id, else its address."""
    return node.id or node.peer or "a client without an id"


@contextmanager
def open_log(log_format: str, log_level: str) -> Iterator[Log]:
    """Open the log on stderr, and see to it that its last lines get out.

    Args:
        log_format: `human`, `json`, or `auto` for human on a terminal and JSON elsewhere.
        log_level: `debug`, `info`, `warning` or `error`.
    """
    is_human = log_format == "human" or (log_format == "auto" and sys.stderr.isatty())
    render = human_renderer(Console(stderr=True)) if is_human else json_renderer
    sink = LineSink(sys.stderr.fileno())
    log = Log(Paper(render, sink.write, Level[log_level.upper()]))
    try:
        with library_logs(log.write):
            yield log
    finally:
        sink.flush(patience_s=LAST_FLUSH_S)
