"""Requests to the publisher: operators decide at any server.

| key | value |
| --- | --- |
| `c/`, the id of a server, `/` and a number | a request, under the lease of the requesting server |
| `a/` and the same | its answer, under the lease of the publisher |

A publisher removes a request before it carries it out: none is carried out twice. Without an answer, the outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any, Never

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import (
    CompactedError,
    Delete,
    Guard,
    LeaseLostError,
    Put,
    RejectedRequestError,
    UnreachableError,
    followed,
)
from fsxds.fleet.lease import Lease
from fsxds.model.errors import ProtocolError
from fsxds.snapshots.encoding import DamagedBytesError
from fsxds.transports.admin.admin_api import written

ANSWER_WITHIN_S = 10.0

Request = Mapping[str, Any]
Answer = Callable[[Request], Awaitable[object]]
"""Carries a request out, and returns a value for JSON; ProtocolError if it cannot be done."""


class FleetCommands:
    """Sends requests to the publisher."""

    def __init__(self, content: FleetContent, lease: Lease, name: str) -> None:
        self._content = content
        self._lease = lease
        self._name = name
        self._numbers = count(1)

    async def ask(self, request: Request, within_s: float = ANSWER_WITHIN_S) -> Any:
        """Return the answer. ProtocolError: an error, or none in time."""
        lease, engine, keys = self._lease.current.current, self._content.engine, self._content.keys
        if not lease:
            raise ProtocolError(
                f"the fleet cannot be asked: {self._lease.reason or 'etcd does not answer'}", "UNAVAILABLE"
            )
        place = f"{self._name}/{next(self._numbers)}".encode()
        key, answer_key = keys.commands + place, keys.answers + place
        try:
            async with asyncio.timeout(within_s):
                sealed = self._content.sealing.sealed(key, written({**request, "server": self._name}))
                revision = await engine.write([Put(key, sealed, lease)])
                async with aclosing(engine.watch(answer_key, answer_key + b"\0", revision or 0)) as watching:
                    async for changed in watching:
                        if (found := changed.values.get(answer_key)) is not None:
                            return _result_of(self._content.sealing.opened(answer_key, found.value))
        except TimeoutError as error:
            fact = f"no server answered within {within_s:g} s; the command may still be carried out"
            raise ProtocolError(f"{fact}: fsxds rollout status shows it", "UNAVAILABLE") from error
        except (UnreachableError, RejectedRequestError, LeaseLostError, CompactedError, DamagedBytesError) as error:
            raise ProtocolError(f"the fleet cannot be asked: {error}", "UNAVAILABLE") from error
        finally:
            with suppress(UnreachableError, RejectedRequestError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await engine.write([Delete(key), Delete(answer_key)])
        raise ProtocolError("the fleet cannot be asked", "UNAVAILABLE")


def _result_of(encoded: bytes) -> Any:
    answer = json.loads(encoded)
    if "error" in answer:
        raise ProtocolError(str(answer["error"]), str(answer["code"]))
    return answer["result"]


class CommandedPublisher:
    """Answers requests while `fence` holds. Run `keep_answered`."""

    def __init__(self, content: FleetContent, fence: Guard, lease: int, answer: Answer) -> None:
        self._content = content
        self._fence = fence
        self._lease = lease
        self._answer = answer

    async def keep_answered(self) -> Never:
        """Answer until cancelled. UnreachableError, RejectedRequestError: requests cannot be read."""
        engine, prefix = self._content.engine, self._content.keys.commands
        while True:
            async with aclosing(followed(engine, prefix)) as following:
                async for values, _ in following:
                    for key, one in values.items():
                        if one is not None:
                            await self._take(key, one.value, one.modified)

    async def _take(self, key: bytes, value: bytes, modified: int) -> None:
        """Carry a request out, unless it was taken back or another server publishes."""
        engine, keys = self._content.engine, self._content.keys
        if await engine.write([Delete(key)], [self._fence, Guard(key, modified=modified)]) is None:
            return
        result: Mapping[str, object]
        try:
            result = {"result": await self._answer(json.loads(self._content.sealing.opened(key, value)))}
        except ProtocolError as error:
            result = {"error": str(error), "code": error.code}
        except (DamagedBytesError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            words = (
                f"the publisher does not understand the request ({type(error).__name__}); all servers need one version"
            )
            result = {"error": words, "code": "UNIMPLEMENTED"}
        answer_key = keys.answers + key[len(keys.commands) :]
        with suppress(LeaseLostError):
            sealed = self._content.sealing.sealed(answer_key, written(result))
            await engine.write([Put(answer_key, sealed, self._lease)], [self._fence])
