"""A real Envoy that watches mirrored files (ENVOY.md E22 to E28)."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsxds.model.resources import Snapshot
from fsxds.rollout.machine import Rollout, RolloutOptions
from fsxds.transports.mirror.files import FORMS
from fsxds.transports.mirror.writer import Mirror, MirrorOptions
from tests.support.envoy import Envoy
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import (
    ADS,
    Plain,
    assignment,
    by_eds,
    by_rds,
    listener,
    routes,
    snapshot,
    static,
)

CDS, LDS = "cluster_manager.cds", "listener_manager.lds"
FAULT = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
MUTATION = "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation"
UPSTREAM_TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"


class Out:
    """A directory of mirrored files, the snapshots in it, and a bootstrap that reads it."""

    def __init__(self, root: Path, form: str = "pb", **options: Any) -> None:
        self.root = root
        self.form = form
        self.mirror = Mirror(root, this_envoy(), MirrorOptions(form, rewrite_config_sources=True, **options))
        self._rollout = Rollout(RolloutOptions(linger_s=0.0))
        self._generation = 0

    def write(self, **values: Any) -> dict[str, str]:
        """Write the next snapshot; return its versions as Envoy's stat scopes have them."""
        return self._write(snapshot(**values))

    def roll_out(self, **values: Any) -> Iterator[dict[str, str]]:
        """Write the next snapshot in the steps of a rollout, each when Envoy took the one before; yield their versions."""
        self._rollout.receive_target(snapshot(**values), 0.0)
        while self._rollout.step is not None:
            yield self._write(self._rollout.step.snapshot)
            self._rollout.receive_waiting(frozenset(), 0.0)

    def _write(self, made: Snapshot) -> dict[str, str]:
        self._generation += 1
        made = replace(made, generation=self._generation)
        report = self.mirror.write(made)
        assert (report.kept, report.left_sources, report.blocked) == ((), (), ())
        versions = {row.rpartition(".")[2]: version for row, version in made.versions.items()}
        return {CDS: versions["Cluster"], LDS: versions["Listener"]}

    def source(self, path: str) -> Plain:
        """A config source of a bootstrap."""
        return {"resource_api_version": "V3", "path_config_source": {"path": f"{self.root}/{path}.{self.form}"}}

    def bootstrap(self, *, runtime: bool = False, watched: bool = False) -> dict[str, Any]:
        """The bootstrap of an Envoy that reads the directory, as a `watched_directory` if so asked."""
        sources: dict[str, Any] = {f"{name}_config": self.source(name) for name in ("cds", "lds")}
        if watched:
            for source in sources.values():
                source["path_config_source"]["watched_directory"] = {"path": str(self.root)}
        layers = [{"name": "live", "rtds_layer": {"name": "live", "rtds_config": self.source("rtds/live")}}]
        return {"dynamic_resources": sources, "layered_runtime": {"layers": layers if runtime else []}}


def direct(name: str, body: str) -> Plain:
    """A route table that answers by itself."""
    route: Plain = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}
    return {"name": name, "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}


BACKENDS: list[Plain] = [listener(name, 0, route_config=direct(name, name)) for name in ("one", "two")]


def fetch(port: int, header: str | None = None) -> str:
    """Return what Envoy answers on a port: the body, or a header."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/")
        response = connection.getresponse()
        body = response.read().decode()
        return response.getheader(header, "") if header else f"{response.status} {body}"
    finally:
        connection.close()


@contextmanager
def visitor(port: int) -> Iterator[set[str]]:
    """Ask a port again and again, on new connections, while the block runs; yield all that was ever answered."""
    answers: set[str] = set()
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            answers.add(fetch(port))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def out(tmp_path: Path) -> Out:
    return Out(tmp_path / "out")


def free_of_complaints(envoy: Envoy) -> bool:
    """Tell that Envoy rejected nothing and could read everything."""
    stats = envoy.stats(r"\.update_(rejected|failure)$")
    return not any(stats.values())


@pytest.mark.parametrize("form", FORMS)
def test_envoy_starts_from_files_of_every_form_and_follows_them(tmp_path: Path, form: str) -> None:
    """Clusters, endpoints, routes and listeners in files reach traffic, and so do their changes."""
    out = Out(tmp_path / "out", form)
    out.write(cds=[by_eds("web")], eds=[assignment("web", 9)], rds=[direct("front", "ready")], lds=BACKENDS)
    with Envoy(out.bootstrap()) as envoy:
        ports = envoy.listener_ports()
        listeners = [*BACKENDS, by_rds("front", 0, "front")]
        endpoints = assignment("web", ports["one"])
        versions = out.write(cds=[by_eds("web")], eds=[endpoints], rds=[routes("front", "web")], lds=listeners)
        envoy.wait_converged(versions)
        port = envoy.listener_ports()["front"]

        assert fetch(port) == "200 one"

        with envoy.expect_update("cluster.web"):
            endpoints = assignment("web", ports["two"])
            out.write(cds=[by_eds("web")], eds=[endpoints], rds=[routes("front", "web")], lds=listeners)

        envoy.wait(lambda: fetch(port) == "200 two", what="the new endpoint")
        with envoy.expect_update("http.front.rds.front"):
            out.write(cds=[by_eds("web")], eds=[endpoints], rds=[direct("front", "moved")], lds=listeners)

        envoy.wait(lambda: fetch(port) == "200 moved", what="the new route")
        assert free_of_complaints(envoy)


def test_a_file_of_one_resource_changes_version_only_with_that_resource(out: Out) -> None:
    """Envoy's version_text of one cluster's endpoints stays while another's change."""
    clusters = [by_eds("a"), by_eds("b")]
    out.write(cds=clusters, eds=[assignment("a", 1), assignment("b", 1)])
    with Envoy(out.bootstrap()) as envoy:
        before = envoy.version_texts()
        with envoy.expect_update("cluster.a"):
            out.write(cds=clusters, eds=[assignment("a", 2), assignment("b", 1)])
        after = envoy.version_texts()

        assert after["cluster.a"] != before["cluster.a"]
        assert after["cluster.b"] == before["cluster.b"]
        assert envoy.stat("cluster.b.update_success") == 1


def test_a_cluster_goes_without_a_failed_request(out: Out) -> None:
    """Routes move to a new cluster while the old one goes in the same change: in steps, no client sees an error, ten times over."""
    out.write(lds=BACKENDS)
    with Envoy(out.bootstrap()) as envoy:
        ports = envoy.listener_ports()
        listeners = [*BACKENDS, by_rds("front", 0, "front")]

        def move(round_: int) -> None:
            name = f"c{round_}"
            endpoints = assignment(name, ports["one" if round_ % 2 else "two"])
            table = routes("front", name)
            for versions in out.roll_out(cds=[by_eds(name)], eds=[endpoints], rds=[table], lds=listeners):
                envoy.wait_converged(versions)

        move(0)
        port = envoy.listener_ports()["front"]
        with visitor(port) as answers:
            for round_ in range(1, 11):
                move(round_)

        assert answers == {"200 one", "200 two"}
        assert envoy.cluster_names(dynamic_only=True) == {"c10"}
        assert free_of_complaints(envoy)


def test_listeners_are_never_read_before_the_clusters_of_their_routes(out: Out) -> None:
    """A listener whose inline routes demand a cluster of the same change is never rejected."""
    out.write()
    with Envoy(out.bootstrap()) as envoy:
        for round_ in range(30):
            table = {**routes("inline", f"c{round_}"), "validate_clusters": True}
            versions = out.write(cds=[static(f"c{round_}")], lds=[listener("front", 0, route_config=table)])
            envoy.wait_converged(versions)

        assert free_of_complaints(envoy)


def test_a_removed_assignment_that_a_cluster_still_names_empties_the_cluster(out: Out) -> None:
    """Envoy loses the endpoints, which no deleted file and no empty list would bring about."""
    out.write(cds=[by_eds("web", "web-endpoints")], eds=[assignment("web-endpoints", 9)])
    with Envoy(out.bootstrap()) as envoy:
        assert envoy.endpoints("web") == {"127.0.0.1:9"}

        with envoy.expect_update("cluster.web"):
            out.write(cds=[by_eds("web", "web-endpoints")])

        assert envoy.endpoints("web") == set()
        assert free_of_complaints(envoy)


def test_a_removed_cluster_takes_its_files_with_it(out: Out) -> None:
    """Envoy lets the cluster go, its endpoints' file is removed, and the others are not read again."""
    out.write(cds=[by_eds("a"), by_eds("b")], eds=[assignment("a", 1), assignment("b", 1)])
    with Envoy(out.bootstrap()) as envoy:
        envoy.wait_converged(out.write(cds=[by_eds("a")], eds=[assignment("a", 1)]))

        assert envoy.cluster_names(dynamic_only=True) == {"a"}
        assert not (out.root / "eds" / "b.pb").exists()
        assert envoy.stat("cluster.a.update_success") == 1
        assert free_of_complaints(envoy)


def test_runtime_values_are_followed(out: Out) -> None:
    """A runtime layer of the bootstrap reads its file, and each change of it."""
    out.write(rtds=[{"name": "live", "layer": {"feature.x": "1"}}])
    with Envoy(out.bootstrap(runtime=True)) as envoy:
        assert envoy.get_json("/runtime")["entries"]["feature.x"]["final_value"] == "1"

        with envoy.expect_update("runtime"):
            out.write(rtds=[{"name": "live", "layer": {"feature.x": "2"}}])

        assert envoy.get_json("/runtime")["entries"]["feature.x"]["final_value"] == "2"
        assert free_of_complaints(envoy)


def test_secrets_of_private_files_are_followed(out: Out) -> None:
    """A cluster's TLS context reads a secret from its file, and each change of it."""

    def secret(pin: str) -> list[Plain]:
        return [{"name": "trust", "validation_context": {"verify_certificate_hash": [pin * 32]}}]

    context: Plain = {
        "@type": UPSTREAM_TLS,
        "common_tls_context": {"validation_context_sds_secret_config": {"name": "trust", "sds_config": ADS}},
    }
    cluster: Plain = {**static("safe"), "transport_socket": {"name": "tls", "typed_config": context}}
    out.write(cds=[cluster], sds=secret("aa"))
    with Envoy(out.bootstrap()) as envoy:
        assert envoy.cluster_names(dynamic_only=True) == {"safe"}

        with envoy.expect_update("sds.trust"):
            out.write(cds=[cluster], sds=secret("bb"))

        assert envoy.stat("sds.trust.update_success") == 2
        assert free_of_complaints(envoy)


def test_discovered_filters_are_followed(out: Out) -> None:
    """A filter that the listener names reads its configuration from a file of its own, and each change of it."""

    def mutation(value: str) -> list[Plain]:
        append: Plain = {"append": {"header": {"key": "x-edge", "value": value}}}
        config: Plain = {"@type": MUTATION, "mutations": {"response_mutations": [append]}}
        return [{"name": "edge-header", "typed_config": config}]

    discovered: Plain = {
        "name": "edge-header",
        "config_discovery": {"config_source": ADS, "type_urls": [MUTATION]},
    }
    front = listener("front", 0, filters=[discovered], route_config=direct("front", "here"))
    out.write(lds=[front], ecds=mutation("1"))
    with Envoy(out.bootstrap()) as envoy:
        port = envoy.listener_ports()["front"]
        assert fetch(port, "x-edge") == "1"

        out.write(lds=[front], ecds=mutation("2"))

        envoy.wait(lambda: fetch(port, "x-edge") == "2", what="the new header")
        assert free_of_complaints(envoy)


def test_a_filter_without_its_configuration_takes_its_default(out: Out) -> None:
    """At once, from a file without resources, which Envoy rejects; it takes the configuration when there is one, and keeps it."""

    def fault(status: int) -> Plain:
        return {"@type": FAULT, "abort": {"http_status": status, "percentage": {"numerator": 100}}}

    discovery: Plain = {"config_source": ADS, "type_urls": [FAULT], "default_config": fault(418)}
    discovered: Plain = {"name": "fault", "config_discovery": discovery}
    front = listener("front", 0, filters=[discovered], route_config=direct("front", "here"))
    out.write(lds=[front])
    with Envoy(out.bootstrap()) as envoy:
        port = envoy.listener_ports()["front"]
        assert fetch(port).startswith("418")

        out.write(lds=[front], ecds=[{"name": "fault", "typed_config": fault(421)}])
        envoy.wait(lambda: fetch(port).startswith("421"), what="the configuration")
        with envoy.expect_update("extension_config_discovery.http_filter.fault"):
            out.write(lds=[front])
        assert fetch(port).startswith("421")


def test_scopes_are_followed_to_their_one_route_table(out: Out) -> None:
    """Scoped routes read the bundle of scopes, and the one route table that the scopes name."""

    def scope(key: str) -> Plain:
        return {"name": f"s-{key}", "route_configuration_name": "r", "key": {"fragments": [{"string_key": key}]}}

    fragment: Plain = {
        "header_value_extractor": {"name": "host", "element_separator": ":", "index": 0},
    }
    scoped: Plain = {
        "name": "scopes",
        "scope_key_builder": {"fragments": [fragment]},
        "rds_config_source": ADS,
        "scoped_rds": {"scoped_rds_config_source": ADS},
    }
    front = listener("front", 0, scoped_routes=scoped)
    out.write(lds=[front], srds=[scope("localhost")], rds=[direct("r", "scoped")])
    with Envoy(out.bootstrap()) as envoy:
        port = envoy.listener_ports()["front"]
        assert fetch(port).startswith("404")

        out.write(lds=[front], srds=[scope("localhost"), scope("127.0.0.1")], rds=[direct("r", "scoped")])

        envoy.wait(lambda: fetch(port) == "200 scoped", what="the new scope")
        assert free_of_complaints(envoy)


def test_a_watched_directory_sees_no_temporaries(out: Out) -> None:
    """With `watched_directory`, Envoy reads the bundles again for a changed bundle, and for no other file."""
    out.write(cds=[by_eds("web")], eds=[assignment("web", 1)])
    with Envoy(out.bootstrap(watched=True)) as envoy:
        before = envoy.stat(f"{CDS}.update_attempt")
        for port in range(2, 7):
            out.write(cds=[by_eds("web")], eds=[assignment("web", port)])
        envoy.wait(lambda: envoy.endpoints("web") == {"127.0.0.1:6"}, what="the last endpoint")

        assert envoy.stat(f"{CDS}.update_attempt") == before
        assert free_of_complaints(envoy)


def test_a_second_envoy_starts_from_the_same_files(out: Out) -> None:
    """Files outlive whoever wrote them: an Envoy starts from them while fsxds is away."""
    versions = out.write(cds=[by_eds("web")], eds=[assignment("web", 9)], lds=BACKENDS)
    with out.mirror:
        pass
    with Envoy(out.bootstrap()) as envoy:
        envoy.wait_converged(versions)

        assert envoy.endpoints("web") == {"127.0.0.1:9"}
