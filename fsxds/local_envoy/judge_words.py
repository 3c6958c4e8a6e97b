"""A validating Envoy's words, made fit for the author of a resource (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsxds.api.secrets import HIDDEN, mask_reason
from fsxds.local_envoy.stub_files import STAND_IN

LONGEST_REASON = 500
# Shorter pieces of a secret are words that may stand anywhere.
SHORTEST_SECRET = 4

_CONSTRAINT = re.compile(r"Proto constraint validation failed \((?P<chain>.*)\)", re.DOTALL)
_CAUSE = " | caused by "
# Said of static listeners only; the problem is at the listener anyway.
_LISTENER = re.compile(r"^error adding listener(?: named)?(?: '[^']*')?: ")
# What an Envoy says of EDS that gets from a server what another says of a static cluster.
_LEDS = re.compile(r"LEDS is only supported when EDS is used\..*", re.DOTALL)
_LEDS_BESIDE_LIST = "a ClusterLoadAssignment cannot include both LEDS and a list of endpoints"
_LINK = re.compile(r"(\w+)ValidationError\.([^:]+): ")
# How Lua calls a script: by its beginning, which is ours.
_LUA_CHUNK = re.compile(r'\[string "[^\n]*?"\]:(\d+): ')
_STATIC_NAME = re.compile(rf"{STAND_IN}/")

# Reasons that lie in the machine or the bootstrap of an Envoy, and may not be given on the one that it is for.
_SURROUNDINGS = re.compile(
    r"[Uu]nable to (?:open|read)|[Ff]ailed to (?:open|read)|No such file|Permission denied|existing path in the system"
    r"|[Ii]nvalid path: |cannot open shared object|[Ff]ailed to load dynamic module|module '[^']*' not found"
    r"|[Cc]annot bind|Cannot assign requested|[Nn]etwork namespace|[Bb]ootstrap extension"
)

# What helps, by what Envoy says; the first that is found counts.
_REMEDIES = tuple(
    (re.compile(pattern), remedy)
    for pattern, remedy in (
        ("malformed IP address", "write an IP address; a host name needs a cluster of type STRICT_DNS or LOGICAL_DNS"),
        ("invalid ip address|Unable to parse", "write an IP address and prefix length that Envoy can parse"),
        ("[Dd]uplicate address|duplicate address", "give one of the listeners another address or port"),
        ("Only unique values for domains|Only a single wildcard domain", "write each domain in one virtual host only"),
        ("scope key conflict", "give each scope another key"),
        ("has duplicate|Duplicate|[Mm]ore than one|already exists", "write it once"),
        ("no such field|has unknown fields", "remove the field, or correct its name"),
        (
            "[Ii]nvalid regex|no argument for repetition|missing \\)|missing \\]|bad repetition",
            "mend the regular expression",
        ),
        (
            "Didn't find a registered implementation",
            "correct the name and type; this Envoy may be built without the extension",
        ),
        ("must be the terminal|terminal filter", "put the filter that answers requests, such as the router, last"),
        ("refresh_delay is required", "add refresh_delay, of at least 0.01s"),
        ("without an EDS config", "add eds_cluster_config, or choose another type"),
        ("is not valid for Cluster type", "set the lb_policy that Envoy names"),
        ("no filter chains specified", "add filter_chains"),
        ("address is necessary", "add the address to listen on"),
        ("Not supported field in StreamInfo|Incorrect header configuration", "write a command that Envoy knows"),
        ("ticket key length", "write keys of exactly 80 bytes"),
        ("has the same matching rules", "give each filter chain another filter_chain_match"),
        ("reason: is required", "set one of the fields of the choice"),
        ("value must|value length must", "write a value that fulfils this"),
        ("script load error|lua code", "mend the Lua script"),
        ("unknown cluster", "define the cluster, or correct the name"),
        ("Failed to load certificate chain", "write the certificates as PEM, the server's own first"),
        ("Failed to load (?:incomplete )?private key", "write the key that belongs to the certificate, as PEM"),
        ("KEY_VALUES_MISMATCH|key.*mismatch", "use the key that belongs to the certificate"),
        ("Failed to load trusted CA", "write the certificates of the authorities as PEM"),
        ("Envoy crashes|Envoy hangs", "leave it out, and tell Envoy's developers"),
        ("[Dd]uration", "write a duration from 0s to some years"),
        ("value is required", "add the field"),
        ("[Uu]nable to open|No such file|[Ii]nvalid path|not found", "create it on the machine of the Envoy"),
    )
)
_DEFAULT_REMEDY = "change what Envoy names; its API reference says what it may be"


def remedy_for(reason: str) -> str:
    """Return what to do about a reason."""
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(reason)), _DEFAULT_REMEDY)


def lies_in_surroundings(reason: str) -> bool:
    """Tell whether a reason speaks of what only the machine of an Envoy can tell, and not of the resource."""
    return _SURROUNDINGS.search(reason) is not None


def plain_reason(reason: str, secrets: Iterable[str] = ()) -> str:
    """Return a reason in one line, without what we made for the question, the chain to the field, and secrets.

    Args:
        reason: what Envoy said.
        secrets: the texts of the resource that nobody may see.
    """
    short = _LUA_CHUNK.sub(r"line \1: ", _STATIC_NAME.sub("", as_if_served(reason)))
    short = _CONSTRAINT.sub(lambda match: _LINK.sub("", match["chain"].rpartition(_CAUSE)[2]), short)
    lines = {
        piece for secret in secrets for piece in (secret, *secret.splitlines()) if len(piece.strip()) >= SHORTEST_SECRET
    }
    for piece in sorted(lines, key=len, reverse=True):
        short = short.replace(piece, HIDDEN)
    # Behind the first line some versions of Envoy print what they refuse.
    short = mask_reason(" ".join(short.strip().partition("\n")[0].split()))
    return short if len(short) <= LONGEST_REASON else short[: LONGEST_REASON - 1] + "…"


def as_if_served(reason: str) -> str:
    """Return a reason without the listener that it begins with, as it would be said of what is served."""
    return _LEDS.sub(_LEDS_BESIDE_LIST, _LISTENER.sub("", reason))


def constraint_chain(reason: str) -> tuple[tuple[str, str], ...]:
    """Return the way to a field that breaks its rule, `(("Cluster", "HealthChecks[0]"), …)`; empty for other reasons."""
    match = _CONSTRAINT.search(reason)
    causes = match["chain"].split(_CAUSE) if match else []
    links = map(_LINK.match, causes)
    return tuple((link[1], link[2]) for link in links if link)
