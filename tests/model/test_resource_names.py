"""Structured names: one canonical form for each, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fsxds.model.resource_names import (
    FileName,
    Locator,
    MalformedName,
    ResourceName,
    canonical,
    canonical_of_type,
    glob_of,
    is_glob,
    is_structured,
    parse_or_none,
)
from fsxds.model.values import TypeUrl

CLUSTER = "envoy.config.cluster.v3.Cluster"
LISTENER = "envoy.config.listener.v3.Listener"

TEXT = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=8)
SEGMENT = TEXT.filter(lambda text: text not in {"", ".", ".."} and not set(text) & {"/"})
NAMES = st.builds(
    ResourceName,
    authority=TEXT.filter(lambda text: not set(text) & {"/"}),
    message_type=st.sampled_from((CLUSTER, LISTENER, "a", "a_1.B")),
    path=st.lists(SEGMENT, min_size=1, max_size=4).map("/".join),
    context=st.dictionaries(TEXT.filter(bool), TEXT.filter(lambda text: not text.startswith("constraint:"))).map(
        lambda context: tuple(sorted(context.items()))
    ),
)
ENTRIES = st.text("aZ0_-./", max_size=5)
LOCATORS = st.recursive(
    st.builds(Locator, NAMES, ENTRIES),
    lambda inner: st.builds(Locator, NAMES, ENTRIES, st.lists(inner, max_size=2).map(tuple)),
    max_leaves=5,
)


@given(NAMES)
@example(ResourceName("", CLUSTER, "foo/*"))
@example(ResourceName("a:80", CLUSTER, "x y/%2F?#[]:", (("a&=", "+ #"), ("b", ""))))
def test_names_both_ways(name: ResourceName) -> None:
    """A name is read from its canonical form, which is its own."""
    text = str(name)
    assert ResourceName.parse(text) == name
    assert canonical(text) == text
    assert text.isascii()
    assert " " not in text


@given(NAMES)
@example(ResourceName("a", CLUSTER, "foo/*", (("b", "/*"),)))
@example(ResourceName("a", CLUSTER, "*"))
@example(ResourceName("a", CLUSTER, "foo", (("b", "x/y?*"),)))
def test_globs_of_texts(name: ResourceName) -> None:
    """Of canonical names, the texts alone say which are globs, and which glob has them as members."""
    assert is_glob(str(name)) == name.is_glob
    assert glob_of(str(name)) == str(name.glob)


@given(NAMES)
@example(ResourceName("a", CLUSTER, "foo/bar"))
@example(ResourceName("a", "a", ".x/..y"))
def test_names_of_a_type(name: ResourceName) -> None:
    """A name of the type has its canonical form, one of another type is refused."""
    assert canonical_of_type(str(name), name.type_url) == str(name)
    with pytest.raises(
        MalformedName, match=r"is a name of .*, and the resource is of other\.T; write xdstp://<authority>/o"
    ):
        canonical_of_type(str(name), TypeUrl("type.googleapis.com/other.T"))


@given(st.text("xdstp:/?#&=%*.aA0, _-~é\n", max_size=12).map(f"xdstp://a/{CLUSTER}/".__add__))
@example(f"xdstp://a/{CLUSTER}/..")
@example(f"xdstp://a/{CLUSTER}/./x")
@example(f"xdstp://a/{CLUSTER}/x\n")
def test_what_is_canonical_as_written(text: str) -> None:
    """What is taken as it is written would be read, and be the same."""
    type_url = TypeUrl(f"type.googleapis.com/{CLUSTER}")
    try:
        expected = canonical(text)
    except MalformedName:
        with pytest.raises(MalformedName):
            canonical_of_type(text, type_url)
    else:
        assert canonical_of_type(text, type_url) == expected


@given(LOCATORS)
def test_locators_both_ways(locator: Locator) -> None:
    """So is a locator, with what is nested in it."""
    assert Locator.parse(str(locator)) == locator


@given(st.text(max_size=60) | st.text("xdstp:/?#&=%*.aA0, ", max_size=60).map("xdstp://".__add__))
def test_any_text(text: str) -> None:
    """Any text is a name, or is malformed; a name that was read has one canonical form."""
    try:
        name = ResourceName.parse(text)
    except MalformedName:
        return
    assert ResourceName.parse(str(name)) == name


@pytest.mark.parametrize(
    ("written", "form"),
    [
        # xRFC TP1, "Logical resource naming"
        (
            "udpa://some-authority/envoy.config.listener.v3.Listener/foo/bar?some=thing",
            "xdstp://some-authority/envoy.config.listener.v3.Listener/foo/bar?some=thing",
        ),
        # "Context parameters" of the effective resource name are sorted
        (
            f"udpa://foo/{LISTENER}/bar?xds.node.user-agent-name=envoy&some=thing&a=1",
            f"xdstp://foo/{LISTENER}/bar?a=1&some=thing&xds.node.user-agent-name=envoy",
        ),
        # Envoy does not encode a space (ENVOY.md E43)
        (f"xdstp://a/{CLUSTER}/foo/*?xds.node.id=n 1", f"xdstp://a/{CLUSTER}/foo/*?xds.node.id=n%201"),
        (f"xdstp:///{CLUSTER}/foo", f"xdstp:///{CLUSTER}/foo"),
        # grpcio writes a name without an authority so
        (f"xdstp:/{CLUSTER}/foo", f"xdstp:///{CLUSTER}/foo"),
        (f"xdstp://a/{CLUSTER}/f%6Fo%2Fbar?", f"xdstp://a/{CLUSTER}/foo/bar"),
        (f"xdstp://a/{CLUSTER}/x:80|é?a", f"xdstp://a/{CLUSTER}/x%3A80%7C%C3%A9?a="),
        ("web", "web"),
        ("http://a/b c", "http://a/b c"),
    ],
)
def test_canonical(written: str, form: str) -> None:
    """However a name is written, it has one form; other names are left alone."""
    assert canonical(written) == form


def test_authority() -> None:
    """A name without authority gets the one that is given, another keeps its own."""
    assert canonical(f"xdstp:///{CLUSTER}/foo", "here") == f"xdstp://here/{CLUSTER}/foo"
    assert canonical(f"xdstp://there/{CLUSTER}/foo", "here") == f"xdstp://there/{CLUSTER}/foo"


@pytest.mark.parametrize(
    "written",
    [
        *(
            "xdstp:",
            "xdstp://",
            "xdstp:a/b",
            "xdstp:/b",
            f"xdstp://a/{CLUSTER}",
            f"xdstp://a/{CLUSTER}/",
            "xdstp://a//foo",
        ),
        *(
            "xdstp://a/type.googleapis.com/x",
            "xdstp://a/no-type/x",
            f"xdstp://a/{CLUSTER}/../x",
            f"xdstp://a/{CLUSTER}/%2e",
        ),
        *(
            f"xdstp://a/{CLUSTER}/%",
            f"xdstp://a/{CLUSTER}/%ff",
            f"xdstp://a/{CLUSTER}/a%00",
            f"xdstp://a/{CLUSTER}/x\n",
        ),
        *(f"xdstp://a/{CLUSTER}/x?=1", f"xdstp://a/{CLUSTER}/x?a=1&a=2", f"xdstp://a/{CLUSTER}/x?a=constraint:1"),
        *(f"xdstp://a/{CLUSTER}/x#entry=y", f"XDSTP://a/{CLUSTER}/x"),
    ],
)
def test_malformed(written: str) -> None:
    """What is no name says why, and what to write."""
    with pytest.raises(MalformedName, match=r".; ."):
        ResourceName.parse(written)
    assert parse_or_none(written) is None
    assert is_structured(written) == written.startswith("xdstp:")


@pytest.mark.parametrize(
    "directives",
    ["", "x", "entry=", "entry=a b", "entry=a,entry=b", "alt=", "alt=foo", "alt=http://a", "alt=xdstp://a/t/x#entry=e"],
)
def test_malformed_directives(directives: str) -> None:
    """A directive is an entry or an alternative."""
    with pytest.raises(MalformedName):
        Locator.parse(f"xdstp://a/{CLUSTER}/x#{directives}")


def test_directives() -> None:
    """The document's own examples, encoded or not."""
    # xRFC TP1, "Alternatives"
    locator = Locator.parse("udpa://cloud/t.A/foo#alt=udpa://onprem/t.A/bar")
    assert [str(choice) for choice in locator.choices()] == ["xdstp://cloud/t.A/foo", "xdstp://onprem/t.A/bar"]
    # "List collection with inlining"
    locator = Locator.parse(f"udpa://some-authority/{LISTENER}Collection/foo#entry=bar")
    assert locator.entry == "bar"
    nested = Locator.parse("xdstp://a/t/x#alt=xdstp://b/t/y%23entry=z%2Calt=xdstp://c/t/w%25253F,entry=q")
    assert [(str(choice.target), choice.entry) for choice in nested.choices()] == [
        *(("xdstp://a/t/x", "q"), ("xdstp://b/t/y", "z"), ("xdstp://c/t/w%3F", "")),
    ]


def test_alternatives_without_end() -> None:
    """Alternatives of alternatives end somewhere."""
    locator = Locator(ResourceName("a", "t", "x"))
    for _ in range(12):
        locator = Locator(ResourceName("a", "t", "x"), alternatives=(locator,))
    with pytest.raises(MalformedName, match="nested"):
        Locator.parse(str(locator))


def test_collections() -> None:
    """A member's collection has its directory and its parameters."""
    member = ResourceName.parse(f"xdstp://a/{CLUSTER}/foo/bar?b=2&a=1")
    assert str(member.glob) == f"xdstp://a/{CLUSTER}/foo/*?a=1&b=2"
    assert member.glob.is_glob
    assert member.glob.glob == member.glob
    assert str(ResourceName.parse(f"xdstp://a/{CLUSTER}/bar").glob) == f"xdstp://a/{CLUSTER}/*"
    assert not ResourceName.parse(f"xdstp://a/{CLUSTER}/foo/x*").is_glob


def test_context() -> None:
    """Parameters that a name has win over those that are added."""
    name = ResourceName.parse(f"xdstp://a/{CLUSTER}/foo?tier=edge")
    assert str(name.with_context({"tier": "core", "a": "1"})) == f"xdstp://a/{CLUSTER}/foo?a=1&tier=edge"


def test_files() -> None:
    """Files of this machine, with their entries; nothing above a directory."""
    locator = Locator.parse("file:///a/b%20c/listeners.yaml#entry=foo")
    assert locator == Locator(FileName("/a/b c/listeners.yaml"), "foo")
    assert str(locator) == "file:///a/b%20c/listeners.yaml#entry=foo"
    assert FileName("/a/*").is_glob
    assert Locator.parse("file://localhost/a").target == FileName("/a")
    for wrong in ("file://other/a", "file:a", "file:///a/../b", "file:///a?b=c", "file:///%2e%2e/b"):
        with pytest.raises(MalformedName):
            Locator.parse(wrong)
