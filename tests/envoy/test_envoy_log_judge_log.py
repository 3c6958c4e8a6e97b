"""What the log of a real Envoy tells of a NACK: the suspect, and what was taken before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.envoy_log import ValidationFailure
from fsxds.envoy.static_bootstrap import Renderer
from fsxds.envoy.validate import Validator
from tests.envoy.judged import resources_of
from tests.support.envoy import find_envoy

NOPE = "{name: bad, type: STATIC, load_assignment: {cluster_name: a, endpoints: [{lb_endpoints: [{endpoint: {address: "
NOPE += "{socket_address: {address: nope, port_value: 80}}}}]}]}}"
TCP = "{name: tcp, typed_config: {'@type': a/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy, stat_prefix: a, "
TCP += "cluster: a}}"


def listener(name: str, port: int, chain: str = f"{{filters: [{TCP}]}}") -> str:
    """Return a listener of one filter chain in flow style."""
    address = f"{{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}"
    return f"{{name: {name}, address: {address}, filter_chains: [{chain}]}}"


@pytest.mark.parametrize(
    ("files", "suspect", "proven"),
    [
        # Refused when it is created; those before it were created.
        ({"cds": f"[{{name: a}}, {{name: b}}, {NOPE}, {{name: c}}]"}, 2, {0, 1}),
        # Clusters of EDS are created after all others.
        ({"cds": "[{name: e, type: EDS}, {name: a}, {name: b}]"}, 0, {1, 2}),
        # The whole is looked through for broken rules first, so nothing is known of the others.
        ({"cds": "[{name: a}, {name: bad, connect_timeout: 0s}, {name: c}]"}, 1, set()),
        ({"lds": f"[{listener('a', 1)}, {listener('b', 2)}, {listener('bad', 2)}]"}, 2, {0, 1}),
        (
            {"cds": "[{name: a}]", "rds": "[{name: r}, {name: s, virtual_hosts: [{name: a, domains: ['*', '*']}]}]"},
            2,
            {0, 1},
        ),
        ({"rtds": "[{name: l, layer: {a: null}}]", "cds": "[{name: a}]"}, 0, set()),
    ],
)
def test_suspect(
    files: Mapping[str, str], suspect: int, proven: set[int], catalogue: Catalogue, tmp_path: Path
) -> None:
    """Each stage of Envoy's work leaves a trace of what it is busy with."""
    resources = [
        one
        for short_name, written in files.items()
        for one in resources_of(short_name, f"resources: {written}", catalogue)
    ]
    rendering = Renderer(catalogue, resources, str(tmp_path)).render(range(len(resources)))
    answer = Validator(Path(find_envoy()), tmp_path).validate(rendering)

    assert isinstance(answer, ValidationFailure)
    assert suspect == answer.suspect
    assert proven == answer.proven
