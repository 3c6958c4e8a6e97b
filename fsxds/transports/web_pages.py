"""Protects listeners from web pages, which are no legitimate clients.

Another origin's page shows in `Origin` or `Sec-Fetch-Site`, DNS rebinding in `Host`; no page can send `content-type:
application/json` without a preflight.

Source: Fetch, "Origin header" and "CORS protocol"; Fetch Metadata Request Headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from fsxds.model.errors import ProtocolError
from fsxds.settings.forms import ANY_HOST, ANY_ORIGIN, TcpAddress
from fsxds.transports.sockets import is_local

_OWN_SITES = frozenset({"none", "same-origin"})
_FOREIGN_PAGE = "a page of another origin may not ask here; ask from a program"
_MAY_BE_NAMED = ", or have the setting cors_origin name that origin"
_FOREIGN_HOST = (
    "a name that may have been made to lead here may not be asked for; ask by the IP address, or with the header "
    "`host: localhost`"
)
_MAY_BE_ALLOWED = ", or have the setting allowed_hosts name it"


def check_page(
    headers: Mapping[str, str],
    *,
    own_origin: str = "",
    origins: tuple[str, ...] | None = None,
    may_be_linked: bool = False,
) -> None:
    """Check that no other origin's page sends the request, as far as browsers reveal it.

    Empty `own_origin`: no pages are served. `origins` may ask, `*`: any; None: no such option. `may_be_linked`: users
    may follow another page's link here.

    Raises:
        ProtocolError: such a page sends it.
    """
    origin = headers.get("origin")
    if origins and (ANY_ORIGIN in origins or origin in origins):
        return
    is_followed = may_be_linked and headers.get("sec-fetch-dest") == "document"
    is_of_own_site = is_followed or headers.get("sec-fetch-site", "none") in _OWN_SITES
    if not is_of_own_site or (origin is not None and origin != own_origin):
        raise ProtocolError(
            _FOREIGN_PAGE if origins is None else f"{_FOREIGN_PAGE}{_MAY_BE_NAMED}", "PERMISSION_DENIED"
        )


def check_host(
    headers: Mapping[str, str],
    address: TcpAddress,
    allowed: tuple[str, ...] | None = (),
    authorities: Iterable[str] = (),
) -> None:
    """Check that no attacker made the name in `Host` lead here.

    `allowed` adds names to `leads_here`, `*`: any; None: no such option. Served `authorities` are allowed too.

    Raises:
        ProtocolError: it could be such a name.
    """
    if allowed is None and not is_local(address):
        return
    host = headers.get("host", "")
    if not leads_here(host, address) and not _is_allowed(host, {*(allowed or ()), *map(str.lower, authorities)}):
        raise ProtocolError(f"{_FOREIGN_HOST}{'' if allowed == () else _MAY_BE_ALLOWED}", "PERMISSION_DENIED")


def is_envoy(headers: Mapping[str, str]) -> bool:
    """Whether an Envoy polls, with its cluster's name in `Host` (ENVOY.md E85); pages' POSTs have an `Origin`."""
    return "x-envoy-expected-rq-timeout-ms" in headers and "origin" not in headers


def _is_allowed(written: str, allowed: AbstractSet[str]) -> bool:
    return ANY_HOST in allowed or written.lower().partition(":")[0].removesuffix(".") in allowed


def leads_here(written: str, address: TcpAddress) -> bool:
    """Whether a Host header is `localhost`, the listener's host, or an IP."""
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host in {"localhost", address.host.lower()}:
        return bool(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
