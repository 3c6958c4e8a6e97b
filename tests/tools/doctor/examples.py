"""Bootstraps and trees written down by hand, and what the doctor says of them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

import yaml

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.lint.linter import Linter, make_field_rules
from fsxds.model.resources import Snapshot
from fsxds.model.values import Fault, pointer_of
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.tools.doctor.examine import Case, examine
from fsxds.tools.doctor.facts import FileFacts, look_at, read_bootstrap
from tests.support.trees import tree_of

# Nothing is wrong with it.
HEALTHY = """
node: {id: edge-1, cluster: edge}
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
static_resources:
  clusters:
  - name: xds
    type: STATIC
    connect_timeout: 1s
    load_assignment:
      cluster_name: xds
      endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 18001}}}}]}]
dynamic_resources:
  cds_config: &rest
    resource_api_version: V3
    api_config_source:
      {api_type: REST, transport_api_version: V3, cluster_names: [xds], refresh_delay: 0.05s, request_timeout: 30s}
  lds_config: *rest
"""

HTTP2: dict[str, Any] = {
    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
        "explicit_http_config": {"http2_protocol_options": {}},
    }
}

Edit = Callable[[Any], object]


def rest_source(**changes: Any) -> dict[str, Any]:
    """Return a config source that polls, with some fields changed; None removes one."""
    api = {
        "api_type": "REST", "transport_api_version": "V3", "cluster_names": ["xds"],
        "refresh_delay": "0.05s", "request_timeout": "30s", **changes,
    }  # fmt: skip
    return {"resource_api_version": "V3", "api_config_source": {k: v for k, v in api.items() if v is not None}}


def file_source(path: str, watched: str | None = None) -> dict[str, Any]:
    """Return a config source that reads a file."""
    source: dict[str, Any] = {"path": path}
    if watched is not None:
        source["watched_directory"] = {"path": watched}
    return {"resource_api_version": "V3", "path_config_source": source}


def grpc_source(api_type: str = "GRPC") -> dict[str, Any]:
    """Return a config source that streams from the cluster `xds`."""
    services = [{"envoy_grpc": {"cluster_name": "xds"}}]
    api = {"api_type": api_type, "transport_api_version": "V3", "grpc_services": services}
    return {"resource_api_version": "V3", "api_config_source": api}


def eds_clusters(count: int, source: dict[str, Any] | None = None) -> str:
    """Return the text of a file of clusters that take their endpoints from a source."""
    eds = {"eds_config": source or rest_source()}
    rows = [
        {"name": f"c{number}", "type": "EDS", "connect_timeout": "1s", "eds_cluster_config": eds}
        for number in range(count)
    ]
    return yaml.safe_dump(rows)


def listener(manager: dict[str, Any]) -> str:
    """Return the text of a file of one listener with this HTTP connection manager."""
    manager_type = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
    typed_config = {"@type": f"type.googleapis.com/{manager_type}", "stat_prefix": "x", **manager}
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": typed_config}]}
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 1}}
    return yaml.safe_dump([{"name": "l", "address": address, "filter_chains": [chain]}])


def all_there(_: str) -> FileFacts:
    """Say that every file exists."""
    return FileFacts(exists=True)


def none_there(_: str) -> FileFacts:
    """Say that no file exists."""
    return FileFacts(exists=False)


class Doctor:
    """Examines bootstraps and trees that are written down as text."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue

    def bootstrap(self, edit: Edit | None = None) -> Any:
        """Return the healthy bootstrap, edited, as a message."""
        # Without this, what YAML's aliases share would be edited in both places.
        value = {key: copy.deepcopy(part) for key, part in yaml.safe_load(HEALTHY).items()}
        value["dynamic_resources"] = {k: copy.deepcopy(v) for k, v in value["dynamic_resources"].items()}
        if edit is not None:
            edit(value)
        converted = Converter(self.catalogue).convert(value, "envoy.config.bootstrap.v3.Bootstrap")
        assert converted.message is not None, converted.faults
        return converted.message

    def snapshot(self, files: Mapping[str, str]) -> Snapshot:
        """Load a tree of files."""
        parser = FileParser(self.catalogue, check=Linter())
        return load(
            tree_of(files), None, lambda files: [parser.parse(file) for file in files], Acceptance(check=Linter())
        ).snapshot

    def faults(
        self,
        edit: Edit | None = None,
        tree: Mapping[str, str] | None = None,
        look_at: Callable[[str], FileFacts] = all_there,
        *,
        is_rewritten: bool = False,
    ) -> list[Fault]:
        """Return what is found in the edited bootstrap and in the tree."""
        case = Case(self.bootstrap(edit), self.snapshot(tree or {}), is_rewritten=is_rewritten)
        found = examine(case, self.catalogue, look_at)
        return [*found.bootstrap, *(fault for _, fault in found.resources)]

    def problems_of(self, bootstrap: Mapping[str, Any]) -> set[str]:
        """Return the rules that a bootstrap breaks on this machine, as the command tells them."""
        content = json.dumps(bootstrap).encode()
        file = read_bootstrap(PATH, content, self.catalogue, make_field_rules(self.catalogue))
        found = examine(Case(file.message, self.snapshot({})), self.catalogue, look_at)
        return {problem.rule for problem in (*file.problems, *file.problems_of(found.bootstrap))}

    def rules(self, *arguments: Any, **more: Any) -> list[str]:
        """Return the rules that are broken, each with its place."""
        return [f"{fault.rule} {pointer_of(fault.field_path)}" for fault in self.faults(*arguments, **more)]


def cds_of(value: Any) -> Any:
    """Return the REST source of clusters of a bootstrap."""
    return value["dynamic_resources"]["cds_config"]["api_config_source"]


def xds_of(value: Any) -> Any:
    """Return the cluster `xds` of a bootstrap."""
    return value["static_resources"]["clusters"][0]


PATH = PurePosixPath("envoy.json")
