from __future__ import annotations

import asyncio

import pytest

from fsxds.transports.failures import Failures


async def test_the_first_failure_comes_out() -> None:
    """Who waits gets the error itself, also where it was reported before; later ones are consequences."""
    failures = Failures()
    waiting = asyncio.ensure_future(failures.wait())
    await asyncio.sleep(0)
    assert not waiting.done()
    failures.report(KeyError("first"))
    failures.report(KeyError("second"))

    with pytest.raises(KeyError, match="first"):
        await waiting
    with pytest.raises(KeyError, match="first"):
        await failures.wait()
