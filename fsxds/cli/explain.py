"""`fsxds explain RULE`."""

from __future__ import annotations

from difflib import get_close_matches

from rich.console import Console

from fsxds.events.event import escape
from fsxds.lint.rules import WIDEST_PAGE, Rule, chapters, list_as_json, list_of, page_as_json, page_of, rules
from fsxds.model.errors import UsageError
from fsxds.settings.options import Settings


def run_explain(rule: str | None, settings: Settings) -> None:
    """Print a rule or all."""
    row = None if rule is None else rule_of(rule)
    if settings.explain_format == "json":
        print(list_as_json(chapters().values()) if row is None else page_as_json(row, chapters().values()))
        return
    console = Console(highlight=False)
    width = min(console.width, WIDEST_PAGE) if console.is_terminal else WIDEST_PAGE
    text = list_of(chapters().values(), width) if row is None else page_of(row, width)
    console.print(text, soft_wrap=True, end="")


def rule_of(name: str) -> Rule:
    """Return a rule; UsageError with the nearest name."""
    if name in rules():
        return rules()[name]
    near = get_close_matches(name.lower(), rules(), 1)
    hint = f"did you mean {near[0]}?" if near else "`fsxds explain` lists them"
    raise UsageError(f"{escape(name)}: there is no such rule; {hint}")
