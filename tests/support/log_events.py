"""The events of the log as the docs list them: `python -m tests.support.log_events` prints what to paste after a change."""

from __future__ import annotations

from fsxds.events.event import Event
from fsxds.observe.log_catalogue import CATALOGUE, FIELDS


def subclasses(event: type[Event]) -> set[type[Event]]:
    """Return a class with all that are below it."""
    return {event}.union(*(subclasses(each) for each in event.__subclasses__()))


def events_section() -> str:
    """Return a Markdown table of the events, and one of their fields."""
    events = ["| event | level | meaning | fields |", "| --- | --- | --- | --- |"]
    for row in CATALOGUE:
        levels = ", ".join(level.name.lower() for level in row.levels)
        names = ", ".join(f"`{name}`" for name in row.fields)
        events.append(f"| `{row.event}` | {levels} | {row.meaning} | {names} |")
    fields = [
        "| field | meaning |",
        "| --- | --- |",
        *(f"| `{name}` | {meaning} |" for name, meaning in FIELDS.items()),
    ]
    return "\n".join((*events, "", *fields))


if __name__ == "__main__":
    print(events_section())  # printing is its purpose
