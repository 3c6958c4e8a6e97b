"""Resources from elsewhere than the files, as the application sees their source: other servers, or nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fsxds.model.errors import UsageError
from fsxds.model.relay_ids import RelayIds
from fsxds.model.tree_trust import TrustedSigners
from fsxds.model.values import OfferedManifest
from fsxds.protocol.messages import OwnStatus
from fsxds.runtime.store import Latest
from fsxds.runtime.supervisor import Supervisor
from fsxds.runtime.upstream_events import UpstreamStatus
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import UpstreamRule
from fsxds.snapshots.upstream_content import NOWHERE, Elsewhere, UpstreamContent


class RowSource:
    """A source of resources beside the files; this one has none. Others derive from it.

    Attributes:
        contents: what it holds.
        relays: knows the relays that are above and below.
    """

    def __init__(self) -> None:
        self.contents: Latest[tuple[UpstreamContent, ...]] = Latest(())
        self.relays = RelayIds()

    @property
    def answered_within_s(self) -> float:
        """How long a start waits for its first answers."""
        return 0.0

    @property
    def offered(self) -> Sequence[OfferedManifest]:
        """The manifests that vouch for what it has, for relays below."""
        return ()

    def statuses(self) -> Sequence[UpstreamStatus]:
        """Return how each of its servers stands."""
        return ()

    def own_statuses(self) -> Iterable[OwnStatus]:
        """Return the state of this process as a client of each of its servers."""
        return ()

    def elsewhere(self) -> Elsewhere:
        """Return what it has, and may have."""
        return NOWHERE

    async def keep_connected(self, supervisor: Supervisor) -> None:
        """Keep what it holds current, until cancelled."""

    def trust(self, anchors: TrustedSigners | None) -> None:
        """Take, from now on, only what is signed by one who is trusted; without anybody, everything."""


def rules_of(settings: Settings) -> tuple[UpstreamRule, ...]:
    """Return what the settings say about upstreams, in the order of their precedence: those of `upstream`, then authorities.

    Raises:
        UsageError: two have one name, one names a server twice, or a certificate has no key.
    """
    if (settings.upstream_cert is None) != (settings.upstream_key is None):
        raise UsageError("--upstream-cert and --upstream-key belong together; give both, or neither")
    of_authorities = (
        UpstreamRule(each.upstream, name) for name, each in (settings.authorities or {}).items() if each.upstream
    )
    rules = tuple(_with_defaults(rule, settings) for rule in (*(settings.upstream or ()), *of_authorities))
    for rule in rules:
        if len(set(rule.servers)) < len(rule.servers):
            raise UsageError(f"--upstream: {rule.name} names a server twice; give each server once")
    names = [rule.name for rule in rules]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(
                f"--upstream: {name} is given twice; give each upstream once, its servers with commas between"
            )
    return rules


def _with_defaults(rule: UpstreamRule, settings: Settings) -> UpstreamRule:
    """Return a rule that has the files of the settings where it has none of its own."""
    has_own = rule.cert is not None
    return UpstreamRule(
        rule.servers,
        rule.authority,
        rule.ca or settings.upstream_ca,
        rule.cert if has_own else settings.upstream_cert,
        rule.key if has_own else settings.upstream_key,
        rule.token or settings.upstream_token,
    )
