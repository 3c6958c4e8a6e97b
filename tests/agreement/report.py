"""Tables and lists of where the two agree, and where not."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator

from tests.agreement.causes import cause_of, last_line
from tests.agreement.comparing import Opinion

WIDTH = 30


def table(opinions: list[Opinion], group: Callable[[Opinion], str]) -> Iterator[str]:
    """Yield the lines of a table with a row for every group, and one for all."""
    groups: defaultdict[str, list[Opinion]] = defaultdict(list)
    for opinion in opinions:
        groups[group(opinion)].append(opinion)
    heads = ("cases", "envoy rejects", "fsxds rejects", "false alarms", "missed", "alarms %", "missed %")
    yield " " * WIDTH + "".join(f"{head:>15}" for head in heads)
    for name, members in (*sorted(groups.items()), ("all", opinions)):
        yield f"{name:<{WIDTH}}" + "".join(f"{figure:>15}" for figure in _figures(members))


def _figures(opinions: list[Opinion]) -> tuple[str, ...]:
    rejected = sum(not one.envoy.accepted for one in opinions)
    alarms = sum(one.is_false_alarm for one in opinions)
    missed = sum(one.is_missed for one in opinions)
    accepted = len(opinions) - rejected
    alarmed = 100 * alarms / accepted if accepted else 0.0
    share = 100 * missed / rejected if rejected else 0.0
    ours = sum(bool(one.errors) for one in opinions)
    return (*map(str, (len(opinions), rejected, ours, alarms, missed)), f"{alarmed:.2f}", f"{share:.1f}")


def disagreements(opinions: Iterable[Opinion], cause: Callable[[Opinion], str]) -> Iterator[str]:
    """Yield the lines of a list, grouped by cause, the most frequent first."""
    groups: defaultdict[str, list[Opinion]] = defaultdict(list)
    for opinion in opinions:
        groups[cause(opinion)].append(opinion)
    for name, members in sorted(groups.items(), key=lambda group: -len(group[1])):
        yield f"\n## {len(members)} cases: {name}"
        for one in members:
            yield f"- {one.case.name} {one.case.change} ({one.case.suffix})"
            if one.errors:
                yield f"    fsxds: {one.errors[0].rule}: {one.errors[0].pointer}: {one.errors[0].message}"
            if not one.envoy.accepted:
                crash = "CRASH " if one.envoy.crashed else ""
                yield f"    envoy: {crash}{_last_words(one)}"


def _last_words(opinion: Opinion) -> str:
    line = last_line(opinion.envoy.words)
    shown = re.sub(r"(.)\1{30,}", r"\1…", line)
    return shown if len(shown) < 400 else f"{shown[:150]} … {shown[-250:]}"


def alarm_cause(opinion: Opinion) -> str:
    """Group false alarms by our rule."""
    return f"{opinion.errors[0].rule} ({opinion.case.mutation})"


def miss_cause(opinion: Opinion) -> str:
    """Group what is missed by Envoy's words."""
    return "Envoy crashes" if opinion.envoy.crashed else cause_of(opinion.envoy.words)


def causes(opinions: Iterable[Opinion]) -> Counter[str]:
    """Count what is missed by its cause."""
    return Counter(miss_cause(one) for one in opinions if one.is_missed)
