"""What can be wrong with the outer form of a resource, in words."""

from __future__ import annotations

from fsxds.resource_types import PREFIX, RESOURCE_TYPES, ResourceType
from fsxds.values import Fault, FieldPath


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
    return Fault(
        "unknown-type",
        f'the message type "{message_type}" is not known',
        f"{hint}give the Envoy in use by --envoy PATH, or its descriptors by --descriptors FILE",
        field_path,
    )


def broken_message(message_type: str, field_path: FieldPath) -> Fault:
    """Bytes do not parse as what they claim to be."""
    return Fault("broken-message", f"the bytes are no {message_type}", "write the file again", field_path)


def ttl_fault(row: ResourceType, field_path: FieldPath) -> Fault | None:
    """A resource has a time to live, and Envoy does not survive its end. Source: ENVOY.md D4."""
    if row.short_name not in {"eds", "rds", "sds"}:
        return None
    wrapper_path = field_path[:-1] if field_path[-1:] == ("resource",) else field_path
    return Fault(
        "ttl-crashes-envoy",
        f"when the ttl of one of its {row.noun} runs out, Envoy crashes",
        "remove the ttl",
        (*wrapper_path, "ttl"),
    )


def naming_fault(row: ResourceType, own_name: str, wrapper_name: str, field_path: FieldPath) -> Fault | None:
    """A resource has no name, or two. Source: ENVOY.md A5, I."""
    # Virtual hosts are the one type whose wrapper has a name of its own: `<route configuration>/<host>`.
    if wrapper_name and own_name and wrapper_name != own_name and row.short_name != "vhds":
        return Fault(
            "name-mismatch",
            f'the Resource is named "{wrapper_name}", what it holds "{own_name}"; Envoy would add it and delete it again',
            "make the two names equal, or leave the Resource's name out",
            field_path,
        )
    if own_name or (wrapper_name and row.short_name == "vhds"):
        return None
    return Fault("missing-name", f"`{row.name_field}` is missing or empty", "name the resource", field_path)
