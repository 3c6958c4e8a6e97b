"""The output of `fsxds watch`: updates on stdout, the connection on stderr."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from types import MappingProxyType

from rich.console import Console
from rich.text import Text

from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker, mask_text
from fsxds.client.connection import Trouble
from fsxds.client.updates import WRONG_PROTOCOL, Update
from fsxds.events.event import escape, noun_of, type_name
from fsxds.model.errors import ApiError, UsageError
from fsxds.model.resources import Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.tools.diff.compare import Comparer, Difference, ResourceChange, TypeDifference
from fsxds.tools.diff.difference import STYLES, Compared, Side, counts_text, field_content, text_lines


@dataclass(frozen=True, slots=True)
class HoldingsUpdate:
    """An update of one type.

    Attributes:
        is_first: of its type.
        absent: removed or missing names not held.
    """

    update: Update
    before: Mapping[str, Resource]
    after: Mapping[str, Resource]
    is_first: bool
    absent: tuple[str, ...]

    @property
    def snapshots(self) -> tuple[Snapshot, Snapshot]:
        """The resources before and after."""
        type_url = self.update.type_url
        return Snapshot(0, {type_url: Rows(type_url, self.before)}), Snapshot(1, {type_url: Rows(type_url, self.after)})


class Holdings:
    """The resources of a client that ACKs everything."""

    def __init__(self) -> None:
        self._rows: dict[TypeUrl, Mapping[str, Resource]] = {}

    def of(self, type_url: TypeUrl) -> Mapping[str, Resource]:
        """Return the held resources of a type."""
        return self._rows.get(type_url, MappingProxyType({}))

    def take(self, update: Update) -> HoldingsUpdate:
        """Apply an update."""
        before = self.of(update.type_url)
        is_first = update.type_url not in self._rows
        # Servers may give several versions to equal content.
        received = {
            name: replace(one, version=version_of_body(one.type_url, one.redirect.encode() or one.body))
            for name, one in update.resources.items()
        }
        kept = {} if update.is_full else dict(before)
        gone = (*update.removed, *update.unpopulated)
        for name in gone:
            kept.pop(name, None)
        after = MappingProxyType(kept | received)
        self._rows[update.type_url] = after
        return HoldingsUpdate(update, before, after, is_first, tuple(name for name in gone if name not in before))


# A longer first list is useless on a terminal; the JSON has all names.
MOST_LISTED = 20

_DIGEST = re.compile("[0-9a-f]{32}")
_SHORT_DIGITS = 12
_LONGEST_VERSION = 60
_HERE = Side("", None)


def update_lines(step: HoldingsUpdate, difference: Difference, wanted: Collection[str]) -> Iterator[Text]:
    """Yield a heading, then a first update's names, or changes.

    `wanted` names are empty for a wildcard.
    """
    version = step.update.version
    short = version[:_SHORT_DIGITS] if _DIGEST.fullmatch(version) else escape(version)[:_LONGEST_VERSION]
    yield Text.assemble(
        (escape(noun_of(step.update.type_url)), "bold"),
        f": {_headline(step, difference)}",
        (f"  version {short}" if version else "", "dim"),
    )
    if step.is_first:
        for name, resource in islice(sorted(step.after.items()), MOST_LISTED):
            ttl = f"  ttl {resource.ttl_s:g}s" if resource.ttl_s is not None else ""
            aliases = f"  aliases {escape(', '.join(resource.aliases))}" if resource.aliases else ""
            redirect = f"  redirects to {escape(resource.redirect)}" if resource.redirect else ""
            yield Text.assemble("  ", escape(name), (f"{ttl}{aliases}{redirect}", "dim"))
        if len(step.after) > MOST_LISTED:
            yield Text(f"  … and {len(step.after) - MOST_LISTED} more", "dim")
        left_out = (name for name in wanted if name not in step.after and name != "*") if step.update.is_full else ()
        yield from _absent_lines(tuple(dict.fromkeys((*left_out, *_absent_names(step, wanted)))))
    else:
        yield from islice(text_lines(Compared(_HERE, _HERE, difference)), 1, None)
        yield from _absent_lines(_absent_names(step, wanted))


def _headline(step: HoldingsUpdate, difference: Difference) -> str:
    if step.is_first:
        return str(len(step.after)) if step.after else "none"
    for row in difference.types:
        return counts_text(row)
    if step.update.resources:
        return f"{len(step.update.resources)} sent again, nothing changed"
    if step.update.heartbeats:
        return f"{len(step.update.heartbeats)} kept alive"
    return "nothing changed"


def _absent_names(step: HoldingsUpdate, wanted: Collection[str]) -> Iterator[str]:
    # `<route configuration>/*` without a subscription ends an Envoy's wait for virtual hosts, and is no name.
    return (name for name in step.absent if name in wanted or not name.endswith("/*"))


def _absent_lines(names: Iterable[str]) -> Iterator[Text]:
    for name in names:
        yield Text.assemble("  ", (f"- {escape(name)}", STYLES["-"]), ("  does not exist", "dim"))


def update_json(step: HoldingsUpdate, difference: Difference, masker: Masker) -> str:
    """Return a line of JSON, secrets hidden."""
    update = step.update
    found = difference.types[0] if difference.types else TypeDifference(update.type_url)
    changed = {resource.name for resource in found.added} | {change.after.name for change in found.changed}
    content: dict[str, PlainValue] = {
        "type": type_name(update.type_url),
        "version": update.version,
        "nonce": update.nonce,
        "is_full": update.is_full,
        "added": [_resource(resource, step, masker) for resource in found.added],
        "changed": [
            {**_resource(change.after, step, masker), "fields": [field_content(field) for field in change.fields]}
            for change in found.changed
        ],
        "removed": [resource.name for resource in found.removed],
        "absent": [*step.absent],
        "unchanged": [name for name in step.update.resources if name not in changed],
        "heartbeats": [*update.heartbeats],
    }
    return json.dumps(content)


def _resource(resource: Resource, step: HoldingsUpdate, masker: Masker) -> dict[str, PlainValue]:
    return {
        "name": resource.name,
        "version": step.update.resources.get(resource.name, resource).version,
        **({"aliases": [*resource.aliases]} if resource.aliases else {}),
        **({"ttl_s": resource.ttl_s} if resource.ttl_s is not None else {}),
        **(
            {"redirect": resource.redirect}
            if resource.redirect
            else {"resource": masker.shown(resource.type_url, resource.body)}
        ),
    }


# The response for an existing name comes at once; after this time the user gets the possible reasons for silence.
QUIET_S = 5.0

HOW_TO_KNOW_THE_TYPES = "give the server's Envoy by --envoy, or its types by --descriptors"
NOTHING_YET = (
    "no response so far: the server has loaded no good content yet, "
    "or a name does not exist, which SotW does not say of all types"
)
_REMEDIES = {
    "UNAVAILABLE": "; trying again until a server is there",
    "UNIMPLEMENTED": "; another way may be: --ads, --delta, or --rest at the address of REST",
    "404": "; is this the address of REST?",
    WRONG_PROTOCOL: "; if it is the address of REST, add --rest",
}


def report(text: str) -> None:
    """Print a line to stderr."""
    print(f"{_now()} {escape(mask_text(text))}", file=sys.stderr, flush=True)


def _now() -> str:
    return f"{datetime.now().astimezone():%H:%M:%S}"


class TextOutput:
    """Prints updates as text."""

    def __init__(self, catalogue: Catalogue, names: tuple[str, ...]) -> None:
        self._console, self._comparer, self._names = Console(highlight=False), Comparer(catalogue), names

    def step(self, step: HoldingsUpdate) -> None:
        """Print an update with its time."""
        try:
            difference = self._comparer.compare(*step.snapshots)
        except ApiError as error:
            report(f"{error}; {HOW_TO_KNOW_THE_TYPES}")
            difference = by_content(step)
        head, *lines = update_lines(step, difference, self._names)
        self._console.print(Text.assemble((f"{_now()} ", "dim"), head), soft_wrap=True)
        for line in lines:
            self._console.print(line, soft_wrap=True)


class JsonOutput:
    """Prints updates as JSON."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._comparer, self._masker = Comparer(catalogue), Masker(catalogue)

    def step(self, step: HoldingsUpdate) -> None:
        """Print a line; raises UsageError if JSON cannot hold a resource."""
        try:
            print(update_json(step, self._comparer.compare(*step.snapshots), self._masker), flush=True)
        except ApiError as error:
            raise UsageError(f"{error}; {HOW_TO_KNOW_THE_TYPES}") from error


def by_content(step: HoldingsUpdate) -> Difference:
    """Compare by content, without the message types."""
    before, after = step.before, step.after
    added = tuple(after[name] for name in sorted(after.keys() - before.keys()))
    removed = tuple(before[name] for name in sorted(before.keys() - after.keys()))
    both = ((before[name], after[name]) for name in sorted(before.keys() & after.keys()))
    changed = tuple(ResourceChange(was, now, ()) for was, now in both if was != now)
    found = TypeDifference(step.update.type_url, added, removed, changed)
    return Difference((found,) if found.added or found.removed or found.changed else ())


class TroubleReporter:
    """Reports silence, loss and return, once each."""

    def __init__(self) -> None:
        self._last = ""
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(QUIET_S, report, NOTHING_YET)

    def updated(self) -> None:
        """Process an update."""
        self._silence.cancel()

    def connected(self) -> None:
        """Process a connection."""
        if self._last:
            report("connected again")
        self._last = ""

    def happened(self, trouble: Trouble) -> None:
        """Raise UsageError for a final interruption."""
        self._silence.cancel()
        text = f"{trouble.text}{_REMEDIES.get(trouble.code, '')}"
        if trouble.is_final:
            raise UsageError(text)
        if text != self._last:
            report(text)
        self._last = text
