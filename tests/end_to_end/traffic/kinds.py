"""The kinds of change that a tree goes through under load, each as the tree of its n-th change (pure).

Every change but those of `STEADY` moves the requests to a cluster that did not exist before, and removes the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

Plain = dict[str, Any]
# The resources of each file.
Tree = Mapping[str, tuple[Plain, ...]]

TYPE = "type.googleapis.com/envoy"
HCM = f"{TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
FRONT = "front"


@dataclass(frozen=True, slots=True)
class World:
    """What the resources of a run have in common.

    Attributes:
        port: where Envoy's listener accepts requests.
        backends: the ports of the backends.
        source: the config source of the transport.
        access_log: the file for Envoy's access log.
    """

    port: int
    backends: tuple[int, ...]
    source: Plain
    access_log: str

    def backend(self, n: int) -> int:
        """Return the port of the n-th backend, round and round."""
        return self.backends[n % len(self.backends)]

    def static(self, name: str, n: int, timeout: str = "1s") -> Plain:
        """Return a cluster that has its endpoint itself."""
        load_assignment = self.endpoints(name, n)
        del load_assignment["@type"]
        return self._cluster(name, timeout) | {"type": "STATIC", "load_assignment": load_assignment}

    def eds(self, name: str, timeout: str = "1s") -> Plain:
        """Return a cluster that waits for its endpoints."""
        return self._cluster(name, timeout) | {"type": "EDS", "eds_cluster_config": {"eds_config": self.source}}

    def _cluster(self, name: str, timeout: str) -> Plain:
        return {"@type": f"{TYPE}.config.cluster.v3.Cluster", "name": name, "connect_timeout": timeout}

    def endpoints(self, name: str, n: int) -> Plain:
        """Return the endpoints of a cluster: the n-th backend."""
        address = {"socket_address": {"address": "127.0.0.1", "port_value": self.backend(n)}}
        return {
            "@type": f"{TYPE}.config.endpoint.v3.ClusterLoadAssignment",
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        }

    def routes(self, name: str, *clusters: str) -> Plain:
        """Return a route configuration to clusters of equal weight."""
        weighted = {"clusters": [{"name": cluster, "weight": 1} for cluster in clusters]}
        action = {"cluster": clusters[0]} if len(clusters) == 1 else {"weighted_clusters": weighted}
        host = {"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": action}]}
        return {"@type": f"{TYPE}.config.route.v3.RouteConfiguration", "name": name, "virtual_hosts": [host]}

    def listener(self, routes: Plain | str = FRONT, filters: int = 0) -> Plain:
        """Return the listener with inline routes, or with the name of some; `filters` changes its filters."""
        inline = {key: value for key, value in routes.items() if key != "@type"} if isinstance(routes, dict) else {}
        found = {"route_config": inline} if inline else {"rds": self._rds(str(routes))}
        manager = {
            "@type": HCM,
            "stat_prefix": FRONT,
            "access_log": [self._access_log()],
            "http_filters": [*([_header_filter(filters)] if filters else []), _router()],
            **found,
        }
        return {
            "@type": f"{TYPE}.config.listener.v3.Listener",
            "name": FRONT,
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": self.port}},
            "filter_chains": [{"filters": [{"name": "hcm", "typed_config": manager}]}],
        }

    def _rds(self, name: str) -> Plain:
        return {"route_config_name": name, "config_source": self.source}

    def _access_log(self) -> Plain:
        line = "%REQ(X-REQUEST)% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %UPSTREAM_CLUSTER%\n"
        return {
            "name": "file",
            "filter": {"or_filter": {"filters": [_status_filter("GE", 201), _status_filter("LE", 199)]}},
            "typed_config": {
                "@type": f"{TYPE}.extensions.access_loggers.file.v3.FileAccessLog",
                "path": self.access_log,
                "log_format": {"text_format_source": {"inline_string": line}},
            },
        }


def _status_filter(comparison: str, status: int) -> Plain:
    value = {"default_value": status, "runtime_key": "unused"}
    return {"status_code_filter": {"comparison": {"op": comparison, "value": value}}}


def _router() -> Plain:
    return {"name": "router", "typed_config": {"@type": f"{TYPE}.extensions.filters.http.router.v3.Router"}}


def _header_filter(value: int) -> Plain:
    append = {"append": {"header": {"key": "x-filter", "value": str(value)}}}
    config = {
        "@type": f"{TYPE}.extensions.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"response_mutations": [append]},
    }
    return {"name": "header", "typed_config": config}


def static_in_one_file(world: World, n: int) -> Tree:
    """A static cluster and the route to it, in one file."""
    return {"lds.yaml": (world.listener(),), "moving.yaml": (world.static(f"c{n}", n), world.routes(FRONT, f"c{n}"))}


def static_in_two_files(world: World, n: int) -> Tree:
    """A static cluster and the route to it, in two files."""
    return _apart(world, n, world.static(f"c{n}", n))


def eds_in_one_file(world: World, n: int) -> Tree:
    """An EDS cluster, its endpoints and the route to it, in one file."""
    moving = (world.eds(f"c{n}"), world.endpoints(f"c{n}", n), world.routes(FRONT, f"c{n}"))
    return {"lds.yaml": (world.listener(),), "moving.yaml": moving}


def eds_in_two_files(world: World, n: int) -> Tree:
    """An EDS cluster with its endpoints, and the route to it, in two files."""
    return _apart(world, n, world.eds(f"c{n}"), world.endpoints(f"c{n}", n))


def static_or_eds(world: World, n: int) -> Tree:
    """An EDS or a static cluster by turns, and the route to it, in two files."""
    return eds_in_two_files(world, n) if n % 2 else static_in_two_files(world, n)


def _apart(world: World, n: int, *clusters: Plain) -> Tree:
    routes = world.routes(FRONT, f"c{n}")
    return {"lds.yaml": (world.listener(),), "clusters.yaml": clusters, "routes.yaml": (routes,)}


def inline_routes(world: World, n: int) -> Tree:
    """A listener with inline routes to a static or an EDS cluster."""
    clusters = (world.eds(f"c{n}"), world.endpoints(f"c{n}", n)) if n % 2 else (world.static(f"c{n}", n),)
    return {"lds.yaml": (world.listener(world.routes("inline", f"c{n}")),), "clusters.yaml": clusters}


def listener_filters(world: World, n: int) -> Tree:
    """Other filters in the listener, and other routes."""
    files = (world.listener(filters=n + 1),)
    return {"lds.yaml": files, "moving.yaml": (world.static(f"c{n}", n), world.routes(FRONT, f"c{n}"))}


def moving_endpoints(world: World, n: int) -> Tree:
    """Other endpoints of one cluster."""
    return _steady(world, world.eds("steady"), world.endpoints("steady", n))


def unused_clusters(world: World, n: int) -> Tree:
    """Clusters that nothing uses appear and vanish."""
    unused = (world.static(f"u{n}", n), world.eds(f"v{n}"), world.endpoints(f"v{n}", n))
    return _steady(world, world.static("steady", 0), *unused)


def changed_clusters(world: World, n: int) -> Tree:
    """Clusters in use change, and wait for their endpoints anew."""
    timeout = f"1.{n % 900 + 1:03}s"
    clusters = (world.static("one", 0, timeout), world.eds("two", timeout), world.endpoints("two", 1))
    return _steady(world, *clusters, routes=("one", "two"))


def renamed_routes(world: World, n: int) -> Tree:
    """A route configuration with another name, and the listener that names it."""
    moving = (world.static(f"c{n}", n), world.routes(f"r{n}", f"c{n}"))
    return {"lds.yaml": (world.listener(f"r{n}"),), "moving.yaml": moving}


def type_flips(world: World, n: int) -> Tree:
    """A cluster in use gets its endpoints by EDS, and has them itself, by turns."""
    flipped = (world.eds("flip"), world.endpoints("flip", n)) if n % 2 else (world.static("flip", n),)
    return _steady(world, *flipped, routes=("flip",))


def weighted_clusters(world: World, n: int) -> Tree:
    """Three clusters by weight, of which one goes and one comes."""
    names = [f"c{number}" for number in range(n, n + 3)]
    clusters = tuple(world.static(name, number) for number, name in enumerate(names, n))
    return {"lds.yaml": (world.listener(),), "moving.yaml": (*clusters, world.routes(FRONT, *names))}


def everything_at_once(world: World, n: int) -> Tree:
    """Filters, route configurations by name or inline, clusters of all types, endpoints: all of them change."""
    used = (world.static(f"c{n}", n), world.eds(f"d{n}"), world.endpoints(f"d{n}", n + 1))
    timeout = f"2.{n % 900 + 1:03}s"
    other = (world.eds("changed", timeout), world.endpoints("changed", n), world.static(f"u{n}", n))
    flipped = (world.eds("flip"), world.endpoints("flip", n)) if n % 2 else (world.static("flip", n),)
    routes = world.routes(f"r{n}", f"c{n}", f"d{n}", "changed", "flip")
    is_inline = n % 3 == 2
    return {
        "lds.yaml": (world.listener(routes if is_inline else f"r{n}", filters=n + 1),),
        "clusters.yaml": (*used, *other),
        f"more-{n}.yaml": (*flipped, *(() if is_inline else (routes,))),
    }


def replaced_files(world: World, n: int) -> Tree:
    """Files of clusters and of routes with other names in place of those before."""
    clusters = (world.static(f"c{n}", n),) if n % 2 else (world.eds(f"c{n}"), world.endpoints(f"c{n}", n))
    return {
        "lds.yaml": (world.listener(),),
        f"clusters-{n}.yaml": clusters,
        f"routes-{n}.yaml": (world.routes(FRONT, f"c{n}"),),
    }


def one_file_each(world: World, n: int) -> Tree:
    """A static or an EDS cluster by turns, each in a file of its own, and the route to it."""
    tree = static_or_eds(world, n)
    return {
        "lds.yaml": tree["lds.yaml"],
        "routes.yaml": tree["routes.yaml"],
        f"clusters-{n}.yaml": tree["clusters.yaml"],
    }


def _steady(world: World, *clusters: Plain, routes: tuple[str, ...] = ("steady",)) -> Tree:
    return {
        "lds.yaml": (world.listener(),),
        "clusters.yaml": clusters,
        "routes.yaml": (world.routes(FRONT, *routes),),
    }


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of change.

    Attributes:
        tree: what the tree is after the n-th change.
        first: the files that are saved, or removed, one after the other before all others; `{n}` is the number of the change,
            and `{before}` that before it.
        apart_s: the seconds between two of these saves.
    """

    tree: Callable[[World, int], Tree]
    first: tuple[str, ...] = ()
    apart_s: float = 0.03

    def files_first(self, n: int) -> list[str]:
        """Return the files that are saved, or removed, before all others of the n-th change."""
        return [path.format(n=n, before=n - 1) for path in self.first]


KINDS: Mapping[str, Kind] = {
    "static clusters, one file": Kind(static_in_one_file),
    "static clusters, two files": Kind(static_in_two_files),
    "EDS clusters, one file": Kind(eds_in_one_file),
    "EDS clusters, two files": Kind(eds_in_two_files),
    "routes first, 30 ms apart": Kind(static_or_eds, ("routes.yaml",)),
    "clusters first, 30 ms apart": Kind(static_or_eds, ("clusters.yaml",)),
    "inline routes": Kind(inline_routes),
    "listener filters": Kind(listener_filters),
    "endpoints": Kind(moving_endpoints),
    "unused clusters": Kind(unused_clusters),
    "changed clusters": Kind(changed_clusters),
    "renamed route configurations": Kind(renamed_routes),
    "type flips STATIC and EDS": Kind(type_flips),
    "weighted clusters": Kind(weighted_clusters),
    "everything at once": Kind(everything_at_once),
    "files replaced": Kind(replaced_files),
    "renamed, routes 2 s first": Kind(static_or_eds, ("routes.yaml",), apart_s=2.0),
    "renamed, clusters 2 s first": Kind(static_or_eds, ("clusters.yaml",), apart_s=2.0),
    "renamed, new cluster, routes, 2 s apart": Kind(one_file_each, ("clusters-{n}.yaml", "routes.yaml"), apart_s=2.0),
    "renamed, old cluster goes first, 2 s apart": Kind(
        one_file_each, ("clusters-{before}.yaml", "routes.yaml"), apart_s=2.0
    ),
}


def texts(tree: Tree) -> dict[str, str]:
    """Return the files of a tree."""
    return {
        path: yaml.dump({"resources": list(items)}, Dumper=yaml.CSafeDumper, sort_keys=False)
        for path, items in tree.items()
    }
