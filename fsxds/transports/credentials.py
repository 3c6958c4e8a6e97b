"""Reads the token files: at the start, with new settings, and on changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Never

from fsxds.events.event import Observer
from fsxds.events.process_events import TokensExposed, TokensKept, TokensRead
from fsxds.model.errors import UsageError
from fsxds.runtime.access import Access, AccessInUse
from fsxds.runtime.views import Views
from fsxds.settings.access_rules import Tokens, read_tokens
from fsxds.settings.options import Settings

# In seconds. Content is used once two looks found the same, as a file may be half written.
LOOK_EVERY_S = 1.0


def read_access(settings: Settings) -> Access:
    """Return the access rules of these settings, with tokens.

    Raises:
        UsageError: a file cannot be used.
    """
    return Access(
        rules=settings.access,
        tokens=None if settings.tokens is None else read_tokens(settings.tokens),
        admin_tokens=None if settings.admin_token is None else read_tokens(settings.admin_token),
        views=Views(settings.views, settings.variables),
        has_insecure_secrets=settings.insecure_secrets,
    )


class Credentials:
    """Follows access settings and token files; `keep_current` is a task.

    Raises:
        UsageError: a file cannot be used.
    """

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self.access = AccessInUse(read_access(settings))
        self._observer = observer
        self._settings = settings
        # By file, its tokens or problem: as of the last look, and as last used or reported.
        self._seen: dict[Path, Tokens | str] = {}
        self._decided: dict[Path, Tokens | str] = {}
        self._begin(self.access.current)

    def change(self, settings: Settings, access: Access) -> None:
        """Switch settings; `access` is their `read_access`."""
        self._settings = settings
        self._begin(access)
        self.access.replace(access)

    async def keep_current(self) -> Never:
        """Look at the files periodically, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            settings = self._settings
            paths = [path for path in (settings.tokens, settings.admin_token) if path is not None]
            found = {path: await asyncio.to_thread(_look_at, path) for path in dict.fromkeys(paths)}
            if self._settings is settings:
                self._receive(found)

    def _begin(self, access: Access) -> None:
        self._seen.clear()
        self._decided.clear()
        for path, tokens in ((self._settings.tokens, access.tokens), (self._settings.admin_token, access.admin_tokens)):
            if path is not None and tokens is not None:
                self._decided[path] = tokens
                unknown = access.unknown_tokens if path == self._settings.tokens else ()
                self._report(path, tokens, unknown)

    def _receive(self, found: dict[Path, Tokens | str]) -> None:
        settled = {path: now for path, now in found.items() if self._seen.get(path) == now != self._decided.get(path)}
        self._seen = found
        self._decided |= settled
        for path, now in settled.items():
            if isinstance(now, str):
                self._observer(TokensKept(path, now))
                continue
            access = self.access.current
            if path == self._settings.tokens:
                access = replace(access, tokens=now)
            if path == self._settings.admin_token:
                access = replace(access, admin_tokens=now)
            self._report(path, now, access.unknown_tokens if path == self._settings.tokens else ())
            self.access.replace(access)

    def _report(self, path: Path, tokens: Tokens, unknown: tuple[str, ...]) -> None:
        self._observer(TokensRead(path, len(tokens.digests), unknown))
        if tokens.is_exposed:
            self._observer(TokensExposed(path))


def _look_at(path: Path) -> Tokens | str:
    try:
        return read_tokens(path)
    except UsageError as error:
        return str(error)
