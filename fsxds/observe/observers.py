"""Two observers of the same events, of which the second one may fail."""

from __future__ import annotations

from collections.abc import Callable

from fsxds.events import Event, InternalError, Observer


def observed_by(log: Observer, metrics: Observer) -> Callable[[Event], None]:
    """Return an observer that passes each event to both; an error of `metrics` is reported to `log`, and reaches nobody else."""

    def receive(event: Event) -> None:
        try:
            metrics(event)
        # The edge of the metrics: everybody counts, in the midst of their own work.
        except Exception as error:  # noqa: BLE001
            log(InternalError("metrics", error))
        log(event)

    return receive
