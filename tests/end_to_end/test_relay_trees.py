"""Trees of relays: three levels with many clients, and any of them killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.relay_tree import RelayTree, TreeClient, clients_of, until

NAMES = [f"cluster-{number}" for number in range(3)]


@pytest.fixture
def tree(tmp_path: Path, size: Callable[[int, int], int]) -> Iterator[RelayTree]:
    """A server, two or three relays of it and as many of each of these, which run."""
    tree = RelayTree(tmp_path, size(2, 3), "--settle", "10ms", "--log-level", "debug")
    tree.write(len(NAMES))
    try:
        tree.start()
        yield tree
    finally:
        tree.stop()


async def until_all_have(clients: list[TreeClient], port: int) -> None:
    """Wait until every client holds what an edit brought, and see that nothing was taken from any."""
    await until(lambda: all(each.held.get("cluster-0", (0,))[0] == port for each in clients), f"edit {port} everywhere")
    assert not [name for each in clients for name in each.removed]
    assert all(sorted(each.held) == NAMES for each in clients)


def test_an_edit_reaches_everybody_once_and_whoever_dies_takes_nothing(
    tree: RelayTree, size: Callable[[int, int], int]
) -> None:
    """One edit is one response on each way down; who loses its relay, or the server of all, has everything all the time."""
    asyncio.run(_follow(tree, size(80, 200)))


async def _follow(tree: RelayTree, count: int) -> None:
    async with clients_of(tree.addresses[2], count) as clients:
        await until_all_have(clients, 1)
        await _see_each_edit_once(tree, clients)
        await _kill_relays(tree, clients)
        await _kill_the_root(tree, clients)


async def _see_each_edit_once(tree: RelayTree, clients: list[TreeClient]) -> None:
    for each in clients:
        each.responses.clear()
    before = [len(relay.log_events("upstream_changed")) for relay in tree.relays]
    tree.edit(2)
    await until_all_have(clients, 2)
    assert {tuple(map(tuple, each.responses)) for each in clients} == {(("cluster-0",),)}
    assert [len(relay.log_events("upstream_changed")) for relay in tree.relays] == [count + 1 for count in before]


async def _kill_relays(tree: RelayTree, clients: list[TreeClient]) -> None:
    # The relays below it ask another one, and their clients see nothing of that.
    tree.middle[0].kill()
    tree.edit(3)
    await until_all_have(clients, 3)
    # The clients of a leaf go to another one, which has what they bring.
    tree.leaves[-1].kill()
    tree.edit(4)
    await until_all_have(clients, 4)
    assert {len(response) for each in clients for response in each.responses} == {1}


async def _kill_the_root(tree: RelayTree, clients: list[TreeClient]) -> None:
    tree.root.kill()
    async with clients_of(tree.addresses[2][:1], 3) as late:
        await until_all_have(late, 4)
    tree.edit(5)
    tree.root.start()
    tree.middle[0].start()
    tree.leaves[-1].start()
    await until_all_have(clients, 5)
    assert {len(response) for each in clients for response in each.responses} == {1}
