"""The classes of the events."""

from __future__ import annotations

from fsxds.events.event import Event


def subclasses(event: type[Event]) -> set[type[Event]]:
    """Return a class with all that are below it."""
    return {event}.union(*(subclasses(each) for each in event.__subclasses__()))
