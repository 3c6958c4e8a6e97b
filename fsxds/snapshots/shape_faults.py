"""What can be wrong with the outer form of a resource, in words."""

from __future__ import annotations

from fsxds.api.quotes import may_quote_type
from fsxds.resource_types import PREFIX, RESOURCE_TYPES, ResourceType
from fsxds.rules.durations import LONGEST_S
from fsxds.snapshots.virtual_host_names import VIRTUAL_HOST, table_fault
from fsxds.values import Fault, FieldPath, Severity

# It is renewed when half of it is over; whatever delays that by the other half takes the resource away.
SHORTEST_TTL_S = 0.5

# Where Envoy 1.40 survives the end of a time to live (ENVOY.md D4).
_WITH_TTL = frozenset({"cds", "lds", "rtds"})


def no_type(field_path: FieldPath) -> Fault:
    """Nothing tells the type."""
    return Fault(
        "missing-type",
        "nothing tells the type of this resource",
        f'add "@type": "{PREFIX}…", or name the file after its type (cds.yaml, edge.clusters.yaml, clusters/edge.yaml)',
        field_path,
    )


def not_an_object(field_path: FieldPath) -> Fault:
    """Something else stands where a resource is due."""
    return Fault("wrong-value", "a resource must be an object", "write its fields, or remove it", field_path)


def heartbeat(field_path: FieldPath) -> Fault:
    """A wrapper holds nothing. Source: ENVOY.md A5, I."""
    return Fault(
        "no-resource",
        "a Resource without `resource` makes a nameless cluster in Envoy",
        "add `resource:` with its content, or remove it",
        field_path,
    )


def not_served(message_type: str, field_path: FieldPath) -> Fault:
    """A known message is no resource."""
    known = ", ".join(row.message_type.rpartition(".")[2] for row in RESOURCE_TYPES)
    return Fault("not-a-resource", f"{message_type} is not a type that xDS serves", f"those are {known}", field_path)


def unknown_type(message_type: str, similar: str | None, field_path: FieldPath) -> Fault:
    """The catalogue does not know a message."""
    hint = f'did you mean "{similar}"? else ' if similar else ""
    is_shown = similar is not None or may_quote_type(message_type)
    return Fault(
        "unknown-type",
        f'the message type "{message_type}" is not known' if is_shown else "this message type is not known",
        f"{hint}give the Envoy in use by --envoy PATH, or its descriptors by --descriptors FILE",
        field_path,
    )


def broken_message(message_type: str, field_path: FieldPath) -> Fault:
    """Bytes do not parse as what they claim to be."""
    return Fault("broken-message", f"the bytes are no {message_type}", "write the file again", field_path)


def wrong_ttl(ttl_s: float, field_path: FieldPath) -> Fault | None:
    """A time to live is none, or shorter than anybody can renew it in time."""
    place = (*_wrapper_path(field_path), "ttl")
    if 0 < ttl_s < SHORTEST_TTL_S:
        fact = f"must be renewed every {ttl_s / 2:g}s, or Envoy drops the resource"
        return Fault("short-ttl", fact, f"write {SHORTEST_TTL_S:g}s or more", place, severity=Severity.WARNING)
    if 0 < ttl_s <= LONGEST_S:
        return None
    bound = "more than 0s, or the resource is gone at once" if ttl_s <= 0 else f"at most {LONGEST_S}s (292 years)"
    return Fault("wrong-duration", f"must be {bound}", "write another ttl, or leave it out for none", place)


def dropped_ttl(row: ResourceType, field_path: FieldPath) -> Fault | None:
    """A time to live is not told, because Envoy does not survive its end, or does not heed it. Source: ENVOY.md D4."""
    if row.short_name in _WITH_TTL:
        return None
    fact = f"the ttl of {row.noun} is not told to clients: Envoy does well with those of clusters, listeners and runtime alone"
    remedy = "remove it; or serve with `--ttl spec`, to other clients than Envoy"
    return Fault("ttl-dropped", fact, remedy, (*_wrapper_path(field_path), "ttl"), severity=Severity.NOTE)


def _wrapper_path(field_path: FieldPath) -> FieldPath:
    """Return where the `Resource` stands around a resource, or the resource itself where there is none."""
    return field_path[:-1] if field_path[-1:] == ("resource",) else field_path


def naming_fault(
    row: ResourceType, own_name: str, wrapper_name: str, field_path: FieldPath, name_path: FieldPath
) -> Fault | None:
    """Say what is wrong with the name of a resource, None where nothing is. Source: ENVOY.md A5, D5, I.

    Args:
        row: the type of the resource.
        own_name: what the resource calls itself, empty where it does not.
        wrapper_name: what the `Resource` around it calls it, empty where nothing does.
        field_path: where the resource stands in its document.
        name_path: where its own name stands, the same as `field_path` where there is none.
    """
    if row.name_field is None:
        return None if wrapper_name else _unwrapped(row, field_path)
    if row is VIRTUAL_HOST:
        if not (wrapper_name or own_name):
            return _nameless(row, name_path)
        around = _wrapper_path(field_path) if wrapper_name else field_path
        return table_fault(wrapper_name or own_name, (*around, "name"))
    if wrapper_name and own_name and wrapper_name != own_name:
        return Fault(
            "name-mismatch",
            f'the Resource is named "{wrapper_name}", what it holds "{own_name}"; Envoy would add it and delete it again',
            "make the two names equal, or leave the Resource's name out",
            name_path,
        )
    return None if own_name else _nameless(row, name_path)


def _nameless(row: ResourceType, field_path: FieldPath) -> Fault:
    return Fault("missing-name", f"`{row.name_field}` is missing or empty", "name the resource", field_path)


def _unwrapped(row: ResourceType, field_path: FieldPath) -> Fault:
    message = row.message_type.rpartition(".")[2]
    fact = f"{message} has no name of its own, and there is none around it"
    remedy = "write `name: …` and `resource: {…}`, with what stands here as the resource"
    return Fault("missing-name", fact, remedy, field_path)
