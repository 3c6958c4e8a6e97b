"""Checks list collections in files, and adds fields that clients need. Pure.

| rule | source |
| --- | --- |
| An entry is a resource inline, or a locator of one; both of the collection's type. | xRFC TP1, "List" |
| An entry's name, if any, is of letters, digits and `_-./`, and unique in the collection. | xRFC TP1, "URI encoding", "List collection with inlining" |
| Envoy knows an inline listener by its own name. Without one it would get another with each update; two of one name make Envoy remove all others. | ENVOY.md E79, E80 |
| Envoy shows the version of an entry; without one from the author, it is the digest of the content. | ENVOY.md E79 |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.locator_messages import fill_locator, locator_of, plain_locator
from fsxds.model.resource_names import ENTRY_NAME, Locator, MalformedName, ResourceName, is_structured
from fsxds.model.resource_types import BY_MESSAGE_TYPE, BY_SHORT_NAME
from fsxds.model.resources import Reference, version_of_body
from fsxds.model.values import Fault, FieldPath, PlainValue, Severity

LISTENER_COLLECTION = BY_SHORT_NAME["lcds"]
LISTENER = BY_SHORT_NAME["lds"]


def name_fault(name: str) -> Fault | None:
    """Demand a structured name: clients request by no other, and it names the file."""
    if not name or is_structured(name):
        return None
    remedy = f"write xdstp://<authority>/{LISTENER_COLLECTION.message_type}/{quote(name)}"
    return Fault("collection-name", f'"{name}" is no structured name', remedy, ("name",))


def read(written: Mapping[str, PlainValue], authority: str) -> tuple[dict[str, PlainValue], tuple[Fault, ...]]:
    """Replace textual locators by fields; return the faults of the texts."""
    entries = written.get("entries")
    # As elsewhere, one object may stand for a list.
    read = [_with_plain_locator(each, authority) for each in (entries if isinstance(entries, list) else [entries])]
    faults = [
        Fault("malformed-name", f"the locator {error.fact}", error.remedy, ("entries", *at, "locator"))
        for index, (_, error) in enumerate(read)
        if error is not None
        for at in [(index,) if isinstance(entries, list) else ()]
    ]
    plain = [each for each, _ in read]
    return {**written, **({"entries": plain} if entries is not None else {})}, tuple(faults)


def _with_plain_locator(entry: PlainValue, authority: str) -> tuple[PlainValue, MalformedName | None]:
    if not isinstance(entry, dict) or not isinstance(text := entry.get("locator"), str):
        return entry, None
    try:
        return {**entry, "locator": plain_locator(Locator.parse(text, authority))}, None
    except MalformedName as error:
        return {**entry, "locator": {}}, error


def complete(collection: DynamicMessage, written: PlainValue, catalogue: Catalogue, authority: str = "") -> list[Fault]:
    """Complete a collection's entries; return their faults."""
    names: dict[str, int] = {}
    listeners: dict[str, int] = {}
    faults: list[Fault] = []
    for index, entry in enumerate(collection.entries):
        at: FieldPath = ("entries", index)
        chosen = entry.WhichOneof("resource_specifier")
        if chosen == "inline_entry":
            inline = entry.inline_entry
            faults += _name_faults(inline.name, (*at, "inline_entry"), names, index)
            faults += _complete_inline(inline, catalogue, (*at, "inline_entry"), (listeners, index))
        elif chosen == "locator":
            faults += _locator_faults(entry.locator, authority, (*at, "locator"))
        else:
            faults.append(Fault("wrong-entry", "the entry is empty", "write inline_entry or locator", at))
    if isinstance(written, dict) and written.get("entries") is None:
        fact = "`entries` has no value: Envoy would remove every listener"  # ENVOY.md E80
        return [Fault("no-resources", fact, "write the entries, or `entries: []` for an empty collection", ())]
    return faults


def references_of(collection: DynamicMessage) -> Iterator[Reference]:
    """Yield the listeners that locators name; dangling ones are reported when resolved."""
    for index, entry in enumerate(collection.entries):
        for choice in locator_of(entry.locator).choices() if entry.HasField("locator") else ():
            if isinstance(choice.target, ResourceName) and not choice.target.is_glob:
                row = BY_MESSAGE_TYPE[choice.target.message_type]
                steps = ("entries", index, "locator")
                yield Reference(row.type_url, str(choice.target), steps, Severity.NOTE)


def _name_faults(name: str, at: FieldPath, names: dict[str, int], index: int) -> Iterator[Fault]:
    if not name:
        return
    if not ENTRY_NAME.fullmatch(name):
        fact = f'"{name}" is no name of an entry, by which `#entry=` could lead to it'
        yield Fault("entry-name", fact, "write letters, digits and _-./, or leave it out", (*at, "name"))
    first = names.setdefault(name, index)
    if first != index:
        fact = f'"{name}" is the name of entries[{first}] already'
        yield Fault("entry-name", fact, "rename one of the two, or leave it out", (*at, "name"))


def _complete_inline(
    inline: DynamicMessage, catalogue: Catalogue, at: FieldPath, seen: tuple[dict[str, int], int]
) -> Iterator[Fault]:
    message_type = inline.resource.type_url.rpartition("/")[2]
    if message_type != LISTENER.message_type:
        held = f"holds {message_type}" if message_type else "holds nothing"
        remedy = f'write `resource: {{"@type": {LISTENER.type_url}, …}}`'
        yield Fault("wrong-entry", f"an entry of a ListenerCollection is a listener, this one {held}", remedy, at)
        return
    listener = catalogue.unpacked(inline.resource)
    if listener is None:
        return  # reported where the bytes are read
    if not listener.name and inline.name:
        listener.name = inline.name
        inline.resource.value = listener.SerializeToString(deterministic=True)
    if not inline.version:
        inline.version = version_of_body(LISTENER.type_url, inline.resource.value)
    yield from _listener_faults(listener.name, at, *seen)


def _listener_faults(name: str, at: FieldPath, listeners: dict[str, int], index: int) -> Iterator[Fault]:
    if not name:
        fact = "neither the listener nor its entry has a name; Envoy would replace it at every update"
        yield Fault("missing-name", fact, "name the listener", (*at, "resource"))
        return
    first = listeners.setdefault(name, index)
    if first != index:
        fact = (
            f'listener "{name}" is in entries[{first}] already; Envoy would reject the collection, and stop the others'
        )
        yield Fault("duplicate-name", fact, "rename or remove one of the two", (*at, "resource", "name"))


def _locator_faults(message: DynamicMessage, authority: str, at: FieldPath) -> Iterator[Fault]:
    try:
        locator = locator_of(message, authority)
    except MalformedName as malformed:
        yield Fault("malformed-name", f"the locator {malformed.fact}", malformed.remedy, at)
        return
    message.Clear()
    fill_locator(message, locator)
    for choice in locator.choices():
        if isinstance(choice.target, ResourceName):
            wanted = LISTENER_COLLECTION if choice.entry else LISTENER
            if choice.target.message_type != wanted.message_type:
                fact = f"the locator leads to {choice.target.message_type}, an entry is a listener"
                yield Fault("wrong-entry", fact, f"write `resource_type: {wanted.message_type}`", at)
