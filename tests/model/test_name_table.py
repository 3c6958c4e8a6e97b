"""Tables of names against a plain dict."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fsxds.model.name_table import Chunk, NameTable, begins_chunk

# Of names like these some begin a chunk, and a chunk of others has a handful.
NAMES = [f"{number:03d}" for number in range(1000)]
BEGINNINGS = [name for name in NAMES if begins_chunk(name)]
NAME = st.one_of(st.sampled_from(NAMES), st.sampled_from(BEGINNINGS))
MEMBERS = st.dictionaries(NAME, st.integers(0, 3), max_size=12)


def shape(table: NameTable[int]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Return what is in each chunk."""
    return [(chunk.names, chunk.values) for chunk in table.chunks]


def test_chunks_have_some_hundred_names() -> None:
    """Names as people number them are spread evenly, so that no chunk is large."""
    for form in ("service-{}", "service-{:06d}.prod.example", "{:x}", "xdstp://example/type/path/{}/a", "a{}b{}"):
        table = NameTable(dict.fromkeys((form.format(number, number) for number in range(10_000)), 0))

        assert 40 < len(table.chunks) < 160
        assert max(len(chunk.names) for chunk in table.chunks) < 1500


def test_beginnings_never_change() -> None:
    """Where chunks begin decides versions, which replicas and releases agree on."""
    assert all(begins_chunk(name) == (crc32(name.encode()) % 128 == 0) for name in NAMES)
    assert BEGINNINGS == ["197", "266", "340", "548", "632", "714", "819", "892"]


class TableBesideDict(RuleBasedStateMachine):
    """A table that is changed again and again, beside a dict that is changed in the same way."""

    @initialize(members=MEMBERS, is_large=st.booleans())
    def begin(self, members: dict[str, int], *, is_large: bool) -> None:
        """Begin with few names or with many."""
        self.model = dict.fromkeys(NAMES, 0) | members if is_large else members
        self.table = NameTable(self.model)
        self.earlier = [(self.table, dict(self.model))]

    @rule(new=MEMBERS, removed=st.frozensets(NAME, max_size=6))
    def change(self, new: dict[str, int], removed: frozenset[str]) -> None:
        """Set some names and remove others."""
        removed = (removed - new.keys()) & self.model.keys()
        self.change_to({name: value for name, value in (self.model | new).items() if name not in removed}, new, removed)

    @precondition(lambda self: self.model)
    @rule(start=st.integers(0, 999), count=st.integers(1, 999))
    def remove_many(self, start: int, count: int) -> None:
        """Remove names that follow each other, perhaps all."""
        removed = frozenset(NAMES[start : start + count]) & self.model.keys()
        self.change_to({name: value for name, value in self.model.items() if name not in removed}, {}, removed)

    @rule(start=st.integers(0, 999), count=st.integers(1, 999))
    def set_many(self, start: int, count: int) -> None:
        """Set names that follow each other, perhaps all."""
        new = dict.fromkeys(NAMES[start : start + count], 5)
        self.change_to(self.model | new, new, frozenset())

    def change_to(self, model: dict[str, int], new: dict[str, int], removed: frozenset[str]) -> None:
        """Change both."""
        self.model, self.table = model, self.table.changed(new, removed)
        self.earlier = [*self.earlier[-3:], (self.table, dict(model))]

    @invariant()
    def is_equal(self) -> None:
        """The table has what the dict has, in the order of the names, and earlier tables have what they had."""
        for table, model in self.earlier:
            assert list(table.items()) == sorted(model.items())
            assert list(table) == list(table.keys()) == sorted(model)
            assert list(table.values()) == [model[name] for name in sorted(model)]
            assert [table.get(name) for name in NAMES] == [model.get(name) for name in NAMES]
            assert [name in table for name in NAMES] == [name in model for name in NAMES]
            assert len(table) == len(model)
            assert dict(table) == model

    @invariant()
    def is_as_made_anew(self) -> None:
        """However a table came about, its chunks are the same."""
        assert shape(self.table) == shape(NameTable(self.model))

    @invariant()
    def finds_differences(self) -> None:
        """Two tables differ where their values are other objects."""
        for table, model in self.earlier:
            names = model.keys() | self.model.keys()
            differing = {name for name in names if model.get(name, -1) != self.model.get(name, -1)}
            assert self.table.differing(table) == table.differing(self.table) == differing


TestTableBesideDict = TableBesideDict.TestCase
TestTableBesideDict.settings = settings(max_examples=40, stateful_step_count=12)


@given(MEMBERS, st.frozensets(NAME, max_size=12))
def test_names_are_a_set(members: dict[str, int], names: frozenset[str]) -> None:
    """Set operations on the names are those of the names of a dict, in either order."""
    table, keys = NameTable(members), members.keys()

    assert table.keys() & names == names & table.keys() == keys & names
    assert table.keys() | names == names | table.keys() == keys | names
    assert (table.keys() - names, names - table.keys()) == (keys - names, names - keys)
    assert (names <= table.keys(), table.keys() <= names) == (names <= keys, keys <= names)
    assert (names >= table.keys(), table.keys() >= names) == (names >= keys, keys >= names)
    assert table.keys() == keys
    assert table.keys().isdisjoint(names) == keys.isdisjoint(names)
    assert table.among(names) == keys & names


def test_what_no_change_touches_is_shared() -> None:
    """Of a large table, a change makes two chunks anew at most, and copies one of the dicts at most."""
    table = NameTable(dict.fromkeys((f"{number:06d}" for number in range(20_000)), 0))
    beginning = table.chunks[7].first
    for new, removed in (({"001234": 1}, {}), ({"0012340": 1}, {}), ({}, {"001234"}), ({}, {beginning})):
        changed = table.changed(dict[str, int](new), frozenset(removed))
        again = changed.changed({name: table[name] for name in removed}, frozenset(new.keys() - table.keys()))

        assert len(set(changed.chunks) - set(table.chunks)) <= 2
        assert len({*map(id, changed._buckets)} - {*map(id, table._buckets)}) <= 1
        assert shape(again) == shape(table) or "001234" in new


def test_what_is_made_of_a_chunk_is_kept() -> None:
    """Two functions are called once each."""
    chunk, calls = Chunk(("a", "b"), (1, 2)), list[str]()

    def total(of: Chunk[int]) -> int:
        calls.append("total")
        return sum(of.values)

    def longest(of: Chunk[int]) -> str:
        calls.append("longest")
        return max(of.names)

    for _ in range(2):
        assert (chunk.once(total), chunk.once(longest)) == (3, "b")
    assert calls == ["total", "longest"]


def test_missing_names_are_key_errors() -> None:
    """A name without a value is missing, as in a dict."""
    table = NameTable({"a": 1})

    with pytest.raises(KeyError, match="b"):
        table["b"]
    assert (table.get("b"), table.get("b", 7), "b" in table) == (None, 7, False)


@given(st.sets(st.text("ab/", min_size=1, max_size=6), max_size=60), st.text("ab/", max_size=4))
def test_chunks_with_a_prefix_have_all_names_with_it(names: set[str], prefix: str) -> None:
    """In their order, and no chunk comes after the last of them."""
    table = NameTable(dict.fromkeys(names, 0))
    found = [name for chunk in table.chunks_with(prefix) for name in chunk.names]

    assert [name for name in found if name.startswith(prefix)] == sorted(
        name for name in names if name.startswith(prefix)
    )
