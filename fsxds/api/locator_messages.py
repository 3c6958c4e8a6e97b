"""Converts `xds.core.v3.ResourceLocator` to `Locator` and back."""

from __future__ import annotations

from fsxds.api.catalogue import DynamicMessage
from fsxds.model.resource_names import DEEPEST, FileName, Locator, MalformedName, ResourceName
from fsxds.model.values import PlainValue

RESOURCE_LOCATOR = "xds.core.v3.ResourceLocator"

# Values of xds.core.v3.ResourceLocator.Scheme.
_XDSTP, _HTTP, _FILE = range(3)


def locator_of(message: DynamicMessage, authority: str = "") -> Locator:
    """Convert, with a default authority.

    Raises:
        MalformedName: it is invalid, or of the unresolved scheme `http:`.
    """
    # Rules for the text of a locator hold for its message too.
    return Locator.parse(str(_read(message, authority, DEEPEST)), authority)


def fill_locator(message: DynamicMessage, locator: Locator) -> None:
    """Fill an empty ResourceLocator."""
    target = locator.target
    if isinstance(target, FileName):
        message.scheme, message.id = _FILE, target.path
    else:
        message.id, message.authority, message.resource_type = target.path, target.authority, target.message_type
        if target.context:
            message.exact_context.params.update(target.context)
    for alternative in locator.alternatives:
        fill_locator(message.directives.add().alt, alternative)
    if locator.entry:
        message.directives.add().entry = locator.entry


def plain_locator(locator: Locator) -> dict[str, PlainValue]:
    """Return a ResourceLocator's plain values."""
    target = locator.target
    directives: list[PlainValue] = [{"alt": plain_locator(alternative)} for alternative in locator.alternatives]
    directives += [{"entry": locator.entry}] if locator.entry else []
    if isinstance(target, FileName):
        return {"scheme": "FILE", "id": target.path, "directives": directives}
    params: dict[str, PlainValue] = dict(target.context)
    return {
        "authority": target.authority,
        "resource_type": target.message_type,
        "id": target.path,
        **({"exact_context": {"params": params}} if params else {}),
        "directives": directives,
    }


def _read(message: DynamicMessage, authority: str, depth: int) -> Locator:
    if not depth:
        raise MalformedName(f"has alternatives that are nested more than {DEEPEST} deep", "list them beside each other")
    alternatives = [_read(each.alt, authority, depth - 1) for each in message.directives if each.HasField("alt")]
    entries = [each.entry for each in message.directives if each.entry]
    if len(entries) > 1:
        raise MalformedName("has two entries", "write one directive with `entry`")
    return Locator(_target(message, authority), "".join(entries), tuple(alternatives))


def _target(message: DynamicMessage, authority: str) -> ResourceName | FileName:
    if message.scheme == _FILE:
        if not message.id.startswith("/"):
            raise MalformedName("has no absolute path as its `id`", "write `scheme: FILE` and `id: /<absolute path>`")
        return FileName(message.id)
    if message.scheme != _XDSTP:
        raise MalformedName("is of the scheme HTTP", "leave `scheme` out, or write FILE")
    if not message.resource_type:
        raise MalformedName("has no type", "write `resource_type: envoy.config.listener.v3.Listener`, or another one")
    context = dict(message.exact_context.params)
    return ResourceName(
        message.authority or authority, message.resource_type, message.id, tuple(sorted(context.items()))
    )
