from __future__ import annotations

import os

import pytest

from fsxds.fleet import pointers
from fsxds.fleet.pointers import Head, Order, Pointer, RowsDifference, ViewKey
from fsxds.snapshots.encoding import DamagedBytesError, object_of
from tests.history.made import assert_same, cluster, clusters, snapshot_of
from tests.support.snapshots import snapshot


def test_difference_leads_to_the_next_snapshot() -> None:
    """It has what is new, what is others and what is gone, and its digest is the same."""
    before = snapshot_of(clusters(1000))
    after = snapshot_of([*clusters(990, {17: b"edited"}), cluster("new", ttl_s=3.0)], before)
    difference = RowsDifference.between(before, after)
    assert difference is not None
    pointer = Pointer(Order(3, 4), object_of(after, is_packed=True).digest, difference)

    read = Pointer.decoded(pointer.encoded())

    assert read == pointer
    assert read.difference is not None
    found = read.difference.applied_to(before)
    assert_same(after, found)
    assert object_of(found, is_packed=True).digest == pointer.root
    assert len(pointer.encoded()) < 4000


def test_facts_are_of_the_next_snapshot() -> None:
    """Authors' versions, and which types are withheld, incomplete or not declared, may change alone."""
    before = snapshot({"RDS": {"r": "1"}})
    after = snapshot({"RDS": {"r": "1"}}, declared=["LDS"], incomplete=["EDS"], authored={"RDS": "v1"})
    difference = RowsDifference.between(before, after)

    assert difference is not None
    assert_same(after, difference.applied_to(before))


def test_much_is_no_difference(monkeypatch) -> None:
    """Neither many resources nor large ones are in a pointer."""
    before = snapshot_of(clusters(100))
    assert RowsDifference.between(before, snapshot_of([cluster("a", os.urandom(300_000))], before)) is None
    monkeypatch.setattr(pointers, "MOST_CHANGED", 50)
    assert RowsDifference.between(before, snapshot_of(clusters(49), before)) is None
    assert RowsDifference.between(before, snapshot_of(clusters(50), before)) is not None


def test_order_is_that_of_publishers_first() -> None:
    """A later publisher is later, whatever it published."""
    assert Order(2, 0) > Order(1, 900) > Order(1, 899)


def test_head_comes_back() -> None:
    """With the layers that there are."""
    head = Head(Order(1, 2), "server-1", frozenset({"base", "edge"}))

    assert Head.decoded(head.encoded()) == head


@pytest.mark.parametrize("key", [ViewKey(), ViewKey(("base", "größer"), is_canary=True)])
def test_view_comes_back(key) -> None:
    """With names that are not ASCII."""
    assert ViewKey.of(key.text) == key


@pytest.mark.parametrize("damaged", [b"", b"\0\0\0\x09{", b"[]", b"\0\0\0\x02{}", b'\0\0\0\x0c{"order":[1]}'])
def test_damaged_bytes_are_no_pointer(damaged) -> None:
    """Nor do they say what was published last, or which view is meant."""
    with pytest.raises(DamagedBytesError):
        Pointer.decoded(damaged)
    with pytest.raises(DamagedBytesError):
        Head.decoded(damaged)
    with pytest.raises(DamagedBytesError):
        ViewKey.of(damaged.decode())


def test_a_number_that_is_too_large_is_damage() -> None:
    """JSON reads it as infinity, which is no integer."""
    with pytest.raises(DamagedBytesError):
        Head.decoded(b'{"order": [1e999, 1], "publisher": "", "existing": []}')
