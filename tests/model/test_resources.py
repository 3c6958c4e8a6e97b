from __future__ import annotations

import dataclasses
import gc
import hashlib
import weakref
import zlib
from pathlib import PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.model.name_table import version_of_set
from fsxds.model.resources import (
    Origin,
    ParsedFile,
    Resource,
    Rows,
    RowsChange,
    Snapshot,
    TypeChange,
    key_of,
    version_of_body,
)
from fsxds.model.values import SourceFile, TypeUrl
from fsxds.protocol.lookup import Lookup
from tests.support.snapshots import resource, snapshot, type_url
from tests.support.stories import parse_file
from tests.support.trees import tree_of

TYPE = TypeUrl("type.googleapis.com/my.Type")
OTHER_TYPE = TypeUrl("type.googleapis.com/my.OtherType")
EDS = type_url("EDS")
PATH = PurePosixPath("edge/routes.yaml")


def test_origin_prints_as_a_place() -> None:
    """An origin is printed so that editors can follow it."""
    assert str(Origin(PATH, 12)) == "edge/routes.yaml:12"


def test_resource_is_the_same_wherever_it_was_written() -> None:
    """A resource that moved to another file is equal to what it was."""
    assert resource("CDS", "a", path="a.yaml", line=1) == resource("CDS", "a", path="b.yaml", line=7)
    assert resource("CDS", "a") != resource("CDS", "a", "2")


def test_values_cannot_be_changed() -> None:
    """Values are frozen."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        resource("CDS", "a").name = "b"  # type: ignore[misc]


def test_snapshot_without_a_type_has_no_resources_of_it() -> None:
    """A type that is not in a snapshot is as one without resources."""
    found = Snapshot(1, {TYPE: Rows(TYPE, {"a": resource("CDS", "a")})})

    assert list(found.resources(TYPE)) == ["a"]
    assert found.resources(OTHER_TYPE) == {}
    assert found.authored == {}
    assert found.changes == {}


def test_change_is_empty_by_default() -> None:
    """A change that says nothing has no names and no files."""
    assert TypeChange(1) == TypeChange(1, (), (), (), ())


def test_versions_do_not_change_between_releases() -> None:
    """Versions are what replicas and restarted servers agree on: these values must never change."""
    assert version_of_body(TYPE, b"body") == "3da020d1fb6896fa9a5b117fd96abd42"
    assert version_of_set(TYPE, [("a", "1"), ("b", "")]) == "d8cd127d54deadf84495dffd833de8b0"
    assert version_of_set(TYPE, numbered(1000)) == "b24bf3cb7796cc24975f700f50a3c41a"
    assert version_of_set(TYPE, numbered(1001)) == "9a08756291d57825053f91708e635416"
    assert version_of_set(TYPE, numbered(5000)) == "5140d924c798d476cc70cb35e23dc287"


def numbered(count: int) -> list[tuple[str, str]]:
    """Return so many names with versions."""
    return [(f"{number:06d}", str(number)) for number in range(count)]


def test_versions_are_the_digests_that_they_are_said_to_be() -> None:
    """Up to 1000 lines in one digest; of more, the digests of chunks that begin where a CRC-32 says so."""
    lines = [f"{name}\0{version}\n" for name, version in numbered(1001)]
    chunks = ["".join(lines[:1])]
    for (name, _), line in zip(numbered(1001)[1:], lines[1:], strict=True):
        if zlib.crc32(name.encode()) % 128 == 0:
            chunks.append(line)
        else:
            chunks[-1] += line
    digests = [hashlib.sha256(chunk.encode()).digest() for chunk in chunks]
    small, large = f"{TYPE}\n{''.join(lines[:1000])}".encode(), b"\0" + TYPE.encode() + b"\n" + b"".join(digests)

    assert len(chunks) > 5
    assert version_of_set(TYPE, numbered(1000)) == hashlib.sha256(small).hexdigest()[:32]
    assert version_of_set(TYPE, numbered(1001)) == hashlib.sha256(large).hexdigest()[:32]


@given(st.lists(st.tuples(st.sampled_from([TYPE, OTHER_TYPE]), st.binary(max_size=4)), min_size=2, max_size=2))
def test_version_of_a_body_is_that_of_type_and_body(bodies: list[tuple[TypeUrl, bytes]]) -> None:
    """Two resources have one version when, and only when, type and body are equal."""
    one, other = bodies

    assert (one == other) == (version_of_body(*one) == version_of_body(*other))


MEMBERS = st.dictionaries(st.text("ab", max_size=3), st.text("01", max_size=2), max_size=3).map(
    lambda members: tuple(sorted(members.items()))
)


@given(MEMBERS, MEMBERS, st.sampled_from([TYPE, OTHER_TYPE]))
def test_version_of_a_set_is_that_of_type_names_and_versions(
    one: tuple[tuple[str, str], ...], other: tuple[tuple[str, str], ...], type_url: TypeUrl
) -> None:
    """Two sets have one version when, and only when, types, names and versions are equal."""
    assert ((TYPE, one) == (type_url, other)) == (version_of_set(TYPE, one) == version_of_set(type_url, other))


def test_version_is_short_enough_to_read() -> None:
    """A version has 32 hex digits."""
    for version in (version_of_body(TYPE, b""), version_of_set(TYPE, ())):
        assert len(version) == 32
        assert int(version, 16)


def endpoints(generation: int = 1, **contents: str) -> Snapshot:
    """Make a snapshot of endpoints by name."""
    return snapshot({"EDS": contents}, generation=generation)


def test_rows_are_a_mapping_in_order() -> None:
    """Rows are what they were made of, and cannot be changed."""
    rows = endpoints(b="1", a="1").resources(EDS)

    assert list(rows) == list(rows.keys()) == [name for name, _ in rows.items()] == ["a", "b"]
    assert (2, True, False) == (len(rows), "a" in rows, "c" in rows)
    assert [rows["a"], rows["b"]] == list(rows.values()) == list(rows.by_name.values())
    assert rows == dict(rows)


def test_equal_questions_have_one_answer() -> None:
    """Answers are the same object for all clients, so that what is made of them is made once."""
    rows = endpoints(a="1", b="1").resources(EDS)

    assert rows.everything is rows.everything
    assert rows.select(frozenset("a")) is rows.select(frozenset("a"))
    assert rows.everything.names is rows.everything.names
    assert rows.timed is rows.timed


@given(st.frozensets(st.sampled_from("abcdx")))
def test_selected_resources_are_in_order(names: frozenset[str]) -> None:
    """Few names of many, or most of them: what exists is selected, by name."""
    rows = snapshot({"EDS": dict.fromkeys("abcdefgh", "1")}).resources(EDS)
    selected = rows.select(names)

    assert [resource.name for resource in selected] == sorted(names - {"x"})
    assert selected.names == names - {"x"}
    assert len(selected) == len(selected.names)
    assert all(resource in selected for resource in selected)


def test_changes_are_the_difference() -> None:
    """Rows are compared with those of any earlier snapshot; the answer is kept."""
    before, after = (
        endpoints(1, a="1", b="1", c="1").resources(EDS),
        endpoints(5, b="2", c="1", d="1").resources(EDS),
    )
    change = after.changes_since(before)

    assert change == RowsChange(fresh=frozenset({"b", "d"}), removed=frozenset({"a"}))
    assert change
    assert after.changes_since(before) is change
    assert not after.changes_since(after)
    assert not endpoints(a="1").resources(EDS).changes_since(endpoints(2, a="1").resources(EDS))


def test_known_changes_are_not_compared() -> None:
    """Rows that say how they differ from earlier ones are believed."""
    before, change = endpoints(a="1", b="1").resources(EDS), RowsChange(fresh=frozenset("a"))
    after = Rows(EDS, endpoints(2, a="2", b="2").resources(EDS), since=(before, change))

    assert after.changes_since(before) is change


def test_changes_since_nothing_are_all_names() -> None:
    """What was loaded first is new, and takes no memory to be known as that."""
    rows = Rows(EDS).with_changes(endpoints(a="1", b="1").resources(EDS).values(), ())

    assert rows.changes_since(Rows(EDS)) == RowsChange(fresh=frozenset("ab"))
    assert len(rows._changes) == 0


def test_changes_tell_what_is_only_renewed() -> None:
    """Another time to live, or other aliases, are told apart from other content."""
    before, after = endpoints(1, a="1", b="1").resources(EDS), endpoints(2, a="1", b="2").resources(EDS)
    rows = Rows(EDS, {**after, "a": dataclasses.replace(after["a"], ttl_s=5.0)})

    assert rows.changes_since(before) == RowsChange(fresh=frozenset("b"), renewed=frozenset("a"))
    assert rows.timed == {"a": rows["a"]}


def test_versions_are_those_of_names_and_contents() -> None:
    """All resources have a version, and so have any names, whether they exist or not."""
    rows = endpoints(a="1", b="1").resources(EDS)
    a, b = rows["a"].version, rows["b"].version

    assert rows.version == version_of_set(EDS, [("a", a), ("b", b)])
    assert rows.version_of(frozenset("ax")) == version_of_set(EDS, [("a", a), ("x", "")])


def test_what_others_make_of_rows_is_kept_with_them() -> None:
    """One object of each class is made, and found again."""
    rows = endpoints(a="1").resources(EDS)

    assert rows.derived(list) is None
    made = rows.derive(list, lambda: ["made"])
    assert rows.derive(list, lambda: ["another"]) is made
    assert rows.derived(list) is made
    assert rows.derived(dict) is None


def test_the_past_is_forgotten() -> None:
    """Rows that were compared with later ones, and asked everything, live no longer than their snapshot."""
    before, alive = endpoints(a="0").resources(EDS), list[weakref.ref[Rows]]()
    gc.disable()
    try:
        for generation in range(2, 10):
            rows = endpoints(generation, a=str(generation)).resources(EDS)
            alive.append(weakref.ref(rows))
            rows.changes_since(before)
            rows.select(frozenset("a"))
            rows.version_of(frozenset("a"))
            Lookup.of(rows, before).existing(frozenset("a"))
            before = rows
    finally:
        gc.enable()

    assert [ref() for ref in alive] == [None] * 7 + [rows]


NAMED = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from("12"))


@given(NAMED, NAMED, st.frozensets(st.sampled_from("abcdefx")), st.booleans())
def test_changed_rows_are_as_if_made_anew(
    before: dict[str, str], updated: dict[str, str], removed: frozenset[str], is_version_known: bool
) -> None:
    """Rows with changes are in order, and know how they differ, whatever was worked out before."""
    old = snapshot({"EDS": before}).resources(EDS)
    assert not is_version_known or old.version
    removed -= updated.keys()

    made = old.with_changes(snapshot({"EDS": updated}).resources(EDS).values(), removed)

    anew = snapshot({"EDS": {name: text for name, text in (before | updated).items() if name not in removed}})
    assert list(made.items()) == list(anew.resources(EDS).items())
    assert made.version == anew.resources(EDS).version
    assert made.changes_since(old) == anew.resources(EDS).changes_since(old)


def test_changes_may_be_none() -> None:
    """Rows in which nothing is another stay the same object; another origin alone is no change for clients."""
    old = endpoints(a="1").resources(EDS)
    moved = old.with_changes([resource("EDS", "a", line=7)], ())

    assert old.with_changes(old.values(), ["x"]) is old
    assert moved["a"].origin.line == 7
    assert not moved.changes_since(old)
    assert moved.changes_since(old).moved == {"a"}
    assert Rows(EDS, moved).changes_since(old).moved == {"a"}


MANY = [f"{number:04d}" for number in range(1020)]
RUN = st.tuples(st.integers(0, 1019), st.integers(1, 30)).map(lambda run: MANY[run[0] : run[0] + run[1]])


@given(st.lists(st.tuples(RUN, st.sampled_from(["", "1", "2"])), min_size=1, max_size=6), st.booleans())
@settings(max_examples=40)
def test_versions_follow_from_contents_alone(changes: list[tuple[list[str], str]], is_version_known: bool) -> None:
    """Around a thousand names: whatever changes led to rows, they have the version of those that are made anew."""
    contents = dict.fromkeys(MANY[:1000], "0")
    rows = Rows(EDS, {name: resource("EDS", name, text) for name, text in contents.items()})
    first, before = rows, dict(contents)
    for names, text in changes:
        contents = {**contents, **dict.fromkeys(names, text)}
        contents = {name: text for name, text in contents.items() if text}
        updated = [resource("EDS", name, text) for name in names if text]
        rows = rows.with_changes(updated, [] if text else names)
        assert not is_version_known or rows.version

    anew = Rows(EDS, {name: resource("EDS", name, text) for name, text in contents.items()})
    assert list(rows.items()) == list(anew.items())
    assert rows.version == anew.version == version_of_set(EDS, [(name, row.version) for name, row in anew.items()])
    changed = {name for name in before.keys() | contents if before.get(name) != contents.get(name)}
    assert rows.changes_since(first).fresh | rows.changes_since(first).removed == changed
    assert first.version == version_of_set(EDS, [(name, first[name].version) for name in sorted(before)])


def test_what_a_change_does_not_touch_is_taken_over() -> None:
    """Lists of names without a change, and their versions, are the same objects for rows that follow each other."""
    old = Rows(EDS, {name: resource("EDS", name) for name in "abc"})
    one, other = old.select(frozenset("ab")), old.select(frozenset("c"))
    version, another = old.version_of(frozenset("ax")), old.version_of(frozenset("cx"))
    new = old.with_changes([resource("EDS", "a", "2"), resource("EDS", "d")], ())

    assert new.select(frozenset("c")) is other
    assert [row.name for row in new.select(frozenset("ab"))] == ["a", "b"]
    assert new.select(frozenset("ab")) is not one
    assert new.version_of(frozenset("cx")) is another
    assert new.version_of(frozenset("ax")) != version


def timed(name: str, ttl_s: float | None) -> Resource:
    """Return a resource with a time to live, or without one."""
    return dataclasses.replace(resource("EDS", name), ttl_s=ttl_s)


@given(NAMED, NAMED, st.frozensets(st.sampled_from("abcdefx")))
def test_times_to_live_follow_changes(before: dict[str, str], updated: dict[str, str], removed: frozenset[str]) -> None:
    """What has a time to live is what is found by looking at all, also where it follows from earlier rows."""
    old = Rows(EDS, {name: timed(name, 1.0 if text == "1" else None) for name, text in before.items()})
    assert list(old.timed) == [name for name in old if old[name].ttl_s]
    new = old.with_changes(
        [timed(name, 2.0 if text == "1" else None) for name, text in updated.items()],
        removed - updated.keys(),
    )

    assert list(new.timed.items()) == [(name, row) for name, row in new.items() if row.ttl_s]


def parsed(content: str) -> ParsedFile:
    file: SourceFile = tree_of({"a.yaml": content}).files[0]
    return parse_file(file)


def test_file_without_errors_is_good() -> None:
    """Warnings do not keep a file from being served, errors do."""
    assert parsed("CDS a=1").is_good
    assert parsed("CDS a=1\n?").is_good
    assert not parsed("CDS a=1\n?\n!").is_good


def test_file_holds_what_its_documents_hold() -> None:
    """The resources of a file come in the order of its documents, and it declares all that they declare."""
    file = parsed("LDS l=1\nCDS b=1 a=1\nEDS")

    assert [resource.name for resource in file.resources] == ["l", "b", "a"]
    assert {type_url("LDS"), type_url("CDS"), type_url("EDS")} == file.declared


def test_file_without_documents_declares_nothing() -> None:
    """What could not be read speaks of no type."""
    assert frozenset() == parsed("!").declared


def test_key_is_type_and_name() -> None:
    """Resources of one name are told apart by their type, and by nothing else."""
    assert key_of(resource("CDS", "a")) == key_of(resource("CDS", "a", "2", "b.yaml", 7))
    assert key_of(resource("CDS", "a")) != key_of(resource("EDS", "a"))
