"""How upstreams stand, as it is shown: with ages in place of times, and without what is secret in words of others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from fsxds.api.secrets import mask_text
from fsxds.observe.log_lines import type_name
from fsxds.observe.upstream_lines import quoted
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.transports.admin.status_reports import HeldType, UpstreamReport
from fsxds.upstream_events import UpstreamStatus

# Of what an upstream sent and was not taken in; the log has them all.
MOST_REJECTED = 20

Upstreams: TypeAlias = Callable[[], Iterable[UpstreamStatus]]
"""Returns how each upstream stands, in the order of their precedence."""


def upstream_report(status: UpstreamStatus, now_s: float) -> UpstreamReport:
    """Return what is shown of an upstream; `now_s` is in seconds since 1970."""
    held = status.resources
    return UpstreamReport(
        name=mask_text(status.name),
        servers=tuple(map(mask_text, status.servers)),
        server=mask_text(status.server),
        wire=status.wire,
        state=status.state,
        since_s=max(0.0, now_s - status.since_s) if status.since_s else 0.0,
        trouble=quoted(status.trouble),
        resources=tuple(
            HeldType(row.short_name, held[row.type_url]) for row in RESOURCE_TYPES if held.get(row.type_url)
        ),
        pending=tuple(map(type_name, status.pending)),
        age_s=None if status.last_update_s is None else max(0.0, now_s - status.last_update_s),
        rejected=tuple(quoted(text) for text in status.rejected[:MOST_REJECTED]),
    )
