"""The list of all lint rules: `python -m tests.support.rule_list > fsxds/lint/README.md` writes it after a change.

With `own`, it is the table in `config/errors/README.md`.
"""

from __future__ import annotations

import sys

from fsxds.lint.rules import Chapter, chapters

_HEAD = """\
# The rules of the linter

`fsxds explain RULE` prints the page of a rule: its demand, Envoy's reaction to a breach, the remedy, and
an example of both. All pages are in [pages](pages).

To add a rule, write the function that finds it in the module of its subject, and its section in one of the pages;
then write this list anew with `python -m tests.support.rule_list > fsxds/lint/README.md`.
"""


def rule_list() -> str:
    """Return a Markdown table per page, with a row for each of its rules."""
    return "\n".join((_HEAD, *(_table(page, chapter) for page, chapter in chapters().items())))


def _table(page: str, chapter: Chapter) -> str:
    rows = [
        f"| [{rule.name}](pages/{page}.md#{rule.name}) | {rule.severity.value} | {_cell(rule.meaning)} |"
        for rule in chapter.rules
    ]
    return "\n".join((f"## {chapter.title}", "", "| rule | severity | demand |", "| --- | --- | --- |", *rows, ""))


def own_rules() -> str:
    """Return a Markdown table of the errors that stay though Envoy accepts what breaks the rule."""
    rows = [
        f"| [{rule.name}](../../fsxds/lint/pages/{page}.md#{rule.name}) | {_cell(rule.meaning)} | {_cell(rule.envoy)} |"
        for page, chapter in chapters().items()
        for rule in chapter.rules
        if rule.is_own
    ]
    return "\n".join(("| rule | demand | Envoy |", "| --- | --- | --- |", *rows, ""))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(own_rules() if "own" in sys.argv else rule_list())
