"""Exclusive claims: addresses of listeners, domains and names of virtual hosts.

For listeners, Envoy 1.40 compares protocol, IP address and port, or the path of a socket (ENVOY.md E56), however a
listener binds its port. Port 0, internal listeners and other network namespaces never conflict.

Of virtual hosts that are discovered one by one, Envoy rejects all in a response if a domain is duplicated in their
route configuration, also within one host. Of two with equal `VirtualHost.name` it silently keeps the last: requests to
the other hang. Resource names and domains are requested alike, so they too must differ.

The listeners of a collection are compared among themselves: no Envoy reads a collection beside other listeners.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.walk import Hooks, Path, Walk, addresses_taken
from fsxds.lint.reference_findings import ReferenceFinding
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, name_of_domain
from fsxds.model.resources import ADDRESS, CLAIMED, HOST, HOST_NAME, UNNAMED, ParsedFile, Reference, Resource
from fsxds.model.values import Fault, Severity, TypeUrl

_LISTENER = BY_SHORT_NAME["lds"].message_type
_COLLECTION = BY_SHORT_NAME["lcds"].message_type
_ROUTES = BY_SHORT_NAME["rds"].message_type


def hooks(catalogue: Catalogue) -> Hooks:
    """Return hooks that collect claims, and compare within collections."""
    compare = partial(_compare_addresses, catalogue)
    return {_LISTENER: (_claim_addresses,), _ROUTES: (_claim_domains,), _COLLECTION: (compare,)}


def _claim_addresses(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    """Envoy compares addresses whether bound or not."""
    if path is not None:
        return
    claimed = set()
    for place, name in addresses_taken(listener):
        # The same address twice in one listener is no conflict.
        if name not in claimed:
            claimed.add(name)
            walk.refer(place, ADDRESS, name, Severity.ERROR)


def _compare_addresses(catalogue: Catalogue, collection: DynamicMessage, path: Path, walk: Walk) -> None:
    """Report addresses of earlier listeners: Envoy rejects the listener, and stops others."""
    taken: dict[str, str] = {}
    for index, entry in enumerate(collection.entries):
        packed = entry.inline_entry.resource
        if packed.type_url.rpartition("/")[2] != _LISTENER:
            continue
        listener: DynamicMessage = catalogue.message_class(_LISTENER).FromString(packed.value)
        at: Path = ((((path, "entries"), index), "inline_entry"), "resource")
        for name in dict.fromkeys(name for _, name in addresses_taken(listener)):
            other = taken.setdefault(name, listener.name)
            if other != listener.name:
                claim = CLAIMS[ADDRESS]
                fact = claim.fact.format(claimed=name, other=f'listener "{other}" of this collection')
                walk.error(at, claim.rule, fact, claim.remedy)


def _claim_domains(config: DynamicMessage, path: Path, walk: Walk) -> None:
    """Note the configuration's domains, which no discovered virtual host may have."""
    if path is not None or not config.HasField("vhds"):
        return
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            place: Path = ((((path, "virtual_hosts"), number), "domains"), index)
            walk.refer(place, HOST, name_of_domain(config.name, domain), Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Claim:
    """One kind of claim: its rule, message and remedy."""

    rule: str
    fact: str
    remedy: str


CLAIMS: Mapping[TypeUrl, Claim] = {
    ADDRESS: Claim(
        "listener-address", "{claimed} is already the address of {other}", "give one of the two another address or port"
    ),
    HOST: Claim(
        "duplicate-domain",
        '"{claimed}" is already a domain or name of {other}; letter case does not count',
        "give the domain to one virtual host, and rename a host that has it as its name",
    ),
    HOST_NAME: Claim(
        "duplicate-name",
        'a VirtualHost named "{claimed}" is already in {other}; Envoy keeps one of the two',
        "name each VirtualHost as its Resource",
    ),
    UNNAMED: Claim(
        "missing-name", "{other} has no name either, and Envoy accepts one such listener at most", "name the listeners"
    ),
}

_NOUNS = {
    BY_SHORT_NAME["lds"].type_url: "listener",
    BY_SHORT_NAME["rds"].type_url: "route configuration",
    BY_SHORT_NAME["vhds"].type_url: "virtual host",
}


ClaimKey = tuple[TypeUrl, str]
"""The kind of a claim, and the claimed value."""


def owned_claims(parsed: ParsedFile, was: Iterable[ParsedFile]) -> Mapping[ClaimKey, Resource]:
    """Return a file's claims that it is already served with."""
    served = {(claim.type_url, claim.name) for one in was for _, claim in claims_in(one)}
    claimed = {(claim.type_url, claim.name): resource for resource, claim in reversed(tuple(claims_in(parsed)))}
    return {key: resource for key, resource in claimed.items() if key in served}


def claims_in(parsed: ParsedFile) -> Iterator[tuple[Resource, Reference]]:
    """Yield the claims of a file's resources."""
    for resource in parsed.resources:
        for reference in resource.references:
            if reference.type_url in CLAIMED and not reference.is_static:
                yield resource, reference


def conflicts(
    files: Iterable[tuple[ParsedFile, bool]],
    sorts: Container[TypeUrl],
    owned: Mapping[ClaimKey, Resource] = MappingProxyType({}),
) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
    """Find resources with another one's claims. `files`: whether each is on trial and takes nothing from others."""
    taken: dict[ClaimKey, Resource] = dict(owned)
    found = {}
    for parsed, is_on_trial in files:
        findings, own = _check_file(parsed, sorts, taken)
        if findings:
            found[parsed.path] = findings
        elif not is_on_trial:
            # A held file takes nothing from later ones.
            taken |= own
    return found


def _check_file(
    parsed: ParsedFile, sorts: Container[TypeUrl], taken: Mapping[ClaimKey, Resource]
) -> tuple[tuple[ReferenceFinding, ...], Mapping[ClaimKey, Resource]]:
    own: dict[ClaimKey, Resource] = {}
    findings = []
    for resource, claim in claims_in(parsed):
        if claim.type_url not in sorts:
            continue
        key = (claim.type_url, claim.name)
        first = own.setdefault(key, resource)
        other = taken.get(key, first)
        if other.origin.path == parsed.path:
            other = first
        if other is not resource:
            findings.append(_finding(resource, claim, other))
    return tuple(findings), own


def _finding(resource: Resource, claim: Reference, other: Resource) -> ReferenceFinding:
    sort = CLAIMS[claim.type_url]
    noun = _NOUNS.get(other.type_url, BY_TYPE_URL[other.type_url].noun)
    fact = sort.fact.format(claimed=_shown(claim), other=f'{noun} "{other.name}" at {other.origin}')
    return ReferenceFinding(resource, Fault(sort.rule, fact, sort.remedy, claim.field_path))


def _shown(claim: Reference) -> str:
    """Return the claim as written: `VirtualHost.name` without the table before it."""
    return claim.name.rpartition("\n")[2] if claim.type_url == HOST_NAME else claim.name
