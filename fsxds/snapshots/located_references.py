"""Replaces locators in references, such as `cluster: xdstp://...#alt=...`, by resource names. Pure.

| rule | source |
| --- | --- |
| The first of a reference and its alternatives that exists counts; if none exists, the first. | xRFC TP1, "Resource locators" |
| Clients get names without directives: Envoy would request the directives as part of the name. | ENVOY.md E72 |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TypeAlias

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_names import Locator, MalformedName
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource, version_of_body
from fsxds.model.values import Problem, Severity, TypeUrl
from fsxds.settings.naming_rules import NO_RULES
from fsxds.snapshots.stages import has_directives
from fsxds.snapshots.structured_names import NameWriter

FindName: TypeAlias = Callable[[Locator, TypeUrl], str | None]
"""Returns the clients' name of a locator's target, without alternatives; None if there is no target."""


def located(resource: Resource, find: FindName, catalogue: Catalogue) -> tuple[Resource, tuple[Problem, ...]]:
    """Replace locators by names; note each alternative used."""
    chosen: dict[str, str] = {}
    notes = []
    for reference in filter(has_directives, resource.references):
        if reference.name in chosen:
            continue
        choices = _choices(reference.name)
        names = (find(choice, reference.type_url) for choice in choices)
        at, name = next(((at, name) for at, name in enumerate(names) if name), (0, ""))
        chosen[reference.name] = name or (str(choices[0].target) if choices else reference.name)
        if at:
            notes.append(_note(resource, choices[0], name))
    row = BY_TYPE_URL[resource.type_url]
    message = catalogue.message_class(row.message_type).FromString(resource.body)
    _NameChooser(catalogue, chosen).rewrite(message)
    body = message.SerializeToString(deterministic=True)
    references = tuple(one._replace(name=chosen.get(one.name, one.name)) for one in resource.references)
    version = version_of_body(resource.type_url, body)
    return replace(resource, body=body, version=version, references=references), tuple(notes)


class _NameChooser(NameWriter):
    def __init__(self, catalogue: Catalogue, chosen: Mapping[str, str]) -> None:
        super().__init__(catalogue, NO_RULES, PurePosixPath())
        self._chosen = chosen

    def _written(self, text: str) -> str:
        return self._chosen.get(text, text)


def _choices(text: str) -> tuple[Locator, ...]:
    try:
        return tuple(Locator.parse(text).choices())
    except MalformedName:
        return ()  # its file was reported, and an author may have the rule off


def _note(resource: Resource, first: Locator, name: str) -> Problem:
    noun = BY_TYPE_URL[resource.type_url].message_type.rpartition(".")[2]
    fact = f'{noun} "{resource.name}" uses the alternative {name}, because {first.target} is not there'
    remedy = "add the first choice, or name the alternative in its place"
    origin = resource.origin
    return Problem(origin.path, origin.line, 1, "", "redirect-alternative", fact, remedy, Severity.NOTE)
