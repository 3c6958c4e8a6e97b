"""The book of rules as people and programs read it: a page for each rule, and the list of all."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable

from rich.text import Text

from fsxds.rules.book import Chapter
from fsxds.rules.rule import Rule
from fsxds.values import PlainValue, Severity

WIDEST_PAGE = 100

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
_HEADING = "bold"
_INDENT = "  "


def page_of(rule: Rule, width: int) -> Text:
    """Write all that the book says of a rule, `width` cells wide."""
    fixed = "; its weight cannot be changed" if rule.is_fixed else ""
    page = Text.assemble((rule.name, _HEADING), ": ", (rule.severity.value, _STYLES[rule.severity]), f"{fixed}\n")
    for heading, text in (("Demand", rule.meaning), ("Envoy", rule.envoy), ("Remedy", rule.remedy)):
        page.append_text(_section(heading, _wrapped(text, width, _INDENT)))
    file = f" ({rule.file})" if rule.file else ""
    for heading, example, style in (("Wrong", rule.wrong, "red"), ("Right", rule.right, "green")):
        if example:
            page.append_text(_section(f"{heading}{file}", textwrap.indent(example.rstrip(), _INDENT * 2), style))
    return page


def _section(heading: str, text: str, style: str = "") -> Text:
    return Text.assemble("\n", (f"{heading}\n", _HEADING), (f"{text}\n", style))


def list_of(chapters: Iterable[Chapter], width: int) -> Text:
    """Write the names, weights and demands of all rules, by chapters."""
    chapters = tuple(chapters)
    column = max((len(rule.name) for chapter in chapters for rule in chapter.rules), default=0)
    listing = Text()
    for number, chapter in enumerate(chapters):
        listing.append("\n" if number else "").append(f"{chapter.title}\n", _HEADING)
        for rule in chapter.rules:
            listing.append_text(_row(rule, column, width))
    return listing


def _row(rule: Rule, column: int, width: int) -> Text:
    before = f"{_INDENT}{rule.name:{column}}  "
    weight = f"{rule.severity.value:7}  "
    meaning = _wrapped(rule.meaning, width, " " * (len(before) + len(weight))).lstrip()
    return Text.assemble(before, (weight, _STYLES[rule.severity]), f"{meaning}\n")


def _wrapped(text: str, width: int, indent: str) -> str:
    return textwrap.fill(
        text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def page_as_json(rule: Rule, chapters: Iterable[Chapter]) -> str:
    """Write what the book says of a rule as one JSON object."""
    title = next((chapter.title for chapter in chapters if rule in chapter.rules), "")
    return json.dumps(_plain(rule, title), indent=2)


def list_as_json(chapters: Iterable[Chapter]) -> str:
    """Write the whole book as a JSON list."""
    rows = [_plain(rule, chapter.title) for chapter in chapters for rule in chapter.rules]
    return json.dumps(rows, indent=2)


def _plain(rule: Rule, chapter: str) -> PlainValue:
    return {
        "rule": rule.name,
        "chapter": chapter,
        "severity": rule.severity.value,
        "is_fixed": rule.is_fixed,
        "meaning": rule.meaning,
        "envoy": rule.envoy,
        "remedy": rule.remedy,
        "file": rule.file,
        "wrong": rule.wrong,
        "right": rule.right,
    }
