"""Several observers of the same events, of which all but the log may fail."""

from __future__ import annotations

from collections.abc import Callable

from fsxds.events import Event, InternalError, Observer


def observed_by(log: Observer, **others: Observer) -> Callable[[Event], None]:
    """Return an observer that passes each event to all; an error of another one is reported to `log`, and reaches nobody else."""

    def receive(event: Event) -> None:
        for name, other in others.items():
            try:
                other(event)
            # The edge of whoever counts: everybody sends events, in the midst of their own work.
            except Exception as error:  # noqa: BLE001
                log(InternalError(name, error))
        log(event)

    return receive
