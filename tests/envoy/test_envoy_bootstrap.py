"""Bootstraps that a real Envoy accepts, and that ask for what the tree has."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import pytest

from fsxds.envoy.envoy_bootstrap import BootstrapRequest, Identity, Section, files_of, mirror_bootstrap, rest_bootstrap
from tests.envoy.snapshots import snapshot_of
from tests.support.envoy import validate

ALL = BootstrapRequest(clusters=True, listeners=True, runtime_names=("base", "override"))


def plain(bootstrap: Section) -> Any:
    """Return the same as untyped JSON, which is easier to look into."""
    return json.loads(json.dumps(bootstrap))


def xds_address(xds: str) -> Any:
    cluster = plain(rest_bootstrap(xds, ALL))["static_resources"]["clusters"][0]
    return cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]


def test_wanted_is_what_the_tree_speaks_of() -> None:
    """Types that no document speaks of are not asked for; each runtime layer is."""
    expected = BootstrapRequest(clusters=True, listeners=False, runtime_names=("a", "b"))

    assert expected == BootstrapRequest.by(snapshot_of({"cds": {}, "eds": {"e": ""}, "rtds": {"b": "", "a": ""}}))


@pytest.mark.parametrize(
    ("other", "is_covered"),
    [
        (ALL, True),
        (BootstrapRequest(clusters=False, listeners=False), True),
        (BootstrapRequest(clusters=True, listeners=True, runtime_names=("override",)), True),
        (BootstrapRequest(clusters=True, listeners=True, runtime_names=("another",)), False),
    ],
)
def test_covers_what_asks_for_no_more(other: BootstrapRequest, *, is_covered: bool) -> None:
    """An Envoy need not start anew for less than it asks for."""
    assert is_covered == ALL.covers(other)


def test_streams_cover_polls_and_not_the_other_way_round() -> None:
    """An edit that asks for streams needs another Envoy; one that no longer does leaves Envoy on its stream."""
    streams = replace(ALL, streams=True)

    assert streams.covers(ALL)
    assert not ALL.covers(streams)


def test_listeners_that_come_later_are_not_covered() -> None:
    """The first listener of a tree makes another bootstrap."""
    assert not BootstrapRequest(clusters=True, listeners=False).covers(ALL)


@pytest.mark.parametrize(
    ("xds", "address"),
    [
        ("127.0.0.1:18001", {"socket_address": {"address": "127.0.0.1", "port_value": 18001}}),
        ("0.0.0.0:18001", {"socket_address": {"address": "127.0.0.1", "port_value": 18001}}),
        (":18001", {"socket_address": {"address": "127.0.0.1", "port_value": 18001}}),
        ("[::]:18001", {"socket_address": {"address": "::1", "port_value": 18001}}),
        ("[::1]:18001", {"socket_address": {"address": "::1", "port_value": 18001}}),
        ("unix:/run/fsxds.sock", {"pipe": {"path": "/run/fsxds.sock"}}),
    ],
)
def test_xds_address_is_one_to_connect_to(xds: str, address: object) -> None:
    """A bound address becomes one that this machine can reach."""
    assert address == xds_address(xds)


def test_pause_between_polls_is_not_one_that_crashes_envoy() -> None:
    """ENVOY.md E4: a refresh_delay below one millisecond is SIGFPE."""
    source = plain(rest_bootstrap("127.0.0.1:1", ALL))["dynamic_resources"]["cds_config"]["api_config_source"]

    assert float(source["refresh_delay"].removesuffix("s")) >= 0.001


def test_connections_to_fsxds_are_not_limited() -> None:
    """ENVOY.md E5: each held poll is a connection, and the default limit is 1024."""
    cluster = plain(rest_bootstrap("127.0.0.1:1", ALL))["static_resources"]["clusters"][0]

    assert min(cluster["circuit_breakers"]["thresholds"][0].values()) > 100_000


def test_nothing_is_asked_for_that_the_tree_does_not_have() -> None:
    """No CDS, no LDS, no runtime layer but the admin's."""
    bootstrap = plain(rest_bootstrap("127.0.0.1:1", BootstrapRequest(clusters=False, listeners=False)))

    assert bootstrap["dynamic_resources"] == {}
    assert bootstrap["layered_runtime"]["layers"] == [{"name": "admin", "admin_layer": {}}]


def path_of(short_name: str, name: str | None) -> PurePath:
    return PurePath("/mirror", short_name + ".pb" if name is None else f"{short_name}/{name}.pb")


def test_mirror_names_the_files_that_must_exist() -> None:
    """The bundles, and one file for each runtime layer."""
    expected = ["/mirror/cds.pb", "/mirror/lds.pb", "/mirror/rtds/base.pb", "/mirror/rtds/override.pb"]

    assert expected == list(map(str, files_of(mirror_bootstrap(path_of, ALL))))


def test_identity_is_told() -> None:
    """Node and admin port are the ones asked for."""
    bootstrap = plain(rest_bootstrap("127.0.0.1:1", ALL, Identity("n", "c", 9901)))

    assert bootstrap["node"] == {"id": "n", "cluster": "c"}
    assert bootstrap["admin"]["address"]["socket_address"]["port_value"] == 9901


@pytest.mark.parametrize("xds", ["127.0.0.1:18001", "[::1]:18001", "unix:/run/fsxds.sock"])
@pytest.mark.parametrize("wanted", [ALL, BootstrapRequest(clusters=False, listeners=False)])
def test_envoy_accepts_a_rest_bootstrap(xds: str, wanted: BootstrapRequest) -> None:
    """The real Envoy validates it."""
    is_accepted, text = validate(rest_bootstrap(xds, wanted))

    assert is_accepted, text


@pytest.mark.parametrize("xds", [None, "127.0.0.1:18001"])
def test_envoy_accepts_a_mirror_bootstrap(xds: str | None, tmp_path: Path) -> None:
    """The real Envoy validates it, once the files exist."""
    bootstrap = mirror_bootstrap(lambda *names: tmp_path / path_of(*names).relative_to("/mirror"), ALL, xds=xds)
    for file in map(Path, files_of(bootstrap)):
        file.parent.mkdir(exist_ok=True)
        file.touch()
    is_accepted, text = validate(bootstrap)

    assert is_accepted, text
