"""Requests to the publisher: operators decide at any server.

| key | value |
| --- | --- |
| `c/`, a server's id, `/` and a number | a request, under the requesting server's lease |
| `a/` and the same | its answer, under the publisher's lease |

A publisher removes a request before carrying it out: none is carried out twice. Without an answer, the outcome is
unknown.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from itertools import count
from typing import Any

from fsxds.fleet.content import FleetContent
from fsxds.fleet.key_values import (
    Delete,
    EngineError,
    Guard,
    Lease,
    LeaseLostError,
    followed,
)
from fsxds.model.errors import ProtocolError
from fsxds.snapshots.encoding import DAMAGE, DamagedBytesError
from fsxds.transports.admin.admin_api import written

ANSWER_WITHIN_S = 10.0

Request = Mapping[str, Any]
Answer = Callable[[Request], Awaitable[object]]
"""Carries a request out, and returns a value for JSON; ProtocolError if it cannot be done."""


class FleetCommands:
    """Sends requests to the publisher."""

    def __init__(self, content: FleetContent, lease: Lease, name: str) -> None:
        self.content = content
        self._lease = lease
        self._name = name
        self._numbers = count(1)

    async def ask(self, request: Request, within_s: float = ANSWER_WITHIN_S) -> Any:
        """Return the answer. ProtocolError: an error, or none in time."""
        lease, engine, keys = self._lease.current.current, self.content.engine, self.content.keys
        if not lease:
            raise ProtocolError(
                f"the fleet cannot be asked: {self._lease.reason or 'etcd does not answer'}", "UNAVAILABLE"
            )
        place = f"{self._name}/{next(self._numbers)}".encode()
        key, answer_key = keys.commands + place, keys.answers + place
        try:
            async with asyncio.timeout(within_s):
                put = self.content.put(key, written({**request, "server": self._name}), lease)
                revision = await engine.write([put])
                async with aclosing(engine.watch(answer_key, revision or 0)) as watching:
                    async for changed in watching:
                        if (found := changed.values.get(answer_key)) is not None:
                            answer = json.loads(self.content.sealing.opened(answer_key, found.value))
                            if "error" in answer:
                                raise ProtocolError(str(answer["error"]), str(answer["code"]))
                            return answer["result"]
        except TimeoutError as error:
            fact = f"no server answered within {within_s:g} s; the command may still be carried out"
            raise ProtocolError(f"{fact}: fsxds rollout status shows it", "UNAVAILABLE") from error
        except (EngineError, DamagedBytesError) as error:
            raise ProtocolError(f"the fleet cannot be asked: {error}", "UNAVAILABLE") from error
        finally:
            with suppress(EngineError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await engine.write([Delete(key), Delete(answer_key)])
        raise ProtocolError("the fleet cannot be asked", "UNAVAILABLE")


class CommandedPublisher:
    """Answers while `fence` holds. Run `keep_answered`."""

    def __init__(self, content: FleetContent, fence: Guard, lease: int, answer: Answer) -> None:
        self._content = content
        self._fence = fence
        self._lease = lease
        self._answer = answer

    async def keep_answered(self) -> None:
        """Answer until cancelled. EngineError: requests are unreadable."""
        async with aclosing(followed(self._content.engine, self._content.keys.commands)) as following:
            async for values, _ in following:
                for key, one in values.items():
                    if one is not None:
                        await self._take(key, one.value, one.modified)

    async def _take(self, key: bytes, value: bytes, modified: int) -> None:
        engine, keys = self._content.engine, self._content.keys
        if await engine.write([Delete(key)], [self._fence, Guard(key, modified=modified)]) is None:
            return
        result: Mapping[str, object]
        try:
            result = {"result": await self._answer(json.loads(self._content.sealing.opened(key, value)))}
        except ProtocolError as error:
            result = {"error": str(error), "code": error.code}
        except (DamagedBytesError, *DAMAGE) as error:
            words = (
                f"the publisher does not understand the request ({type(error).__name__}); all servers need one version"
            )
            result = {"error": words, "code": "UNIMPLEMENTED"}
        answer_key = keys.answers + key[len(keys.commands) :]
        with suppress(LeaseLostError):
            await engine.write([self._content.put(answer_key, written(result), self._lease)], [self._fence])
