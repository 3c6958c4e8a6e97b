from __future__ import annotations

import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from fsxds.history.state import State
from fsxds.history.state_directory import DATABASE
from fsxds.model.errors import StateError
from fsxds.rollout.machine import Rollout, RolloutOptions, RolloutState
from fsxds.runtime.channels import ChannelKey
from fsxds.runtime.row_source import KeptUpstream
from tests.history.made import EDS, assert_same, cluster, clusters, held_of, held_resource, snapshot_of
from tests.history.test_rollout_rows import NEW, finish, started
from tests.support.rollouts import tree_snapshot

WHOLE, OTHER = ChannelKey(), ChannelKey(("a", "b"))
HELD = held_of(*(held_resource(f"c{n}", os.urandom(20 * n)) for n in range(60)), held_resource("e", b"e", EDS))
ODD: tuple[Any, ...] = (None, 0, -1, 1e308, "", "x", [], {}, [[]], True, float("nan"), "\ud800", [1, 2, 3, 4], 10**400)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """Return a state directory with two rollouts, one of which is on its way."""
    rollout, first = started()
    rollout.receive_target(tree_snapshot(NEW, first), 10.0)
    while rollout.step is not None:
        rollout.receive_waiting(set(), 10.0)
    assert rollout.state is not None
    other = snapshot_of([*clusters(300), cluster("large", os.urandom(10_000).hex().encode())])
    state = State.open(tmp_path / "state", print)
    state.save({WHOLE: rollout.state, OTHER: RolloutState(other, first, first)}, "c" * 40, 1.0)
    state.keep_upstreams([KeptUpstream("a", ("a", "b"), HELD)])
    state.close()
    return tmp_path / "state"


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value within a value of JSON."""
    yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in steps:
        yield from paths(part, (*path, step))


def changed(value: Any, path: tuple[Any, ...], new: object) -> Any:
    """Return a value of JSON with another one at the end of a way."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


def damage_text(path: Path, rng: random.Random) -> None:
    """Put something odd into what is kept as JSON."""
    with closing(sqlite3.connect(path)) as connection:
        table, key = rng.choice((("rollouts", "channel"), ("entries", "number"), ("upstreams", "number")))
        column = "servers" if table == "upstreams" else "facts"
        row, text = rng.choice(connection.execute(f"SELECT {key}, {column} FROM {table}").fetchall())
        facts = json.loads(text)
        odd = changed(facts, rng.choice(list(paths(facts))), rng.choice(ODD))
        written = rng.choice((json.dumps(odd), json.dumps(odd), "", "{", b"\xff"))
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (written, row))
        if rng.random() < 0.1:
            connection.execute("UPDATE rollouts SET channel = 'nonsense' WHERE channel LIKE '%b%'")
        connection.commit()


def damage_bytes(path: Path, rng: random.Random) -> None:
    """Change a few bytes of the database."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 20))):
        content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_text, damage_bytes])
@pytest.mark.parametrize("seed", range(4))
def test_damage_is_never_fatal(kept: Path, damage: Callable[[Path, random.Random], None], seed: int) -> None:
    """Whatever is damaged, reading is right or a StateError; what is restored can be rolled out; the second write is kept."""
    whole, rng = (kept / DATABASE).read_bytes(), random.Random(seed)
    first = tree_snapshot(NEW)
    for _ in range(10):
        for path in kept.iterdir():
            path.unlink()
        (kept / DATABASE).write_bytes(whole)
        (kept / DATABASE).chmod(0o600)
        damage(kept / DATABASE, rng)
        state = State.open(kept, print)
        with suppress(StateError):
            state.entries()
        for layers, number in (((), 1), (OTHER.layers, 2)):
            with suppress(StateError):
                state.snapshot(layers, number, first)
        with suppress(StateError):
            for restored in state.rollouts(2.0).values():
                finish(Rollout(RolloutOptions(linger_s=1.0), restored), tree_snapshot(NEW), 5.0)
        with suppress(StateError):
            for name, held in state.restored_upstreams([KeptUpstream("a", ("a",))]).held.items():
                assert name == "a"
                assert all(HELD[type_url][name] == one for type_url, rows in held.items() for name, one in rows.items())
        with suppress(StateError):
            state.save({WHOLE: RolloutState(first, first, first)}, None, 3.0)
        state.save({WHOLE: RolloutState(first, first, first)}, None, 3.0)
        assert_same(first, state.rollouts(3.0)[WHOLE].served)
        state.keep_upstreams([KeptUpstream("a", ("a",), HELD)])
        state.keep_upstreams([KeptUpstream("a", ("a",), HELD)])
        state.close()
        assert state.restored_upstreams([KeptUpstream("a", ("a",))]).held == {"a": HELD}
        state.close()
