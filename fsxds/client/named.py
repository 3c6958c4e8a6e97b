"""Reads resources by HTTP GET, each by its name: of types that have no polls, such as list collections.

| rule | source |
| --- | --- |
| The name stands in the path as it is written: any server of fsxds finds it there, whatever its own authority is. | `protocol/get.py` |
| The serialized message is asked for: JSON has URLs in place of locators. | xRFC TP1, "HTTP transport" |
| Each is asked for with the tag that it had; the server may hold the answer for a client that asks for one name. | RFC 9110, 13.1.2; RFC 7240, 4.3 |
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from fsxds.client.listed import MISSING, NOT_MODIFIED, OK, Fetch
from fsxds.client.updates import ELSEWHERE, ConnectionLostError, Update, UpdateContents
from fsxds.model.resource_types import ResourceType
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import Nonce, Version
from fsxds.protocol.subscription import WILDCARD

PROTOBUF = "application/x-protobuf"


@dataclass(frozen=True, slots=True)
class _LastRead:
    """What was read of a name last: a resource, or why it is none; with neither there is nothing."""

    tag: str = ""
    resource: Resource | None = None
    fault: str = ""


class NamedReader:
    """Reads one type at one server, again and again. `read` may be cancelled.

    Attributes:
        names: what is wanted; `*` among them is not answered, because no list has names that this could read.
    """

    def __init__(self, row: ResourceType, fetch: Fetch) -> None:
        """Read nothing yet."""
        self.names: frozenset[str] = frozenset()
        self._row = row
        self._fetch = fetch
        self._read: dict[str, _LastRead] = {}
        # The digest of what was returned last.
        self._returned = ""

    async def read(self, hold_s: float) -> tuple[Update, UpdateContents] | None:
        """Return all that is there of the names, if it is something else than before; None also without names.

        Args:
            hold_s: for so long the server may hold the answer where there is nothing new.

        Raises:
            ConnectionLostError: the server does not answer, or not with resources.
        """
        self._read = {name: self._read.get(name, _LastRead()) for name in sorted(self.names - {WILDCARD})}
        if not self._read:
            return None
        may_wait = bool(self._returned) and len(self._read) == 1
        for name in self._read:
            self._read[name] = await self._fetched(name, hold_s if may_wait else 0.0)
        contents = UpdateContents(self._row.type_url)
        for name, found in self._read.items():
            if found.fault:
                contents.reject(name, f"{name}: {found.fault}")
            elif found.resource is not None:
                contents.add(found.resource)
        texts = (
            f"{name}\0{each.tag}\0{each.resource and each.resource.version}\0{each.fault}"
            for name, each in self._read.items()
        )
        version = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]
        if version == self._returned:
            return None
        self._returned = version
        update = Update(
            self._row.type_url,
            Version(version),
            Nonce(version),
            contents.frozen(),
            is_full=WILDCARD not in self.names,
            unpopulated=tuple(name for name, each in self._read.items() if not each.fault and each.resource is None),
        )
        return update, contents

    async def _fetched(self, name: str, hold_s: float) -> _LastRead:
        before, path = self._read[name], f"/{self._row.message_type}/{quote(name, '')}"
        headers = {"Accept": PROTOBUF} | ({"If-None-Match": before.tag} if before.tag else {})
        fetched = await self._fetch(path, headers | ({"Prefer": f"wait={hold_s:g}"} if hold_s else {}))
        if fetched.status == NOT_MODIFIED and before.tag:
            return before
        if fetched.status in MISSING:
            return _LastRead()
        if fetched.status != OK:
            raise ConnectionLostError(f"{path}: the server responds with status {fetched.status}", str(fetched.status))
        if fetched.headers.get("content-type", "").partition(";")[0] != PROTOBUF:
            return _LastRead(fault="the server has it in another form than protobuf")
        version = version_of_body(self._row.type_url, fetched.body)
        return _LastRead(
            fetched.headers.get("etag", ""), Resource(self._row.type_url, name, fetched.body, version, ELSEWHERE)
        )
