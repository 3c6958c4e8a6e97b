"""xRFC TP1, "Control plane model", "Federation", and the examples "xDS relay proxy", "Redirects" and "Alternatives" by a relay."""

from __future__ import annotations

from pathlib import Path

from envoy.config.cluster.v3.cluster_pb2 import Cluster
from envoy.config.endpoint.v3.endpoint_pb2 import ClusterLoadAssignment
from envoy.config.listener.v3.listener_pb2 import Listener
from envoy.extensions.filters.network.direct_response.v3 import config_pb2
from xds.core.v3.resource_locator_pb2 import ResourceLocator

from fsxds.testing import serve
from fsxds.testing.server import Server
from tests.next_steps.served_trees import AUTHORITY, served
from tests.next_steps.test_collections import listener, named
from tests.next_steps.test_redirects import CLUSTERS, ENDPOINTS, FOO, LISTENERS, eds_cluster_of, port_of, service_name
from tests.support.follower import Follower
from tests.support.ports import free_port
from tests.support.resources import endpoints
from tests.support.scripted_streams import Request, ScriptedStreams, names_of, resource
from tests.support.structured_names import TYPES, message, structured

# The filter of the listeners: protobuf finds its type only where its module was imported.
assert config_pb2.Config
OTHER = "other-authority"
OTHERS = structured("ClusterLoadAssignment", "bar", OTHER)


def relayed(folder: Path, *, tree: dict[str, str] | None = None, plain: str = "", **authorities: str) -> Server:
    """Return a relay.

    Args:
        folder: for its settings.
        tree: its own files.
        plain: the upstream without an authority.
        authorities: the server of each; `_` stands for `-`.
    """
    lines = [f"upstream: ['{plain}']"] if plain else []
    lines += ["authorities:"] if authorities else []
    lines += [f"  {name.replace('_', '-')}: {{upstream: ['{server}']}}" for name, server in authorities.items()]
    return served(tree or {}, folder, "\n".join(lines) + "\n")


def test_two_clients_of_a_relay(tmp_path: Path) -> None:
    """The example: one stream for the collections of both, and each client gets what is of its own."""
    globs = [named("a-listeners/*"), named("b-listeners/*")]
    paths = ("a-listeners/foo", "a-listeners/bar", "b-listeners/baz")
    foo, bar, baz = (message(listener(named(path), 1001), Listener) for path in paths)
    versions = {foo.name: "1", bar.name: "42", baz.name: "13"}

    def answer(request: Request) -> dict[str, object] | None:
        wanted = [glob.removesuffix("*") for glob in names_of(request)]
        found = [each for each in (foo, bar, baz) if any(each.name.startswith(glob) for glob in wanted)]
        resources = [resource(each.name, each) for each in found]
        for each in resources:
            each.version = versions[each.name]
        return {"resources": resources} if wanted else None

    with (
        ScriptedStreams(answer) as above,
        relayed(tmp_path, some_authority=f"127.0.0.1:{above.port}") as server,
        Follower(server.grpc) as first,
        Follower(server.grpc) as second,
    ):
        first.ask(LISTENERS, globs[0]).until_held(foo.name, bar.name)
        second.ask(LISTENERS, globs[1]).until_held(baz.name)
        asked = [name for request in above.requests for name in names_of(request)]

        assert globs == sorted(asked)
        assert [] == above.rejections()
        assert foo == first.message(foo.name, Listener)


def test_a_redirect_to_another_authority(tmp_path: Path) -> None:
    """A server delegates a resource: the relay asks the other authority, and its client gets that under the name it asked for."""
    locator = ResourceLocator(authority=OTHER, resource_type=TYPES["ClusterLoadAssignment"], id="bar")

    def delegate(request: Request) -> dict[str, object] | None:
        return {"resources": [resource(FOO, locator)]} if FOO in names_of(request) else None

    with (
        ScriptedStreams(delegate) as some,
        served({"eds.yaml": endpoints(OTHERS, 1001)}) as other,
        relayed(tmp_path, some_authority=f"127.0.0.1:{some.port}", other_authority=other.grpc) as server,
        Follower(server.grpc) as client,
    ):
        client.ask(ENDPOINTS, FOO).until_held(FOO)
        assert (client.message(FOO, ClusterLoadAssignment).cluster_name, port_of(client, FOO)) == (FOO, 1001)
        other.write("eds.yaml", endpoints(OTHERS, 1002))
        client.until(lambda: port_of(client, FOO) == 1002, "the change of the other authority")
        assert [] == some.rejections()


def test_an_alternative_while_an_authority_is_unreachable(tmp_path: Path) -> None:
    """The second while the first was never there; then the first, also while its server is away again."""
    address = f"127.0.0.1:{free_port()}"
    sent = message(eds_cluster_of(f"{FOO}#alt={OTHERS}"), Cluster)

    def answer(request: Request) -> dict[str, object] | None:
        is_first = request.type_url == CLUSTERS and not request.response_nonce
        return {"resources": [resource(sent.name, sent)]} if is_first else None

    with (
        ScriptedStreams(answer) as above,
        served({"eds.yaml": endpoints(OTHERS, 1002)}) as premises,
        relayed(
            tmp_path, plain=f"127.0.0.1:{above.port}", some_authority=address, other_authority=premises.grpc
        ) as server,
        Follower(server.grpc) as client,
    ):
        client.ask(CLUSTERS).until(lambda: held_service(client) == OTHERS, "the alternative")
        with serve({"eds.yaml": endpoints(FOO, 1001)}, grpc=address):
            client.until(lambda: held_service(client) == FOO, "the first")
        server.wait_log("upstream some-authority: no connection")
        client.ask(ENDPOINTS, FOO).until(lambda: FOO in client.held, "what is held of the first")
        assert held_service(client) == FOO


def held_service(client: Follower) -> str:
    """Return what the cluster refers to that a client holds; empty for none."""
    return service_name(client) if "some-cluster" in client.held else ""


def test_what_is_referred_to_is_fetched_before_anybody_asks(tmp_path: Path) -> None:
    """Implicit dependencies: a relay that is asked for a cluster asks for its endpoints, of whichever authority they are."""
    cluster = structured("Cluster", "edge/c", AUTHORITY)
    clusters = {"cds.yaml": eds_cluster_of(OTHERS).replace("some-cluster", cluster)}
    with (
        served(clusters) as some,
        served({"eds.yaml": endpoints(OTHERS, 1001)}) as other,
        relayed(tmp_path, some_authority=some.grpc, other_authority=other.grpc) as server,
        Follower(server.grpc) as client,
    ):
        client.ask(CLUSTERS, structured("Cluster", "edge/*", AUTHORITY)).until_held(cluster)
        server.wait_log("endpoints")

        assert (OTHERS,) == server.names("eds")
