from __future__ import annotations

import os

import pytest

from fsxds.fleet import content
from fsxds.fleet.content import count_of_parts, decoded_object, encoded_object
from fsxds.fleet.publication import ObjectUses
from fsxds.snapshots.encoding import DamagedBytesError, object_of
from tests.history.made import clusters, snapshot_of


def test_what_two_snapshots_share_stays_with_one() -> None:
    """An edit brings five objects, and takes five with it when the snapshot before is not used any more."""
    before = snapshot_of(clusters(10_000))
    first = object_of(before, is_packed=True)
    second = object_of(snapshot_of(clusters(10_000, {4321: b"edited"}), before), is_packed=True)
    uses = ObjectUses()
    all_of_first = [one.digest for one in uses.add(first)]
    new = [one.digest for one in uses.add(second)]

    assert len(new) == 5
    assert not [*uses.add(second)]
    gone = [*uses.remove(first.digest)]
    assert len(gone) == 5
    assert set(gone) < set(all_of_first)
    assert not any(digest in uses for digest in gone)
    assert not [*uses.remove(second.digest)]
    assert {*uses.remove(second.digest)} == {*all_of_first, *new} - {*gone}
    assert first.digest not in uses


def test_large_object_is_in_parts(monkeypatch) -> None:
    """Together they are the object again."""
    monkeypatch.setattr(content, "MOST_PART_BYTES", 1000)
    (kept,) = (one for one in _objects(os.urandom(9000)) if len(one.content()) > 1000)

    first, *parts = encoded_object(kept)

    assert count_of_parts(first) == len(parts) == 10
    assert decoded_object(b"".join(parts)) == (kept.content(), ())


def test_small_object_is_whole() -> None:
    """It is one part, whatever it names."""
    for kept in _objects(b"x"):
        (whole,) = encoded_object(kept)

        assert not count_of_parts(whole)
        assert decoded_object(whole) == (kept.content(), tuple(each.digest for each in kept.children()))


def _objects(body: bytes):
    return ObjectUses().add(object_of(snapshot_of(clusters(3, {1: body})), is_packed=True))


@pytest.mark.parametrize("damaged", [b"", b"\0\0", b"\0\0\0\1abc", b"\xff\xff\xff\xff\0\0\0\1"])
def test_damaged_bytes_are_no_object(damaged) -> None:
    """Also the first part of several alone."""
    with pytest.raises(DamagedBytesError):
        decoded_object(damaged)
