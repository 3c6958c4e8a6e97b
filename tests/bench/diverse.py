"""Trees in which neighbours have little in common: clusters, endpoints, routes and listeners of some forty forms.

`diverse` of `tests.bench.data` has more forms, for parsing alone; these resources are such that a server serves all of them.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from google.protobuf import json_format

import fsxds
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Severity
from fsxds.server.loading_rules import find_catalogue
from fsxds.settings.options import Settings
from tests.agreement.seeds import seeds
from tests.bench.loading import usual_way

TYPES = ("cds", "eds", "rds", "lds")
FIRST_PORT = 10_000
PORTS = 50_000


def write_diverse_tree(root: Path, count: int, files: int) -> Path:
    """Write `count` resources as `files` files, each with resources of one type, and return the path of the first."""
    each = count // files
    numbers = iter(range(count))
    for number in range(files):
        type_name = TYPES[number % len(TYPES)]
        rows = [_resource(type_name, next(numbers)) for _ in range(each)]
        text = yaml.dump({"resources": rows}, Dumper=yaml.CSafeDumper, sort_keys=False)
        (root / f"part-{number:03d}.{type_name}.yaml").write_text(text)
    return root / f"part-000.{TYPES[0]}.yaml"


def _resource(type_name: str, number: int) -> dict[str, Any]:
    """Return a resource of a type; with the number go its form, its name, and its port if it listens on one."""
    forms = _forms()[type_name]
    return _numbered(type_name, forms[number // len(TYPES) % len(forms)], number)


def _numbered(type_name: str, form: dict[str, Any], number: int) -> dict[str, Any]:
    resource = {"@type": BY_SHORT_NAME[type_name].type_url, **copy.deepcopy(form)}
    name_field = str(BY_SHORT_NAME[type_name].name_field)
    resource[name_field] = f"{resource[name_field]}-{number}"
    for address in _addresses(resource) if type_name == "lds" else ():
        address["port_value"] = FIRST_PORT + number % PORTS
        address["address"] = f"127.0.{number // PORTS}.1"
    return resource


def _addresses(listener: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for holder in (listener, *listener.get("additional_addresses", ())):
        if "socket_address" in holder.get("address", {}):
            yield holder["address"]["socket_address"]


@cache
def _forms() -> dict[str, list[dict[str, Any]]]:
    """Return the resources by type of which fsxds serves as many as one likes, and which the usual way reads as well."""
    found = {type_name: [one.resource for one in seeds() if one.type_name == type_name] for type_name in TYPES}
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for type_name, forms in found.items():
            for number, form in enumerate(forms):
                path = Path(folder, f"{number}.{type_name}.yaml")
                rows = [_numbered(type_name, form, 100 * number + copies) for copies in (1, 2)]
                path.write_text(yaml.safe_dump({"resources": rows}))
                paths[path.name] = form
        problems = fsxds.load(folder).problems
        wrong = {str(problem.path) for problem in problems if problem.severity is Severity.ERROR}
        wrong |= {name for name in paths if not _is_read_usually(Path(folder, name))}
    return {
        type_name: [form for name, form in paths.items() if name not in wrong and name.endswith(f".{type_name}.yaml")]
        for type_name in TYPES
    }


def _is_read_usually(path: Path) -> bool:
    """Return whether protobuf reads a file as it stands; it does not know all that Envoy takes."""
    try:
        usual_way(path.read_bytes(), find_catalogue(Settings()))
    except json_format.ParseError:
        return False
    return True
