"""(a) and (b): what loading costs against the usual way, and reloading against loading."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import yaml
from google.protobuf import any_pb2, json_format

from fsxds.api.catalogue import Catalogue
from fsxds.formats import format_of
from fsxds.lint.linter import Linter
from fsxds.model.values import SourceFile
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.source.scan import Scanner
from tests.bench.data import clusters, diverse, replace_file, write_tree
from tests.bench.figures import Figure, cpu_of


def measure(catalogue: Catalogue, count: int) -> Iterator[Figure]:
    """Load `count` clusters, and a quarter as many diverse resources, from one YAML file each; then reload after one edit."""
    yield _whole_load(catalogue, "clusters", clusters(0, count), clusters(0, 1))
    yield _whole_load(catalogue, "diverse resources", diverse(count // 4), diverse(100))
    yield _reload(catalogue, count)


def usual_way(text: bytes, catalogue: Catalogue) -> list[bytes]:
    """Read resources in YAML with PyYAML and protobuf alone."""
    document = yaml.load(text, yaml.CSafeLoader)  # it is a safe loader
    packed = [
        json_format.ParseDict(item, any_pb2.Any(), descriptor_pool=catalogue.pool) for item in document["resources"]
    ]
    return [item.SerializeToString() for item in packed]


def _whole_load(catalogue: Catalogue, name: str, resources: str, some: str) -> Figure:
    text = resources.encode()
    parser = FileParser(catalogue, check=Linter())
    # Compile for these types first, as a running server has.
    parser.parse(SourceFile.of(PurePosixPath("some.yaml"), some.encode()))
    ours, parsed = cpu_of(lambda: parser.parse(SourceFile.of(PurePosixPath("all.yaml"), text)), collector=False)
    assert parsed.is_good

    baseline, _ = cpu_of(lambda: usual_way(text, catalogue))
    detail = f"{len(parsed.resources)} {name}, {len(text) / 1e6:.0f} MB: {ours:.2f} s against {baseline:.2f} s CPU"
    return Figure(f"(a) YAML load of {name} / CSafeLoader + ParseDict", ours / baseline, 0.15, "", detail)


def _reload(catalogue: Catalogue, count: int) -> Figure:
    parser = FileParser(catalogue, check=Linter())
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        edited = write_tree(root, count, 100)
        scanner = Scanner(root, is_read=lambda name: format_of(PurePosixPath(name)) is not None)

        def load_now(before: object) -> object:
            return load(
                scanner.scan(), before, lambda files: [parser.parse(f) for f in files], Acceptance(check=Linter())
            )  # type: ignore[arg-type]

        cold, loaded = cpu_of(lambda: load_now(None), collector=False)
        costs = []
        for port in range(9000, 9005):
            replace_file(edited, clusters(0, count // 100, port))
            cost, loaded = cpu_of(lambda before=loaded: load_now(before), collector=False)
            costs.append(cost)
    warm = sorted(costs)[len(costs) // 2]
    detail = f"one of 100 files of {count} clusters: {warm * 1000:.0f} ms against {cold:.2f} s CPU, cold"
    return Figure("(b) reload / cold load", warm / cold, 0.03, "", detail)
