"""What a validating Envoy refuses, in terms of resources."""

from __future__ import annotations

from dataclasses import dataclass

from fsxds.resources import Resource


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why Envoy refuses a resource.

    Attributes:
        resource: None where it could not be found out which it is.
        reason: in Envoy's words.
        others: resources without which it would be taken.
        is_certain: False where Envoy would load code or data that is not on this machine.
    """

    resource: Resource | None
    reason: str
    others: tuple[Resource, ...] = ()
    is_certain: bool = True
