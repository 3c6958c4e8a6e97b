"""A server at an address, as a component that can start again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Never

from fsxds.errors import UsageError
from fsxds.settings.forms import Address
from fsxds.transports.sockets import until_lost, until_removed


class Listener:
    """A server at an address: a component, which is bound again where it was bound when it has to start again.

    `is_shared`: another process may listen there too, or put its unix socket in the place of this one.

    Attributes:
        address: where it is bound, once `is_up` is set.
    """

    def __init__(
        self,
        address: Address,
        listen: Callable[[Address], AbstractAsyncContextManager[Address]],
        *,
        is_shared: bool = False,
    ) -> None:
        self.address = address
        self.is_up = asyncio.Event()
        self._listen = listen
        self._is_shared = is_shared

    async def serve(self) -> Never:
        """Listen until cancelled, or until nobody can connect any more, which is a UsageError."""
        async with self._listen(self.address) as self.address:
            self.is_up.set()
            if self._is_shared:
                await until_removed(self.address)
                raise UsageError(f"{self.address}: the socket was removed")
            await until_lost(self.address)
            raise UsageError(f"{self.address}: the socket was removed or replaced")
