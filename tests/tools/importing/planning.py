"""What the tests of imports share: plan an import of a text, without a disk."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Identity, ads_bootstrap, mirror_bootstrap, rest_bootstrap
from fsxds.formats.yaml_format import read_yaml
from fsxds.snapshots.parse import field_rules
from fsxds.snapshots.proposals import NoCheck
from fsxds.tools.doctor.facts import read_bootstrap
from fsxds.tools.importing.pieces import XdsConnection
from fsxds.tools.importing.plan import ImportPlan, Planner

TYPE = "type.googleapis.com/envoy"
ROUTER = f'{{name: router, typed_config: {{"@type": {TYPE}.extensions.filters.http.router.v3.Router}}}}'
ALL = BootstrapRequest(clusters=True, listeners=True)


def plan_of(text: str | bytes, catalogue: Catalogue, transport: str = "delta", name: str = "envoy.yaml") -> ImportPlan:
    """Plan the import of a bootstrap that has no errors."""
    content = text.encode() if isinstance(text, str) else text
    rules = field_rules(catalogue, NoCheck())
    read = read_bootstrap(PurePosixPath(name), content, catalogue, rules)
    assert [] == [str(problem) for problem in read.problems if problem.severity.value == "error"]
    planner = Planner(read, rules, catalogue)
    return planner.plan(connection(transport, planner.cluster_names()))


def connection(transport: str = "delta", names: frozenset[str] = frozenset()) -> XdsConnection:
    """Return how an Envoy asks an fsxds on its usual ports."""
    identity = Identity("envoy", "envoy", 0, "15s")
    if transport == "files":
        section = mirror_bootstrap(lambda short_name, _: PurePosixPath(f"/m/{short_name}.json"), ALL, identity)
    elif transport == "rest":
        section = rest_bootstrap("127.0.0.1:18001", ALL, identity)
    else:
        section = ads_bootstrap("127.0.0.1:18000", ALL, identity, delta=transport == "delta")
    return XdsConnection.of(transport, section, names)


def files_of(plan: ImportPlan) -> dict[str, str]:
    """Return the texts of a plan's files."""
    return {str(file.path): file.content.decode() for file in plan.files}


def left_of(plan: ImportPlan) -> Any:
    """Return the values of the remaining bootstrap."""
    (document,) = read_yaml(plan.bootstrap.decode()).documents
    return document.value  # type: ignore[union-attr]  # of YAML all documents are plain
