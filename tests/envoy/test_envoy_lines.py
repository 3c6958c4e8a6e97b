from __future__ import annotations

import inspect
from pathlib import PurePosixPath

from fsxds.envoy.admin import Listening, Scope
from fsxds.envoy.envoy_lines import LocalEnvoyLog
from fsxds.envoy.envoy_log import EnvoyLogLine
from fsxds.envoy.follow import EndedEnvoy, EnvoyObserver
from fsxds.envoy.snapshot_status import EnvoyNack, InProgress
from fsxds.events.event import LogLine
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin

CDS = BY_SHORT_NAME["cds"]


class Listener(LocalEnvoyLog):
    """Remembers the texts of its lines."""

    def __init__(self) -> None:
        self.lines: list[LogLine] = []
        super().__init__(self.lines.append)

    @property
    def texts(self) -> list[str]:
        """The texts of the lines so far."""
        return [line.text for line in self.lines]


def test_addresses() -> None:
    """Where admin and traffic listen is told at the start, and traffic again when it changes."""
    log = Listener()
    log.envoy_started("127.0.0.1:9901", (Listening("web", "127.0.0.1:10000"),))
    log.envoy_listens(())

    assert log.texts == [
        "Envoy runs; admin: http://127.0.0.1:9901",
        "traffic: web on 127.0.0.1:10000",
        "traffic: no listener yet",
    ]


def test_verdicts() -> None:
    """A status names the types and the time; a NACK its place and reason too."""
    log = Listener()
    origin = Origin(PurePosixPath("cds.yaml"), 12)
    log.envoy_acked((CDS, BY_SHORT_NAME["eds"]), 0.0123)
    log.envoy_nacked(EnvoyNack(CDS, "web", "no such filter", (origin,)), 0.05)
    log.envoy_nacked(EnvoyNack(CDS, None, None, ()), 0.05)
    log.envoy_pending(InProgress((Scope("", CDS), Scope("", BY_SHORT_NAME["eds"], "web")), 2), ("RDS shop",), 10.0)

    assert log.texts == [
        "Envoy ACKed clusters, endpoints after 12 ms",
        'cds.yaml:12: Envoy NACKed clusters "web" after 50 ms: no such filter',
        "Envoy NACKed clusters after 50 ms: its log does not say why",
        (
            "Envoy has not ACKed all of it after 10 s; not there yet: clusters, endpoints of web;"
            " warming: 2 clusters or listeners; it waits for RDS shop"
        ),
    ]


def test_an_envoy_that_ends() -> None:
    """The last lines of an Envoy that ended are told, and a key that goes over several of them is hidden."""
    log = Listener()
    tail = ("bad key:", "-----BEGIN PRIVATE KEY-----", "S3CR3T", "-----END PRIVATE KEY-----", "exiting")
    log.envoy_ended(EndedEnvoy(1, tail))
    log.envoy_ended(EndedEnvoy(-9, ()))

    assert log.texts == [
        "Envoy logged: bad key:",
        "Envoy logged: <hidden>",
        "Envoy logged: exiting",
        "Envoy ended with status 1; the next edit that is served starts another",
        "Envoy was ended by signal 9; the next edit that is served starts another",
    ]


def test_its_own_words() -> None:
    """Envoy's warnings and errors are passed on, the same one once in ten seconds, and its verdicts and its chatter are not."""
    log = Listener()
    timed_out = EnvoyLogLine("warning", "config", "initial fetch timed out for web")
    log.envoy_logged(timed_out)
    log.envoy_logged(timed_out)
    log.envoy_logged(EnvoyLogLine("info", "main", "all is well"))
    log.envoy_logged(EnvoyLogLine("warning", "config", "gRPC config for type.googleapis.com/x.Y rejected: no"))
    log.envoy_logged(EnvoyLogLine("warning", "upstream", "cds: cluster 'a' config rejected: no"))
    log.envoy_logged(EnvoyLogLine("", "", "invalid bootstrap"))
    log.envoy_ended(EndedEnvoy(1, ("invalid bootstrap",)))
    log.envoy_logged(EnvoyLogLine("warning", "main", "caught ENVOY_SIGTERM"))
    log.envoy_logged(EnvoyLogLine("warning", "config", "stream closed"))

    assert log.texts == [
        "Envoy logged: initial fetch timed out for web",
        "Envoy logged: invalid bootstrap (1 line before it omitted)",
        "Envoy ended with status 1; the next edit that is served starts another",
    ]


def test_it_takes_the_arguments_of_an_observer_by_name() -> None:
    """Each method of `EnvoyObserver` names its parameters as `LocalEnvoyLog` does."""
    methods = inspect.getmembers(EnvoyObserver, inspect.isfunction)
    names = [name for name, _ in methods if name.startswith("envoy_")]

    assert names
    for name in names:
        declared, implemented = (inspect.signature(getattr(one, name)) for one in (EnvoyObserver, LocalEnvoyLog))
        assert [*declared.parameters] == [*implemented.parameters], name
