"""Decides which resources to take from an upstream that needs signed manifests. Pure except for `changed`.

| rule | |
| --- | --- |
| A resource is taken if a manifest lists its type, name and content digest. | |
| A resource is removed if no manifest lists its name any more. | |
| All other changes wait for a newer manifest: held resources stay. | |
| A manifest is replaced only by a newer one of its signer. | a server that lost its tree, or was made to |
| A time to live is not signed, and ignored. | it would remove listed resources |
"""

from __future__ import annotations

import base64
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType

from fsxds.model.relay_ids import NOT_LISTED
from fsxds.model.resources import Key, Resource, Rows
from fsxds.model.tree_trust import SeenInProcess, SeenManifest, SeenManifests, TrustedSigners
from fsxds.model.values import OfferedManifest, TypeUrl
from fsxds.runtime.channels import Latest
from fsxds.signing.certificates import UntrustedError
from fsxds.signing.tree_manifest import ManifestError, digest_of, read_object
from fsxds.signing.trusted_tree import SignedManifest, verified
from fsxds.transports.manifests import FORM, MOST_OFFERED
from fsxds.upstream.holdings import ReadResponse

MOST_WAITING = 10_000

STILL_LISTED = "is removed, and a manifest lists it still"
NO_MANIFEST = "the server has offered no manifest"


@dataclass(frozen=True, slots=True)
class _Waiting:
    resource: Resource
    version: str


@dataclass(frozen=True, slots=True)
class _TrustedOffer:
    signed: SignedManifest
    offered: OfferedManifest


@dataclass(frozen=True, slots=True)
class ExaminedOffers:
    """All offers, and trusted ones by signer; `fault` of the rest."""

    offers: tuple[OfferedManifest, ...] = ()
    trusted: tuple[tuple[str, _TrustedOffer], ...] = ()
    fault: str = ""


class TrustedContent:
    """Decides which resources of an upstream are trusted. For the event loop, except `examine`.

    Attributes:
        anchors: trusted signers; None: everything is trusted.
        changed: replaced when other manifests apply.
        fault: why there is no manifest, or not the newest.
    """

    def __init__(
        self, upstream: str, seen: SeenManifests | None = None, on_changed: Callable[[], object] = lambda: None
    ) -> None:
        """Decide for an upstream.

        `seen` remembers trusted manifests, None only in this process; `on_changed` is called when `offered` changes.
        """
        self.anchors: TrustedSigners | None = None
        self.changed = Latest(0)
        self.fault = NO_MANIFEST
        self._upstream = upstream
        self._seen: SeenManifests = seen or SeenInProcess()
        self._on_changed = on_changed
        self._offers: tuple[OfferedManifest, ...] = ()
        self._trusted: dict[str, _TrustedOffer] = {}
        self._waiting: dict[Key, _Waiting] = {}
        self._gone: dict[Key, None] = {}

    @property
    def offered(self) -> tuple[OfferedManifest, ...]:
        """Manifests for relays downstream: trusted ones, or all without `anchors`."""
        if self.anchors is None:
            return self._offers
        return tuple(each.offered for each in self._trusted.values())

    def trust(self, anchors: TrustedSigners | None, now_s: float) -> None:
        """Change trusted signers; held resources stay."""
        if anchors == self.anchors:
            return
        self.anchors, self._trusted = anchors, {}
        self.take(self._examined(self._offers, now_s))

    def examine(self, content: bytes, now_s: float) -> ExaminedOffers:
        """Verify offers, at `now_s` since 1970. May block; may run in a thread."""
        try:
            return self._examined(read_offers(content), now_s)
        except ManifestError as error:
            return ExaminedOffers(self._offers, fault=f"the server's manifest cannot be read: {error}")

    def _examined(self, offers: tuple[OfferedManifest, ...], now_s: float) -> ExaminedOffers:
        if self.anchors is None:
            return ExaminedOffers(offers)
        trusted, fault = [], "" if offers else NO_MANIFEST
        for offered in offers:
            try:
                signed = verified(offered.manifest, offered.signature, self.anchors, now_s)
                self._note(signed)
            except UntrustedError as error:
                fault = error.fact
            else:
                trusted.append((signed.signer, _TrustedOffer(signed, offered)))
        return ExaminedOffers(offers, tuple(trusted), fault)

    def _note(self, signed: SignedManifest) -> None:
        """Raises UntrustedError for an older manifest."""
        subject = f"{self._upstream} {signed.signer}"
        newest, seen = self._seen.newest(subject), SeenManifest(signed.manifest.serial, signed.digest)
        if (fault := signed.replay_fault(newest)) is not None:
            raise fault
        if newest != seen:
            self._seen.keep(subject, seen)

    def take(self, examined: ExaminedOffers) -> None:
        """Apply examined offers; old manifests still apply."""
        before = self.offered
        self._offers, self.fault = examined.offers, examined.fault
        self._trusted.update(examined.trusted)
        if self.offered != before:
            self.changed.replace(self.changed.current + 1)
            self._on_changed()

    def is_waiting(self, response: ReadResponse, rows: Rows) -> bool:
        """Whether a coming manifest may vouch for part of a response."""
        if self.anchors is None:
            return False
        type_url = response.type_url
        unlisted = {
            name for name in self._unlisted(response, rows) if not self._waits_already(response.resources[name])
        }
        return bool(unlisted or any((type_url, name) not in self._gone for name in self._kept(response, rows)))

    def _waits_already(self, resource: Resource) -> bool:
        waiting = self._waiting.get((resource.type_url, resource.name))
        return waiting is not None and waiting.resource.body == resource.body

    def admitted(self, response: ReadResponse, rows: Rows) -> ReadResponse:
        """Return a response's trusted part; the rest is bad, and waits for a manifest.

        `rows` are its type's held resources.
        """
        if self.anchors is None:
            return response
        unlisted, kept = self._unlisted(response, rows), self._kept(response, rows)
        resources = {
            name: resource if resource.ttl_s is None else replace(resource, ttl_s=None)
            for name, resource in response.resources.items()
            if name not in unlisted
        }
        self._note_waiting(response, unlisted, kept)
        why = f" ({self.fault})" if self.fault else ""
        words = dict.fromkeys(sorted(unlisted), NOT_LISTED + why) | dict.fromkeys(sorted(kept), STILL_LISTED + why)
        return replace(
            response,
            resources=MappingProxyType(resources),
            removed=response.removed - kept,
            bad=MappingProxyType({**response.bad, **words}),
        )

    def _unlisted(self, response: ReadResponse, rows: Rows) -> set[str]:
        """Held resources need no manifest."""
        return {
            name
            for name, resource in response.resources.items()
            if rows.get(name) is not resource and not self._lists(resource)
        }

    def _kept(self, response: ReadResponse, rows: Rows) -> set[str]:
        gone = set(rows.among(response.removed))
        if response.is_full:
            gone |= rows.keys() - response.resources.keys() - response.bad.keys()
        return {name for name in gone if self._names(response.type_url, name)}

    def _lists(self, resource: Resource) -> bool:
        digest = "" if resource.redirect else digest_of(resource.body)
        type_url, name = resource.type_url, resource.name
        return any(each.signed.manifest.lists(type_url, name, digest) for each in self._trusted.values())

    def _names(self, type_url: TypeUrl, name: str) -> bool:
        """A name may still exist: listed, or without manifests."""
        manifests = [each.signed.manifest for each in self._trusted.values()]
        return not manifests or any(name in each.resources.get(type_url, {}) for each in manifests)

    def _note_waiting(self, response: ReadResponse, unlisted: set[str], kept: set[str]) -> None:
        type_url = response.type_url
        for name in (*response.resources, *response.removed):
            self._waiting.pop((type_url, name), None)
            self._gone.pop((type_url, name), None)
        for name in unlisted:
            self._waiting[type_url, name] = _Waiting(response.resources[name], response.versions[name])
        self._gone |= dict.fromkeys((type_url, name) for name in kept)
        for waiting in (self._waiting, self._gone):
            for key in tuple(islice(waiting, max(len(waiting) - MOST_WAITING, 0))):
                del waiting[key]

    def late(self) -> Iterator[ReadResponse]:
        """Yield waiting changes that manifests vouch for."""
        listed = [key for key, each in self._waiting.items() if self._lists(each.resource)]
        gone = [key for key in self._gone if not self._names(*key)]
        found = defaultdict[TypeUrl, tuple[dict[str, _Waiting], set[str]]](lambda: ({}, set()))
        for key in listed:
            found[key[0]][0][key[1]] = self._waiting.pop(key)
        for key in gone:
            found[key[0]][1].add(key[1])
            del self._gone[key]
        for type_url, (came, removed) in found.items():
            resources = {name: replace(each.resource, ttl_s=None) for name, each in came.items()}
            versions = {name: each.version for name, each in came.items()}
            yield ReadResponse(type_url, resources, versions, frozenset(removed))


def read_offers(content: bytes) -> tuple[OfferedManifest, ...]:
    """Read the message. Raises ManifestError if it is malformed."""
    written = read_object(content)
    rows = written.get("manifests")
    if written.get("form") != FORM or not isinstance(rows, list) or len(rows) > MOST_OFFERED:
        raise ManifestError(f"it is no {FORM} with up to {MOST_OFFERED} manifests")
    return tuple(map(_read_row, rows))


def _read_row(row: object) -> OfferedManifest:
    if not isinstance(row, dict):
        raise ManifestError("a manifest in it is no object")
    try:
        return OfferedManifest(
            base64.b64decode(str(row.get("manifest")), validate=True),
            base64.b64decode(str(row.get("signature")), validate=True),
        )
    except ValueError as error:
        raise ManifestError("a manifest in it cannot be read") from error
