"""List collections as Envoy reads them from files: with all listeners inline.

Envoy silently skips locators; a collection of only these removes every listener (ENVOY.md E80). So a locator's resource
is written in its place; a collection that ends up empty is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.locator_messages import locator_of
from fsxds.api.walk import addresses_taken
from fsxds.model.resource_names import Locator, MalformedName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, Snapshot, version_of_body

LISTENER = BY_SHORT_NAME["lds"]
COLLECTION = BY_SHORT_NAME["lcds"]

FindListeners = Callable[[Locator], "tuple[Resource, ...] | str"]
"""Returns a locator's listeners, at most one unless it is a glob; or why there are none."""

ListenerFinder = Callable[[Snapshot], FindListeners]
"""Returns a snapshot's function to find listeners."""


@dataclass(frozen=True, slots=True)
class InlinedCollection:
    """A list collection without locators, with the version of its inlined content.

    `left_out` has reasons; `is_void`: no entry of the author is left: Envoy would remove all listeners.
    """

    resource: Resource
    left_out: tuple[str, ...] = ()
    is_void: bool = False


def by_name(snapshot: Snapshot) -> FindListeners:
    """Find listeners by their names alone."""
    rows = snapshot.resources(LISTENER.type_url)

    def find(locator: Locator) -> tuple[Resource, ...] | str:
        found = (rows.get(str(choice.target)) for choice in locator.choices() if not choice.entry)
        return next(((one,) for one in found if one is not None), f"leads to {locator}, which is not there")

    return find


def inlined(catalogue: Catalogue, collection: Resource, find: FindListeners) -> InlinedCollection:
    """Replace a collection's locators by listeners, the first per name and address.

    Two with the same make Envoy reject the collection, and still remove all further ones (ENVOY.md E56, E80).
    """
    message: DynamicMessage = catalogue.message_class(COLLECTION.message_type).FromString(collection.body)
    if not any(entry.HasField("locator") for entry in message.entries):
        return InlinedCollection(collection)
    made = type(message)()
    taken: dict[str, int] = {}
    addresses: dict[str, int] = {}
    left_out: list[str] = []
    for index, entry in enumerate(message.entries):
        for each in _entries(entry, find):
            if isinstance(each, str):
                left_out.append(f"entries[{index}] {each}")
                continue
            listener = _listener(catalogue, each)
            name = listener.name
            own = {address for _, address in addresses_taken(listener)}
            if name in taken:
                left_out.append(f'entries[{index}] leads to listener "{name}", which entries[{taken[name]}] is already')
            elif equal := sorted(own & addresses.keys()):
                other = addresses[equal[0]]
                left_out.append(
                    f'entries[{index}] is listener "{name}", and entries[{other}] has its address {equal[0]}'
                )
            else:
                taken[name] = index
                addresses |= dict.fromkeys(own, index)
                made.entries.append(each)
    body = made.SerializeToString(deterministic=True)
    resource = replace(collection, body=body, version=version_of_body(collection.type_url, body))
    return InlinedCollection(resource, tuple(left_out), is_void=not made.entries)


def _entries(entry: DynamicMessage, find: FindListeners) -> Iterator[DynamicMessage | str]:
    if not entry.HasField("locator"):
        yield entry
        return
    try:
        found = find(locator_of(entry.locator))
    except MalformedName as malformed:
        found = malformed.fact
    if isinstance(found, str):
        yield found
        return
    for listener in found:
        made = type(entry)()
        made.inline_entry.version = listener.version
        made.inline_entry.resource.type_url = LISTENER.type_url
        made.inline_entry.resource.value = listener.body
        yield made


def _listener(catalogue: Catalogue, entry: DynamicMessage) -> DynamicMessage:
    return catalogue.message_class(LISTENER.message_type).FromString(entry.inline_entry.resource.value)
