"""Every rule that a problem can name, read from its section in `fsxds/lint/pages/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from fsxds.rules.rule import Rule
from fsxds.values import Severity

# The pages, in the order in which they are listed; each is a chapter, and each of its sections a rule.
PAGES = ("files", "resources", "constraints", "values", "references", "discovery", "bootstrap", "envoy")

_SECTION = re.compile(
    r"""
    (?P<name>\S+)\n
    \n\*\*Severity:\*\*\ (?P<severity>\w+)(?P<always>,\ always)?\n
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
    """The rules of one subject, in the order in which they are listed."""

    title: str
    rules: tuple[Rule, ...]


@cache
def chapters() -> Mapping[str, Chapter]:
    """Read all pages, once; by their names."""
    folder = files("fsxds") / "lint" / "pages"
    return MappingProxyType({page: read_chapter((folder / f"{page}.md").read_text(encoding="utf-8")) for page in PAGES})


@cache
def rules() -> Mapping[str, Rule]:
    """Return all rules by their names, in the order of the pages."""
    return MappingProxyType({rule.name: rule for chapter in chapters().values() for rule in chapter.rules})


def read_chapter(page: str) -> Chapter:
    """Read a page: a title, and a section for each rule; ValueError names a section that has another form."""
    title, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    return Chapter(title.removeprefix("# ").strip(), tuple(map(_read_rule, sections)))


def _read_rule(section: str) -> Rule:
    found = _SECTION.fullmatch(section.rstrip() + "\n")
    if found is None:
        raise ValueError(f"the section of this rule has not the form of a page: {section.partition(chr(10))[0]}")
    meaning, envoy, remedy = (" ".join(found[part].splitlines()) for part in ("meaning", "envoy", "remedy"))
    return Rule(
        name=found["name"],
        severity=Severity(found["severity"]),
        meaning=meaning,
        envoy=envoy,
        remedy=remedy,
        wrong=found["wrong"] or "",
        right=found["right"] or "",
        is_fixed=found["always"] is not None,
        file=found["file"] or "",
    )
