"""The values of settings about rollouts: shares, counts, and which of them mean never."""

from __future__ import annotations

from math import inf

import pytest

from fsxds.settings.rollout_forms import (
    CANARY,
    DURATION_OR_OFF,
    NACK_LIMIT,
    QUORUM,
    SHARE_OR_OFF,
    Canary,
    NackLimit,
)


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("50%", NackLimit(0.5)),
        ("12.5 %", NackLimit(0.125)),
        ("0%", NackLimit(0.0)),
        ("0", NackLimit(count=0)),
        ("3", NackLimit(count=3)),
        (3, NackLimit(count=3)),
        ("off", None),
        ("OFF", None),
        (False, None),
    ],
)
def test_a_nack_limit(written: object, limit: NackLimit | None) -> None:
    """A share of the nodes, a number of them, or never; YAML reads `off` as false."""
    assert NACK_LIMIT.read(written) == limit


@pytest.mark.parametrize("written", ["100%", "101%", "-1", -1, True, "x", "", 0.5, "50 percent", None])
def test_no_nack_limit(written: object) -> None:
    """Nobody exceeds all of them: that is `off`."""
    with pytest.raises(ValueError):  # noqa: PT011, the words are those of the option
        NACK_LIMIT.read(written)


@pytest.mark.parametrize(("written", "quorum"), [("80%", 0.8), ("100%", 1.0), ("0.5%", 0.005)])
def test_a_quorum(written: object, quorum: float) -> None:
    """A share of the canaries, above none of them."""
    assert QUORUM.read(written) == quorum


@pytest.mark.parametrize("written", ["0%", "off", False, "3", 1.0])
def test_no_quorum(written: object) -> None:
    """Without any canary there is none."""
    with pytest.raises(ValueError):  # noqa: PT011, the words are those of the option
        QUORUM.read(written)


@pytest.mark.parametrize(("written", "time_s"), [("10m", 600.0), ("0s", 0.0), ("off", inf), ("Off", inf), (False, inf)])
def test_a_patience(written: object, time_s: float) -> None:
    """A duration, or for ever."""
    assert DURATION_OR_OFF.read(written) == time_s


@pytest.mark.parametrize(("written", "share"), [("50%", 0.5), ("0%", 0.0), ("off", inf), (False, inf)])
def test_a_removal(written: object, share: float) -> None:
    """A share of a type, or any."""
    assert SHARE_OR_OFF.read(written) == share


@pytest.mark.parametrize(
    ("written", "canary"),
    [
        ("view=edge", Canary(view="edge")),
        ("nodes=5%", Canary(share=0.05)),
        ({"view": "edge"}, Canary(view="edge")),
        ({"nodes": "5%"}, Canary(share=0.05)),
    ],
)
def test_a_canary(written: object, canary: Canary) -> None:
    """The nodes of a view, or a share of all."""
    assert CANARY.read(written) == canary
