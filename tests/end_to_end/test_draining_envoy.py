"""What a real Envoy does with the connections of a listener that was replaced (ENVOY.md E66 to E69)."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.test_mirror_envoy import BACKENDS, LDS, MUTATION, Out
from tests.end_to_end.test_rest_envoy import rest_source
from tests.support.envoy import Envoy
from tests.transports.mirroring import Plain, by_rds, listener, routes, snapshot, static

# Longer than any test: what drains goes on.
LONG_S = 600


@pytest.fixture
def out(tmp_path: Path) -> Out:
    out = Out(tmp_path / "out")
    out.write(lds=BACKENDS)
    return out


def tagged(front: Plain, tag: str) -> Plain:
    """Return a listener whose first filter adds a header to each answer."""
    append: Plain = {"append": {"header": {"key": "x-tag", "value": tag}}}
    config: Plain = {"@type": MUTATION, "mutations": {"response_mutations": [append]}}
    manager: Plain = front["filter_chains"][0]["filters"][0]["typed_config"]  # type: ignore[index, call-overload, assignment]
    manager["http_filters"] = [{"name": "tag", "typed_config": config}, *manager["http_filters"]]  # type: ignore[misc]
    return front


def inline(cluster: str) -> Plain:
    """Return the front listener with routes of its own."""
    return listener("front", 0, route_config=routes("inline", cluster))


def clusters(envoy: Envoy, *names: str) -> list[Plain]:
    """Return clusters of these names; what they answer is the name of the first or of the second backend, by turns."""
    ports = envoy.listener_ports()
    return [static(name, ports["two" if number % 2 else "one"]) for number, name in enumerate(names)]


@contextmanager
def connection(envoy: Envoy) -> Iterator[http.client.HTTPConnection]:
    """Connect to the front listener."""
    made = http.client.HTTPConnection("127.0.0.1", envoy.listener_ports()["front"], timeout=30)
    try:
        yield made
    finally:
        made.close()


def ask(made: http.client.HTTPConnection) -> tuple[str, str]:
    """Return the answer and the tag that comes on a connection, which stays the same one."""
    before = made.sock
    made.request("GET", "/")
    response = made.getresponse()
    body = response.read().decode()
    assert before is None or before is made.sock
    return f"{response.status} {body}", response.getheader("x-tag", "")


def test_connections_of_a_replaced_listener_keep_its_inline_routes(out: Out) -> None:
    """A kept-alive connection goes on with the routes that the listener had, and gets 503 when their cluster goes."""
    with Envoy(out.bootstrap(), drain_s=LONG_S) as envoy:
        a, b = clusters(envoy, "a", "b")
        envoy.wait_converged(out.write(cds=[a, b], lds=[*BACKENDS, inline("a")]))
        with connection(envoy) as old:
            assert ask(old) == ("200 one", "")

            envoy.wait_converged(out.write(cds=[a, b], lds=[*BACKENDS, inline("b")]))
            with connection(envoy) as new:
                assert (ask(old), ask(new)) == (("200 one", ""), ("200 two", ""))

                envoy.wait_converged(out.write(cds=[b], lds=[*BACKENDS, inline("b")]))
                assert (ask(old), ask(new)) == (("503 ", ""), ("200 two", ""))


def test_changed_routes_reach_the_connections_of_a_replaced_listener(out: Out) -> None:
    """A kept-alive connection goes on with the filters that the listener had, and with the newest routes of the same name."""
    with Envoy(out.bootstrap(), drain_s=LONG_S) as envoy:
        a, b = clusters(envoy, "a", "b")
        before = tagged(by_rds("front", 0, "front"), "before")
        envoy.wait_converged(out.write(cds=[a, b], rds=[routes("front", "a")], lds=[*BACKENDS, before]))
        with connection(envoy) as old:
            assert ask(old) == ("200 one", "before")

            after = tagged(by_rds("front", 0, "front"), "after")
            envoy.wait_converged(out.write(cds=[a, b], rds=[routes("front", "b")], lds=[*BACKENDS, after]))
            with connection(envoy) as new:
                envoy.wait(lambda: ask(new) == ("200 two", "after"), what="the new routes")

            assert ask(old) == ("200 two", "before")


def test_a_replaced_route_configuration_serves_until_the_drain_ends(out: Out) -> None:
    """A kept-alive connection goes on with a route configuration that the listener names no more, and nobody has."""
    with Envoy(out.bootstrap(), drain_s=LONG_S) as envoy:
        a, b = clusters(envoy, "a", "b")
        envoy.wait_converged(out.write(cds=[a, b], rds=[routes("r1", "a")], lds=[*BACKENDS, by_rds("front", 0, "r1")]))
        with connection(envoy) as old:
            assert ask(old) == ("200 one", "")

            versions = out.write(cds=[a, b], rds=[routes("r2", "b")], lds=[*BACKENDS, by_rds("front", 0, "r2")])
            envoy.wait_converged(versions)

            assert ask(old) == ("200 one", "")


def test_the_drain_closes_connections_when_it_ends(out: Out) -> None:
    """A kept-alive connection of a replaced listener is closed after the drain time, whether it was idle or not."""
    with Envoy(out.bootstrap(), drain_s=1) as envoy:
        a, b = clusters(envoy, "a", "b")
        envoy.wait_converged(out.write(cds=[a, b], lds=[*BACKENDS, inline("a")]))
        with connection(envoy) as old:
            assert ask(old) == ("200 one", "")

            envoy.wait_converged(out.write(cds=[a, b], lds=[*BACKENDS, inline("b")]))

            assert old.sock.recv(1) == b""
            # Envoy closes the connection first, and counts then.
            envoy.wait_stat("listener_manager.total_filter_chains_draining", 0)


def test_a_listener_is_accepted_before_it_has_its_routes(out: Out) -> None:
    """While a changed listener waits for its routes, the one before serves, though the update counts as accepted."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bootstrap = out.bootstrap()
        bootstrap["static_resources"] = {"clusters": [static("silent", silent.getsockname()[1])]}
        source: Plain = rest_source()
        source["api_config_source"]["cluster_names"] = ["silent"]  # type: ignore[index, call-overload]
        waiting = listener("front", 0, rds={"route_config_name": "r2", "config_source": source})
        with Envoy(bootstrap, drain_s=LONG_S) as envoy:
            (a,) = clusters(envoy, "a")
            envoy.wait_converged(out.write(cds=[a], lds=[*BACKENDS, inline("a")]))

            with envoy.expect_update(LDS):
                out.mirror.write(snapshot(99, cds=[a], lds=[*BACKENDS, waiting]))

            assert envoy.stat(f"{LDS}.update_rejected") == 0
            assert envoy.stat("listener_manager.total_listeners_warming") == 1
            with connection(envoy) as new:
                assert ask(new) == ("200 one", "")
