"""The admin page of the Envoy that reads mirrored files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import aiohttp

from fsxds.api.secrets import mask_reason
from fsxds.settings.forms import Address, UnixAddress

Statistics = Mapping[str, str]
"""The values of statistics by their names, as the page writes them; empty where it did not answer."""

PATIENCE_S = 5.0
_OK = 200


class EnvoyPage:
    """Asks an admin page. Where its Envoy ends or starts, or is busy, the answer is empty.

    Args:
        address: where it is.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    async def statistics(self, pattern: str) -> Statistics:
        """Return the statistics whose names match a regular expression, all of one moment."""
        text = await self._get("/stats", {"filter": pattern})
        return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)

    async def listener_errors(self) -> str | None:
        """Return which listeners Envoy rejected last, and why, as it words a NACK; without secrets, None for none."""
        content = await self._get("/config_dump", {"resource": "dynamic_listeners", "mask": "name,error_state.details"})
        errors = "\n".join(_errors(content))
        return mask_reason(f"Error adding/updating listener(s) {errors}") if errors else None

    async def _get(self, path: str, query: Mapping[str, str]) -> str:
        address = self._address
        is_unix = isinstance(address, UnixAddress)
        connector = (
            aiohttp.UnixConnector(str(address.path)) if isinstance(address, UnixAddress) else aiohttp.TCPConnector()
        )
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S)
        url = f"http://{'envoy' if is_unix else address}{path}"
        try:
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
                session.get(url, params=query) as response,
            ):
                return await response.text() if response.status == _OK else ""
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return ""


def _errors(content: str) -> Iterator[str]:
    """Yield `name: why` of each listener in a config dump that has an error."""
    try:
        listeners = json.loads(content)["configs"]
    except (ValueError, KeyError, TypeError):
        return
    for listener in listeners:
        if details := listener.get("error_state", {}).get("details"):
            yield f"{listener.get('name', '')}: {details}"
