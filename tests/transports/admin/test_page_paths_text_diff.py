from __future__ import annotations

from pathlib import Path

import pytest

import fsxds
from fsxds.api.catalogue import Catalogue
from fsxds.api.secrets import Masker
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Snapshot
from fsxds.transports.admin import page_paths
from fsxds.transports.admin.page_paths import ResourceContent, SnapshotDiff, content_of, diff_of

CANARY = "canary-in-a-secret"
CLUSTERS = """\
- {name: stays, connect_timeout: 1s}
- {name: changes, connect_timeout: 1s}
- {name: goes, connect_timeout: 1s}
"""
CHANGED = """\
- {name: stays, connect_timeout: 1s}
- {name: changes, connect_timeout: 2s}
- {name: comes, connect_timeout: 1s}
"""
SECRETS = "- {name: key, generic_secret: {secret: {inline_string: %s}}}\n"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> tuple[Snapshot, Snapshot]:
    """Return what is served of two trees."""
    return (
        loaded(tmp_path_factory.mktemp("before"), CLUSTERS, f"{CANARY}-1"),
        loaded(tmp_path_factory.mktemp("after"), CHANGED, f"{CANARY}-2"),
    )


def loaded(directory: Path, clusters: str, secret: str) -> Snapshot:
    """Write a tree, and return what is served of it."""
    (directory / "cds.yaml").write_text(clusters, encoding="utf-8")
    (directory / "sds.yaml").write_text(SECRETS % secret, encoding="utf-8")
    return fsxds.load(directory).snapshot


def by_name(found: SnapshotDiff) -> dict[str, page_paths.ResourceDiff]:
    """Return the resources of a difference by their names."""
    return {each.name: each for each in found.resources}


def test_content_is_masked_yaml(snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue) -> None:
    """What is served has all lines, and the version of the files a difference to it, if it is another."""

    def content(short_name: str, name: str) -> ResourceContent:
        row = BY_SHORT_NAME[short_name]
        served, wanted = (one.resources(row.type_url).get(name) for one in snapshots)
        return content_of(row, served, wanted, Masker(catalogue))

    changes, comes = content("cds", "changes"), content("cds", "comes")
    assert changes.lines[1:] == ("name: changes", "connect_timeout: 1s")
    assert changes.file is not None
    assert changes.file.lines[-2:] == ("-connect_timeout: 1s", "+connect_timeout: 2s")
    assert content("cds", "stays").file is None
    assert (comes.lines, comes.omitted, comes.file and comes.file.action) == ((), "it is not served", "added")
    assert CANARY not in repr(content("sds", "key"))


def test_what_changed_is_shown_line_by_line(snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue) -> None:
    """With its type and its place; what stays is not in it."""
    found = by_name(diff_of(*snapshots, catalogue))

    assert {name: each.action for name, each in found.items()} == {
        "changes": "changed",
        "comes": "added",
        "goes": "removed",
        "key": "changed",
    }
    assert [line for line in found["changes"].lines if line[0] in "+-"] == [
        "-connect_timeout: 1s",
        "+connect_timeout: 2s",
    ]
    assert (found["comes"].type, found["comes"].place) == ("cds", "cds.yaml:3")
    assert {line[0] for line in found["comes"].lines} == {"@", "+"}
    assert {line[0] for line in found["goes"].lines} == {"@", "-"}


def test_secrets_are_masked(snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue) -> None:
    """That a secret is another one is said, and nothing of it."""
    found = diff_of(*snapshots, catalogue)

    assert CANARY not in repr(found)
    assert (by_name(found)["key"].lines, by_name(found)["key"].omitted[:26]) == ((), "only hidden fields, the al")


def test_what_is_large_is_cut(
    snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so, and how much there is."""
    monkeypatch.setattr(page_paths, "MOST_RESOURCES", 2)
    monkeypatch.setattr(page_paths, "MOST_LINES", 2)
    found = diff_of(*snapshots, catalogue)

    assert (len(found.resources), found.total) == (2, 4)
    assert (len(found.resources[1].lines), found.resources[1].omitted) == (
        2,
        "more lines follow; fsxds show and fsxds diff have all",
    )


def test_a_large_resource_is_not_compared(
    snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take long."""
    monkeypatch.setattr(page_paths, "LONGEST_BODY_BYTES", 1)

    assert "too large" in by_name(diff_of(*snapshots, catalogue))["changes"].omitted


def test_nothing_differs_from_itself(snapshots: tuple[Snapshot, Snapshot], catalogue: Catalogue) -> None:
    """Nor from a snapshot with the same content."""
    assert diff_of(snapshots[0], snapshots[0], catalogue) == SnapshotDiff((), 0)
