"""The rules that problems can break: pages, severities, and `fsxds explain`.

A page in `pages/` is a chapter, each section a rule. Statements about Envoy are verified (ENVOY.md E54).

Rules: which errors become notes when a real Envoy accepts the resource (`cli/check.py` asks it).
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from fsxds.model.errors import UsageError
from fsxds.model.values import PlainValue, Severity

if TYPE_CHECKING:
    # Shell completion reads the names of rules, and has no time to import tree loading or text colouring.
    from rich.text import Text

    from fsxds.snapshots.proposals import Found


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule that a problem can break.

    Attributes:
        meaning: the demand, in one or two sentences.
        is_fixed: a violation leaves nothing to serve: its severity cannot be changed.
        predicts_envoy: it predicts a rejection; if an Envoy that was asked accepts the resource, a problem is a note.
        is_own: an error though Envoy accepts it.
        file: the examples' file name; empty if loading it alone cannot show the problem.
    """

    name: str
    severity: Severity
    meaning: str
    envoy: str
    remedy: str
    wrong: str
    right: str
    is_fixed: bool = False
    file: str = ""
    predicts_envoy: bool = False
    is_own: bool = False


# The pages in their listed order.
PAGES = (
    *("files", "resources", "names", "constraints", "values", "references", "discovery", "redirects", "layers"),
    *("signing", "bootstrap", "envoy", "rollouts"),
)

_SECTION = re.compile(
    r"""
    (?P<name>\S+)\n
    \n\*\*Severity:\*\*\ (?P<severity>\w+)(?P<always>,\ always)?(?P<envoy_says>,\ (unless|though)\ Envoy\ accepts\ it)?\n
    \n(?P<meaning>.+?)\n
    \n\*\*Envoy:\*\*\ (?P<envoy>.+?)\n
    \n\*\*Remedy:\*\*\ (?P<remedy>.+?)\n
    (
        \n\*\*Wrong\*\*(\ in\ `(?P<file>[^`]+)`)?\n
        \n```\w+\n(?P<wrong>.*?)```\n
        \n\*\*Right\*\*\n
        \n```\w+\n(?P<right>.*?)```\n
    )?
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Chapter:
    """The rules of one subject, in order."""

    title: str
    rules: tuple[Rule, ...]


@cache
def chapters() -> Mapping[str, Chapter]:
    """Read all pages, once; by name."""
    folder = files("fsxds") / "lint" / "pages"
    return MappingProxyType({page: read_chapter((folder / f"{page}.md").read_text(encoding="utf-8")) for page in PAGES})


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules, in the pages' order."""
    return MappingProxyType({rule.name: rule for chapter in chapters().values() for rule in chapter.rules})


def read_chapter(page: str) -> Chapter:
    """Read a page; ValueError names a malformed section."""
    title, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    return Chapter(title.removeprefix("# ").strip(), tuple(map(_read_rule, sections)))


def _read_rule(section: str) -> Rule:
    found = _SECTION.fullmatch(section.rstrip() + "\n")
    if found is None:
        raise ValueError(f"the section of this rule has not the form of a page: {section.partition(chr(10))[0]}")
    says = found["envoy_says"] or ""
    meaning, envoy, remedy = (" ".join(found[part].splitlines()) for part in ("meaning", "envoy", "remedy"))
    wrong, right, file = (found[part] or "" for part in ("wrong", "right", "file"))
    is_fixed, severity = found["always"] is not None, Severity(found["severity"])
    flags = is_fixed, file, "unless" in says, "though" in says
    return Rule(found["name"], severity, meaning, envoy, remedy, wrong, right, *flags)


@dataclass(frozen=True, slots=True)
class RuleLevels:
    """The changed severities; None if off."""

    changed: Mapping[str, Severity | None] = field(default_factory=lambda: MappingProxyType({}))

    def adjusted(self, found: Found) -> Found | None:
        """Apply the rule's severity; None if off."""
        severity = self.severity_of(found.rule, found.severity)
        if severity is found.severity:
            return found
        return None if severity is None else replace(found, severity=severity)

    def severity_of(self, rule: str, default: Severity = Severity.ERROR) -> Severity | None:
        """Return a rule's severity; None if off."""
        return self.changed.get(rule, default)

    def __reduce__(self) -> tuple[type[RuleLevels], tuple[dict[str, Severity | None]]]:
        """A read-only view cannot be pickled."""
        return RuleLevels, (dict(self.changed),)


def read_levels(words: Mapping[str, str]) -> RuleLevels:
    """Read severities from words such as `warning` and `off`.

    Raises:
        UsageError: a rule is unknown or cannot be changed.
    """
    for name in words:
        rule = rules().get(name)
        if rule is None:
            near = get_close_matches(name, rules(), 1)
            hint = f"did you mean {near[0]}?" if near else "`fsxds explain` lists the rules"
            raise UsageError(f"rules: there is no rule {name}; {hint}")
        if rule.is_fixed:
            raise UsageError(f"rules: {name}: is always an error: fsxds cannot serve a file that breaks it")
    severities = {severity.value: severity for severity in Severity}
    return RuleLevels({name: severities.get(word) for name, word in words.items()})


WIDEST_PAGE = 100

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
_HEADING = "bold"
_INDENT = "  "


def page_of(rule: Rule, width: int) -> Text:
    """Write a rule's page, `width` cells wide."""
    more = ", though Envoy accepts it" if rule.is_own else ", unless Envoy accepts it" if rule.predicts_envoy else ""
    more += "; its severity cannot be changed" if rule.is_fixed else ""
    page = _assembled((rule.name, _HEADING), ": ", (rule.severity.value, _STYLES[rule.severity]), f"{more}\n")
    for heading, text in (("Demand", rule.meaning), ("Envoy", rule.envoy), ("Remedy", rule.remedy)):
        page.append_text(_section(heading, _wrapped(text, width, _INDENT)))
    file = f" ({rule.file})" if rule.file else ""
    for heading, example, style in (("Wrong", rule.wrong, "red"), ("Right", rule.right, "green")):
        if example:
            page.append_text(_section(f"{heading}{file}", textwrap.indent(example.rstrip(), _INDENT * 2), style))
    return page


def _assembled(*parts: str | tuple[str, str]) -> Text:
    from rich.text import Text

    return Text.assemble(*parts)


def _section(heading: str, text: str, style: str = "") -> Text:
    return _assembled("\n", (f"{heading}\n", _HEADING), (f"{text}\n", style))


def list_of(chapters: Iterable[Chapter], width: int) -> Text:
    """Write all rules by chapter."""
    chapters = tuple(chapters)
    column = max((len(rule.name) for chapter in chapters for rule in chapter.rules), default=0)
    listing = _assembled()
    for number, chapter in enumerate(chapters):
        listing.append("\n" if number else "").append(f"{chapter.title}\n", _HEADING)
        for rule in chapter.rules:
            before, severity = f"{_INDENT}{rule.name:{column}}  ", f"{rule.severity.value:7}  "
            meaning = _wrapped(rule.meaning, width, " " * (len(before) + len(severity))).lstrip()
            listing.append_text(_assembled(before, (severity, _STYLES[rule.severity]), f"{meaning}\n"))
    return listing


def _wrapped(text: str, width: int, indent: str) -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def page_as_markdown(row: Rule) -> str:
    """Write a rule's page in Markdown."""
    parts = [row.meaning, row.envoy, f"**To fix it:** {row.remedy}"]
    examples = ("Wrong", row.wrong), ("Right", row.right)
    parts += [f"{title}:\n\n```yaml\n{text.rstrip()}\n```" for title, text in examples if text]
    return "\n\n".join(part for part in parts if part)


def page_as_json(rule: Rule, chapters: Iterable[Chapter]) -> str:
    """Write a rule's page as JSON."""
    title = next((chapter.title for chapter in chapters if rule in chapter.rules), "")
    return json.dumps(_plain(rule, title), indent=2)


def list_as_json(chapters: Iterable[Chapter]) -> str:
    """Write all rules as a JSON list."""
    rows = [_plain(rule, chapter.title) for chapter in chapters for rule in chapter.rules]
    return json.dumps(rows, indent=2)


def _plain(rule: Rule, chapter: str) -> PlainValue:
    fields = ("is_fixed", "predicts_envoy", "is_own", "meaning", "envoy", "remedy", "file", "wrong", "right")
    known = {field: getattr(rule, field) for field in fields}
    return {"rule": rule.name, "chapter": chapter, "severity": rule.severity.value, **known}
