"""The fleet of a server: the form of `--fleet`."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.settings.forms import OptionForm, TcpAddress, parse_address

SCHEME = "etcd://"
DEFAULT_PREFIX = "fsxds"


@dataclass(frozen=True, slots=True)
class FleetRule:
    """By what the servers of a fleet agree.

    Attributes:
        targets: the members of an etcd, as `HOST:PORT` or `unix:/path`.
        prefix: of all keys, without a slash at its ends.
    """

    targets: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX


def _read_fleet(written: object) -> FleetRule:
    """Read `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or the same without members and a socket in their place."""
    if not isinstance(written, str) or not written.startswith(SCHEME):
        raise ValueError(written)
    servers, _, prefix = written.removeprefix(SCHEME).partition("/")
    targets = tuple(filter(None, servers.split(",")))
    for target in targets:
        address = parse_address(target)
        if not isinstance(address, TcpAddress) or not address.host or not address.port or "@" in target:
            raise ValueError(written)
    if not targets:
        raise ValueError(written)
    return FleetRule(targets, prefix.strip("/") or DEFAULT_PREFIX)


FLEET = OptionForm(
    "ETCD",
    "the members of an etcd, such as etcd://a:2379,b:2379/fsxds",
    _read_fleet,
    {"type": "string", "pattern": "^etcd://"},
)
