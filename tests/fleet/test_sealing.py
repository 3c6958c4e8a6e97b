from __future__ import annotations

import pytest

from fsxds.fleet.content import FleetContent
from fsxds.fleet.memory_engine import MemoryKeyValues
from fsxds.fleet.pointers import Order
from fsxds.fleet.sealing import Cleartext, Sealing
from fsxds.model.errors import UsageError
from fsxds.snapshots.encoding import DamagedBytesError
from tests.fleet.made import KEYS, WHOLE, elected
from tests.history.made import assert_same, clusters, snapshot_of

FIRST, SECOND = bytes(range(32)), bytes(range(32, 64))


def test_what_is_sealed_is_opened_in_its_place_alone() -> None:
    """With each key that a server has, and under the key of the engine that it was sealed for."""
    old, new = Sealing((FIRST,)), Sealing((SECOND, FIRST))
    sealed = old.sealed(b"p/a", b"secret")

    assert b"secret" not in sealed
    assert new.opened(b"p/a", sealed) == b"secret"
    for key, value in ((b"p/b", sealed), (b"p/a", new.sealed(b"p/a", b"x")), (b"p/a", sealed[:-1]), (b"p/a", b"")):
        with pytest.raises(DamagedBytesError):
            old.opened(key, value)


def test_digests_are_hashed_with_the_key() -> None:
    """Who has no key cannot find what a secret is by trying."""
    one = Sealing((FIRST,))

    assert one.name_of(b"d" * 16, one.key_id) != b"d" * 16
    assert Sealing((SECOND, FIRST)).name_of(b"d" * 16, one.key_id) == one.name_of(b"d" * 16, one.key_id)


@pytest.mark.parametrize("written", ["", "00", "x" * 64, f"{FIRST.hex()} 00"])
def test_a_file_without_keys_is_a_mistake(written, tmp_path) -> None:
    """So is one that is not there; none of what it has is shown."""
    (tmp_path / "keys").write_text(written)

    with pytest.raises(UsageError, match="64 hex digits") as caught:
        Sealing.of(tmp_path / "keys")
    assert FIRST.hex() not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        Sealing.of(tmp_path / "none")


async def test_keys_are_changed_while_a_fleet_serves(tmp_path) -> None:
    """What the next publisher writes is sealed with the new key, also what did not change; the old one may go then."""
    engine = MemoryKeyValues()
    first = snapshot_of(clusters(300, {7: b"hunter2" * 500}))
    sealings: list[Sealing] = []
    for keys in ((FIRST,), (SECOND, FIRST)):
        (tmp_path / "keys").write_text("\n".join(key.hex() for key in keys))
        sealings.append(Sealing.of(tmp_path / "keys"))
    before = await elected(engine, "a", sealings[0])
    await before.publish(WHOLE, first)
    assert_same(first, await _read(engine, sealings[1]))
    with pytest.raises(DamagedBytesError):
        await _read(engine, Sealing((SECOND,)))

    after = await elected(engine, "b", sealings[1])
    assert await after.publish(WHOLE, after.served[WHOLE]) > Order(2, 0)
    await after.collect(after.order)

    assert_same(first, await _read(engine, Sealing((SECOND,))))
    everything = (await engine.read_prefix(b"/")).values.values()
    assert not any(b"hunter2" in one.value or b"cluster-0" in one.value for one in everything)


async def test_what_is_in_clear_is_not_opened() -> None:
    """A server with a key serves nothing that somebody wrote without it."""
    engine = MemoryKeyValues()
    await (await elected(engine, "a", Cleartext())).publish(WHOLE, snapshot_of(clusters(3)))

    with pytest.raises(DamagedBytesError):
        await _read(engine, Sealing((FIRST,)))


async def _read(engine, sealing):
    content = FleetContent(engine, KEYS, sealing)
    published = await content.published()
    pointer = published.pointers[WHOLE]
    assert pointer is not None
    return await content.snapshot(pointer, None)
