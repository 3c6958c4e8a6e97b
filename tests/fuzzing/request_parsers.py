"""Fuzz what reads requests by coverage, with atheris, for as long as you like.

    pip install atheris
    python -m tests.fuzzing.request_parsers rest -max_total_time=300
    python -m tests.fuzzing.request_parsers grpc -max_total_time=300 CORPUS

The first word is one of `rest`, `deadlines`, `coding`, `grpc` and `urls`; all else is for libFuzzer. It ends with the input, in a file
`crash-…`, where anything but a ProtocolError is raised.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

try:
    import atheris
except ImportError:
    sys.exit("atheris is not installed: pip install atheris")

with atheris.instrument_imports(
    include=["fsxds.transports", "fsxds.protocol", "fsxds.runtime.views", "fsxds.model.memo"]
):
    from fsxds.model.errors import ProtocolError
    from fsxds.model.resource_types import RESOURCE_TYPES
    from fsxds.protocol.get import find, node_of, read_target
    from fsxds.protocol.poll import PollMemory
    from fsxds.runtime.views import Views
    from fsxds.settings.view_rules import ViewRule
    from fsxds.transports.exchange import peer_of
    from fsxds.transports.grpc_streams.stream_requests import METHODS, GrpcRequestReader
    from fsxds.transports.http_get.get_requests import CODINGS as CODED
    from fsxds.transports.http_get.get_requests import OF_RESOURCES, chosen_coding, chosen_format
    from fsxds.transports.limits import network_of
    from fsxds.transports.rest.poll_requests import RestRequestReader, _decoded, is_json, patience_of
    from fsxds.transports.rest.poll_responses import takes_gzip

from tests.fuzzing.test_fuzz_requests import DELTA, POLL, SOTW
from tests.support.polls import REAL_REQUEST, envoy_catalogue, named, snapshot_of

ROWS = [row for row in RESOURCE_TYPES if row.rest_path]
CODINGS = ("gzip", "x-gzip", "deflate", "identity", "br", "")
VIEWS = Views((ViewRule("edge", (("id", ("re:e.*", "*-x")),), ("common", "nodes/{node.id}", "{node.metadata.tier}")),))
FOLDERS = frozenset({"common", "nodes/n1", "edge"})


def fuzz_rest() -> Callable[[bytes], None]:
    """Return what reads a poll, remembers it, and looks for its view."""
    reader, memory = RestRequestReader(envoy_catalogue()), PollMemory()

    def read(data: bytes) -> None:
        row = ROWS[data[0] % len(ROWS)] if data else ROWS[0]
        poll = reader.read(data[1:], row, "192.0.2.1", from_envoy=bool(len(data) % 2))
        memory.receive_request(poll, None, 0.0)
        memory.receive_end(poll, 0.0, is_given_up=True)
        view = VIEWS.layers_of(poll.node, FOLDERS)
        if view is not None and not FOLDERS.issuperset(view.layers):
            raise AssertionError(view)

    return read


def fuzz_deadlines() -> Callable[[bytes], None]:
    """Return what reads the values of headers and parameters, and addresses."""

    def read(data: bytes) -> None:
        text = data.decode("utf-8", "surrogateescape")
        first, _, second = text.partition("|")
        takes_gzip(first)
        is_json(second)
        network_of(first)
        peer_of(second)
        patience_s = patience_of(first or None, second or None, 60.0)
        if not 0 <= patience_s <= 60:
            raise AssertionError(patience_s)

    return read


def fuzz_coding() -> Callable[[bytes], None]:
    """Return what decompresses bodies."""

    def read(data: bytes) -> None:
        if len(_decoded(data[1:], CODINGS[data[0] % len(CODINGS)] if data else "", 10_000)) > max(10_000, len(data)):
            raise AssertionError("more than allowed")

    return read


def fuzz_grpc() -> Callable[[bytes], None]:
    """Return what reads a message of any method of discovery."""
    reader = GrpcRequestReader(lambda: 1000)

    def read(data: bytes) -> None:
        method = METHODS[data[0] % len(METHODS)] if data else METHODS[0]
        request = reader.read(data[1:], method, "192.0.2.1", knows_node=len(data) % 3 == 0)
        if request.node is not None:
            VIEWS.layers_of(request.node, FOLDERS)

    return read


def fuzz_urls() -> Callable[[bytes], None]:
    """Return what reads a URL and the headers by which a representation is chosen, and finds what is asked for."""
    snapshot = snapshot_of(1, named("cds", "a"), named("cds", "xdstp://own/envoy.config.cluster.v3.Cluster/b/c?x=y"))

    def read(data: bytes) -> None:
        url, _, header = data.decode("utf-8", "surrogateescape").partition("|")
        if chosen_format(header, OF_RESOURCES) not in {*OF_RESOURCES, None} or chosen_coding(header) not in {
            "",
            *CODED,
        }:
            raise AssertionError(header)
        target = read_target(url, header, "own")
        VIEWS.layers_of(node_of(target.node, ""), FOLDERS)
        find(target, snapshot)

    return read


TARGETS = {"rest": fuzz_rest, "deadlines": fuzz_deadlines, "coding": fuzz_coding, "grpc": fuzz_grpc, "urls": fuzz_urls}
SEEDS = {
    "rest": (POLL, REAL_REQUEST.read_bytes()),
    "grpc": (SOTW, DELTA),
    "urls": (b"/envoy.config.cluster.v3.Cluster/b/*?x=y&xds.node.id=n|text/html, */*;q=0.5", b"/|gzip;q=0.5, br"),
    "deadlines": (b"1500|30s", b"gzip;q=0|x/json"),
}


def main() -> None:
    """Run the target that the first argument names."""
    if len(sys.argv) < 2 or sys.argv[1] not in TARGETS:
        sys.exit(f"name one of {', '.join(TARGETS)}")
    name = sys.argv.pop(1)
    read = TARGETS[name]()

    def read_one(data: bytes) -> None:
        with suppress(ProtocolError):
            read(data)

    folder = tempfile.mkdtemp(prefix="fuzzing-")
    for number, seed in enumerate(SEEDS.get(name, ())):
        (Path(folder) / f"seed-{number}").write_bytes(b"\0" + seed)
    atheris.Setup([*sys.argv, folder], read_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
