"""Seeded cases: valid resources with one thing changed each."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from tests.agreement.edits import edited, shown
from tests.agreement.extension_mutations import ALL
from tests.agreement.mutation_values import snake_case
from tests.agreement.mutations import Mutation, Pool, Scene, holds_place
from tests.agreement.places import Place, places
from tests.agreement.seeds import Seed, seeds

# How often a type is drawn: where there is more to say, there is more to do wrong.
WEIGHTS = {"cds": 5, "lds": 6, "rds": 4, "ecds": 4, "eds": 2, "vhds": 1, "sds": 1, "rtds": 0.5, "srds": 0.5}
NAMED = {"eds": "cluster_name", "rds": "name", "sds": "name", "rtds": "name", "ecds": "name", "vhds": "name"}
SECRETS = {"tls_certificate", "validation_context", "session_ticket_keys", "generic_secret"}
# What Envoy looks at when a secret or a scope has come, which here none ever does.
LATE = ("combined_validation_context", "rds_config_source")
TRIES = 30


@dataclass(frozen=True, slots=True)
class Case:
    """A resource, how it came about, and the suffix of the file in which it is written."""

    seed: Seed
    mutation: str
    kind: str
    place: str
    change: str
    resource: Any
    suffix: str

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"{self.seed.type_name}/{self.seed.name}/{self.mutation}/{self.place}"

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.seed.type_name}{self.seed.name}{self.suffix}{json.dumps(self.resource, sort_keys=False)}"


def text_of(document: Any, suffix: str) -> str:
    """Write a document in the format of a suffix; who reads it sees the same text."""
    if suffix == ".json":
        return json.dumps(document)
    return yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=1000)


def make_cases(
    catalogue: Catalogue,
    count: int,
    seed: int,
    kinds: frozenset[str] = frozenset(),
    known: Iterable[Seed] | None = None,
) -> list[Case]:
    """Return so many different cases, of some kinds or of all; the same seed gives the same ones.

    They start from all seeds, or from those that are `known` to the Envoy.
    """
    return list(_Drawing(catalogue, seed, kinds, tuple(seeds() if known is None else known)).draw(count))


class _Drawing:
    def __init__(self, catalogue: Catalogue, number: int, kinds: frozenset[str], known: tuple[Seed, ...]) -> None:
        self._rng = random.Random(number)
        self._catalogue = catalogue
        self._places: dict[tuple[str, str], list[tuple[Seed, Place]]] = {}
        self._pool = Pool()
        self._seen: set[str] = set()
        self._http_types = {one.resource["typed_config"]["@type"] for one in known if one.type_name == "ecds"}
        for one in known:
            for place in places(catalogue, one.resource, BY_SHORT_NAME[one.type_name].message_type):
                holds_place(self._pool, place)
                for mutation in ALL:
                    if kinds and mutation.kind not in kinds:
                        continue
                    if mutation.fits(place):
                        self._places.setdefault((one.type_name, mutation.name), []).append((one, place))

    def draw(self, count: int) -> Iterator[Case]:
        classes = {name: [m for m in ALL if (name, m.name) in self._places] for name in WEIGHTS}
        total = sum(WEIGHTS[name] * len(classes[name]) for name in WEIGHTS)
        made = 0
        for type_name, mutations in classes.items():
            for mutation in mutations:
                share = max(2, round(count * WEIGHTS[type_name] / total))
                for _ in range(share):
                    case = self._case(type_name, mutation)
                    if case is not None:
                        made += 1
                        yield case
        while made < count:
            type_name = self._rng.choice(("cds", "lds", "rds", "ecds"))
            case = self._case(type_name, self._rng.choice(classes[type_name]))
            if case is not None:
                made += 1
                yield case

    def _case(self, type_name: str, mutation: Mutation) -> Case | None:
        for _ in range(TRIES):
            seed, place = self._rng.choice(self._places[type_name, mutation.name])
            edit = mutation.change(Scene(self._rng, place, self._pool, self._places_of(type_name)))
            if edit is None:
                continue
            resource = edited(seed.resource, place.path, edit)
            suffix = ".yaml" if self._rng.random() < 0.5 else ".json"
            case = Case(
                seed, mutation.name, mutation.kind, ".".join(map(str, place.path)), shown(edit), resource, suffix
            )
            if resource != seed.resource and case.key not in self._seen and self._can_be_asked(case):
                self._seen.add(case.key)
                return case
        return None

    def _places_of(self, type_name: str) -> Callable[[Any], list[Place]]:
        message_type = BY_SHORT_NAME[type_name].message_type
        return lambda resource: list(places(self._catalogue, resource, message_type))

    def _can_be_asked(self, case: Case) -> bool:
        """Tell whether the subscription of the seed would ask for it still, and Envoy would look at all of it."""
        if not isinstance(case.resource, dict) or _late_parts(case.resource) != _late_parts(case.seed.resource):
            return False
        return _keeps_its_name(case) and _keeps_its_sort(case) and self._keeps_its_extension(case)

    def _keeps_its_extension(self, case: Case) -> bool:
        packed = case.resource.get("typed_config")
        if case.seed.type_name != "ecds" or not isinstance(packed, dict) or case.mutation == "unknown-type":
            return True
        return packed.get("@type") in self._http_types


def _late_parts(value: Any) -> list[Any]:
    """Return what Envoy does not look at yet, as often as it stands somewhere."""
    if isinstance(value, list):
        return [part for member in value for part in _late_parts(member)]
    if not isinstance(value, dict):
        return []
    own = [(key, member) for key, member in value.items() if snake_case(str(key)) in LATE]
    return own + [
        part for key, member in value.items() if snake_case(str(key)) not in LATE for part in _late_parts(member)
    ]


def _keeps_its_name(case: Case) -> bool:
    name_field = NAMED.get(case.seed.type_name)
    if name_field is None:
        # Envoy makes up a name for a listener without one; fsxds has to tell resources by theirs.
        return case.seed.type_name != "lds" or bool(case.resource.get("name"))
    name = next((value for key, value in case.resource.items() if snake_case(str(key)) == name_field), None)
    if isinstance(name, float) and case.suffix == ".yaml":
        return False  # Envoy takes it for a text, and so for another name.
    return not isinstance(name, str) or name in {"", case.seed.name}


def _keeps_its_sort(case: Case) -> bool:
    if case.seed.type_name != "sds":
        return True
    now, before = case.resource.keys() & SECRETS, case.seed.resource.keys() & SECRETS
    return not now or now >= before
