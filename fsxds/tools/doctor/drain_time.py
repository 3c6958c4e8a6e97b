"""Whether what changed listeners used stays for as long as a running Envoy drains them."""

from __future__ import annotations

from fsxds.client.polls import open_session
from fsxds.envoy.admin import AdminPage
from fsxds.errors import UsageError
from fsxds.settings.forms import Address, UnixAddress

READ_PATIENCE_S = 10.0


async def drain_remark(address: Address, linger_s: float) -> str | None:
    """Return what is wrong with `--linger` for the Envoy with this admin page; None where it is long enough.

    Source: ENVOY.md E66, E68.

    Raises:
        UsageError: no Envoy answers there.
    """
    async with open_session(str(address), READ_PATIENCE_S) as session:
        host = "envoy" if isinstance(address, UnixAddress) else str(address)
        drain_s = await AdminPage(session, host).drain_time_s()
    if drain_s is None:
        raise UsageError(f"{address}: no Envoy answers there; give the address of its admin page")
    if drain_s <= linger_s:
        return None
    return (
        f"warning: {address}: this Envoy lets the connections of a changed listener go on for {drain_s:g} s, and fsxds keeps "
        f"what they use for {linger_s:g} s: then they get 503; give fsxds --linger {drain_s:g}s, or start Envoy with "
        f"--drain-time-s {linger_s:.0f}"
    )
