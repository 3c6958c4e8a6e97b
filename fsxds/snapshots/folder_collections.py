"""Makes list collections of the listeners in folders, inline or as locators. Pure.

It also reports dangling entries of collections in files.

| rule | source |
| --- | --- |
| A collection has the present resources of its folder, in the order of names; an edit of the folder changes the collection. | xRFC TP1, "List" |
| A folder with files and no listener makes an empty one: Envoy removes every listener. `rollout/holding.py` holds it like any removal. | ENVOY.md E80 |
| While the folder has no file, as in a half-done checkout, the collection stays. | as with a lost layer |
| If unknown, as after a restart, or if no file ever listed listeners, it is not reported as removed. | `Snapshot.incomplete` |
| A member that a broken file may still define stays. | |
| A written collection of the same name counts, not the folder. | |
| A view without the layer of the folder has none. | |

Rules: when a list of a folder is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType

from fsxds.api.catalogue import Catalogue, DynamicMessage
from fsxds.api.locator_messages import fill_locator, locator_of
from fsxds.model.resource_names import Locator, ResourceName, parse_or_none
from fsxds.model.resource_types import BY_SHORT_NAME, in_push_order
from fsxds.model.resources import CLAIMED, Origin, Reference, Resource, Rows, Snapshot, version_of_body
from fsxds.model.values import WHOLE_TREE, HeldFile, Layers, Problem, Severity
from fsxds.settings.naming_rules import CollectionRule
from fsxds.snapshots.load import change_from
from fsxds.snapshots.loaded_views import Inputs, ResolutionRules
from fsxds.snapshots.locators import NotThere, Resolver, entry_name_of, resources_below
from fsxds.snapshots.proposals import Records

LISTENER, COLLECTION = BY_SHORT_NAME["lds"], BY_SHORT_NAME["lcds"]


@dataclass(frozen=True, slots=True)
class Collected:
    """A snapshot with its collections; `raw` itself without any.

    `made` has collections of folders.
    """

    snapshot: Snapshot
    problems: tuple[Problem, ...]
    raw: Snapshot = field(compare=False, repr=False)
    rules: ResolutionRules = field(compare=False, repr=False)
    made: Mapping[str, FolderCollection] = field(default_factory=dict, compare=False, repr=False)
    dangling: tuple[Problem, ...] = ()
    held: tuple[HeldFile, ...] = field(default=(), init=False)


@dataclass(frozen=True, slots=True)
class FolderCollection:
    """A folder's listeners, and its collection."""

    members: tuple[Resource, ...]
    resource: Resource


def unchanged(raw: Snapshot, inputs: Inputs) -> Collected:
    """Return a view without collections."""
    return Collected(raw, (), raw, inputs.rules)


def apply(raw: Snapshot, inputs: Inputs, before: Collected | None) -> Collected:
    """Make a view's collections, sharing those in `before`.

    In `raw`, redirects are followed.
    """
    rules = inputs.rules
    dangling = _dangling(raw, rules, before)
    if rules.catalogue is None or not rules.collections:
        is_same = before is None or not before.made
        return Collected(raw if is_same else _served(raw, {}, before), dangling, raw, rules, {}, dangling)
    found: dict[str, FolderCollection] = {}
    problems: list[Problem] = []
    is_complete = not _is_unsure(raw)
    authored = raw.resources(COLLECTION.type_url)
    for rule in (one for one in rules.collections if _is_in_view(one, inputs.layers)):
        name = rules.collection_name(rule)
        if name in authored:
            problems.append(_authored_already(rule, name, authored[name]))
            continue
        last = before.made.get(name) if before is not None else None
        known = last if before is not None and rules.collects_as(before.rules) else None
        members = tuple(_members(raw, rule, known))
        if members or _is_emptied(raw, rule, inputs.files):
            versions = [(one.name, one.version) for one in members]
            if known is not None and [(one.name, one.version) for one in known.members] == versions:
                found[name] = known
            else:
                found[name] = FolderCollection(members, _made(rules, rules.catalogue, rule, members))
        elif last is not None:
            found[name] = last
        else:
            is_complete = False
        if not members:
            problems.append(_without_listeners(raw, rule, name, found.get(name)))
    snapshot = _served(raw, found, before)
    if not is_complete:
        # A collection that cannot be made for now is not reported as removed, and its mirrored file stays.
        snapshot = replace(snapshot, incomplete=raw.incomplete | {COLLECTION.type_url})
    return Collected(snapshot, (*problems, *dangling), raw, rules, found, dangling)


def _dangling(source: Snapshot, rules: ResolutionRules, before: Collected | None) -> tuple[Problem, ...]:
    collections = source.resources(COLLECTION.type_url)
    if rules.catalogue is None or not collections:
        return ()
    if before is not None and rules.collects_as(before.rules):
        were = before.raw.by_type
        if all(source.by_type.get(row.type_url) is were.get(row.type_url) for row in (LISTENER, COLLECTION)):
            return before.dangling
    resolver = Resolver(source, rules.authority, rules.root, rules.catalogue)
    resolver.folders = rules.collections_by_name()
    message: DynamicMessage = rules.catalogue.message_class(COLLECTION.message_type)
    return tuple(
        _is_dangling(collection, index, locator, found)
        for collection in collections.values()
        for index, entry in enumerate(message.FromString(collection.body).entries)
        if entry.HasField("locator")
        and isinstance(found := resolver.find(locator := locator_of(entry.locator), LISTENER.type_url), NotThere)
        and found.authority in {"", rules.authority, _authority_of(collection)}
    )


def _authority_of(collection: Resource) -> str:
    structured = parse_or_none(collection.name)
    return structured.authority if structured else ""


def _is_dangling(collection: Resource, index: int, locator: Locator, found: NotThere) -> Problem:
    fact = f"leads to {locator}, {found.reason}; Envoy is given the collection without it"
    place = collection.origin
    pointer = f"entries[{index}].locator"
    remedy = "correct the locator, or write the listener"
    return Problem(place.path, place.line, 1, pointer, "dangling-entry", fact, remedy, Severity.WARNING)


def _members(source: Snapshot, rule: CollectionRule, known: FolderCollection | None) -> Iterator[Resource]:
    rows = source.resources(LISTENER.type_url)
    members = {one.name: one for one in resources_below(rule.folder, rows) if one.body}
    if _is_unsure(source):
        if known is None:
            return
        members |= {one.name: one for one in known.members if one.name not in rows}
    yield from (members[name] for name in sorted(members))


def _is_unsure(source: Snapshot) -> bool:
    return LISTENER.type_url in source.incomplete | source.withheld


def _is_in_view(rule: CollectionRule, layers: Layers) -> bool:
    folder = PurePosixPath(rule.folder)
    return layers == WHOLE_TREE or any(
        folder.is_relative_to(one) or PurePosixPath(one).is_relative_to(folder) for one in layers
    )


def _is_emptied(source: Snapshot, rule: CollectionRule, files: Records) -> bool:
    if _is_unsure(source) or LISTENER.type_url in source.undeclared:
        return False
    folder = PurePosixPath(rule.folder)
    return any(record.good is not None and folder in path.parents for path, record in files.items())


def _made(
    rules: ResolutionRules, catalogue: Catalogue, rule: CollectionRule, members: tuple[Resource, ...]
) -> Resource:
    collection: DynamicMessage = catalogue.message_class(COLLECTION.message_type)()
    references: list[Reference] = []
    for index, member in enumerate(members):
        entry = collection.entries.add()
        structured = parse_or_none(member.name)
        if rule.is_inline:
            entry.inline_entry.name = entry_name_of(member.name)
            entry.inline_entry.version = member.version
            entry.inline_entry.resource.type_url = LISTENER.type_url
            entry.inline_entry.resource.value = member.body
            # Claims are those of the listener's own resource.
            references += (
                one._replace(field_path=("entries", index, "inline_entry", "resource", *one.field_path))
                for one in member.references
                if one.type_url not in CLAIMED
            )
        else:
            target = structured or ResourceName(rules.authority, LISTENER.message_type, member.name)
            fill_locator(entry.locator, Locator(target))
            references.append(Reference(LISTENER.type_url, member.name, ("entries", index, "locator"), Severity.NOTE))
    body = collection.SerializeToString(deterministic=True)
    version = version_of_body(COLLECTION.type_url, body)
    origin = Origin(PurePosixPath(rule.folder), 1)
    name = rules.collection_name(rule)
    return Resource(COLLECTION.type_url, name, body, version, origin, references=tuple(references))


def _served(source: Snapshot, made: Mapping[str, FolderCollection], before: Collected | None) -> Snapshot:
    type_url = COLLECTION.type_url
    written = source.resources(type_url)
    earlier = before.snapshot.resources(type_url) if before is not None else Rows(type_url)
    wanted = {**written, **{name: one.resource for name, one in made.items()}}
    rows = earlier.with_changes(wanted.values(), [name for name in earlier if name not in wanted]).prepared()
    change = change_from(None if before is None else before.snapshot, rows, source.generation)
    return replace(
        source,
        by_type=MappingProxyType(in_push_order({**source.by_type, type_url: rows})),
        changes=MappingProxyType({**source.changes, type_url: change}),
        undeclared=source.undeclared - {type_url} if made else source.undeclared,
    )


def _without_listeners(source: Snapshot, rule: CollectionRule, name: str, served: FolderCollection | None) -> Problem:
    effect = "it stays as it was" if served else "it is not served"
    remedy = "write listeners into the folder, or take the collection out of the setting `collections`"
    if _is_unsure(source):
        fact = f"files with errors may define listeners of the collection {name}; {effect} until that is known"
        remedy = "correct the errors, which are reported with their places"
    elif served and not served.members:
        fact = f"no listener is in the folder of the collection {name}, so it is empty: Envoy removes all listeners"
    else:
        fact = f"no file of listeners is in the folder of the collection {name}; {effect}"
        remedy = "write listeners into the folder, or a file with `resources: []` to empty the collection"
    return Problem(PurePosixPath(rule.folder), 1, 1, "", "empty-collection", fact, remedy, Severity.WARNING)


def _authored_already(rule: CollectionRule, name: str, written: Resource) -> Problem:
    fact = f"{name} is written at {written.origin}, which is served, and not made of the folder {rule.folder}"
    remedy = "rename one of the two, or take the collection out of the setting `collections`"
    return written.origin.problem("duplicate-name", fact, remedy, Severity.WARNING)
