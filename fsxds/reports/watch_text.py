"""What a watched server tells, for people at a terminal: a short list first, then what changed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from rich.text import Text

from fsxds.comparison.changes import Difference
from fsxds.operations.log_lines import escape
from fsxds.reports.difference_text import STYLES, text_lines
from fsxds.reports.difference_words import Compared, Side, worded_counts
from fsxds.resource_types import BY_TYPE_URL
from fsxds.resources import Resource
from fsxds.watching.holdings import Step

# A first list of more names is of no use to people; the JSON has all.
MOST_LISTED = 20

_DIGEST = re.compile("[0-9a-f]{32}")
_SHORT_DIGITS = 12
_LONGEST_VERSION = 60
_HERE = Side("", None)


def step_lines(step: Step, difference: Difference, wanted: Collection[str]) -> Iterator[Text]:
    """Yield the lines of one step: a heading, and what it is about.

    Args:
        step: the step.
        difference: what became of what was held by it.
        wanted: the names that are asked for; none for everything.
    """
    yield Text.assemble((_noun(step), "bold"), f": {_headline(step, difference)}", (_version(step), "dim"))
    if step.is_first:
        yield from _listed(step.after)
        yield from _absent_lines(_missing(step, wanted))
    else:
        yield from islice(text_lines(Compared(_HERE, _HERE, difference)), 1, None)
        yield from _absent_lines(_told_absent(step, wanted))


def _noun(step: Step) -> str:
    row = BY_TYPE_URL.get(step.update.type_url)
    return row.noun if row else escape(step.update.type_url)


def _headline(step: Step, difference: Difference) -> str:
    if step.is_first:
        return str(len(step.after)) if step.after else "none"
    for row in difference.types:
        return worded_counts(len(row.added), len(row.changed), len(row.removed))
    if step.update.resources:
        return f"{len(step.update.resources)} told again, nothing changed"
    if step.update.heartbeats:
        return f"{len(step.update.heartbeats)} kept alive"
    return "nothing changed"


def _version(step: Step) -> str:
    version = step.update.version
    if not version:
        return ""
    short = version[:_SHORT_DIGITS] if _DIGEST.fullmatch(version) else escape(version)[:_LONGEST_VERSION]
    return f"  version {short}"


def _missing(step: Step, wanted: Collection[str]) -> tuple[str, ...]:
    """Return the names that the first answer says are not there: by its own word, or by leaving them out of all."""
    left_out = (name for name in wanted if name not in step.after and name != "*") if step.update.is_full else ()
    return tuple(dict.fromkeys((*left_out, *_told_absent(step, wanted))))


def _told_absent(step: Step, wanted: Collection[str]) -> Iterator[str]:
    # `<route configuration>/*` that nobody asked for ends an Envoy's wait for virtual hosts, and is the name of none.
    return (name for name in step.absent if name in wanted or not name.endswith("/*"))


def _listed(rows: Mapping[str, Resource]) -> Iterator[Text]:
    for name, resource in islice(sorted(rows.items()), MOST_LISTED):
        yield Text.assemble("  ", escape(name), (_around(resource), "dim"))
    if len(rows) > MOST_LISTED:
        yield Text(f"  … and {len(rows) - MOST_LISTED} more", "dim")


def _around(resource: Resource) -> str:
    """Return what stands around a resource, where there is something."""
    ttl = (f"  ttl {resource.ttl_s:g}s",) if resource.ttl_s is not None else ()
    aliases = (f"  aliases {escape(', '.join(resource.aliases))}",) if resource.aliases else ()
    return "".join((*ttl, *aliases))


def _absent_lines(names: Iterable[str]) -> Iterator[Text]:
    for name in names:
        yield Text.assemble("  ", (f"- {escape(name)}", STYLES["-"]), ("  does not exist", "dim"))
