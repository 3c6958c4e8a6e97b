"""What only one resource of a whole tree may have: the addresses of listeners, the domains and names of virtual hosts.

Envoy 1.40 compares of listeners protocol, IP address and port, or the path of a socket (ENVOY.md E56). It
does not matter whether a listener binds its port, and how; port 0, internal listeners and other network namespaces are free.

Of virtual hosts that are discovered one by one it rejects all in a response when a domain is duplicated in their route
configuration, also among its own. Of two whose `VirtualHost.name` is the same it keeps the one that came last, without a
word: requests to the other hang. Their resource names and domains are asked for alike, so that they too must differ.

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
    """Return the hooks that collect claims; within a collection they are compared at once."""
    compare = partial(_compare_addresses, catalogue)
    return {_LISTENER: (_claim_addresses,), _ROUTES: (_claim_domains,), _COLLECTION: (compare,)}


def _claim_addresses(listener: DynamicMessage, path: Path, walk: Walk) -> None:
    """Note the addresses of a listener that no other may have: Envoy compares them whatever is bound, and how."""
    if path is not None:
        return
    claimed = set()
    for place, name in addresses_taken(listener):
        # The same address twice in one listener is no conflict.
        if name not in claimed:
            claimed.add(name)
            walk.refer(place, ADDRESS, name, Severity.ERROR)


def _compare_addresses(catalogue: Catalogue, collection: DynamicMessage, path: Path, walk: Walk) -> None:
    """Report the listeners of a collection that have the address of an earlier one: Envoy rejects these, and stops others."""
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
    """Note the domains that no virtual host may have which is discovered beside those of the configuration itself."""
    if path is not None or not config.HasField("vhds"):
        return
    for number, host in enumerate(config.virtual_hosts):
        for index, domain in enumerate(host.domains):
            place: Path = ((((path, "virtual_hosts"), number), "domains"), index)
            walk.refer(place, HOST, name_of_domain(config.name, domain), Severity.ERROR)


@dataclass(frozen=True, slots=True)
class Claim:
    """One sort of claims: the rule that two equal ones break, the message about the second one, and the remedy."""

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
        "let one virtual host have the domain, and none of the others its name",
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
"""The sort of a claim, and what is claimed."""


def owned_claims(parsed: ParsedFile, was: Iterable[ParsedFile]) -> Mapping[ClaimKey, Resource]:
    """Return what a file claims and is served with, by what is in it and in what is served of it."""
    served = {(claim.type_url, claim.name) for one in was for _, claim in claims_in(one)}
    claimed = {(claim.type_url, claim.name): resource for resource, claim in reversed(tuple(claims_in(parsed)))}
    return {key: resource for key, resource in claimed.items() if key in served}


def claims_in(parsed: ParsedFile) -> Iterator[tuple[Resource, Reference]]:
    """Yield the claims of the resources of a file."""
    for resource in parsed.resources:
        for reference in resource.references:
            if reference.type_url in CLAIMED and not reference.is_static:
                yield resource, reference


def conflicts(
    files: Iterable[tuple[ParsedFile, bool]],
    sorts: Container[TypeUrl],
    owned: Mapping[ClaimKey, Resource] = MappingProxyType({}),
) -> Mapping[PurePosixPath, tuple[ReferenceFinding, ...]]:
    """Find the resources that claim what another one owns; of what is not owned yet, the first file owns it.

    Args:
        files: all that may be in conflict, and whether each is on trial, and takes nothing from any other.
        sorts: the sorts of claims that are looked at.
        owned: claims that files are served with, and still make.
    """
    taken: dict[ClaimKey, Resource] = dict(owned)
    found = {}
    for parsed, is_on_trial in files:
        findings, own = _check_file(parsed, sorts, taken)
        if findings:
            found[parsed.path] = findings
        elif not is_on_trial:
            # What is held back takes nothing from those that come after it.
            taken |= own
    return found


def _check_file(
    parsed: ParsedFile, sorts: Container[TypeUrl], taken: Mapping[ClaimKey, Resource]
) -> tuple[tuple[ReferenceFinding, ...], Mapping[ClaimKey, Resource]]:
    """Return what is wrong with the claims of a file, and all of them."""
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
    """Return what is claimed as it is written in the file: `VirtualHost.name` without the table before it."""
    return claim.name.rpartition("\n")[2] if claim.type_url == HOST_NAME else claim.name
