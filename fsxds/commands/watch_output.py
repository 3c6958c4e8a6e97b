"""How `fsxds watch` prints: the server's words on stdout, its own on stderr."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from typing import Protocol

from rich.console import Console
from rich.text import Text

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker, mask_text
from fsxds.comparison.changes import Difference, ResourceChange, TypeDifference
from fsxds.comparison.resources import Comparer
from fsxds.errors import ApiError, UsageError
from fsxds.operations.log_lines import escape
from fsxds.reports.watch_json import step_json
from fsxds.reports.watch_text import step_lines
from fsxds.watching.endings import WRONG_PROTOCOL
from fsxds.watching.follow import Trouble
from fsxds.watching.holdings import Step

# An answer to a name that exists comes at once; who waits longer wants to know why.
QUIET_S = 5.0

HOW_TO_KNOW_THE_TYPES = "give the server's Envoy by --envoy, or its types by --descriptors"
NOTHING_YET = (
    "nothing was told so far: the server has loaded nothing good yet, "
    "or a name that was asked for does not exist, which SotW does not say of all types"
)
_REMEDIES = {
    "UNAVAILABLE": "; trying again until a server is there",
    "UNIMPLEMENTED": "; another way may be: --ads, --delta, or --rest at the address of REST",
    "404": "; is this the address of REST?",
    WRONG_PROTOCOL: "; if it is the address of REST, add --rest",
}


def tell(text: str) -> None:
    """Print a line that is not the server's word."""
    print(f"{_now()} {escape(mask_text(text))}", file=sys.stderr, flush=True)


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


class Output(Protocol):
    """What prints steps."""

    def step(self, step: Step) -> None:
        """Print one."""


class TextOutput:
    """Prints steps for people."""

    def __init__(self, catalogue: Catalogue, names: tuple[str, ...]) -> None:
        self._console = Console(highlight=False)
        self._comparer = Comparer(catalogue)
        self._names = names

    def step(self, step: Step) -> None:
        """Print a step: when it came, and what it changed."""
        head, *lines = step_lines(step, self._difference(step), self._names)
        self._console.print(Text.assemble((f"{_now()} ", "dim"), head), soft_wrap=True)
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def _difference(self, step: Step) -> Difference:
        try:
            return self._comparer.compare(*step.snapshots)
        except ApiError as error:
            tell(f"{error}; {HOW_TO_KNOW_THE_TYPES}")
            return by_content(step)


class JsonOutput:
    """Prints steps for programs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._comparer = Comparer(catalogue)
        self._masker = Masker(catalogue)

    def step(self, step: Step) -> None:
        """Print a step as one line; UsageError where a resource cannot be written as JSON."""
        try:
            print(step_json(step, self._comparer.compare(*step.snapshots), self._masker), flush=True)
        except ApiError as error:
            raise UsageError(f"{error}; {HOW_TO_KNOW_THE_TYPES}") from error


def by_content(step: Step) -> Difference:
    """Compare what was held with what is held without a look inside, where the messages are not known."""
    before, after = step.before, step.after
    changed = (name for name in sorted(after) if name in before and after[name] != before[name])
    found = TypeDifference(
        step.update.type_url,
        tuple(after[name] for name in sorted(after) if name not in before),
        tuple(before[name] for name in sorted(before) if name not in after),
        tuple(ResourceChange(before[name], after[name], ()) for name in changed),
    )
    return Difference((found,) if found.added or found.removed or found.changed else ())


class Troubles:
    """Tells of a server that is silent, is lost, and is back; the same trouble once."""

    def __init__(self) -> None:
        self._last = ""
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(QUIET_S, tell, NOTHING_YET)

    def updated(self) -> None:
        """The server told something."""
        self._silence.cancel()

    def connected(self) -> None:
        """There is a connection, or an answer."""
        if self._last:
            tell("connected again")
        self._last = ""

    def happened(self, trouble: Trouble) -> None:
        """Something came between. Raises UsageError where it is for good."""
        self._silence.cancel()
        text = f"{trouble.text}{_REMEDIES.get(trouble.code, '')}"
        if trouble.is_final:
            raise UsageError(text)
        if text != self._last:
            tell(text)
        self._last = text
