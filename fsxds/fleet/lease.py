"""The lease of a server: without one it counts as absent, and may not publish."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Never

from fsxds.fleet.key_values import KeyValues, LeaseLostError, RejectedRequestError, UnreachableError
from fsxds.runtime.store import Latest

# The time after which a killed server leaves the fleet, and another one publishes.
TTL_S = 3
KEEP_EVERY_S = 1.0


class Lease:
    """A lease kept alive and replaced; `current` is 0 without one. Run `keep_alive`."""

    def __init__(self, engine: KeyValues) -> None:
        self.current = Latest(0)
        self.reason = ""
        self._engine = engine
        self._kept_s = 0.0

    async def keep_alive(self) -> Never:
        """Keep the lease alive until cancelled."""
        while True:
            began_s = asyncio.get_running_loop().time()
            try:
                if self.current.current:
                    await self._engine.keep_alive(self.current.current)
                else:
                    self._change(await self._engine.grant(TTL_S), "")
                # The time to live began after this.
                self._kept_s = began_s
            except LeaseLostError as error:
                self._change(0, str(error))
                continue
            except (UnreachableError, RejectedRequestError) as error:
                if self.current.current and asyncio.get_running_loop().time() - self._kept_s > TTL_S:
                    self._change(0, str(error))
            await asyncio.sleep(KEEP_EVERY_S)

    def _change(self, lease: int, reason: str) -> None:
        self.reason = reason
        self.current.replace(lease)

    async def revoke(self) -> None:
        """Revoke the lease: other servers need not wait."""
        if lease := self.current.current:
            self._change(0, "it was given back")
            with suppress(UnreachableError, RejectedRequestError):
                await self._engine.revoke(lease)
