"""Ask a running Envoy what it thinks of resources, one at a time, in the way it gets them from fsxds: as files.

Each seed has its own subscription by path in one long-running Envoy. A resource is moved over the file, and the
counters of the subscription tell the verdict, the log the reason. That is 3 ms for a resource instead of the 55 ms of
`--mode validate`, and it is the path of dynamic resources, whose checks are not always those of static ones. Only where
the machine and not the resource is at fault (a port in use, an address of another machine), `--mode validate` is asked.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import shutil
import tempfile
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.agreement import envoy_bootstrap
from tests.agreement.envoy_bootstrap import COUNTERS
from tests.agreement.seeds import Seed
from tests.support.envoy import Envoy
from tests.support.envoy_admin import EnvoyError
from tests.support.patience import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Verdict:
    """What Envoy thinks of a resource, and its words where it rejects it."""

    accepted: bool
    words: str = ""
    crashed: bool = False


class EnvoyJudge:
    """One Envoy that reads files of one suffix; a context manager. It is started again after a crash."""

    def __init__(self, seeds: tuple[Seed, ...], suffix: str) -> None:
        self._seeds = seeds
        self._suffix = suffix
        self._folder = Path(tempfile.mkdtemp(prefix="agreement-"))
        self._envoy: Envoy | None = None
        self._admin: http.client.HTTPConnection | None = None
        self._log_offset = 0
        self._to_reset: set[Path] = set()

    def __enter__(self) -> Self:
        """Start it with every seed in its place."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop it, and take its files away."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, seed: Seed, text: str) -> Verdict:
        """Give it a document in the place of the seed's."""
        if self._envoy is None:
            self._start()
        site = envoy_bootstrap.site_of(seed, self._folder, self._suffix)
        try:
            if site.path in self._to_reset:
                self._ask(site, json.dumps(site.at_start))
                self._to_reset.discard(site.path)
            return self._ask(site, text)
        except (EnvoyError, OSError, http.client.HTTPException):
            words = self._last_words()
            self._stop()
            return Verdict(accepted=False, words=words, crashed=True)

    def _ask(self, site: envoy_bootstrap.Site, text: str) -> Verdict:
        before = self._counts(site.scope)
        self._read_log()
        temporary = site.path.with_name(f".{site.path.name}")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(site.path)
        deadline = time.monotonic() + PATIENCE_S
        while (after := self._counts(site.scope)) == before:
            if time.monotonic() > deadline:
                raise EnvoyError("no verdict")
            time.sleep(0.0005)
        is_accepted = after["update_success"] > before["update_success"]
        # What came before must not matter. A secret that was rejected is accepted when it comes again, since nothing
        # has changed; of a listener that is there, not everything can be changed.
        if is_accepted == (site.scope == "listener_manager.lds"):
            self._to_reset.add(site.path)
        if is_accepted:
            return Verdict(accepted=True)
        return Verdict(accepted=False, words=self._read_log())

    def _counts(self, scope: str) -> dict[str, int]:
        assert self._admin is not None
        query = urllib.parse.urlencode({"filter": rf"^{re.escape(scope)}\.({'|'.join(COUNTERS)})$"})
        self._admin.request("GET", f"/stats?{query}")
        text = self._admin.getresponse().read().decode()
        counts = dict.fromkeys(COUNTERS, 0)
        for line in text.splitlines():
            name, _, value = line.rpartition(": ")
            counts[name.rpartition(".")[2]] = int(value)
        return counts

    def _read_log(self) -> str:
        assert self._envoy is not None
        with self._envoy.log_path.open("rb") as log:
            log.seek(self._log_offset)
            new = log.read()
        self._log_offset += len(new)
        return new.decode(errors="replace").strip()

    def _start(self) -> None:
        for seed in self._seeds:
            site = envoy_bootstrap.site_of(seed, self._folder, self._suffix)
            site.path.write_text(json.dumps(site.at_start), encoding="utf-8")
        envoy_bootstrap.write_fixed_files(self._folder)
        bootstrap = envoy_bootstrap.bootstrap(self._seeds, self._folder, self._suffix)
        arguments = ["--reject-unknown-dynamic-fields", "--log-format", "%v"]
        self._envoy = Envoy(bootstrap, log_level="warning", extra_args=arguments, cwd=self._folder).start()
        self._admin = http.client.HTTPConnection(*self._envoy.admin, timeout=PATIENCE_S)
        self._log_offset = 0

    def _last_words(self) -> str:
        assert self._envoy is not None
        with contextlib.suppress(OSError):
            return self._read_log()
        return ""

    def _stop(self) -> None:
        if self._admin is not None:
            self._admin.close()
        if self._envoy is not None:
            self._envoy.stop()
        self._envoy = None
        self._to_reset.clear()
