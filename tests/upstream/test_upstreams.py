from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fsxds.model.errors import UsageError
from fsxds.model.tree_trust import SeenInProcess
from fsxds.model.values import BackOff
from fsxds.runtime.row_source import rules_of
from fsxds.runtime.supervisor import Supervisor
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import Authority, UpstreamRule
from fsxds.snapshots.proposals import NoCheck
from fsxds.upstream.upstreams import UpstreamContext, Upstreams
from tests.support.polls import envoy_catalogue
from tests.support.ports import free_address
from tests.upstream.made import CDS, NOW_S, cluster, update


async def test_an_error_within_restarts_one_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the process nor another upstream ends by it."""
    settings = Settings(upstream=(UpstreamRule((free_address(),)), UpstreamRule((free_address(),))))
    context = UpstreamContext(lambda: settings, lambda _: None, envoy_catalogue(), NoCheck(), SeenInProcess(), list)
    upstreams = Upstreams(context)
    first, _ = upstreams.upstreams
    supervisor = Supervisor(lambda _: None, BackOff(0.01, 0.01, 0.01))

    def fail(*_: object) -> None:
        monkeypatch.undo()
        raise ZeroDivisionError

    monkeypatch.setattr(first, "ask", fail)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(60):
        keeping = tasks.create_task(upstreams.keep_connected(supervisor))
        while not supervisor.failures:  # noqa: ASYNC110, nothing tells of a failure
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        keeping.cancel()

    assert {f"upstream {first.rule.name}": 1} == supervisor.failures


def test_changed_settings_apply_to_later_responses() -> None:
    """Such as the limit of names."""
    settings = [Settings(upstream=(UpstreamRule((free_address(),)),))]
    context = UpstreamContext(lambda: settings[0], lambda _: None, envoy_catalogue(), NoCheck(), SeenInProcess(), list)
    upstreams = Upstreams(context)
    (upstream,) = upstreams.upstreams
    settings[0] = replace(settings[0], upstream_max_names=1)
    upstreams.change_rules(NoCheck(), None)
    received = upstream.receive(update(CDS, {"a": cluster("a"), "b": cluster("b")}), "up", NOW_S)

    assert ["1 resources are more than the 1 that are held, such as b"] == list(received.faults)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"upstream": (UpstreamRule(("a:1", "b:1", "a:1")),)}, "a:1 names a server twice"),
        ({"authorities": {"one": Authority("", ("a:1", "a:1"))}}, "one names a server twice"),
        ({"upstream": (UpstreamRule(("a:1",)), UpstreamRule(("a:1", "b:1")))}, "a:1 is given twice"),
    ],
)
def test_rules_that_cannot_be_followed(settings: dict[str, Any], words: str) -> None:
    """A server that would follow itself, and two upstreams of one name, are mistakes."""
    with pytest.raises(UsageError, match=words):
        rules_of(Settings(**settings))
