"""xRFC TP1, "Collections": "List", "Glob", and the examples of "Collection resource request" and "Delta & SotW"."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from envoy.config.listener.v3.listener_pb2 import Listener, ListenerCollection

from tests.next_steps.served_trees import AUTHORITY, served
from tests.support.follower import Follower
from tests.support.structured_names import TYPES, structured, type_url

LISTENERS, COLLECTIONS = type_url("Listener"), type_url("ListenerCollection")


def listener(name: str, port: int) -> str:
    """Return a listener that does nothing, as a list item."""
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.direct_response.v3.Config",
        "response": {"inline_string": "hi"},
    }
    chain = {"filters": [{"name": "direct", "typed_config": proxy}]}
    fields = {"@type": LISTENERS, "name": name, "address": address, "filter_chains": [chain]}
    return yaml.safe_dump([fields], sort_keys=False)


def named(path: str) -> str:
    """Return the name of a listener."""
    return structured("Listener", path, AUTHORITY)


def collection(name: str, *entries: dict[str, object]) -> str:
    """Return a list collection, as a list item."""
    body = {"@type": COLLECTIONS, "entries": list(entries)}
    return yaml.safe_dump(
        [{"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": name, "resource": body}]
    )


def inlined(port: int, **fields: str) -> dict[str, object]:
    """Return an entry with a listener in it."""
    ((content),) = yaml.safe_load(listener(fields.get("name", "anonymous"), port))
    return {"inline_entry": {**fields, "resource": content}}


def located(path: str) -> dict[str, object]:
    """Return an entry that leads to a listener."""
    return {"locator": {"authority": AUTHORITY, "resource_type": TYPES["Listener"], "id": path}}


FOO = structured("ListenerCollection", "foo", AUTHORITY)


def test_glob_collection_delta() -> None:
    """A glob delivers its constituent resources; each is updated and removed by itself."""
    bar, baz, burp, same = (named(f"foo/{word}") for word in ("bar", "baz", "burp", "same"))
    others = listener(same, 1000) + listener(named("foo/deep/x"), 1003)
    tree = {"lds.yaml": listener(bar, 1001) + listener(baz, 1002) + others}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(LISTENERS, named("foo/*")).until_held(bar, baz, same)
        client.sent.clear()
        server.write("lds.yaml", listener(bar, 1004) + listener(burp, 1005) + others)
        client.until_held(bar, burp, same)
        client.until(lambda: client.message(bar, Listener).address.socket_address.port_value == 1004, "the change")

        assert client.removed == [baz]
        assert set[str]().union(*client.sent) == {bar, burp}


def test_glob_with_context_parameters() -> None:
    """`node_type=ingress` filters the set: members have the parameters that the glob has."""
    ingress, egress = named("my-listeners/foo?node_type=ingress"), named("my-listeners/foo?node_type=egress")
    others = listener(named("my-listeners/foo"), 1003) + listener(named("my-listeners/foo?a=1&node_type=ingress"), 1004)
    tree = {"lds.yaml": listener(ingress, 1001) + listener(egress, 1002) + others}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(LISTENERS, named("my-listeners/*?node_type=ingress")).until_held(ingress)


def test_two_clients_of_two_globs() -> None:
    """As clients A and B of the relay's example: each gets the members of its own collection."""
    names = {"a": [named("a-listeners/foo"), named("a-listeners/bar")], "b": [named("b-listeners/baz")]}
    tree = {"lds.yaml": "".join(listener(name, port) for port, name in enumerate(names["a"] + names["b"], 1001))}
    with served(tree) as server, Follower(server.grpc) as a, Follower(server.grpc) as b, Follower(server.grpc) as both:
        a.ask(LISTENERS, named("a-listeners/*")).until_held(*names["a"])
        b.ask(LISTENERS, named("b-listeners/*")).until_held(*names["b"])
        both.ask(LISTENERS, named("a-listeners/*"), named("b-listeners/*")).until_held(*names["a"], *names["b"])


def test_the_same_resource_in_a_list_and_in_a_glob() -> None:
    """Control planes may support referring to the same resource via both."""
    bar = named("foo/bar")
    tree = {"lds.yaml": listener(bar, 1001), "lists.yaml": collection(FOO, located("foo/bar"))}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(LISTENERS, named("foo/*")).until_held(bar)
        client.ask(COLLECTIONS, FOO).until_held(bar, FOO)


def test_list_collection_by_reference() -> None:
    """The list is sent; its listeners are asked for by name, and change without it. A removed one leaves the list."""
    bar, baz = named("bar"), named("baz")
    tree = {"lds.yaml": listener(bar, 1001) + listener(baz, 1002)}
    tree["lists.yaml"] = collection(FOO, located("bar"), located("baz"))
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(COLLECTIONS, FOO).until_held(FOO)
        entries = client.message(FOO, ListenerCollection).entries
        assert [entry.locator.id for entry in entries] == ["bar", "baz"]
        client.ask(LISTENERS, bar, baz).until_held(FOO, bar, baz)
        version = client.held[FOO].version
        server.write("lds.yaml", listener(bar, 1003) + listener(baz, 1002))
        client.until(lambda: client.message(bar, Listener).address.socket_address.port_value == 1003, "the change")
        assert client.held[FOO].version == version
        server.write("lists.yaml", collection(FOO, located("baz")))
        client.until(lambda: client.held[FOO].version != version, "another list")

        assert [entry.locator.id for entry in client.message(FOO, ListenerCollection).entries] == ["baz"]


def test_list_collection_with_inlining() -> None:
    """Entries have a resource, a version, and a name or none."""
    tree = {"lists.yaml": collection(FOO, inlined(1001, name="bar", version="8.5.4"), inlined(1002, version="3.9.0"))}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(COLLECTIONS, FOO).until_held(FOO)
        bar, baz = (entry.inline_entry for entry in client.message(FOO, ListenerCollection).entries)

        assert (bar.name, bar.version, baz.name, baz.version) == ("bar", "8.5.4", "", "3.9.0")
        assert bar.resource.Is(Listener.DESCRIPTOR)


def test_state_of_the_world_by_an_inlined_list() -> None:
    """A static configuration served as one resource: what it lacks is gone."""
    tree = {"lists.yaml": collection(FOO, inlined(1001, name="bar"), inlined(1002, name="baz"))}
    with served(tree) as server, Follower(server.grpc) as client:
        client.ask(COLLECTIONS, FOO).until_held(FOO)
        version = client.held[FOO].version
        server.write("lists.yaml", collection(FOO, inlined(1002, name="baz")))
        client.until(lambda: client.held[FOO].version != version, "another list")

        assert [entry.inline_entry.name for entry in client.message(FOO, ListenerCollection).entries] == ["baz"]


def test_names_of_entries() -> None:
    """Resource names must match [a-zA-Z0-9_-./]+ when used as entry names, and are unique."""
    # Two listeners have the name "a", too.
    expected = {("a b",): {"entry-name"}, ("a", "a"): {"entry-name", "duplicate-name"}, ("aZ-_./9", "b"): set[str]()}
    for names, rules in expected.items():
        entries = [inlined(port, name=name) for port, name in enumerate(names, 1001)]
        with served({"lists.yaml": collection(FOO, *entries), "lds.yaml": listener("x", 1003)}) as server:
            assert {problem.rule for problem in server.problems} == rules


def test_sotw_requests_for_structured_names() -> None:
    """Deprecated by the document, and what grpcio and Envoy's ADS speak: names and globs are served in SotW too."""
    bar, baz = named("foo/bar"), named("foo/baz")
    tree = {"lds.yaml": listener(bar, 1001) + listener(baz, 1002) + listener("plain", 1003)}
    with (
        served(tree) as server,
        Follower(server.grpc, delta=False) as by_glob,
        Follower(server.grpc, delta=False) as by_name,
    ):
        by_glob.ask(LISTENERS, named("foo/*")).until(lambda: names_in(by_glob) == {bar, baz}, "both members")
        by_name.ask(LISTENERS, bar, "plain").until(lambda: names_in(by_name) == {bar, "plain"}, "both listeners")
        server.write("lds.yaml", listener(baz, 1002) + listener("plain", 1003))
        by_glob.until(lambda: names_in(by_glob) == {baz}, "the rest")


def names_in(client: Follower) -> set[str]:
    """Return the names of the listeners in the last SotW response."""
    return {Listener.FromString(body.value).name for body in client.bodies}


def test_a_list_made_of_a_folder(tmp_path: Path) -> None:
    """`collections` makes a list of a folder, inlined or by reference."""
    settings = f"authority: {AUTHORITY}\ncollections:\n- {{name: edge, folder: edge, inline: true}}\n"
    tree = {"edge/lds.yaml": listener(named("foo/bar"), 1001), "other/lds.yaml": listener(named("foo/baz"), 1002)}
    edge = structured("ListenerCollection", "edge", AUTHORITY)
    with served(tree, tmp_path, settings) as server, Follower(server.grpc) as client:
        client.ask(COLLECTIONS, edge).until_held(edge)
        (entry,) = client.message(edge, ListenerCollection).entries
        inner = Listener()

        assert entry.inline_entry.resource.Unpack(inner)
        assert inner.name == named("foo/bar")


@pytest.mark.parametrize("member", ["envoy.config.cluster.v3.Cluster", "envoy.config.endpoint.v3.LbEndpoint"])
def test_other_collections_point_to_globs(member: str) -> None:
    """They cannot have several entries in the API: the problem says what can."""
    content = collection(f"xdstp://{AUTHORITY}/{member}Collection/foo")
    content = content.replace(TYPES["ListenerCollection"], f"{member}Collection")
    with served({"lists.yaml": content, "lds.yaml": listener("x", 1003)}) as server:
        (problem,) = server.problems

        assert problem.rule == "singular-collection"
        assert f"xdstp://<authority>/{member}/<name>/…, which a client asks for by the glob" in str(problem)
