"""(f): what checking costs against converting the same resources: field rules, rules over messages and references."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.formats.yaml_format import decode, read_yaml
from fsxds.lint.linter import Linter, make_field_rules
from fsxds.model.values import SourceFile, SourceTree
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.parse import FileParser
from tests.bench.data import cluster
from tests.bench.figures import Figure, cpu_of

PREFIX = "type.googleapis.com/"
ROUNDS = 3
BATCH = 2000


def measure(catalogue: Catalogue, count: int) -> Iterator[Figure]:
    """Convert, then check, `count` clusters, as many assignments, and a fiftieth as many route configurations."""
    for name, values in (
        ("clusters", [_cluster(number) for number in range(count)]),
        ("endpoints", [_assignment(number) for number in range(count)]),
        ("routes", [_routes(number) for number in range(count // 50)]),
    ):
        yield _compare(catalogue, name, values)


def _compare(catalogue: Catalogue, name: str, values: list[Any]) -> Figure:
    converter = Converter(catalogue)
    field_rules = make_field_rules(catalogue)
    # Compile for these types first, as a running server has.
    field_rules.check(converter.convert_any(values[0]).message)  # type: ignore[arg-type]
    rounds = []
    for _ in range(ROUNDS):
        ours = baseline = 0.0
        # By and by, as files are read: messages that have left the processor's caches would cost the later step more.
        for first in range(0, len(values), BATCH):
            batch = values[first : first + BATCH]
            cost, converted = cpu_of(lambda batch=batch: [converter.convert_any(v) for v in batch], collector=False)
            baseline += cost
            messages = [found.message for found in converted]
            cost, walks = cpu_of(lambda messages=messages: [field_rules.check(m) for m in messages], collector=False)
            ours += cost
            assert not any(walk.faults for walk in walks), walks[0].faults
        rounds.append((ours / baseline, ours, baseline))
    ratio, ours, baseline = sorted(rounds)[ROUNDS // 2]
    detail = f"{len(values)} {name}: {ours:.2f} s against {baseline:.2f} s CPU"
    return Figure(f"(f) checking {name} / converting them", ratio, 1.5, "", detail)


def _cluster(number: int) -> Any:
    decoded = read_yaml(cluster(number))
    return decoded.documents[0].value[0]


def _assignment(number: int) -> Any:
    """Return ten endpoints in two localities."""
    return {
        "@type": f"{PREFIX}envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": f"svc-{number:05d}",
        "endpoints": [
            {
                "locality": {"region": "eu-west-1", "zone": f"eu-west-1{zone}"},
                "load_balancing_weight": 1,
                "lb_endpoints": [_endpoint(f"10.{number >> 8 & 255}.{number & 255}.{host}") for host in range(5)],
            }
            for zone in "ab"
        ],
        "policy": {"overprovisioning_factor": 140},
    }


def _endpoint(address: str) -> Any:
    return {
        "endpoint": {
            "address": {"socket_address": {"address": address, "port_value": 8080}},
            "health_check_config": {"port_value": 9000},
        },
        "health_status": "HEALTHY",
        "load_balancing_weight": 10,
        "metadata": {"filter_metadata": {"envoy.lb": {"version": "v1", "canary": True}}},
    }


def _routes(number: int) -> Any:
    """Return fifty virtual hosts of three routes."""
    return {
        "@type": f"{PREFIX}envoy.config.route.v3.RouteConfiguration",
        "name": f"routes-{number:04d}",
        "request_headers_to_remove": ["x-internal"],
        "virtual_hosts": [_virtual_host(f"app{host}.r{number}.example.com") for host in range(50)],
    }


def _virtual_host(domain: str) -> Any:
    cors = f"{PREFIX}envoy.extensions.filters.http.cors.v3.CorsPolicy"
    last = {"clusters": [{"name": f"{domain}-{half}", "weight": 50} for half in "ab"]}
    return {
        "name": domain,
        "domains": [domain, f"{domain}:443"],
        "typed_per_filter_config": {
            "envoy.filters.http.cors": {
                "@type": cors,
                "allow_origin_string_match": [{"suffix": ".example.com"}],
                "allow_methods": "GET,POST",
            }
        },
        "routes": [
            *(_route(name) for name in ("r0", "r1")),
            {"name": "default", "match": {"prefix": "/"}, "route": {"weighted_clusters": last}},
        ],
    }


def _route(name: str) -> Any:
    return {
        "name": name,
        "match": {"prefix": f"/api/{name}/", "headers": [{"name": "x-version", "string_match": {"exact": name}}]},
        "route": {
            "cluster": f"svc-{name}",
            "timeout": "15s",
            "retry_policy": {"retry_on": "5xx,reset,connect-failure", "num_retries": 2, "per_try_timeout": "2.5s"},
        },
        "request_headers_to_add": [{"header": {"key": "x-route", "value": name}}],
    }


def measure_trees(catalogue: Catalogue) -> Iterator[Figure]:
    """Check 2000 small files beside parsing them, and one changed file of 10 000 beside all of them."""
    small = _tree(2000)
    converter = Converter(catalogue)
    baseline, _ = cpu_of(lambda: [_parsed(converter, file, catalogue) for file in small.files])
    ours, _ = cpu_of(lambda: _load(small, FileParser(catalogue, check=Linter()), None))
    detail = f"cold, one cluster each: {ours:.2f} s against {baseline:.2f} s CPU"
    yield Figure("(g) checking 2000 files / parsing them", ours / baseline, 3, "", detail)
    large, parser = _tree(10_000), FileParser(catalogue, check=Linter())
    cold, loaded = cpu_of(lambda: _load(large, parser, None))
    edited = [*large.files]
    content = edited[5000].content.replace(b"connect_timeout: ", b"connect_timeout: 1")
    edited[5000] = SourceFile.of(edited[5000].path, content)
    assert content != large.files[5000].content
    ours, _ = cpu_of(lambda: _load(SourceTree(tuple(edited)), parser, loaded))
    detail = f"{ours * 1000:.0f} ms against {cold:.1f} s CPU"
    yield Figure("(g) checking one edit of 10 000 files / all", ours / cold, 0.03, "", detail)


def _tree(count: int) -> SourceTree:
    paths = (PurePosixPath(f"clusters/{number:05}.yaml") for number in range(count))
    return SourceTree(tuple(SourceFile.of(path, cluster(number).encode()) for number, path in enumerate(paths)))


def _parsed(converter: Converter, file: SourceFile, catalogue: Catalogue) -> Any:
    (document,) = decode(file.content, catalogue, None).documents
    return [converter.convert_any(value) for value in document.value]


def _load(tree: SourceTree, parser: FileParser, before: Loaded | None) -> Loaded:
    return load(tree, before, lambda files: map(parser.parse, files), Acceptance(check=Linter()))
