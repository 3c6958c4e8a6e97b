"""How relays find that they are their own upstreams."""

from __future__ import annotations

from fsxds.model.relay_ids import MOST_IDS, LoopError, RelayIds, relays_in, relays_of_identifier, relays_of_metadata

A, B, C, D = (digit * 16 for digit in "abcd")


def reject_of(ids: RelayIds, *relays: str) -> LoopError | None:
    """Return why a call that names these relays is rejected."""
    try:
        with ids.calling(relays):
            return None
    except LoopError as error:
        return error


def test_a_server_that_is_no_relay_names_nothing() -> None:
    """Without an upstream there is no loop, and responses name the server alone."""
    ids = RelayIds()

    assert ("fsxds", "", None) == (ids.identifier, ids.downwards, reject_of(ids, A, B))


def test_what_is_named_upwards() -> None:
    """A call upwards names the relay, and those that are below it while their calls last."""
    ids = RelayIds(A)
    with ids.calling((B, C)), ids.calling((B,)):
        during = ids.upwards
    with ids.calling((B,)):
        one = ids.upwards

    assert (f"{A},{B},{C}", f"{A},{B}", A) == (during, one, ids.upwards)


def test_what_is_named_downwards() -> None:
    """Responses name the relay, and those above it by any upstream, as long as that is connected."""
    ids = RelayIds(A)
    found = ids.receive("east", (B, C)), ids.receive("west", (C, D))
    above = ids.identifier
    ids.disconnected("east")

    assert (("", ""), f"fsxds {A},{B},{C},{D}", f"{A},{C},{D}") == (found, above, ids.downwards)


def test_a_call_that_comes_round() -> None:
    """A call that names this relay is rejected, as is one of a relay that is above."""
    ids = RelayIds(A)
    own = reject_of(ids, B, A)
    ids.receive("east", (C, D))
    above = reject_of(ids, B, D)

    assert own is not None
    assert own.code == "FAILED_PRECONDITION"
    assert str(own).startswith(f"relay {A} is its own upstream: it asks itself through {B}, {A}; take one")
    assert above is not None
    assert str(above).startswith(f"relay {D} is its own upstream: relay {A} gets its resources from it; ")
    assert reject_of(ids, B) is None


def test_a_response_that_comes_round() -> None:
    """A response that names this relay, or one that is connected to it, is of a loop; its relays are not above."""
    ids = RelayIds(A)
    with ids.calling((B,)):
        found = [ids.receive("east", relays) for relays in ((C, A), (C, B), (C,))]

    assert [f"relay {A} is", f"relay {B} is", ""] == [words[:25] for words in found]
    assert f"{A},{C}" == ids.downwards


def test_two_relays_of_each_other_find_each_other() -> None:
    """Where both connect at the same moment, the first response tells them; where one comes later, its call does."""
    a, b = RelayIds(A), RelayIds(B)
    of_a, of_b = relays_in(a.upwards), relays_in(b.upwards)
    with a.calling(of_b), b.calling(of_a):
        at_the_same_time = a.receive("b", relays_of_identifier(b.identifier))
    with b.calling(relays_in(a.upwards)):
        later = reject_of(a, *relays_in(b.upwards))

    assert at_the_same_time
    assert later is not None


def test_only_ids_are_read() -> None:
    """What is no id is passed over, and so is what is too much."""
    many = [f"{number:016x}" for number in range(100)]

    assert (A, B) == relays_in(f"{A},nonsense, {B},{A},,{C.upper()}")
    assert () == relays_of_identifier(f"istiod {A}")
    assert (A, B) == relays_of_metadata((("x", C), ("fsxds-relays", A), ("fsxds-relays", B)))
    assert MOST_IDS == len(relays_in(",".join(many)))
