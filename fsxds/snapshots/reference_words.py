"""What references lead to, what comes of it when they do not, and what the rules about them are called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.resources import Reference
from fsxds.rules.mentions import ANY, CLUSTER, ENDPOINTS, EXTENSION_CONFIG, ROUTES, SCOPED_ROUTE, SECRET
from fsxds.values import Severity, TypeUrl

_LISTENER = BY_SHORT_NAME["lds"].type_url
_VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url

_WAITS = "Envoy waits for it until initial_fetch_timeout"
_REFUSES = "Envoy refuses what names it"


@dataclass(frozen=True, slots=True)
class Referent:
    """What can be said of references to one type.

    Attributes:
        words: what one of them is called.
        missing: the rule that is broken where there is none.
        unused: the rule that is broken where nobody uses one.
        users: the types that could use it; without any of these in the tree, nothing is called unused.
        outcome: what comes of it when there is none.
        harm: what comes of it where that is an error.
        elsewhere: how to say that it is defined outside of the tree.
    """

    words: str
    missing: str
    unused: str
    users: frozenset[TypeUrl]
    outcome: str
    harm: str = ""
    elsewhere: str = ""


REFERENTS: Mapping[TypeUrl, Referent] = {
    CLUSTER: Referent(
        "cluster",
        "no-cluster",
        "unused-cluster",
        frozenset({_LISTENER, ROUTES, _VIRTUAL_HOST}),
        "requests for it fail",
        _REFUSES,
        ", or declare it by --static-clusters or --bootstrap",
    ),
    ENDPOINTS: Referent(
        "endpoints", "no-endpoints", "unused-endpoints", frozenset({CLUSTER}), "the cluster stays empty"
    ),
    ROUTES: Referent(
        "route configuration",
        "no-route-configuration",
        "unused-route-configuration",
        frozenset({_LISTENER, SCOPED_ROUTE}),
        "requests are answered 404",
    ),
    SCOPED_ROUTE: Referent(
        "scoped route", "no-scoped-route", "unused-scoped-route", frozenset({_LISTENER}), "requests are answered 404"
    ),
    SECRET: Referent(
        "secret",
        "no-secret",
        "unused-secret",
        frozenset({CLUSTER, _LISTENER}),
        _WAITS,
        f"{_WAITS}, then goes on without",
    ),
    EXTENSION_CONFIG: Referent(
        "extension config",
        "no-extension-config",
        "unused-extension-config",
        frozenset({CLUSTER, _LISTENER}),
        _WAITS,
        f"{_WAITS}, then goes on without",
    ),
}

_OF_BOOTSTRAP = {CLUSTER: "no-static-cluster", SECRET: "no-static-secret"}


def rule_of(reference: Reference) -> str:
    """Return the rule that a reference breaks when it leads nowhere."""
    return _OF_BOOTSTRAP[reference.type_url] if reference.is_static else REFERENTS[reference.type_url].missing


def words_of_missing(reference: Reference, hint: str | None, *, may_be_elsewhere: bool) -> tuple[str, str]:
    """Return the fact and the remedy of a reference that leads nowhere.

    Args:
        reference: that one.
        hint: the name that was probably meant, None where no name is near.
        may_be_elsewhere: the tree has nothing at all of the type.
    """
    if reference.is_static:
        return _words_of_static(reference)
    referent = REFERENTS[reference.type_url]
    verb = "are" if reference.type_url == ENDPOINTS else "is"
    named = "" if reference.name == ANY else f' "{reference.name}"'
    fact = f"there {verb} no {referent.words}{named}"
    if may_be_elsewhere:
        return f"{fact} in this tree, nor any other", f"define it{referent.elsewhere}, unless it comes from elsewhere"
    outcome = referent.harm if reference.severity is Severity.ERROR else referent.outcome
    if hint:
        return f"{fact}; {outcome}", f'did you mean "{hint}"?'
    return f"{fact}; {outcome}", f"define it{referent.elsewhere}"


def _words_of_static(reference: Reference) -> tuple[str, str]:
    if reference.type_url == SECRET:
        fact = f'without sds_config, secret "{reference.name}" has to be in the bootstrap, and is not'
        return fact, "add sds_config, or define the secret in the bootstrap's static_resources"
    fact = f'cluster "{reference.name}" has to be in the bootstrap, and is not; one that comes by CDS will not do'
    return fact, "name a cluster of the bootstrap's static_resources"
