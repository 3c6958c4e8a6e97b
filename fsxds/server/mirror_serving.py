"""A server's mirrored directories, which follow their nodes' channels and the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from fsxds.publishing.drained_listeners import DrainWatch
from fsxds.runtime.views import node_of
from fsxds.server.app import Application
from fsxds.server.mirror_settings import listener_finder
from fsxds.settings.options import Settings
from fsxds.settings.view_rules import MirrorRule
from fsxds.transports.mirror.envoy_reader import Audience, EnvoyPage, EnvoyReader
from fsxds.transports.mirror.writer import Mirror, Mirroring, MirrorOptions


class ServedMirror:
    """One directory; `reader` is None if its Envoy is unknown."""

    def __init__(self, application: Application, rule: MirrorRule) -> None:
        self.rule = rule
        self._application = application
        self.mirror = Mirror(rule.directory, application.catalogue, self._options(application.settings))
        self.reader = None if rule.admin is None else EnvoyReader(EnvoyPage(rule.admin))
        audience = Audience(node_of(rule.attributes), self.reader)
        self.mirroring = Mirroring(application.channels, self.mirror, application.observer, audience)

    @property
    def root(self) -> Path:
        """The directory."""
        return self.mirroring.root

    @property
    def has_written(self) -> asyncio.Event:
        """Set with the first snapshot."""
        return self.mirroring.has_written

    def change(self, settings: Settings) -> None:
        """Apply other settings."""
        self.mirror.change(self._options(settings))

    def _options(self, settings: Settings) -> MirrorOptions:
        of = self._application
        return MirrorOptions.of(settings, self.rule, listener_finder(settings, of.directory, of.catalogue))


@contextmanager
def mirrored(application: Application, rules: Sequence[MirrorRule]) -> Iterator[list[ServedMirror]]:
    """Lock mirrors' directories, before `start_mirrors`. Raises UsageError if another process has one."""
    with ExitStack() as stack:
        mirrors = []
        for rule in rules:
            mirrors.append(ServedMirror(application, rule))
            stack.enter_context(mirrors[-1].mirror)
        application.mirrors += mirrors
        yield mirrors


def start_mirrors(application: Application, tasks: asyncio.TaskGroup, mirrors: Sequence[ServedMirror]) -> None:
    """Keep directories in step; poll their Envoys."""
    for one in mirrors:
        name = "mirror" if len(mirrors) == 1 else f"mirror {one.root}"
        application.start(tasks, name, one.mirroring.keep_mirrored)
        if one.reader is not None:
            application.start(tasks, f"{name} reader", partial(one.mirroring.keep_read, one.reader))
    if pages := {str(one.root): one.rule.admin for one in mirrors if one.rule.admin is not None}:
        application.start(tasks, "drain watch", DrainWatch(application.publisher, pages).keep_watching)
