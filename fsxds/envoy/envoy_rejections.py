"""A validating Envoy's rejections as problems: reason, field, and place (pure).

A broken constraint names its field by a chain of messages; other reasons quote a value or name. A reason that depends
on the machine (a file, a library) is undecided.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.api.secrets import HIDDEN, Masker, mask_reason
from fsxds.envoy.stub_files import STAND_IN
from fsxds.formats import format_of
from fsxds.formats.decoded import PlainDocument
from fsxds.model.errors import ApiError
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource
from fsxds.model.values import FieldPath, PlainValue, Problem, Severity, pointer_of
from fsxds.snapshots.document import authored_path


@dataclass(frozen=True, slots=True)
class EnvoyRejection:
    """Why Envoy rejects a resource, None if unknown.

    Attributes:
        others: resources without which it would be accepted.
        is_certain: False if Envoy would load code or data absent here.
    """

    resource: Resource | None
    reason: str
    others: tuple[Resource, ...] = ()
    is_certain: bool = True


LONGEST_REASON = 500
# Shorter pieces of a secret are words that may occur anywhere.
SHORTEST_SECRET = 4

_CONSTRAINT = re.compile(r"Proto constraint validation failed \((?P<chain>.*)\)", re.DOTALL)
_CAUSE = " | caused by "
# Only of static listeners; the problem is at the listener anyway.
_LISTENER = re.compile(r"^error adding listener(?: named)?(?: '[^']*')?: ")
# The reason for EDS from a server, and that for a static cluster.
_LEDS = re.compile(r"LEDS is only supported when EDS is used\..*", re.DOTALL)
_LEDS_BESIDE_LIST = "a ClusterLoadAssignment cannot include both LEDS and a list of endpoints"
_LINK = re.compile(r"(\w+)ValidationError\.([^:]+): ")
_STATIC_NAME = re.compile(rf"{STAND_IN}/")

# Reasons that lie in Envoy's machine or bootstrap, and may not hold on the target machine.
_MACHINE = re.compile(
    r"[Uu]nable to (?:open|read)|[Ff]ailed to (?:open|read)|No such file|Permission denied|existing path in the system"
    r"|[Ii]nvalid path: |cannot open shared object|[Ff]ailed to load dynamic module|module '[^']*' not found"
    r"|[Cc]annot bind|Cannot assign requested|[Nn]etwork namespace|[Bb]ootstrap extension"
)

# Remedies by Envoy's words; the first match counts.
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
        ("Envoy crashes|Envoy hangs", "leave it out, and report it to Envoy's developers"),
        ("[Dd]uration", "write a duration from 0s to some years"),
        ("value is required", "add the field"),
        ("[Uu]nable to open|No such file|[Ii]nvalid path|not found", "create it on the machine of the Envoy"),
    )
)
_DEFAULT_REMEDY = "change the field that Envoy names, as its API reference says"


def remedy_for(reason: str) -> str:
    """Return a reason's remedy."""
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(reason)), _DEFAULT_REMEDY)


def depends_on_machine(reason: str) -> bool:
    """Whether a reason depends on the machine."""
    return _MACHINE.search(reason) is not None


def plain_reason(reason: str, secrets: Collection[str] | None = None) -> str:
    """Write one line, without stand-ins, field chain, and secrets.

    `secrets` belong to the resource; None if it is unknown.
    """
    short = _STATIC_NAME.sub("", as_if_served(reason))
    short = _CONSTRAINT.sub(lambda match: _LINK.sub("", match["chain"].rpartition(_CAUSE)[2]), short)
    lines = {
        piece
        for secret in secrets or ()
        for piece in (secret, *secret.splitlines())
        if len(piece.strip()) >= SHORTEST_SECRET
    }
    for piece in sorted(lines, key=len, reverse=True):
        short = short.replace(piece, HIDDEN)
    # After the first line some versions of Envoy print the rejected message.
    short = mask_reason(" ".join(short.strip().partition("\n")[0].split()), secrets)
    return short if len(short) <= LONGEST_REASON else short[: LONGEST_REASON - 1] + "…"


def as_if_served(reason: str) -> str:
    """Drop the listener in front of a reason."""
    return _LEDS.sub(_LEDS_BESIDE_LIST, _LISTENER.sub("", reason))


def constraint_chain(reason: str) -> tuple[tuple[str, str], ...]:
    """Return the path to a broken rule, `(("Cluster", "HealthChecks[0]"), ...)`, or ()."""
    match = _CONSTRAINT.search(reason)
    causes = match["chain"].split(_CAUSE) if match else []
    links = map(_LINK.match, causes)
    return tuple((link[1], link[2]) for link in links if link)


_STEP = re.compile(r"(\w+)(?:\[([^\]]*)\])?")
# Possible values and names: texts in quotes, and words.
_QUOTED = re.compile(r"(?<!\w)'([^']+)'|\"([^\"]+)\"|<([^>]+)>")
_WORD = re.compile(r"[^\s'\"]+")
_SHORTEST_WORD = 3
_HINTS = tuple(
    (re.compile(reason), re.compile(value))
    for reason, value in (
        ("single wildcard domain", r"\*$"),
        ("Invalid duration", r"-\d|\d{12,}"),
        ("may not be (?:removed|modified)", "(?i)(?::|host$)"),
    )
)
_Parts: TypeAlias = tuple[tuple[FieldPath, PlainValue], ...]
_REPEATED = re.compile("[Dd]uplicate|[Oo]nly unique|already|[Mm]ore than one")


def field_named(reason: str, plain: PlainValue, message_type: str) -> FieldPath:
    """Return a reason's field path, as far as it leads.

    `plain` is the resource as snake_case JSON.
    """
    chain = constraint_chain(reason)
    if chain:
        return _follow(chain, plain, message_type)
    words, parts = as_if_served(reason), tuple(_parts(plain, ()))
    return _of_hint(words, parts) or _of_value(words, parts) or _of_key(words, parts)


def _follow(chain: tuple[tuple[str, str], ...], plain: PlainValue, message_type: str) -> FieldPath:
    """The path starts in the resource, or in an Any."""
    own_name = message_type.rpartition(".")[2]
    starts = [number for number, (owner, _) in enumerate(chain) if owner == own_name]
    if starts:
        return _steps(chain[starts[0] :], plain, ())
    found = [
        _steps(chain, part, path)
        for path, part in _parts(plain, ())
        if isinstance(part, dict) and str(part.get("@type", "")).endswith(f".{chain[0][0].replace('_', '.')}")
    ]
    return max(found, key=len, default=())


def _steps(chain: tuple[tuple[str, str], ...], part: PlainValue, path: FieldPath) -> FieldPath:
    for _, written in chain:
        match = _STEP.match(written)
        if match is None or not isinstance(part, dict):
            return path
        key = next((key for key in part if key.replace("_", "").lower() == match[1].lower()), None)
        if key is None:
            return (*path, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", match[1]).lower())
        path, part = (*path, key), part[key]
        if match[2] is None:
            continue
        if isinstance(part, list) and match[2].isdigit() and int(match[2]) < len(part):
            path, part = (*path, int(match[2])), part[int(match[2])]
        elif isinstance(part, dict) and match[2] in part:
            path, part = (*path, match[2]), part[match[2]]
    return path


def _of_hint(reason: str, parts: _Parts) -> FieldPath:
    """The last value of an unquoted kind."""
    for pattern, value in _HINTS:
        if pattern.search(reason):
            return next((path for path, part in reversed(parts) if isinstance(part, str) and value.match(part)), ())
    return ()


def _of_value(reason: str, parts: _Parts) -> FieldPath:
    """The first quoted value or key, or the last if repeated."""
    places: dict[str, list[FieldPath]] = {}
    quoted = set(_quoted(reason))
    for path, part in parts:
        if not path or path == ("name",):
            continue
        if isinstance(part, str | int | float) and not isinstance(part, bool):
            text = str(part)
            for known in {text, text.rpartition("/")[2] if path[-1] == "@type" else text}:
                places.setdefault(known, []).append(path)
        if isinstance(part, dict) and str(path[-1]) in quoted:
            places.setdefault(str(path[-1]), []).append(path)
    for piece in _pieces(reason):
        if piece in places:
            return places[piece][-1 if _REPEATED.search(reason) else 0]
    return ()


def _of_key(reason: str, parts: _Parts) -> FieldPath:
    """A field named in the reason, or a text with a named command."""
    words = " ".join(re.findall(r"\w+", reason)).lower()
    for path, _ in parts:
        if path and isinstance(path[-1], str) and "_" in path[-1]:
            name = path[-1].removesuffix("s")
            if name in words or name.replace("_", " ") in words:
                return path
    commands = set(re.findall(r"\b[A-Z][A-Z_]{2,}\b", reason))
    named = (path for path, part in parts if isinstance(part, str) and any(f"%{word}" in part for word in commands))
    return next(named, ())


def _pieces(reason: str) -> Iterator[str]:
    quoted = _quoted(reason)
    yield from quoted
    # Quoted without quotes, after a colon: `missing ): (a`.
    yield from (reason[match.end() :] for match in re.finditer(": ", reason))
    for text in quoted:
        yield text.rpartition(":")[0]
        yield text.rpartition(":")[2]
    for word in _WORD.findall(reason):
        bare = word.strip(".,;:()[]")
        for piece in (
            word.rstrip(".,;"),
            bare,
            bare.rpartition(":")[0],
            bare.rpartition(":")[2],
            bare.partition("=")[2],
        ):
            if len(piece) >= _SHORTEST_WORD:
                yield piece


def _quoted(reason: str) -> list[str]:
    return [next(filter(None, groups)) for groups in _QUOTED.findall(reason)]


def _parts(value: PlainValue, path: FieldPath) -> Iterator[tuple[FieldPath, PlainValue]]:
    yield path, value
    if isinstance(value, dict):
        for key, member in value.items():
            yield from _parts(member, (*path, key))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _parts(member, (*path, index))


REJECTS = "envoy-rejects"
UNDECIDED = "envoy-undecided"

Read: TypeAlias = Callable[[PurePosixPath], bytes | None]
"""Returns the content of a file of the tree, None if it cannot be read."""


class ProblemWriter:
    """Turns rejections into problems; it reads their files."""

    def __init__(self, catalogue: Catalogue, read: Read) -> None:
        self._catalogue = catalogue
        self._printer = Printer(catalogue)
        self._masker = Masker(catalogue)
        self._read = read

    def problem(self, rejection: EnvoyRejection) -> Problem:
        """Return a rejection's problem."""
        resource = rejection.resource
        if resource is None:
            remedy = "check its files one by one to find out which of them it is"
            return Problem(PurePosixPath("."), 1, 1, "", REJECTS, plain_reason(rejection.reason), remedy)
        plain = self._plain(resource)
        message_type = BY_TYPE_URL[resource.type_url].message_type
        field_path = field_named(rejection.reason, plain, message_type)
        line, column, authored = self._place(resource, field_path)
        secrets = self._masker.secrets_in({"@type": resource.type_url, **plain})
        message = plain_reason(rejection.reason, secrets) + _beside(rejection.others)
        path, pointer, remedy = resource.origin.path, pointer_of(authored), remedy_for(rejection.reason)
        if rejection.is_certain and not depends_on_machine(rejection.reason):
            return Problem(path, line, column, pointer, REJECTS, message, remedy)
        message = f"not decided, as it depends on files or addresses of another machine: {message}"
        return Problem(path, line, column, pointer, UNDECIDED, message, remedy, Severity.NOTE)

    def _plain(self, resource: Resource) -> dict[str, PlainValue]:
        try:
            return self._printer.resource_plain(resource.type_url, resource.body)
        except ApiError:
            return {}

    def _place(self, resource: Resource, field_path: FieldPath) -> tuple[int, int, FieldPath]:
        origin = resource.origin
        row, content = format_of(origin.path), self._read(origin.path)
        if row is None or content is None or row.locate is None:
            return origin.line, 1, origin.field_path + field_path
        if row.name != "textproto":
            decoded = row.decode(content, self._catalogue, None).documents
            document = decoded[origin.document] if origin.document < len(decoded) else None
            value = document.value if isinstance(document, PlainDocument) else None
            field_path = authored_path(_inner(value, origin.field_path), field_path)
        path = origin.field_path + field_path
        wanted = origin.document, path
        line, column = row.locate(content, (wanted,))[wanted]
        return line, column, path


def _inner(value: PlainValue, path: FieldPath) -> PlainValue:
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
    return value


def _beside(others: tuple[Resource, ...]) -> str:
    if not others:
        return ""
    named = (f'"{other.name}" at {other.origin}' for other in others)
    return f", beside {' and '.join(named)}"
