from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Version
from fsxds.protocol.get import (
    Absent,
    Found,
    FoundIndex,
    FoundList,
    FoundRedirect,
    FoundResource,
    find,
    node_of,
    read_target,
    url_of,
)
from fsxds.protocol.poll import MAY_BE_DEFINED, NOT_ANSWERED, NOTHING_LOADED
from tests.support.polls import named, snapshot_of

CLUSTER = "envoy.config.cluster.v3.Cluster"
TYPE_URL = BY_SHORT_NAME["cds"].type_url
OWN = f"xdstp://own/{CLUSTER}"


def found(url: str, *names: str, host: str = "host.example:8080", authority: str = "own") -> Found:
    """Find a URL among clusters of these names."""
    return find(read_target(url, host, authority), snapshot_of(1, *(named("cds", name) for name in names)))


def name_of(answer: Found) -> str | None:
    """Return the name of the one resource that was found."""
    return answer.resource.name if isinstance(answer, FoundResource) else None


def names_of(answer: Found) -> list[str] | None:
    """Return the names of a list."""
    return [resource.name for resource in answer.resources] if isinstance(answer, FoundList) else None


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("web", "web"),
        ("team/web", "team/web"),
        ("a%20b%3Fc%2Fd", "a b?c/d"),
        ("web", f"{OWN}/web"),
        ("web", f"xdstp:///{CLUSTER}/web"),
        ("web", f"xdstp://host.example:8080/{CLUSTER}/web"),
        ("web", f"xdstp://host.example/{CLUSTER}/web"),
        ("web?b=2&a=1%20x", f"{OWN}/web?a=1%20x&b=2"),
        (quote(f"xdstp://other/{CLUSTER}/web", ""), f"xdstp://other/{CLUSTER}/web"),
        (quote(f"udpa://other/{CLUSTER}/web?b=1&a=2", ""), f"xdstp://other/{CLUSTER}/web?a=2&b=1"),
        ("%F0%9F%98%80", "😀"),
        ("a+b", "a+b"),
        ("../web", "../web"),
    ],
)
def test_a_url_names_a_resource(path: str, name: str) -> None:
    """With the authority of the server, none, that of the request's host, or plainly."""
    assert name_of(found(f"/{CLUSTER}/{path}", name, "another")) == name


def test_structured_names_come_before_plain_ones() -> None:
    """First that of the server, then one without an authority, then that of the host."""
    names = [f"{OWN}/web", f"xdstp:///{CLUSTER}/web", f"xdstp://host.example:8080/{CLUSTER}/web", "web"]
    for count in range(len(names)):
        assert name_of(found(f"/{CLUSTER}/web", *names[count:])) == names[count]


def test_parameters_match_exactly() -> None:
    """Neither more nor fewer, but those that say which node asks: they may be left out of a name, together."""
    variants = [f"{OWN}/web", f"{OWN}/web?tier=gold", f"{OWN}/web?tier=gold&xds.node.id=a"]
    assert name_of(found(f"/{CLUSTER}/web", *variants)) == variants[0]
    assert name_of(found(f"/{CLUSTER}/web?tier=gold", *variants)) == variants[1]
    assert name_of(found(f"/{CLUSTER}/web?tier=gold&xds.node.id=a", *variants)) == variants[2]
    assert name_of(found(f"/{CLUSTER}/web?tier=gold&xds.node.id=b", *variants)) == variants[1]
    assert isinstance(found(f"/{CLUSTER}/web?tier=iron", *variants), Absent)
    assert isinstance(found(f"/{CLUSTER}/web?tier=gold&a=b", *variants), Absent)
    assert isinstance(found(f"/{CLUSTER}/web?tier=gold", "web"), Absent), "a plain name has no parameters"
    assert name_of(found(f"/{CLUSTER}/web?xds.node.id=b&wait=3", "web")) == "web"


def test_wait_is_no_parameter_of_a_name() -> None:
    """It says how long to wait, and is read by who waits."""
    target = read_target(f"/{CLUSTER}/web?wait=30s&a=b", "", "own")

    assert target.wait == "30s"
    assert target.names == (f"{OWN}/web?a=b", f"xdstp:///{CLUSTER}/web?a=b")


def test_a_directory_is_listed() -> None:
    """Structured names of one directory and the same parameters; where there are none, plain ones."""
    structured = [f"{OWN}/{path}" for path in ("a/1", "a/2", "a/deep/3", "ab/4", "5", "a/6?x=y")]
    assert names_of(found(f"/{CLUSTER}/a/*", *structured, "a/7")) == structured[:2]
    assert names_of(found(f"/{CLUSTER}/a/*?x=y", *structured)) == structured[5:]
    assert names_of(found(f"/{CLUSTER}/*", *structured, "8")) == [f"{OWN}/5"]
    assert names_of(found(f"/{CLUSTER}/a/*?xds.node.id=n", *structured)) == structured[:2]
    assert names_of(found(f"/{CLUSTER}/a/*", "a/1", "a/b/2", "3")) == ["a/1"]
    assert names_of(found(f"/{CLUSTER}/*", "a/1", "3")) == ["3"]
    assert names_of(found(f"/{CLUSTER}/none/*", *structured)) == []
    assert name_of(found(f"/{CLUSTER}/a/*", "a/*")) == "a/*", "a name may be written so"


def test_a_type_is_listed() -> None:
    """All of its resources, in order."""
    assert names_of(found(f"/{CLUSTER}/", "b", "a/c", f"{OWN}/d")) == ["a/c", "b", f"{OWN}/d"]


def test_lists_have_versions_of_what_is_in_them() -> None:
    """Another content or another name gives another version; what is not in a list makes no difference."""

    def version(url: str, *resources: Resource) -> str:
        answer = find(read_target(url, "", ""), snapshot_of(1, *resources))
        assert isinstance(answer, FoundList | FoundIndex)
        return answer.version

    a, other = named("cds", "d/a"), named("cds", "d/a", alt_stat_name="x")
    for url in (f"/{CLUSTER}/d/*", f"/{CLUSTER}/", "/"):
        assert version(url, a) != version(url, other) != version(url, a, named("cds", "d/b"))
    assert version(f"/{CLUSTER}/d/*", a) == version(f"/{CLUSTER}/d/*", a, named("cds", "e"), named("eds", "d/a"))
    assert version("/", a) != version("/", a, named("eds", "e"))


def test_lists_of_secrets_know_names_alone() -> None:
    """Their versions would let somebody try what is secret."""
    secret = BY_SHORT_NAME["sds"]
    for url in (f"/{secret.message_type}/", f"/{secret.message_type}/*", "/"):
        answers = [
            find(read_target(url, "", ""), snapshot_of(1, replace(named("sds", "key"), version=Version(version))))
            for version in ("1", "2")
        ]
        assert answers[0].version == answers[1].version  # type: ignore[union-attr]


def test_what_may_be_there_is_not_absent() -> None:
    """Nothing was loaded yet; a file that was never good may define it."""
    target, snapshot = read_target(f"/{CLUSTER}/web", "", ""), snapshot_of(1, named("cds", "a"))

    assert find(target, None) is NOTHING_LOADED
    assert find(target, replace(snapshot, withheld=frozenset({TYPE_URL}))) is NOTHING_LOADED
    assert find(target, replace(snapshot, incomplete=frozenset({TYPE_URL}))) is MAY_BE_DEFINED
    assert find(target, snapshot) == Absent(
        "there is no resource of this name and these parameters among 1 clusters; "
        f"GET /{CLUSTER}/ lists the existing ones"
    )


def test_what_another_server_may_have_is_not_absent() -> None:
    """As long as it has not answered; where something else of the type has no answer, what is held back for that waits too."""
    target, snapshot = read_target(f"/{CLUSTER}/web", "", ""), snapshot_of(1, named("cds", "a"))
    withheld, incomplete = (
        replace(snapshot, **{field: frozenset({TYPE_URL})})  # type: ignore[arg-type]
        for field in ("withheld", "incomplete")
    )

    for current in (snapshot, withheld, incomplete):
        assert find(target, current, (), lambda _, names: frozenset(names & {"web"})) is NOT_ANSWERED
    for current in (withheld, incomplete):
        assert find(target, current, (), lambda _, names: frozenset(names & {"*"})) is NOT_ANSWERED
    assert isinstance(find(target, snapshot, (), lambda _, names: frozenset(names & {"*"})), Absent)
    found = read_target(f"/{CLUSTER}/a", "", "")
    assert isinstance(find(found, snapshot, (), lambda _, names: frozenset(names)), FoundResource)


@pytest.mark.parametrize(
    ("host", "authority", "expected"),
    [
        ("", "", {"a/b"}),
        ("10.0.0.1:80", "", {"a/b"}),
        ("localhost", "one", {"a/b", f"xdstp://one/{CLUSTER}/a/b"}),
        ("xds.example.com:80", "", {"a/b", f"xdstp://xds.example.com/{CLUSTER}/a/b"}),
    ],
)
def test_names_that_another_server_may_have(host: str, authority: str, expected: set[str]) -> None:
    """Those with the authority of the server, or with a domain; an address is no authority. All of a type is `*`."""
    assert read_target(f"/{CLUSTER}/a/b", host, authority).asked == expected
    assert read_target(f"/{CLUSTER}/", host, authority).asked == {"*"}


def redirect(locator: str, body: bytes = b"x") -> Resource:
    """Make a redirect at `moved`."""
    return replace(named("cds", f"{OWN}/moved"), redirect=locator, body=body)


def redirected(resource: Resource, *others: str, unresolved: bool = False) -> Found:
    """Ask for a redirect."""
    snapshot: Snapshot = snapshot_of(1, *(named("cds", name) for name in others), *(() if unresolved else (resource,)))
    if unresolved:
        snapshot = replace(snapshot, unresolved={(TYPE_URL, resource.name): resource})
    return find(read_target(f"/{CLUSTER}/moved", "", "own"), snapshot, {"known"})


def test_redirects_lead_to_what_a_client_can_get() -> None:
    """To what is here, to an authority that has a URL, or, in order, to an alternative; a file has no URL."""
    here, there = f"{OWN}/web", f"xdstp://known/{CLUSTER}/web"
    nowhere = f"xdstp://unknown/{CLUSTER}/web"

    assert redirected(redirect(here), here) == FoundRedirect(ResourceName.parse(here))
    assert redirected(redirect(there, b""), unresolved=True) == FoundRedirect(ResourceName.parse(there))
    assert redirected(redirect(f"{nowhere}#alt={there},entry=e")) == FoundRedirect(ResourceName.parse(there))
    assert redirected(redirect(f"{here}#entry=e"), here) == FoundRedirect(ResourceName.parse(here), "e")
    assert name_of(redirected(redirect("file:///a.yaml"))) == f"{OWN}/moved"
    absent = redirected(redirect(nowhere, b""), unresolved=True)
    assert isinstance(absent, Absent)
    assert nowhere in absent.reason


@pytest.mark.parametrize(
    ("url", "code", "fact"),
    [
        ("/nowhere", "NOT_FOUND", "nothing at this path"),
        ("/envoy.config.cluster.v3.Clustre/web", "NOT_FOUND", f"such as /{CLUSTER}/"),
        (f"/{CLUSTER}", "NOT_FOUND", "lists the resources"),
        ("//", "NOT_FOUND", "nothing at this path"),
        (f"//{CLUSTER}/web", "NOT_FOUND", "nothing at this path"),
        (f"/{CLUSTER}/a%zz", "INVALID_ARGUMENT", "begins no code"),
        (f"/{CLUSTER}/a%f", "INVALID_ARGUMENT", "begins no code"),
        (f"/{CLUSTER}/%ff", "INVALID_ARGUMENT", "no UTF-8"),
        (f"/{CLUSTER}/\udcff", "INVALID_ARGUMENT", "no UTF-8"),
        (f"/{CLUSTER}/a#b", "INVALID_ARGUMENT", "has a #"),
        (f"/{CLUSTER}/a?b=1&b=2", "INVALID_ARGUMENT", "'b' twice"),
        (f"/{CLUSTER}/a?=1", "INVALID_ARGUMENT", "without a name"),
        (f"/{CLUSTER}/a?b=constraint:1", "INVALID_ARGUMENT", "reserved"),
        (f"/{CLUSTER}/a?b=%zz", "INVALID_ARGUMENT", "begins no code"),
        (f"/{CLUSTER}/xdstp://nonsense", "INVALID_ARGUMENT", "no structured name"),
        ("/?a=b", "INVALID_ARGUMENT", "takes no parameters"),
        (f"/{CLUSTER}/{'x' * 5000}", "INVALID_ARGUMENT", "more than 4096"),
        (f"/{CLUSTER}/a?b={'x' * 5000}", "INVALID_ARGUMENT", "more than 4096"),
    ],
)
def test_malformed_urls_are_rejected(url: str, code: str, fact: str) -> None:
    """With the fact and the remedy."""
    with pytest.raises(ProtocolError, match=fact) as error:
        read_target(url, "", "")

    assert error.value.code == code


@given(st.text(max_size=50), st.text(max_size=30), st.text(max_size=20))
def test_any_url_is_read_or_rejected(path: str, query: str, host: str) -> None:
    """Whatever a client sends, nothing else is raised."""
    for url in (f"/{CLUSTER}/{path}?{query}", f"/{path}?{query}"):
        try:
            find(read_target(url, host, "own"), snapshot_of(1, named("cds", "web")))
        except ProtocolError as error:
            assert str(error)  # noqa: PT017 - most texts are rejected


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(lambda path: not path.endswith("*")))
def test_each_name_is_found_at_its_path(path: str) -> None:
    """Percent-encoded, a path leads to the structured name that has it, and to the plain one."""
    if {".", ".."}.isdisjoint(path.split("/")):
        name = str(ResourceName("own", CLUSTER, path))
        assert name_of(found(f"/{CLUSTER}/{quote(path)}", name)) == name
    assert path.startswith(("xdstp:", "udpa:")) or name_of(found(f"/{CLUSTER}/{quote(path)}", path)) == path


def test_parameters_say_which_node_asks() -> None:
    """As Envoy writes them: values of metadata are JSON, any other text stands for itself."""
    url = (
        f"/{CLUSTER}/web?xds.node.id=n&xds.node.cluster=c&xds.node.user_agent_name=envoy&xds.node.user_agent_version=1.40"
        "&xds.node.locality.zone=z&xds.node.metadata.tier=%22gold%22&xds.node.metadata.plain=text&xds.node.metadata.n=%7B%22a%22:1%7D"
    )
    node = node_of(read_target(url, "", "").node, "192.0.2.1")

    assert (node.id, node.cluster, node.peer, node.agent) == ("n", "c", "192.0.2.1", "envoy")
    assert dict(node.attributes) == {
        "user_agent_version": "1.40",
        "locality.zone": "z",
        "metadata.tier": "gold",
        "metadata.plain": "text",
        "metadata.n.a": "1",
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("web", "web"),
        ("team/web", "team/web"),
        ("a b?c#d%", "a%20b%3Fc%23d%25"),
        ("/a//b", "%2Fa/%2Fb"),
        (f"xdstp://own/{CLUSTER}/team/web?tier=gold", "team/web?tier=gold"),
        (f"xdstp:///{CLUSTER}/web", "web"),
        (f"xdstp://other/{CLUSTER}/web", f"xdstp%3A%2F%2Fother%2F{CLUSTER}%2Fweb"),
        ("xdstp://nonsense", "xdstp:/%2Fnonsense"),
    ],
)
def test_urls_name_resources(name: str, expected: str) -> None:
    """A path has what a name has, and no empty parts, which proxies would leave out."""
    assert url_of(CLUSTER, name, "own") == f"/{CLUSTER}/{expected}"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1))
def test_the_url_of_a_structured_name_is_read_as_that_name(path: str) -> None:
    """`xdstp://authority` in front of the path of a URL is the name again."""
    name = ResourceName("", CLUSTER, path, (("a b", "c&d"),))

    assert ResourceName.parse(f"xdstp://{url_of(CLUSTER, str(name))}") == name or {".", ".."} & set(path.split("/"))
