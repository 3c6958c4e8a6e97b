from __future__ import annotations

import os
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.resources import Origin, Resource
from fsxds.model.values import Version
from fsxds.snapshots.encoding import (
    DIGEST_BYTES,
    LARGE_BYTES,
    Content,
    DamagedBytesError,
    Digest,
    KeptObject,
    facts_of,
    object_of,
    snapshot_near,
)
from tests.history.made import CDS, assert_same, cluster, clusters, snapshot_of
from tests.support.snapshots import snapshot


class Memory:
    """Objects in memory: what was written, and how many were read."""

    def __init__(self) -> None:
        self.objects: dict[Digest, Content] = {}
        self.reads = 0

    def keep(self, kept: KeptObject) -> int:
        """Keep what is new, and return how many objects that are."""
        if kept.digest in self.objects:
            return 0
        children = kept.children()
        self.objects[kept.digest] = Content(kept.content(), tuple(child.digest for child in children))
        return 1 + sum(map(self.keep, children))

    def read(self, digest: Digest) -> Content:
        """Return an object."""
        self.reads += 1
        if digest not in self.objects:
            raise DamagedBytesError
        return self.objects[digest]


@pytest.mark.parametrize("is_packed", [False, True])
def test_snapshot_comes_back_as_it_was(is_packed) -> None:
    """Every type, version, alias, time to live, reference and flag of a snapshot is restored, bodies of any size too."""
    bodies = (b"", b"x", os.urandom(LARGE_BYTES - 1), os.urandom(LARGE_BYTES), os.urandom(3 * LARGE_BYTES))
    rows = [cluster(f"c{size}é\n\0", body, path=f"{size}/a.yaml", ttl_s=size / 3) for size, body in enumerate(bodies)]
    odd = cluster("odd", path="\udcff.yaml")
    written = {"RDS": {"r": "1"}, "SDS": {"s": "2"}}
    flags = snapshot(written, declared=["LDS"], incomplete=["EDS"], authored={"RDS": "v1"})
    kept = replace(flags, by_type={**flags.by_type, CDS: snapshot_of([*rows, odd]).resources(CDS)})
    memory = Memory()
    memory.keep(object_of(kept, is_packed=is_packed))

    found = snapshot_near(object_of(kept, is_packed=is_packed).digest, memory.read, generation=7)

    assert_same(kept, found)
    assert found.generation == 7
    assert object_of(found).digest == object_of(kept).digest


@pytest.mark.parametrize(("is_packed", "count"), [(False, 3), (True, 5)])
def test_an_edit_makes_few_objects(is_packed, count) -> None:
    """Of 10 000 clusters, one edited one makes its chunk, the list of chunks, and the snapshot: three objects.

    If they are packed, its pack and its group, too.
    """
    before = snapshot_of(clusters(10_000))
    after = snapshot_of(clusters(10_000, {4321: b"edited"}), before)
    memory = Memory()
    memory.keep(object_of(before, is_packed=is_packed))

    assert memory.keep(object_of(after, is_packed=is_packed)) == count
    assert memory.keep(object_of(after, is_packed=is_packed)) == 0


@pytest.mark.parametrize("is_packed", [False, True])
def test_redirects_without_a_target_come_back(is_packed) -> None:
    """Servers of a fleet pass them on; a snapshot without one is kept as by earlier releases."""
    before = snapshot_of([cluster("web")])
    redirect = Resource(
        CDS,
        "xdstp://a/envoy.config.cluster.v3.Cluster/old",
        b"",
        Version("1"),
        Origin(PurePosixPath("a.yaml"), 3, 1),
        aliases=("alias",),
        ttl_s=1.5,
        redirect="xdstp://b/envoy.config.cluster.v3.Cluster/new",
    )
    after = replace(before, unresolved={(CDS, redirect.name): redirect})
    memory = Memory()
    memory.keep(object_of(after, is_packed=is_packed))

    found = snapshot_near(object_of(after, is_packed=is_packed).digest, memory.read)
    assert found.unresolved == after.unresolved
    assert found.unresolved[CDS, redirect.name].origin.document == 1
    assert b"unresolved" not in facts_of(before)
    assert facts_of(found) == facts_of(after)


def test_an_edit_of_packed_objects_makes_little() -> None:
    """Of 40 000 clusters, one edited one makes 5 kB at most, with bodies that cannot be compressed."""
    rows = [cluster(f"cluster-{number:06}", os.urandom(200)) for number in range(40_000)]
    before, edited = snapshot_of(rows), cluster("cluster-020000", os.urandom(200))
    memory = Memory()
    memory.keep(object_of(before, is_packed=True))
    known = set(memory.objects)
    table = before.resources(CDS).with_changes([edited], ())
    memory.keep(object_of(replace(before, by_type={**before.by_type, CDS: table}), is_packed=True))

    new = [content for digest, content in memory.objects.items() if digest not in known]
    # Of about 16 bodies, one pack; the others are lists.
    assert sum(len(each.content) for each in new) < 2 * 20 * 300
    assert sum(len(each.children) for each in new) * DIGEST_BYTES < 3000


def test_a_chunk_without_its_packs_is_damage() -> None:
    """What a chunk is found by says which resources it has, whatever it names."""
    kept = object_of(snapshot_of(clusters(40)), is_packed=True)
    memory = Memory()
    memory.keep(kept)
    (digest, chunk), *_ = (
        (one, each) for one, each in memory.objects.items() if len(each.children) > 1 and not each.content
    )
    for children in ((), chunk.children[1:], chunk.children[::-1]):
        memory.objects[digest] = Content(b"", children)
        with pytest.raises(DamagedBytesError):
            snapshot_near(kept.digest, memory.read)


def test_other_lines_are_no_other_objects() -> None:
    """A line that is added at the top of a file moves all of its resources, and makes no object new."""
    rows = clusters(100)
    moved = [replace(row, origin=Origin(row.origin.path, row.origin.line + 1)) for row in rows]

    assert object_of(snapshot_of(rows)).digest == object_of(snapshot_of(moved)).digest


@pytest.mark.parametrize(
    "other",
    [
        cluster("b", b"2"),
        cluster("b", ttl_s=1.0),
        replace(cluster("b"), aliases=()),
        cluster("b", path="other.yaml"),
        cluster("c"),
    ],
)
def test_what_clients_see_makes_other_objects(other) -> None:
    """Another body, time to live, alias, name or file is another snapshot."""
    assert object_of(snapshot_of([cluster("b")])).digest != object_of(snapshot_of([other])).digest


@pytest.mark.parametrize("is_packed", [False, True])
def test_what_is_at_hand_is_not_read(is_packed) -> None:
    """A snapshot that is restored beside another one shares what is equal, knows how they differ, and reads the rest."""
    first = snapshot_of(clusters(10_000))
    then = snapshot_of([*clusters(9_990, {17: b"edited"}), cluster("new")], first)
    memory = Memory()
    for each in (first, then):
        memory.keep(object_of(each, is_packed=is_packed))

    found = snapshot_near(object_of(first, is_packed=is_packed).digest, memory.read, then)

    assert_same(first, found)
    # The snapshot, the rows of each type, and two chunks; if they are packed, their groups with all packs.
    assert memory.reads <= 1 + len(RESOURCE_TYPES) + (2 * (1 + 1 + 16 * 2) if is_packed else 2)
    change = found.resources(CDS).changes_since(then.resources(CDS))
    assert change.fresh == {"cluster-00017", *(f"cluster-{number:05}" for number in range(9_990, 10_000))}
    assert change.removed == {"new"}
    assert found.resources(CDS)["cluster-05000"] is then.resources(CDS)["cluster-05000"]


@pytest.mark.parametrize("is_packed", [False, True])
def test_versions_may_share_a_database(is_packed) -> None:
    """A snapshot is found near one that was kept in the other form: their chunks are found by the same digests."""
    before = snapshot_of(clusters(3000))
    after = snapshot_of(clusters(3000, {17: b"edited"}), before)
    memory = Memory()
    memory.keep(object_of(before, is_packed=is_packed))
    memory.keep(object_of(after, is_packed=not is_packed))

    assert_same(after, snapshot_near(object_of(after, is_packed=not is_packed).digest, memory.read))
    assert_same(before, snapshot_near(object_of(before, is_packed=is_packed).digest, memory.read, after))


@pytest.mark.parametrize("missing", range(5))
def test_missing_object_is_damage(missing) -> None:
    """A snapshot of which any object is missing, or is another one, is damaged; it is never restored in part."""
    kept = object_of(snapshot_of([cluster("a"), cluster("b", os.urandom(LARGE_BYTES))]))
    memory = Memory()
    memory.keep(kept)
    # The snapshot, the empty rows, the rows, their chunk, and the large body.
    assert len(memory.objects) == 5
    digest = list(memory.objects)[missing]
    content = memory.objects.pop(digest)

    with pytest.raises(DamagedBytesError):
        snapshot_near(kept.digest, memory.read)
    for other in (b"", b"{}", b"[]", content.content[:-1] + b"x", os.urandom(50)):
        memory.objects[digest] = Content(other, content.children)
        # The content of rows is what they name alone.
        if content.content:
            with pytest.raises(DamagedBytesError):
                snapshot_near(kept.digest, memory.read)


def test_body_under_another_version_is_damage() -> None:
    """A body that is not what its version stands for is not restored, however it came there."""
    forged = replace(cluster("a", b"good"), body=b"evil")
    memory = Memory()
    memory.keep(object_of(snapshot_of([forged])))

    with pytest.raises(DamagedBytesError, match="a differs from the stored object"):
        snapshot_near(object_of(snapshot_of([forged])).digest, memory.read)
