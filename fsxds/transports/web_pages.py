"""Which web pages may ask, at any listener: a page in somebody's browser is none of the clients of a listener.

A request of another origin's page has that in `Origin`, or its browser says so in `Sec-Fetch-Site`; a page whose name was
made to lead here (DNS rebinding) has that name in `Host`; and no page can send `content-type: application/json` unasked.

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
_MAY_BE_NAMED = ", or have --cors-origin name that origin"
_FOREIGN_HOST = (
    "a name that may have been made to lead here may not be asked for; ask by the IP address, or with the header "
    "`host: localhost`"
)
_MAY_BE_ALLOWED = ", or have --allowed-hosts name it"


def check_page(
    headers: Mapping[str, str],
    *,
    own_origin: str = "",
    origins: tuple[str, ...] | None = None,
    may_be_linked: bool = False,
) -> None:
    """Check that no page of another origin asks, as far as a browser lets it hide that.

    Args:
        headers: those of the request.
        own_origin: that of pages that are read here; empty where there are none.
        origins: those whose pages may ask, `*` is any; None where there is no option for it.
        may_be_linked: somebody may follow a link of another page to what is asked for.

    Raises:
        ProtocolError: one does.
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
    """Check that the name which a request asks for cannot have been made to lead to an address, by who owns that name.

    Args:
        headers: those of the request.
        address: where it came to.
        allowed: names that lead here beside those of `leads_here`, `*` is any; None where it is an option that is not given.
        authorities: names of which resources are served here; a request may have one of them as its host.

    Raises:
        ProtocolError: it can.
    """
    if allowed is None and not is_local(address):
        return
    host = headers.get("host", "")
    if not leads_here(host, address) and not _is_allowed(host, {*(allowed or ()), *map(str.lower, authorities)}):
        raise ProtocolError(f"{_FOREIGN_HOST}{'' if allowed == () else _MAY_BE_ALLOWED}", "PERMISSION_DENIED")


def is_envoy(headers: Mapping[str, str]) -> bool:
    """Whether an Envoy polls, which has the name of its cluster in `Host` (ENVOY.md E85); a page's POST has an `Origin`."""
    return "x-envoy-expected-rq-timeout-ms" in headers and "origin" not in headers


def _is_allowed(written: str, allowed: AbstractSet[str]) -> bool:
    return ANY_HOST in allowed or written.lower().partition(":")[0].removesuffix(".") in allowed


def leads_here(written: str, address: TcpAddress) -> bool:
    """Whether a Host header is a name that nobody else can make lead here: any IP address is, whatever its port."""
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host in {"localhost", address.host.lower()}:
        return bool(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
