"""Follows redirects: serves content under a name that stands for another resource. Pure.

| rule | source |
| --- | --- |
| A redirect is followed up to a resource that is none; its content is served under the requested name. | xRFC TP1, "Redirects" |
| An alternative is used if the one before leads to no resource; a note says so. | xRFC TP1, "Resource locators" |
| Envoy compares names: the one in the content is the requested one, and endpoints stay those of the target. | ENVOY.md E43 |
| A redirect that dangles, loops, or leads too far removes nothing: the last content of its name stays. | |
| The former target of such a copy may be removed: the redirect no longer leads there. | |
| The same holds if two resources of one view would claim the same, such as an address: Envoy would reject both. | |
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.constraints import FieldRules
from fsxds.model.resource_names import FileName, Locator, parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, BY_TYPE_URL, ResourceType
from fsxds.model.resources import Key, Reference, Resource, claims_of, version_of_body
from fsxds.model.values import Problem, Severity, TypeUrl
from fsxds.snapshots import names
from fsxds.snapshots.located_references import located
from fsxds.snapshots.locators import NotThere, Place, Resolver
from fsxds.snapshots.stages import locates

MOST_FOLLOWED = 10
"""The maximum number of successive redirects."""

MOST_TRIED = 100
"""The maximum number of locators looked up for one redirect, with the alternatives of its targets."""

_EDS = 3  # envoy.config.cluster.v3.Cluster.DiscoveryType
_CLUSTER, _VIRTUAL_HOST = BY_SHORT_NAME["cds"], BY_SHORT_NAME["vhds"]


@dataclass(frozen=True, slots=True)
class Followed:
    """The target of a redirect, or a resource with names in place of its locators.

    Attributes:
        redirect: as read.
        looked_at: the places searched: only changes there matter.
        is_elsewhere: another authority at a known place owns the target; or an upstream may have it.
        is_kept: `content` is the name's last, for want of a target.
    """

    redirect: Resource
    target: Resource | None
    content: Resource | None
    problems: tuple[Problem, ...]
    looked_at: frozenset[Place]
    is_elsewhere: bool = False
    is_kept: bool = False

    @property
    def claims(self) -> frozenset[Key]:
        """The keys that no other resource may claim; none without redirect."""
        return claims_of(self.content) if self.content is not None and self.redirect.redirect else frozenset()


@dataclass(frozen=True, slots=True)
class _Failure:
    """The reason for a missing target.

    With `may_be_upstream` it may exist: an upstream that is not queried here has names of that authority.
    """

    rule: str
    fact: str
    remedy: str
    authority: str = ""
    may_be_upstream: bool = False


class RedirectFollower:
    """Follows the redirects and locators of one snapshot.

    With `passes_redirects`, clients on streams follow redirects themselves. `authorities` are at known places. Names of
    `unasked` authorities may exist on upstreams that are not queried here; None for all.
    """

    def __init__(
        self, resolver: Resolver, copier: Copier, authorities: frozenset[str], *, passes_redirects: bool
    ) -> None:
        self.unasked: frozenset[str] | None = frozenset()
        self._passes_redirects = passes_redirects
        self._resolver = resolver
        self._copier = copier
        self._authorities = authorities
        self._tried = 0
        self._notes: list[tuple[Resource, str]] = []

    def follow(self, redirect: Resource) -> Followed:
        """Return a redirect's target."""
        self._resolver.looked_at, self._tried, self._notes = set(), 0, []
        found = self._end_of((redirect,)) if redirect.redirect else redirect
        if isinstance(found, Resource):
            content = self._copier.copy(redirect, found) if redirect.redirect else redirect
            notes = tuple(_note(redirect, at, fact) for at, fact in self._notes)
            if locates(content):
                content, more = located(content, self._name_at, self._copier.catalogue)
                notes += more
            return Followed(redirect, found, content, notes, frozenset(self._resolver.looked_at))
        looked_at = frozenset(self._resolver.looked_at)
        if found.may_be_upstream:
            return Followed(redirect, None, None, (), looked_at, is_elsewhere=True)
        is_elsewhere = bool(found.authority) and (self._passes_redirects or found.authority in self._authorities)
        problem = self._elsewhere(redirect, found) if is_elsewhere else _problem(redirect, found)
        return Followed(redirect, None, None, (problem,), looked_at, is_elsewhere)

    def _name_at(self, choice: Locator, type_url: TypeUrl) -> str | None:
        """Return the clients' name; None for an entry, too."""
        found = None if choice.entry else self._resolver.find_choice(choice, type_url)
        if isinstance(found, tuple):
            return str(choice.target)
        if found is None or isinstance(found, NotThere):
            return None
        self._tried = 0
        is_there = not found.redirect or isinstance(self._end_of((found,)), Resource)
        return found.name if is_there else None

    def _elsewhere(self, redirect: Resource, failure: _Failure) -> Problem:
        if self._passes_redirects:
            remedy = "clients follow it; add the resource to the tree for clients that cannot"
            return _at(redirect, "redirect-elsewhere", failure.fact, remedy, Severity.NOTE)
        remedy = "over HTTP its clients are sent there; for all others add the resource, or an alternative by #alt="
        return _at(redirect, "redirect-elsewhere", failure.fact, remedy, Severity.WARNING)

    def _end_of(self, trail: tuple[Resource, ...]) -> Resource | _Failure:
        first: _Failure | None = None
        for choice in Locator.parse(trail[-1].redirect).choices():
            self._tried += 1
            if self._tried > MOST_TRIED:
                return first or _too_many(trail)
            found = self._at(choice, trail)
            if isinstance(found, Resource):
                if first is not None and not first.may_be_upstream:
                    self._notes.append((trail[-1], f"uses the alternative {choice}: otherwise it {first.fact}"))
                return found
            first = first or found
        return first or _too_many(trail)

    def _at(self, choice: Locator, trail: tuple[Resource, ...]) -> Resource | _Failure:
        found = self._resolver.find_choice(choice, trail[0].type_url)
        if isinstance(found, NotThere):
            return replace(_missing_target(choice, trail, found), may_be_upstream=self._may_be_upstream(choice))
        if isinstance(found, tuple):
            return _collection(choice, trail)
        if not found.redirect:
            return found
        if any(found is step for step in trail):
            return _loop(found, trail)
        if len(trail) >= MOST_FOLLOWED:
            return _too_long(trail)
        return self._end_of((*trail, found))

    def _may_be_upstream(self, choice: Locator) -> bool:
        if isinstance(choice.target, FileName) or choice.entry:
            return False
        return self.unasked is None or choice.target.authority in self.unasked


class Copier:
    """Makes the content of redirects."""

    def __init__(self, catalogue: Catalogue, field_rules: FieldRules) -> None:
        self.catalogue = catalogue
        self._field_rules = field_rules

    def copy(self, redirect: Resource, target: Resource) -> Resource:
        """Return a target's content under the redirect's name."""
        row = BY_TYPE_URL[redirect.type_url]
        message = self.catalogue.message_class(row.message_type).FromString(target.body)
        _rename(message, row, redirect.name)
        body = message.SerializeToString(deterministic=True)
        used, aliases = tuple(self._field_rules.check(message).references), redirect.aliases
        if row is _VIRTUAL_HOST:
            used += tuple(names.claims_of(redirect.name, message, aliases))
            aliases = names.aliases_of(redirect.name, message, aliases)
        return replace(
            redirect,
            body=body,
            version=version_of_body(redirect.type_url, body),
            aliases=aliases,
            ttl_s=target.ttl_s if redirect.ttl_s is None else redirect.ttl_s,
            # The target is removed only after users of this copy have moved on.
            references=(*used, *redirect.references, _mention(redirect.type_url, target.name)),
        )


def kept_content(redirect: Resource, last: Resource) -> Resource:
    """Drop the reference to the last target."""
    used = (one for one in last.references if one.field_path or one != _mention(redirect.type_url, one.name))
    references = (*used, *redirect.references)
    return replace(last, origin=redirect.origin, redirect=redirect.redirect, references=references)


def _mention(type_url: TypeUrl, name: str) -> Reference:
    return Reference(type_url, name, (), Severity.NOTE)


def _rename(message: DynamicMessage, row: ResourceType, name: str) -> None:
    if row is _CLUSTER and message.WhichOneof("cluster_discovery_type") == "type" and message.type == _EDS:
        # By default endpoints are those of the cluster's own name.
        message.eds_cluster_config.service_name = message.eds_cluster_config.service_name or message.name
    if row.name_field is not None:
        setattr(message, row.name_field, name)


def collection_of(resource: Resource) -> str:
    """Return the collection in which clients get a resource, if any."""
    name = parse_or_none(resource.name)
    return "" if name is None else str(name.glob)


# Problems


def _noun_of(resource: Resource) -> str:
    return BY_TYPE_URL[resource.type_url].message_type.rpartition(".")[2]


def _by_way_of(trail: tuple[Resource, ...]) -> str:
    steps = ", ".join(f'"{step.name}" at {step.origin}' for step in trail[1:])
    return f" by way of {steps}" if steps else ""


def _missing_target(choice: Locator, trail: tuple[Resource, ...], absent: NotThere) -> _Failure:
    fact = f"leads{_by_way_of(trail)} to {choice}, {absent.reason}"
    remedy = "add that resource, or write the name of another one"
    if isinstance(choice.target, FileName):
        remedy = "write the path of a file of the tree that has one resource of this type, or the name of a resource"
    elif absent.authority:
        remedy = "give its URL in the setting `authorities`, add that resource to the tree, or an alternative by #alt="
    return _Failure("dangling-redirect", fact, remedy, absent.authority)


def _collection(choice: Locator, trail: tuple[Resource, ...]) -> _Failure:
    fact = f"leads{_by_way_of(trail)} to {choice}, which is a collection"
    return _Failure("dangling-redirect", fact, "write the name of one resource: collections cannot be redirected to")


def _loop(found: Resource, trail: tuple[Resource, ...]) -> _Failure:
    fact = f'leads{_by_way_of(trail)} back to "{found.name}" at {found.origin}'
    return _Failure("redirect-loop", fact, "let one of them lead to a resource that is no redirect")


def _too_long(trail: tuple[Resource, ...]) -> _Failure:
    fact = f"leads over more than {MOST_FOLLOWED} redirects, the last one at {trail[-1].origin}"
    return _Failure("redirect-loop", fact, "let it lead to the resource itself")


def _too_many(trail: tuple[Resource, ...]) -> _Failure:
    fact = f"leads to more than {MOST_TRIED} locators, the last ones at {trail[-1].origin}"
    return _Failure("redirect-loop", fact, "write fewer alternatives")


def _problem(redirect: Resource, failure: _Failure) -> Problem:
    return _at(redirect, failure.rule, failure.fact, failure.remedy, Severity.ERROR)


def conflict(redirect: Resource, target: Resource, other: Resource, *, is_apart: bool) -> Problem:
    """Report equal claims; `is_apart`: the other is in another collection."""
    fact = (
        f'leads to "{target.name}" at {target.origin}, and would share with '
        f'"{other.name}" at {other.origin} an address or a domain'
    )
    if is_apart:
        remedy = "clients must not subscribe to both: one collection each is fine, all of the type is not"
        return _at(redirect, "redirect-conflict", fact, remedy, Severity.WARNING)
    remedy = "remove the redirect, or define its target as an inline entry of a collection instead of in a file"
    return _at(redirect, "redirect-conflict", fact, remedy, Severity.ERROR)


def _note(redirect: Resource, at: Resource, fact: str) -> Problem:
    place = "" if at is redirect else f' (at "{at.name}" at {at.origin})'
    remedy = "add the first choice, or name the alternative in its place"
    return _at(redirect, "redirect-alternative", f"{fact}{place}", remedy, Severity.NOTE)


def _at(redirect: Resource, rule: str, fact: str, remedy: str, severity: Severity) -> Problem:
    message = f'the redirect of {_noun_of(redirect)} "{redirect.name}" {fact}'
    origin = redirect.origin
    return Problem(origin.path, origin.line, 1, "", rule, message, remedy, severity)
