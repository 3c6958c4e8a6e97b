"""One upstream: what it is asked for, what is held of it, and how it is. Touched from the event loop only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from fsxds.client.updates import ConnectionLostError, Update
from fsxds.protocol.subscription import WILDCARD
from fsxds.resource_types import RESOURCE_TYPES
from fsxds.resources import Key, Origin, Resource, Rows, version_of_body
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.upstream_content import Held, UpstreamContent, origin_of
from fsxds.store import Latest
from fsxds.upstream.asked_names import AskedNames
from fsxds.upstream_events import UpstreamStatus
from fsxds.values import TypeUrl


@dataclass(frozen=True, slots=True)
class Received:
    """What was taken in of one response.

    Attributes:
        sequence: that of the content which has it.
        keys: the resources that are new, others, or gone.
        faults: why it cannot be accepted, in words for the NACK; empty for none.
    """

    sequence: int
    keys: frozenset[Key]
    faults: tuple[str, ...] = ()


TYPE_URLS = tuple(row.type_url for row in RESOURCE_TYPES)


class Upstream:
    """What one upstream is asked for, and what is held of it.

    Attributes:
        rule: what the settings say of it.
        content: what is held; replaced, and never changed.
        changed: is replaced when `content`, or what is wanted, changed.
    """

    def __init__(self, rule: UpstreamRule, asked: AskedNames) -> None:
        self.rule = rule
        self.content = UpstreamContent(rule.name, pending=frozenset(TYPE_URLS))
        self.changed = Latest(0)
        self._asked = asked
        self._status = UpstreamStatus(rule.name, rule.servers)
        self._versions: dict[Key, tuple[str, str]] = {}

    @property
    def next_expiry_s(self) -> float | None:
        """When the next time to live is over, in seconds since 1970; None where none runs."""
        return None

    def wanted(self) -> Mapping[TypeUrl, frozenset[str]]:
        """Return the names to subscribe to, by type; `*` among them means everything."""
        return dict.fromkeys(TYPE_URLS, frozenset({WILDCARD}))

    def versions(self, server: str, type_url: TypeUrl) -> Mapping[str, str]:
        """Return the versions that a server is told at the beginning of a stream, of all that is held of a type."""
        found = {name: version for (of_type, name), (_, version) in self._versions.items() if of_type == type_url}
        known = {name for (of_type, name), (by, _) in self._versions.items() if of_type == type_url and by == server}
        return {name: version if name in known else "" for name, version in found.items()}

    def receive(self, update: Update, server: str, now_s: float) -> Received:
        """Take in a response.

        Args:
            update: the response.
            server: who gave it.
            now_s: in seconds since 1970.
        """
        type_url = update.type_url
        rows = self.content.rows.get(type_url) or Rows(type_url)
        origin = origin_of(self.rule.name)
        for name, resource in update.resources.items():
            self._versions[type_url, name] = server, resource.version
        updated = [self._taken_in(resource, origin) for resource in update.resources.values()]
        fresh = [one for one in updated if one.name not in rows or not one.equals_for_clients(rows[one.name])]
        gone = set(update.removed)
        if update.is_full:
            gone |= {name for name in rows if name not in update.resources}
        removed = rows.among(gone)
        sequence = self.content.sequence + 1
        self._replace(type_url, rows.with_changes(fresh, removed), sequence)
        self._status = replace(self._status, last_update_s=now_s)
        return Received(sequence, frozenset((type_url, name) for name in {*removed, *(one.name for one in fresh)}))

    def _taken_in(self, resource: Resource, origin: Origin) -> Resource:
        version = version_of_body(resource.type_url, resource.body)
        return replace(resource, version=version, origin=origin)

    def _replace(self, type_url: TypeUrl, rows: Rows, sequence: int) -> None:
        of_type = {**self.content.rows, type_url: rows}
        self.content = UpstreamContent(
            self.rule.name,
            MappingProxyType({each: found for each, found in of_type.items() if found}),
            self.content.pending - {type_url},
            self.content.answered | {type_url},
            sequence,
        )
        self.changed.replace(self.changed.current + 1)

    def connected(self, server: str, wire: str, now_s: float) -> None:
        """Note that a server is connected."""
        self._status = replace(self._status, server=server, wire=wire, state="connected", since_s=now_s, trouble="")

    def lost(self, error: ConnectionLostError, now_s: float) -> None:
        """Note that the connection was lost, or that there is none."""
        self._status = replace(self._status, server="", wire="", state="away", since_s=now_s, trouble=str(error))

    def restore(self, held: Held) -> None:
        """Take in what was held in an earlier process; before anything else."""
        for type_url, table in held.items():
            for one in table.values():
                self._versions[type_url, one.resource.name] = one.server, one.version
            rows = Rows(type_url).with_changes([one.resource for one in table.values()], ())
            self._replace(type_url, rows, self.content.sequence)
        last_s = max((one.received_s for table in held.values() for one in table.values()), default=None)
        self._status = replace(self._status, last_update_s=last_s)

    def expire(self, now_s: float) -> None:
        """Let go of what has a time to live that is over."""

    def status(self) -> UpstreamStatus:
        """Return how it is."""
        content = self.content
        return replace(
            self._status,
            resources={type_url: len(rows) for type_url, rows in content.rows.items()},
            pending=tuple(type_url for type_url in TYPE_URLS if type_url in content.pending),
        )
