"""Config sources inside of resources, made ADS."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Rows, Snapshot, version_of_body
from fsxds.runtime.channels import Channel, ChannelKey, SnapshotStore
from fsxds.transports.config_sources import MOST_UNDECLARED, WITH_CONFIG_SOURCES, AdsConfigSources, Rewriting
from tests.support.errors import Recorder
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import Plain, assignment, by_eds, listener, message, snapshot, url

CDS, EDS, LDS = url("cds"), url("eds"), url("lds")
REST: Plain = {
    "resource_api_version": "V3",
    "initial_fetch_timeout": "3s",
    "api_config_source": {
        "api_type": "REST",
        "transport_api_version": "V3",
        "cluster_names": ["xds"],
        "refresh_delay": "1s",
    },
}
FILE: Plain = {"path_config_source": {"path": "/eds.yaml"}}


@pytest.fixture
def sources() -> AdsConfigSources:
    """Have nothing rewritten yet."""
    return AdsConfigSources(this_envoy())


def source_of(found: Snapshot, name: str) -> Any:
    """Return where a cluster takes its endpoints from."""
    return message("cds", found.resources(CDS)[name].body).eds_cluster_config.eds_config


async def test_rest_becomes_ads(sources: AdsConfigSources) -> None:
    """What asks by REST asks by ADS, in clusters and deep in listeners; how long it waits for an answer stays."""
    authored = snapshot(
        cds=[by_eds("web", source=REST)],
        lds=[listener("front", 1, rds={"route_config_name": "r", "config_source": REST})],
    )

    rewritten = await sources.rewrite(authored)

    source = source_of(rewritten, "web")
    assert (source.WhichOneof("config_source_specifier"), source.initial_fetch_timeout.seconds) == ("ads", 3)
    assert b"xds" not in rewritten.resources(LDS)["front"].body
    assert b"xds" in authored.resources(LDS)["front"].body


async def test_versions_are_of_what_is_sent(sources: AdsConfigSources) -> None:
    """Whoever holds what the author wrote is sent the other; a resource without sources is the very same."""
    authored = snapshot(cds=[by_eds("web", source=REST), by_eds("own")], eds=[assignment("web")])

    rewritten = await sources.rewrite(authored)

    web = rewritten.resources(CDS)["web"]
    assert web.version == version_of_body(CDS, web.body) != authored.resources(CDS)["web"].version
    assert rewritten.resources(CDS)["own"] is authored.resources(CDS)["own"]
    assert rewritten.versions[CDS] != authored.versions[CDS]
    assert rewritten.resources(EDS) is authored.resources(EDS)


async def test_files_and_types_of_others_stay(sources: AdsConfigSources) -> None:
    """A path stays a path; what asks for a type that the tree never spoke of may come from another server."""
    by_file = snapshot(cds=[by_eds("web", source=FILE)])
    of_others = snapshot(cds=[by_eds("web", source=REST)], unsure={"undeclared": ["eds"]})

    assert (await sources.rewrite(by_file)).resources(CDS)["web"] is by_file.resources(CDS)["web"]
    assert (await sources.rewrite(of_others)).resources(CDS)["web"] is of_others.resources(CDS)["web"]


async def test_work_follows_the_change(sources: AdsConfigSources) -> None:
    """Rows in which nothing changed are the same object, and so is each resource that did not change."""
    first = snapshot(1, cds=[by_eds("a", source=REST), by_eds("b", source=REST)])
    same = replace(first, generation=2)
    clusters = Rows(CDS, {**first.by_type[CDS], "b": replace(first.by_type[CDS]["a"], name="b")})
    edited = replace(first, generation=3, by_type={**first.by_type, CDS: clusters})

    one, two, three = [await sources.rewrite(found) for found in (first, same, edited)]

    assert one.by_type[CDS] is two.by_type[CDS]
    assert three.by_type[CDS]["a"] is one.by_type[CDS]["a"]
    assert three.by_type[CDS]["b"] is not one.by_type[CDS]["b"]


async def test_rows_without_sources_are_those_of_the_tree(sources: AdsConfigSources) -> None:
    """As long as nothing of a type had to be rewritten, its rows take no memory a second time; then only what has."""
    first = snapshot(1, cds=[by_eds("a", source=FILE), by_eds("b", source=FILE)])
    rows = first.by_type[CDS]
    of_file, of_rest = (snapshot(cds=[by_eds("c", source=source)]).by_type[CDS].values() for source in (FILE, REST))
    without = rows.with_changes(of_file, ["b"])
    with_source = without.with_changes(of_rest, ())
    found = [
        (await sources.rewrite(replace(first, generation=generation, by_type={**first.by_type, CDS: each}))).by_type[
            CDS
        ]
        for generation, each in enumerate((rows, without, with_source), 1)
    ]

    assert found[0] is rows
    assert found[1] is without
    assert list(found[2]) == ["a", "c"]
    assert found[2]["a"] is rows["a"]
    assert found[2]["c"] != with_source["c"]
    assert found[2].changes_since(found[1]).fresh == {"c"}


async def test_streams_hear_of_sources_that_become_ads(sources: AdsConfigSources) -> None:
    """When the tree first speaks of endpoints, clusters that did not change are told again, with their new source."""
    before = snapshot(1, cds=[by_eds("web", source=REST)], unsure={"undeclared": ["eds"]})
    after = replace(before, generation=2, undeclared=frozenset())

    one, two = await sources.rewrite(before), await sources.rewrite(after)

    assert two.resources(CDS).changes_since(one.resources(CDS)).fresh == {"web"}


async def test_rows_of_earlier_sets_of_types_are_forgotten(sources: AdsConfigSources) -> None:
    """A tree that comes to define more types leaves none of its old resources in memory."""
    kinds = [row.short_name for row in RESOURCE_TYPES]
    for count in range(len(kinds)):
        await sources.rewrite(
            snapshot(count + 1, cds=[by_eds("web", source=REST)], unsure={"undeclared": kinds[:count]})
        )

    # Nothing else shows what it keeps.
    assert len(sources._rows) == MOST_UNDECLARED * len(WITH_CONFIG_SOURCES)


async def test_a_store_is_kept_in_step(sources: AdsConfigSources) -> None:
    """Each snapshot of the one store comes to the other, rewritten, with its generation."""
    channel = Channel(ChannelKey(), SnapshotStore())
    store, target = channel.store, channel.streams
    rewriting = Rewriting([sources], Recorder())
    rewriting.follow(channel)
    async with asyncio.TaskGroup() as tasks:
        keeping = tasks.create_task(rewriting.keep_rewritten())
        for generation in (1, 2):
            store.publish(snapshot(generation, cds=[by_eds(f"web-{generation}", source=REST)]))
            found = await target.newer_than(generation - 1)
            assert source_of(found, f"web-{generation}").WhichOneof("config_source_specifier") == "ads"
        keeping.cancel()
