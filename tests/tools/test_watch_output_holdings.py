"""What a client holds after each update."""

from __future__ import annotations

import itertools
from dataclasses import replace

from fsxds.client.updates import ELSEWHERE, Update, UpdateContents
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource
from fsxds.model.values import Nonce, Version
from fsxds.tools.watch_output import Holdings

_VERSIONS = itertools.count()
CDS = BY_SHORT_NAME["cds"].type_url


def update_of(*, is_full: bool = False, removed: tuple[str, ...] = (), **bodies: bytes) -> Update:
    """Return an update; versions are the server's own, and new each time."""
    contents = UpdateContents(CDS)
    for name, body in bodies.items():
        contents.add(Resource(CDS, name, body, Version(f"v{next(_VERSIONS)}"), ELSEWHERE))
    return Update(CDS, Version("1"), Nonce("1"), contents.frozen(), removed, is_full=is_full)


def test_what_is_told_is_added_or_replaced() -> None:
    """An update that is not full leaves the others."""
    holdings = Holdings()
    holdings.take(update_of(a=b"1", b=b"1"))
    step = holdings.take(update_of(b=b"2", c=b"1"))

    assert {"a": b"1", "b": b"2", "c": b"1"} == {name: held.body for name, held in holdings.of(CDS).items()}
    assert (["a", "b"], ["a", "b", "c"]) == (list(step.before), list(step.after))


def test_a_full_update_takes_the_others_away() -> None:
    """What is not in a full update is held no more."""
    holdings = Holdings()
    holdings.take(update_of(a=b"1", b=b"1", is_full=True))

    assert ["b"] == list(holdings.take(update_of(b=b"1", is_full=True)).after)


def test_removed_names() -> None:
    """A removed name is held no more; one that was not held does not exist."""
    holdings = Holdings()
    holdings.take(update_of(a=b"1", b=b"1"))
    step = holdings.take(update_of(removed=("a", "x")))

    assert (["b"], ("x",)) == (list(step.after), step.absent)


def test_a_virtual_host_that_is_not_there() -> None:
    """A name that is answered with nothing does not exist, and is held no more."""
    holdings = Holdings()
    holdings.take(update_of(a=b"1"))
    step = holdings.take(replace(update_of(), unpopulated=("a", "x")))

    assert ({}, ("x",)) == (dict(step.after), step.absent)


def test_the_first_step_of_a_type() -> None:
    """The first update of a type is a first one, also when it holds nothing."""
    holdings = Holdings()

    assert [True, False] == [holdings.take(update_of()).is_first, holdings.take(update_of()).is_first]


def test_versions_do_not_make_a_difference() -> None:
    """The same content is held as the same, whatever version the server gives it."""
    holdings = Holdings()
    holdings.take(update_of(a=b"1"))
    step = holdings.take(update_of(a=b"1"))

    assert step.before == step.after
    assert step.snapshots[0].by_type == {CDS: step.before}
