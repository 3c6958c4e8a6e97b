"""What an upstream is asked for, for how long, and of which types an answer is awaited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fsxds.model.resources import Reference, Resource
from fsxds.model.values import Severity, TypeUrl
from fsxds.upstream.holdings import ReadResponse
from fsxds.upstream.subscriptions import LINGER_S, PATIENCE_S, SETTLE_S, NameScope, Subscriptions, keys_referred_to
from tests.support.snapshots import resource, type_url
from tests.upstream.made import NOW_S

CDS, EDS, LDS, RDS, SRDS, VHDS = map(type_url, ("cds", "eds", "lds", "rds", "srds", "vhds"))
OF_A = "xdstp://a/envoy.config.endpoint.v3.ClusterLoadAssignment/"
OF_B = OF_A.replace("//a/", "//b/")

ASKED_ONLY = NameScope(is_asked_only=True)


def names(*of_eds: str, **by_type: tuple[str, ...]) -> Mapping[TypeUrl, frozenset[str]]:
    """Return the names that clients ask for: of endpoints, and of other types by their short names."""
    others = {type_url(short_name): frozenset(of_type) for short_name, of_type in by_type.items()}
    return {**({EDS: frozenset(of_eds)} if of_eds else {}), **others}


def referring(name: str, *of_eds: str) -> Resource:
    """Return a cluster that refers to endpoints."""
    references = tuple(Reference(EDS, each, (), Severity.WARNING) for each in of_eds)
    return replace(resource("CDS", name), references=references)


def answer(of_type: TypeUrl, *found: str, removed: tuple[str, ...] = (), bad: tuple[str, ...] = ()) -> ReadResponse:
    """Return a response with resources of some names, and removals."""
    resources = {name: replace(resource("EDS", name), type_url=of_type) for name in found}
    return ReadResponse(of_type, resources, {}, removed=frozenset(removed), bad=dict.fromkeys(bad, "is wrong"))


@pytest.fixture
def asked() -> Subscriptions:
    """What an upstream is asked for of which clients alone decide, and which is connected."""
    made = Subscriptions(ASKED_ONLY)
    made.connect(NOW_S)
    return made


class TestWhatIsAskedFor:
    """The names that are wanted."""

    def test_everything_that_an_envoy_begins_with(self) -> None:
        """Without anybody asking, it is all of the types whose full state SotW sends."""
        assert Subscriptions(NameScope()).wanted == {of_type: {"*"} for of_type in (CDS, LDS, SRDS)}

    def test_what_is_referred_to_elsewhere(self) -> None:
        """Names of other upstreams are none of its own: they are told, as long as anything that is held refers to them."""
        made = Subscriptions(NameScope("a"))
        first, second = referring("x", f"{OF_A}e", f"{OF_B}e", "plain"), referring("y", f"{OF_B}e")
        made.refer((), (first, second), NOW_S)
        assert made.elsewhere == {EDS: {f"{OF_B}e", "plain"}}
        assert made.wanted == {EDS: {f"{OF_A}e"}}
        made.refer((first,), (), NOW_S)
        told = made.elsewhere
        assert told == {EDS: {f"{OF_B}e"}}
        made.refer((second,), (referring("z", f"{OF_B}e"), second), NOW_S)
        made.refer((referring("z", f"{OF_B}e"),), (), NOW_S)
        assert made.elsewhere is told
        made.refer((second,), (), NOW_S)
        assert made.elsewhere == {EDS: frozenset()}

    def test_nothing_where_clients_decide(self) -> None:
        """Nor of an upstream that has the names of one authority alone: `*` is none of them."""
        assert not Subscriptions(ASKED_ONLY).wanted
        assert not Subscriptions(NameScope("a")).wanted

    def test_what_clients_ask_for(self, asked: Subscriptions) -> None:
        """By type, `*` among it."""
        asked.ask(names("web", "api", cds=("*",)), NOW_S)
        assert asked.wanted == {EDS: {"web", "api"}, CDS: {"*"}}

    def test_what_that_refers_to(self, asked: Subscriptions) -> None:
        """A resource has what it refers to asked for, until it is another one."""
        asked.refer((), [referring("a", "web", "api")], NOW_S)
        assert asked.wanted == {EDS: {"web", "api"}}
        asked.refer([referring("a", "web", "api")], [referring("a", "web")], NOW_S)
        asked.expire(NOW_S + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}

    def test_a_plain_name_beside_everything_is_not_asked_for(self, asked: Subscriptions) -> None:
        """Everything has it; a structured name is not sure to be in it."""
        asked.ask(names("web", "*", f"{OF_A}web"), NOW_S)
        assert asked.wanted == {EDS: {"*", f"{OF_A}web"}}
        asked.ask(names("web"), NOW_S)
        asked.expire(NOW_S + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}

    def test_names_go_to_the_upstream_of_their_authority(self) -> None:
        """One that has an authority is asked for its names alone, and all others for the rest."""
        wanted = names(
            "web", f"{OF_A}web", f"{OF_B}*", "*", vhds=("xdstp://a/envoy.config.route.v3.RouteConfiguration/r/x",)
        )
        found = {}
        for scope in (
            NameScope("a", frozenset("b")),
            NameScope("b", frozenset("a")),
            NameScope("", frozenset("ab"), is_asked_only=True),
        ):
            subscriptions = Subscriptions(scope)
            subscriptions.ask(wanted, NOW_S)
            found[scope.authority] = {name for of_type in subscriptions.wanted.values() for name in of_type}
        assert found == {"a": {f"{OF_A}web", *wanted[VHDS]}, "b": {f"{OF_B}*"}, "": {"*"}}

    def test_a_resource_is_wanted_by_each_of_its_names(self, asked: Subscriptions) -> None:
        """By its name, an alias, the collection that it is in; with all of its type, where it is no other upstream's."""
        web = resource("EDS", "web")
        assert not asked.wants(web)
        asked.ask(names("alias", f"{OF_A}*"), NOW_S)
        assert asked.wants(replace(web, aliases=("alias",)))
        assert asked.wants(replace(web, name=f"{OF_A}web"))
        assert not asked.wants(replace(web, name=f"{OF_B}web"))
        everything = Subscriptions(NameScope(others=frozenset("b")))
        everything.ask(names("*"), NOW_S)
        assert everything.wants(web)
        assert everything.wants(replace(web, name=f"{OF_A}web"))
        assert not everything.wants(replace(web, name=f"{OF_B}web"))


class TestReferences:
    """What a resource has asked for."""

    def test_names(self) -> None:
        """Names of types that xDS serves, and nothing that stands for all of them or has to be in the bootstrap."""
        others = (
            Reference(CDS, "*", (), Severity.NOTE),
            Reference(CDS, "static", (), Severity.ERROR, is_static=True),
            Reference(TypeUrl("address"), "1.2.3.4:80", (), Severity.ERROR),
            Reference(VHDS, "routes/*", (), Severity.NOTE),
        )
        user = replace(resource("LDS", "a"), references=(Reference(RDS, "web", (), Severity.WARNING), *others))
        assert keys_referred_to(user) == {(RDS, "web")}

    def test_locators(self) -> None:
        """All alternatives of a locator are asked for, without directives; what is no name of a resource is not."""
        locator = f"{OF_A}web#alt={OF_B}web"
        assert keys_referred_to(referring("a", locator, "xdstp://", "xdstp://a/acme.Thing/x")) == {
            (EDS, f"{OF_A}web"),
            (EDS, f"{OF_B}web"),
        }

    def test_redirects(self) -> None:
        """A redirect has asked for what it leads to, and not for what else may be behind that name."""
        found = replace(referring("a", "web"), redirect="xdstp://b/envoy.config.cluster.v3.Cluster/c")
        assert keys_referred_to(found) == {(CDS, "xdstp://b/envoy.config.cluster.v3.Cluster/c")}


class TestIdleNames:
    """What nobody needs any more."""

    def test_they_linger(self, asked: Subscriptions) -> None:
        """They are asked for ten minutes more, so that who comes back finds them."""
        asked.ask(names("web"), NOW_S)
        asked.ask(names(), NOW_S + 1)
        asked.expire(NOW_S + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}
        assert not asked.shrunk()
        assert asked.next_s == NOW_S + 1 + LINGER_S
        asked.expire(NOW_S + 1 + LINGER_S)
        assert not asked.wanted
        assert asked.shrunk() == {EDS}
        assert not asked.shrunk()

    def test_who_comes_back_ends_that(self, asked: Subscriptions) -> None:
        """A name that is asked for again is not waited for again, and counts from when it is idle again."""
        asked.ask(names("web"), NOW_S)
        asked.answer(answer(EDS, "web"), NOW_S)
        asked.ask(names(), NOW_S)
        asked.ask(names("web"), NOW_S + 500)
        assert asked.has_answer(EDS, "web")
        asked.expire(NOW_S + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}
        asked.ask(names(), NOW_S + 650)
        asked.expire(NOW_S + 649 + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}
        asked.expire(NOW_S + 650 + LINGER_S)
        assert not asked.wanted

    def test_a_name_that_one_still_needs_is_not_idle(self, asked: Subscriptions) -> None:
        """Clients and each resource that refers to a name are reasons of their own."""
        asked.ask(names("web"), NOW_S)
        asked.refer((), [referring("a", "web"), referring("b", "web")], NOW_S)
        asked.ask(names(), NOW_S)
        asked.refer([referring("a", "web")], (), NOW_S)
        asked.expire(NOW_S + LINGER_S)
        assert asked.wanted == {EDS: {"web"}}


class TestRoom:
    """The number of names is bounded."""

    def test_the_newest_have_none(self) -> None:
        """What was asked for first stays; the others are asked for when there is room."""
        asked = Subscriptions(replace(ASKED_ONLY, most_names=2))
        asked.ask(names("a", "b"), NOW_S)
        asked.ask(names("a", "b", "c"), NOW_S)
        assert asked.wanted == {EDS: {"a", "b"}}
        assert asked.surplus == 1
        asked.ask(names("b", "c"), NOW_S)
        assert asked.wanted == {EDS: {"b", "c"}}
        assert asked.surplus == 0

    def test_idle_names_make_room_at_once(self) -> None:
        """The longest idle goes first: made-up names must not keep others waiting for ten minutes."""
        asked = Subscriptions(replace(ASKED_ONLY, most_names=2))
        asked.ask(names("a", "b"), NOW_S)
        asked.ask(names("b"), NOW_S + 1)
        asked.ask(names(), NOW_S + 2)
        asked.ask(names("c"), NOW_S + 3)
        assert asked.wanted == {EDS: {"b", "c"}}
        assert asked.shrunk() == {EDS}

    def test_who_goes_frees_no_room_of_others(self) -> None:
        """A name without room that nobody needs any more is forgotten."""
        asked = Subscriptions(replace(ASKED_ONLY, most_names=1))
        asked.ask(names("a"), NOW_S)
        asked.ask(names("a", "b"), NOW_S)
        asked.ask(names("a"), NOW_S)
        assert asked.surplus == 0
        assert asked.wanted == {EDS: {"a"}}


class TestAnswers:
    """Of which names, and of which types, an answer is awaited."""

    @pytest.mark.parametrize(
        "response", [answer(EDS, "web"), answer(EDS, removed=("web",)), answer(EDS, bad=("web",))], ids=str
    )
    def test_what_is_said_of_a_name_is_its_answer(self, asked: Subscriptions, response: ReadResponse) -> None:
        """A resource, a removal, or a resource that cannot be served."""
        asked.ask(names("web", "api"), NOW_S)
        asked.answer(response, NOW_S)
        assert asked.has_answer(EDS, "web")
        assert not asked.has_answer(EDS, "api")

    def test_members_answer_their_collection(self, asked: Subscriptions) -> None:
        """And aliases what they are asked for by."""
        asked.ask(names(f"{OF_A}*"), NOW_S)
        asked.answer(answer(EDS, f"{OF_A}web"), NOW_S)
        assert asked.has_answer(EDS, f"{OF_A}*")

    def test_silence_is_an_answer_after_a_while(self, asked: Subscriptions) -> None:
        """Where a server was asked: time without a connection does not count."""
        asked.disconnect()
        asked.ask(names("web"), NOW_S)
        asked.expire(NOW_S + 100)
        assert not asked.has_answer(EDS, "web")
        asked.connect(NOW_S + 100)
        assert asked.next_s == NOW_S + 100 + PATIENCE_S
        asked.expire(NOW_S + 99 + PATIENCE_S)
        assert not asked.has_answer(EDS, "web")
        asked.expire(NOW_S + 100 + PATIENCE_S)
        assert asked.has_answer(EDS, "web")
        assert asked.next_s is None

    def test_a_lost_connection_begins_it_anew(self, asked: Subscriptions) -> None:
        """A server that went away while it was asked said nothing."""
        asked.ask(names("web"), NOW_S)
        asked.disconnect()
        asked.connect(NOW_S + 14)
        asked.expire(NOW_S + 16)
        assert not asked.has_answer(EDS, "web")

    def test_nobody_answers_for_others(self, asked: Subscriptions) -> None:
        """A name of another upstream has its answer: there is none; one that was not asked for has none."""
        assert not asked.has_answer(EDS, "web")
        assert Subscriptions(NameScope("a")).has_answer(EDS, "web")
        assert Subscriptions(NameScope("a")).has_answer(EDS, "*")

    def test_everything_answers_for_plain_names(self, asked: Subscriptions) -> None:
        """Where all of a type was asked for and answered, what is not there does not exist."""
        made = Subscriptions(NameScope())
        made.connect(NOW_S)
        assert not made.has_answer(CDS, "web")
        made.answer(answer(CDS), NOW_S)
        assert made.has_answer(CDS, "web")
        assert made.has_answer(CDS, "*")

    def test_everything_on_a_connection_that_was_there_is_waited_for_a_little(self, asked: Subscriptions) -> None:
        """The first response after `*` may have been on its way before it, and have less."""
        asked.ask(names(cds=("web",)), NOW_S)
        asked.ask(names(cds=("*",)), NOW_S + 5)
        asked.answer(answer(CDS, "web"), NOW_S + 6)
        asked.expire(NOW_S + 5.9 + SETTLE_S)
        assert not asked.has_answer(CDS, "*")
        asked.expire(NOW_S + 6 + SETTLE_S)
        assert asked.has_answer(CDS, "*")


class TestPendingTypes:
    """The types of which something may exist that is not known yet."""

    def test_until_all_was_answered_once(self) -> None:
        """At first, every type is pending until it is answered; without a connection without an end."""
        made = Subscriptions(NameScope())
        made.ask(names("web"), NOW_S)
        assert made.pending == {CDS, LDS, SRDS, EDS}
        made.expire(NOW_S + 1000)
        made.connect(NOW_S + 1000)
        assert made.pending == {CDS, LDS, SRDS, EDS}
        made.answer(answer(CDS), NOW_S + 1000)
        assert made.pending == {LDS, SRDS, EDS}
        made.expire(NOW_S + 1000 + PATIENCE_S)
        assert not made.pending

    def test_what_clients_ask_for_later_makes_none_pending(self, asked: Subscriptions) -> None:
        """Made-up names must not keep others from hearing what is gone."""
        asked.ask(names("made-up"), NOW_S)
        assert not asked.pending

    def test_references_and_everything_do(self, asked: Subscriptions) -> None:
        """A route configuration that comes is followed by its clusters; until they are there, they may be."""
        asked.refer((), [referring("a", "web")], NOW_S)
        assert asked.pending == {EDS}
        asked.answer(answer(EDS, "web"), NOW_S)
        assert not asked.pending
        asked.ask(names(cds=("*",)), NOW_S)
        assert asked.pending == {CDS}

    def test_a_name_that_a_client_asked_for_first_counts_once_it_is_needed(self, asked: Subscriptions) -> None:
        """Whoever asked first."""
        asked.ask(names("web"), NOW_S)
        asked.refer((), [referring("a", "web")], NOW_S)
        assert asked.pending == {EDS}
