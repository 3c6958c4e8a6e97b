from __future__ import annotations

from pathlib import PurePath
from typing import Any, cast

import pytest

from fsxds.envoy.envoy_bootstrap import (
    BootstrapRequest,
    EnvoyTls,
    ads_bootstrap,
    mirror_bootstrap,
    rest_bootstrap,
    with_tls,
)

ALL = BootstrapRequest(clusters=True, listeners=True)
ONE_WAY = EnvoyTls(PurePath("/ca.crt"))
MUTUAL = EnvoyTls(PurePath("/ca.crt"), PurePath("/me.crt"), PurePath("/me.key"))


def tls_of(bootstrap: Any) -> Any:
    (cluster,) = bootstrap["static_resources"]["clusters"]
    return cluster["transport_socket"]["typed_config"]


@pytest.mark.parametrize(
    ("address", "sni", "name"),
    [
        ("xds.example.com:18001", "xds.example.com", {"san_type": "DNS", "matcher": {"exact": "xds.example.com"}}),
        ("10.0.0.7:18001", None, {"san_type": "IP_ADDRESS", "matcher": {"exact": "10.0.0.7"}}),
        ("[::1]:18001", None, {"san_type": "IP_ADDRESS", "matcher": {"exact": "::1"}}),
        (":18001", None, {"san_type": "IP_ADDRESS", "matcher": {"exact": "127.0.0.1"}}),
    ],
)
def test_the_name_of_the_server_is_verified(address: str, sni: str | None, name: dict[str, object]) -> None:
    """A certificate of the same CA for another name is not enough; an IP address is no name to ask for."""
    context = tls_of(with_tls(rest_bootstrap(address, ALL), ONE_WAY))

    assert context.get("sni") == sni
    assert context["common_tls_context"] == {
        "validation_context": {"trusted_ca": {"filename": "/ca.crt"}, "match_typed_subject_alt_names": [name]}
    }


def test_the_envoy_shows_its_own() -> None:
    """Where there is one."""
    context = tls_of(with_tls(ads_bootstrap("xds:1", ALL), MUTUAL))

    assert context["common_tls_context"]["tls_certificates"] == [
        {"certificate_chain": {"filename": "/me.crt"}, "private_key": {"filename": "/me.key"}}
    ]


def test_where_there_is_nothing_to_encrypt() -> None:
    """By a unix socket fsxds speaks plain text, and mirrored files come by no connection."""
    by_socket = rest_bootstrap("unix:/run/fsxds.sock", ALL)
    by_files = mirror_bootstrap(lambda name, _: PurePath(name), ALL)

    assert [by_socket, by_files] == [with_tls(each, MUTUAL) for each in (by_socket, by_files)]


def test_other_clusters_stay() -> None:
    """Those that somebody else wrote into the bootstrap."""
    bootstrap = rest_bootstrap("xds:1", ALL)
    clusters = cast("list[object]", cast("dict[str, object]", bootstrap["static_resources"])["clusters"])
    clusters.append(other := {"name": "other"})

    secured: Any = with_tls(bootstrap, ONE_WAY)

    assert secured["static_resources"]["clusters"][1] == other
