"""xRFC TP1, "Resource locators", and the examples "Redirects", "Alternatives" and "VHDS"."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener, ListenerCollection
from xds.core.v3.resource_locator_pb2 import ResourceLocator

from fsxds.testing.server import Server
from tests.next_steps.served_trees import AUTHORITY, get, served, wrapper
from tests.next_steps.test_collections import collection, inlined, listener, named
from tests.support.follower import Follower
from tests.support.resources import endpoints, static_cluster
from tests.support.structured_names import TYPES, structured, type_url

ENDPOINTS, LISTENERS, CLUSTERS = type_url("ClusterLoadAssignment"), type_url("Listener"), type_url("Cluster")
LIST = structured("ListenerCollection", "edge", AUTHORITY)
FOO, BAR = (structured("ClusterLoadAssignment", path, AUTHORITY) for path in ("foo", "bar"))


def redirect(name: str, target: str) -> str:
    """Return a resource whose payload is a locator, as a list item."""
    authority, message_type, path = target.removeprefix("xdstp://").split("/", 2)
    return wrapper(name, "xds.core.v3.ResourceLocator", authority=authority, resource_type=message_type, id=path)


def port_of(client: Follower, name: str) -> int:
    """Return the port of the only endpoint that a client holds under a name."""
    assignment = client.message(name, ClusterLoadAssignment)
    return int(assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address.port_value)


def test_a_redirect_is_followed_for_streams() -> None:
    """The content of the target comes under the name that was asked for; its version follows both."""
    tree = {"eds.yaml": redirect(FOO, BAR) + endpoints(BAR, 1001)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)
        assert client.message(FOO, ClusterLoadAssignment).cluster_name == FOO
        version = client.held[FOO].version
        server.write("eds.yaml", redirect(FOO, BAR) + endpoints(BAR, 1002))
        client.until(lambda: port_of(client, FOO) == 1002, "the target's change")

        assert client.held[FOO].version != version


def test_members_of_a_glob_may_be_redirects() -> None:
    """Glob collections may redirect any individual resource: the member comes with the target's content."""
    foo, bar, baz = named("my-listeners/foo"), named("my-listeners/bar"), named("baz")
    tree = {"lds.yaml": listener(foo, 1001) + redirect(bar, baz) + listener(baz, 1002)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(LISTENERS, named("my-listeners/*")).until_held(foo, bar)
        followed = client.message(bar, Listener)

        assert (followed.name, followed.address.socket_address.port_value) == (bar, 1002)


def test_a_list_may_be_a_redirect() -> None:
    """List collections may be redirected: the entries of the other list come under the name that was asked for."""
    old = structured("ListenerCollection", "old", AUTHORITY)
    tree = {
        "lists.yaml": redirect(old, LIST) + collection(LIST, inlined(1001, name="a")),
        "lds.yaml": listener("x", 1002),
    }
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(type_url("ListenerCollection"), old).until_held(old)

        assert client.message(old, ListenerCollection).entries[0].inline_entry.name == "a"


def test_a_redirect_to_an_entry() -> None:
    """`#entry=` leads to a resource that is inlined in a list."""
    foo = named("foo")
    locator = {"authority": AUTHORITY, "resource_type": TYPES["ListenerCollection"], "id": "edge"}
    to_entry = wrapper(foo, "xds.core.v3.ResourceLocator", **locator, directives=[{"entry": "b"}])
    entries = inlined(1001, name="a"), inlined(1002, name="b")
    with (
        served({"lds.yaml": to_entry, "lists.yaml": collection(LIST, *entries)}) as server,
        Follower(server.grpc) as client,
    ):
        client.ask(LISTENERS, foo).until_held(foo)
        followed = client.message(foo, Listener)

        assert (followed.name, followed.address.socket_address.port_value) == (foo, 1002)


def test_an_anonymous_entry_is_not_referenced() -> None:
    """An entry without a name cannot be, not even by the name of its listener."""
    locator = {"authority": AUTHORITY, "resource_type": TYPES["ListenerCollection"], "id": "edge"}
    to_entry = wrapper(named("foo"), "xds.core.v3.ResourceLocator", **locator, directives=[{"entry": "anonymous"}])
    entries = inlined(1001, name="a"), inlined(1002)
    with served({"lds.yaml": to_entry, "lists.yaml": collection(LIST, *entries)}) as server:
        assert [problem.rule for problem in server.problems] == ["dangling-redirect"]
        assert server.names("lds") == ()


def test_a_payload_that_is_a_name() -> None:
    """A `ResourceName` as payload is a redirect too."""
    fields = {"authority": AUTHORITY, "resource_type": TYPES["ClusterLoadAssignment"], "id": "bar"}
    tree = {"eds.yaml": wrapper(FOO, "xds.core.v3.ResourceName", **fields) + endpoints(BAR, 1001)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)

        assert port_of(client, FOO) == 1001


@pytest.mark.parametrize(
    ("name", "target", "rule"),
    [("my-listeners/*", "foo", "malformed-name"), ("a", "my-listeners/*", "malformed-redirect")],
    ids=["source", "target"],
)
def test_a_glob_is_no_redirect(name: str, target: str, rule: str) -> None:
    """The collection itself may not be redirected, nor may a redirect lead to one."""
    listeners = listener(named("my-listeners/foo"), 1001) + listener(named("foo"), 1002)
    with served({"lds.yaml": listeners, "redirect.yaml": redirect(named(name), named(target))}) as server:
        assert [problem.rule for problem in server.problems] == [rule]


@pytest.mark.parametrize(
    ("targets", "rules"),
    [
        ([(FOO, BAR), (BAR, FOO)], {"redirect-loop"}),
        ([(FOO, FOO)], {"redirect-loop"}),
        ([(FOO, BAR)], {"dangling-redirect"}),
    ],
    ids=["loop", "own", "dangling"],
)
def test_redirects_that_lead_nowhere(targets: list[tuple[str, str]], rules: set[str]) -> None:
    """Loops and dangling redirects are problems, and nothing of them is served."""
    tree = {"eds.yaml": "".join(redirect(*each) for each in targets) + endpoints("good", 1001)}
    with served(tree) as server, Follower(server.grpc) as client:
        assert {problem.rule for problem in server.problems} == rules
        client.ask(ENDPOINTS, FOO, "good").until(lambda: FOO in client.removed, "that there is none")
        client.until_held("good")


def eds_cluster_of(service_name: str) -> str:
    """Return a cluster whose endpoints come by this name."""
    fields = {
        "name": "some-cluster",
        "type": "EDS",
        "connect_timeout": "1s",
        "eds_cluster_config": {"service_name": service_name, "eds_config": {"ads": {}, "resource_api_version": "V3"}},
    }
    return yaml.safe_dump([{"@type": CLUSTERS, **fields}], sort_keys=False)


def service_name(client: Follower) -> str:
    """Return the reference of the cluster that a client holds."""
    return str(client.message("some-cluster", Cluster).eds_cluster_config.service_name)


def test_directives_are_no_part_of_a_name() -> None:
    """Directives are never sent to servers when requesting resources: with one, a request is refused."""
    with served({"cds.yaml": static_cluster("x")}) as server, Follower(server.grpc) as client:
        name = f"{FOO}#alt={BAR}"
        client.ask(ENDPOINTS, name).until(lambda: name in client.refused, "that it is refused")

        assert "directives" in client.refused[name]


def test_redirects_over_http(tmp_path: Path) -> None:
    """302, to the next HTTP URI, of the own authority or of another."""
    other = structured("ClusterLoadAssignment", "foo/M", "other.example")
    settings = f"authority: {AUTHORITY}\nauthorities:\n  other.example: {{url: 'http://other-cache-server.com/v3'}}\n"
    tree = {"eds.yaml": redirect(FOO, BAR) + endpoints(BAR, 1001)}
    tree["more/eds.yaml"] = redirect(structured("ClusterLoadAssignment", "away", AUTHORITY), other)
    with served(tree, tmp_path, settings) as server:
        assert located(server, "foo") == f"/{TYPES['ClusterLoadAssignment']}/bar"
        assert located(server, "away") == f"http://other-cache-server.com/v3/{TYPES['ClusterLoadAssignment']}/foo/M"


def test_a_redirect_to_another_authority_alone_is_an_edit(tmp_path: Path) -> None:
    """It is served though no resource changes."""
    other = structured("ClusterLoadAssignment", "foo/M", "other.example")
    settings = f"authority: {AUTHORITY}\nauthorities:\n  other.example: {{url: 'http://other-cache-server.com/v3'}}\n"
    path = f"/{TYPES['ClusterLoadAssignment']}/away"
    with served({"eds.yaml": endpoints(BAR, 1001)}, tmp_path, settings) as server:
        assert get(server, path).status == 404
        server.write("more/eds.yaml", redirect(structured("ClusterLoadAssignment", "away", AUTHORITY), other))
        assert get(server, f"{path}?wait=20s").status == 302


def located(server: Server, path: str) -> str:
    """Return where a redirect leads."""
    answer = get(server, f"/{TYPES['ClusterLoadAssignment']}/{path}")
    assert answer.status == 302
    return answer.headers["location"]


def test_a_redirect_is_passed_to_clients_that_follow(tmp_path: Path) -> None:
    """With `redirects: client` the payload is the locator."""
    tree = {"eds.yaml": redirect(FOO, BAR) + endpoints(BAR, 1001)}
    with served(tree, tmp_path, "redirects: client\n") as server, Follower(server.grpc) as client:
        client.ask(ENDPOINTS, FOO).until_held(FOO)
        locator = client.message(FOO, ResourceLocator)

        assert (locator.authority, locator.resource_type, locator.id) == (
            AUTHORITY,
            TYPES["ClusterLoadAssignment"],
            "bar",
        )


@pytest.mark.parametrize(
    "written", [f"{FOO}#alt={BAR}", f"{FOO}#alt={BAR.replace('/', '%2F')}"], ids=["plain", "encoded"]
)
def test_an_alternative_is_used_while_the_first_is_absent(written: str) -> None:
    """`#alt=` of a reference is resolved by fsxds; what is sent has no directive."""
    tree = {"cds.yaml": eds_cluster_of(written), "eds.yaml": endpoints(BAR, 1001)}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(CLUSTERS).until_held("some-cluster")
        assert service_name(client) == BAR
        server.write("eds.yaml", endpoints(FOO, 1002) + endpoints(BAR, 1001))
        client.until(lambda: service_name(client) == FOO, "the first")
