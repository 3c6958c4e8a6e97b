"""What can be wrong with messages that a bootstrap and a tree both may hold, besides their config sources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsxds.doctor.chart import Chart
from fsxds.values import Fault, FieldPath, Severity


def check_data_source(source: Any, field_path: FieldPath, chart: Chart) -> Iterator[Fault]:
    """Check a DataSource: the file that it names is read when the resource is made."""
    if source.WhichOneof("specifier") == "filename" and not chart.look_at(source.filename).exists:
        yield Fault(
            "missing-data-file",
            f"{source.filename} does not exist here; Envoy refuses what names a missing file",
            "write it before Envoy reads this, or correct the path",
            (*field_path, "filename"),
            severity=Severity.WARNING,
        )


class ScopedRoutes:
    """Checks scoped routes whose route tables come from one file: Envoy takes one table a file (ENVOY.md B3)."""

    def __init__(self, names_of_tree: frozenset[str]) -> None:
        self._names_of_tree = names_of_tree

    def check(self, routes: Any, field_path: FieldPath, _: Chart) -> Iterator[Fault]:
        """Check a ScopedRoutes message; scopes that stand in a listener hold their route tables themselves."""
        if routes.rds_config_source.WhichOneof("config_source_specifier") not in {"path", "path_config_source"}:
            return
        names = self._names_of_tree if routes.HasField("scoped_rds") else ()
        if len(names) > 1:
            yield Fault(
                "one-file-for-routes",
                f"{len(names)} route tables are to come from one file; Envoy takes one table a file, and rejects them all",
                "serve them by REST or gRPC, or use one route table",
                (*field_path, "rds_config_source"),
            )


def check_route_table(table: Any, field_path: FieldPath, _: Chart) -> Iterator[Fault]:
    """Check a RouteConfiguration that Envoy refuses while a cluster of it is not there yet (ENVOY.md E3)."""
    is_inline = field_path[-1:] == ("route_config",)
    is_eager = table.validate_clusters.value if table.HasField("validate_clusters") else is_inline
    if is_eager and _names_clusters(table):
        where = "stands within a listener" if is_inline else "has validate_clusters: true"
        yield Fault(
            "eager-cluster-check",
            f"this route table {where}: Envoy refuses it as long as one of its clusters is missing, also for the moment in "
            "which both arrive",
            "let it come by RDS, or write validate_clusters: false",
            (*field_path, "validate_clusters"),
            severity=Severity.NOTE,
        )


def _names_clusters(table: Any) -> bool:
    routes = (route for host in table.virtual_hosts for route in host.routes)
    return any(
        route.route.WhichOneof("cluster_specifier") in {"cluster", "weighted_clusters"}
        for route in routes
        if route.HasField("route")
    )
