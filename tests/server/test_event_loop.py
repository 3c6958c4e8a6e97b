from __future__ import annotations

import asyncio

import pytest

from fsxds.model.errors import FsxdsError, UsageError
from fsxds.server.event_loop import run


async def fail(error: Exception) -> None:
    """End a task of a group within a group with an error."""
    async with asyncio.TaskGroup() as outer:
        outer.create_task(fail_in_group(error))


async def fail_in_group(error: Exception) -> None:
    """End a task of a group with an error."""

    async def raise_it() -> None:
        raise error

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(raise_it())


def test_errors_for_people_come_out_of_their_groups() -> None:
    """An error of ours in a task arrives with its text alone."""
    with pytest.raises(FsxdsError, match=r"^the port is taken$"):
        run(fail(UsageError("the port is taken")))


def test_bugs_stay_in_their_groups() -> None:
    """Any other exception arrives as it is, for a traceback."""
    with pytest.raises(ExceptionGroup):
        run(fail(ValueError("a bug")))
