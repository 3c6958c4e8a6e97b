"""Follow a server for as long as one likes: each update, and each trouble on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fsxds.watching.clients import Client
from fsxds.watching.updates import LostError, Update, WrongAnswerError

# Long enough that a server that refuses is left in peace, short enough for who looks on.
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What came between, in words; `is_final`: nothing will come any more. `code` is that of LostError, or `NACK`."""

    text: str
    code: str
    is_final: bool = False


async def follow(client: Client, first_pause_s: float = FIRST_PAUSE_S) -> AsyncGenerator[Update | Trouble, None]:
    """Yield what a client is told, each update accepted; connect again when it is lost, with pauses that grow."""
    pause_s = first_pause_s
    while True:
        try:
            update = await client.next()
        except WrongAnswerError as error:
            yield Trouble(f"refused an answer: {error}", "NACK")
        except LostError as error:
            yield Trouble(str(error), error.code, error.is_final)
            if error.is_final:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        else:
            client.ack()
            pause_s = first_pause_s
            yield update
