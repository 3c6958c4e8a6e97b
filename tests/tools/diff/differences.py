"""A difference to write in all formats."""

from __future__ import annotations

from pathlib import PurePosixPath

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Origin, Resource, version_of_body
from fsxds.tools.diff.compare import ChangeAction, Difference, FieldChange, ResourceChange, TypeDifference
from fsxds.tools.diff.difference import Compared, Side

CDS, SDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["sds"].type_url


def resource(name: str, line: int = 1, body: bytes = b"") -> Resource:
    """Return a cluster."""
    return Resource(CDS, name, body, version_of_body(CDS, body), Origin(PurePosixPath("cds.yaml"), line))


def compared(*types: TypeDifference, before: str = "main", after: str = "HEAD") -> Compared:
    """Return a comparison of two revisions."""
    return Compared(Side(before, f"{before}:xds/"), Side(after, f"{after}:xds/"), Difference(types))


FIELDS = (
    FieldChange("lb_policy", ChangeAction.CHANGED, "ROUND_ROBIN", "LEAST_REQUEST"),
    FieldChange("metadata.a", ChangeAction.ADDED, None, {"deep": [1.0, "two words"]}),
    FieldChange("connect_timeout", ChangeAction.REMOVED, "1s", None),
    FieldChange("transport_socket.key", ChangeAction.CHANGED, is_hidden=True),
    FieldChange("filters", ChangeAction.REORDERED, ["a", "b"], ["b", "a"]),
    FieldChange("listeners", ChangeAction.REORDERED),
)

EXAMPLE = compared(
    TypeDifference(SDS, removed=(resource("key", 3),)),
    TypeDifference(
        CDS,
        added=(resource("new", 7),),
        changed=(
            ResourceChange(resource("web", 1), resource("web", 2, b"x"), FIELDS),
            ResourceChange(resource("odd"), resource("odd"), ()),
        ),
    ),
)
