"""The setting `--fleet`."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.settings.forms import OptionForm, TcpAddress, parse_address

SCHEME = "etcd://"
DEFAULT_PREFIX = "fsxds"


@dataclass(frozen=True, slots=True)
class FleetRule:
    """The store of a fleet.

    Attributes:
        targets: members of an etcd, as `HOST:PORT`; or `unix:/path` for one machine.
        prefix: of all keys, without a slash at its ends.
    """

    targets: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX

    @property
    def is_private(self) -> bool:
        """Whether only this user can read the servers' data."""
        return all(target.startswith("unix:") for target in self.targets)


def _read_fleet(written: object) -> FleetRule:
    """Read `etcd://HOST:PORT[,HOST:PORT...][/PREFIX]`."""
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
