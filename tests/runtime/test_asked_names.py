"""What clients ask for, all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.model.values import TypeUrl
from fsxds.runtime.asked_names import GRACE_PERIOD_S, AskedNames, can_exist
from tests.support.channels import Denier
from tests.support.patience import PATIENCE_S
from tests.support.snapshots import type_url

CDS, EDS, VHDS = map(type_url, ("cds", "eds", "vhds"))


async def until_asked(asked: AskedNames, **names: set[str]) -> None:
    """Wait until just these are asked for."""
    expected = {type_url(each): frozenset(of_type) for each, of_type in names.items()}
    async with asyncio.timeout(PATIENCE_S):
        while asked.changed.current != expected:
            await asked.changed.replaced()


async def test_names_of_all_clients() -> None:
    """All that any client asks for is asked for, as long as one does; `*` is a name as others are."""
    asked = AskedNames()
    asked.ask("first", CDS, {"a", "b"})
    asked.ask("second", CDS, {"b", "*"})
    asked.ask("second", EDS, {"e"})
    await until_asked(asked, cds={"a", "b", "*"}, eds={"e"})

    asked.ask("first", CDS, {"c"})
    await until_asked(asked, cds={"b", "c", "*"}, eds={"e"})
    asked.forget("second")
    asked.forget("nobody")
    await until_asked(asked, cds={"c"})


async def test_a_client_that_does_not_wait() -> None:
    """What a client asks for that is gone at once is asked for nevertheless, for a while."""
    asked = AskedNames()
    asked.ask("first", CDS, {"a"})
    asked.forget("first")
    await until_asked(asked, cds={"a"})
    now_s = asyncio.get_running_loop().time()
    await until_asked(asked)

    assert asyncio.get_running_loop().time() >= now_s + GRACE_PERIOD_S / 2


async def test_answers_are_passed_on_once() -> None:
    """However many upstreams answer at a time, those who wait are woken once."""
    asked, count = AskedNames(), 0

    def wake() -> None:
        nonlocal count
        count += 1

    asked.listeners["waiting"] = wake
    asked.answered()
    asked.answered()
    await asyncio.sleep(0)
    assert count == 1
    asked.answered()
    await asyncio.sleep(0)
    assert count == 2


async def test_what_may_be_elsewhere() -> None:
    """A name is nowhere when all upstreams deny it, or when it is malformed."""
    asked = AskedNames([Denier("a", "b"), Denier("b", "c")])
    bad = "xdstp://one/envoy.config.listener.v3.Listener/x"

    assert asked.unanswered(CDS, {"a", "b", "c", "d", bad}) == {"a", "c", "d"}
    assert AskedNames().unanswered(CDS, {"a"}) == frozenset()


async def test_hosts_are_not_awaited_of_who_is_away() -> None:
    """An Envoy that waits for a virtual host waits for good, so nobody waits for an upstream that is away."""
    asked = AskedNames([Denier(is_away=True)])

    assert asked.unanswered(VHDS, {"r/a.com"}) == frozenset()
    assert asked.unanswered(CDS, {"a"}) == {"a"}


def test_names_that_can_exist() -> None:
    """Plain names, hosts, and structured names of the type."""
    name = "xdstp://one/envoy.config.cluster.v3.Cluster/x"

    assert can_exist(CDS, "a")
    assert can_exist(CDS, name)
    assert can_exist(CDS, f"{name}?b=1")
    assert can_exist(VHDS, "xdstp://one/r/a.com")
    assert not can_exist(EDS, name)
    assert not can_exist(CDS, "xdstp:broken")


clients = st.sampled_from("pqr")
names = st.frozensets(st.sampled_from("abcd"), max_size=3)


@settings(max_examples=40)
@given(st.lists(st.tuples(clients, st.none() | names), max_size=12))
def test_counting_agrees_with_a_union(steps: list[tuple[str, frozenset[str] | None]]) -> None:
    """Whatever clients ask for one after the other, the union is asked for; None is a client that goes."""

    async def play() -> Mapping[TypeUrl, frozenset[str]]:
        asked = AskedNames()
        for client, wanted in steps:
            if wanted is None:
                asked.forget(client)
            else:
                asked.ask(client, CDS, wanted)
        found = frozenset(asked._counts.get(CDS, ()))
        assert all(count > 0 for count in asked._counts.get(CDS, {}).values())
        return {CDS: found}

    last: dict[str, frozenset[str]] = {}
    for client, wanted in steps:
        last[client] = wanted or frozenset()

    assert asyncio.run(play()) == {CDS: frozenset().union(*last.values())}
