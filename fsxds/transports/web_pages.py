"""Protects listeners from web pages: a page in a browser is not a legitimate client.

A request of another origin's page has that origin in `Origin`, or `Sec-Fetch-Site` says so; a page that uses DNS
rebinding has its own name in `Host`; and no page can send `content-type: application/json` without a preflight.

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
    """Check that no page of another origin sends the request, as far as browsers reveal it.

    Args:
        headers: the headers of the request.
        own_origin: the origin of pages served here; empty if there are none.
        origins: the origins that may ask, `*` for any; None if the listener has no option for them.
        may_be_linked: users may follow a link of another page to this path.

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
    """Check that `Host` is not a name that an attacker could have made to lead here.

    Args:
        headers: the headers of the request.
        address: the listener's address.
        allowed: more allowed names than in `leads_here`, `*` for any; None if the option is not given.
        authorities: authorities that are served here, also allowed.

    Raises:
        ProtocolError: it could be such a name.
    """
    if allowed is None and not is_local(address):
        return
    host = headers.get("host", "")
    if not leads_here(host, address) and not _is_allowed(host, {*(allowed or ()), *map(str.lower, authorities)}):
        raise ProtocolError(f"{_FOREIGN_HOST}{'' if allowed == () else _MAY_BE_ALLOWED}", "PERMISSION_DENIED")


def is_envoy(headers: Mapping[str, str]) -> bool:
    """Whether an Envoy polls, which has its cluster's name in `Host` (ENVOY.md E85); a page's POST has an `Origin`."""
    return "x-envoy-expected-rq-timeout-ms" in headers and "origin" not in headers


def _is_allowed(written: str, allowed: AbstractSet[str]) -> bool:
    return ANY_HOST in allowed or written.lower().partition(":")[0].removesuffix(".") in allowed


def leads_here(written: str, address: TcpAddress) -> bool:
    """Whether a Host header is `localhost`, the listener's host, or an IP address, with any port."""
    try:
        host = (urlsplit(f"//{written}").hostname or "").removesuffix(".")
    except ValueError:
        return False
    if host in {"localhost", address.host.lower()}:
        return bool(host)
    with suppress(ValueError):
        return bool(ip_address(host))
    return False
