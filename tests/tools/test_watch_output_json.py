"""What a watched server tells, as programs read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from fsxds.api.secrets import Masker
from fsxds.client.updates import Update
from fsxds.model.resources import Resource
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.tools.diff.compare import Comparer
from fsxds.tools.watch_output import Holdings, update_json
from tests.support.polls import envoy_catalogue, named
from tests.support.snapshots import type_url

CDS = type_url("CDS")


def update_of(*resources: Resource, url: TypeUrl = CDS, removed: tuple[str, ...] = ()) -> Update:
    """Return an update of a type."""
    rows = {resource.name: resource for resource in resources}
    return Update(url, Version("1"), Nonce("n"), rows, removed)


def told(*updates: Update) -> list[Any]:
    """Return what is written of updates."""
    holdings, comparer, masker = Holdings(), Comparer(envoy_catalogue()), Masker(envoy_catalogue())
    steps = [holdings.take(update) for update in updates]
    return [json.loads(update_json(step, comparer.compare(*step.snapshots), masker)) for step in steps]


def test_a_line_tells_all() -> None:
    """Resources with their content and the server's versions, fields that changed, names that went or are not there."""
    one, other = named("cds", "a", alt_stat_name="x"), named("cds", "b")
    newer = replace(named("cds", "a", alt_stat_name="y"), version=Version("va"), ttl_s=5.0, aliases=("z",))
    first, second = told(update_of(one, other), update_of(newer, other, removed=("x",)))

    assert ["cds", "1", "n", False, ["a", "b"]] == [
        *(first[name] for name in ("type", "version", "nonce", "is_full")),
        [resource["name"] for resource in first["added"]],
    ]
    assert {"name": "a", "version": "va", "aliases": ["z"], "ttl_s": 5.0} == {
        name: value for name, value in second["changed"][0].items() if name not in ("fields", "resource")
    }
    assert {"path": "alt_stat_name", "act": "changed", "before": "x", "after": "y"} in second["changed"][0]["fields"]
    assert "y" == second["changed"][0]["resource"]["alt_stat_name"]
    assert (["x"], ["b"], []) == (second["absent"], second["unchanged"], second["removed"])


def test_what_goes() -> None:
    """Removed resources are named; heartbeats too."""
    first, second = told(update_of(named("cds", "a")), replace(update_of(removed=("a",)), heartbeats=("b",)))

    assert ([], ["a"], ["b"]) == (first["removed"], second["removed"], second["heartbeats"])


def test_secrets_are_hidden() -> None:
    """Neither resources nor fields show them."""
    first, second = (
        named("sds", "s", generic_secret={"secret": {"inline_string": text}}) for text in ("S3CR3T", "S3CR3T2")
    )

    assert "S3CR3T" not in json.dumps(
        told(update_of(first, url=type_url("SDS")), update_of(second, url=type_url("SDS")))
    )
