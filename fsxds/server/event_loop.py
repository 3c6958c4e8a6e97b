"""The event loop of lasting commands."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator

from fsxds.model.errors import FsxdsError
from fsxds.runtime.supervisor import AbandonedThreads
from fsxds.transports.rest.http_server import keep_large_buffers_apart


def run(work: Coroutine[object, object, None]) -> None:
    """Run a coroutine to its end, on asyncio's own event loop.

    Not on uvloop, which is faster: after some hundred clients came and went within a second, a server on it stopped
    accepting for good (0.22.1, 0.23.0; one run of nine), for an unknown reason. Besides, gRPC complains of its forks.

    Raises:
        FsxdsError: with all texts of fsxds's errors in its tasks, if there are no others.
    """
    keep_large_buffers_apart()
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().set_default_executor(AbandonedThreads())
            runner.run(work)
    except BaseExceptionGroup as group:
        ours, others = group.split(FsxdsError)
        if ours is None or others is not None:
            raise
        raise FsxdsError("\n".join(_texts(ours))) from group


def _texts(error: BaseException) -> Iterator[str]:
    if isinstance(error, BaseExceptionGroup):
        for member in error.exceptions:
            yield from _texts(member)
    else:
        yield str(error)
