"""A real Envoy that asks for virtual hosts when requests for them come in (ENVOY.md E45, E46, E47), with live requests."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from tests.support.grpc_envoy import DELTA, DELTA_ADS, Fleet, StreamingEnvoy
from tests.support.resources import REST, http_listener

# For an answer that comes at once, on a busy machine too.
SLOW_S = 15.0
ON_DEMAND = """\
        - name: envoy.filters.http.on_demand
          typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.on_demand.v3.OnDemand}
"""


@pytest.fixture(params=[DELTA_ADS, DELTA], ids=str)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Fleet:
    """A tree with a listener whose virtual hosts come on demand."""
    fleet = Fleet(tmp_path, request.param)
    fleet.write("lds.yaml", http_listener("front", 0, "r1", ON_DEMAND))
    fleet.write("rds.yaml", on_demand_route("r1"))
    return fleet


# What does not depend on how streams are cut is tried on the one that carries everything.
on_ads = pytest.mark.parametrize("fleet", [DELTA_ADS], ids=str, indirect=True)


def on_demand_route(name: str, version: str = "1") -> str:
    """Return a route configuration that has virtual hosts on demand, as a list item."""
    source = {"vhds": {"config_source": yaml.safe_load(REST)}}
    header = {"header": {"key": "x-version", "value": version}}
    route = {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": name,
        "response_headers_to_add": [header],
        **source,
    }
    return yaml.safe_dump([route])


def virtual_host(name: str, body: str, *domains: str) -> str:
    """Return a virtual host that answers everything with `body`, as a list item."""
    answer = {"status": 200, "body": {"inline_string": body}}
    host = {
        "@type": "type.googleapis.com/envoy.config.route.v3.VirtualHost",
        "name": name,
        "domains": list(domains),
        "routes": [{"match": {"prefix": "/"}, "direct_response": answer}],
    }
    return yaml.safe_dump([host])


def asked(envoy: StreamingEnvoy, host: str, listener: str = "front") -> tuple[int, str]:
    """Ask for a host; neither a hanging request nor a slow one is an answer."""
    began = time.monotonic()
    answer = envoy.ask(listener, host=host)
    assert time.monotonic() - began < SLOW_S
    return answer.status, answer.body


def test_hosts_come_on_demand(fleet: Fleet) -> None:
    """Known hosts, hosts of a wildcard domain, and of a second domain are answered; nothing delays the start."""
    hosts = virtual_host("r1/shop", "shop", "shop.test", "store.test"), virtual_host("r1/wild", "wild", "*.wild.test")
    fleet.write("vhds.yaml", *hosts)
    with fleet.running() as (_, envoy):
        assert asked(envoy, "shop.test") == (200, "shop")
        assert asked(envoy, "SHOP.test") == (200, "shop")
        assert asked(envoy, "store.test") == (200, "shop")
        assert asked(envoy, "a.wild.test") == (200, "wild")
        assert asked(envoy, "b.wild.test") == (200, "wild")
        assert envoy.rejections() == {}


def test_unknown_hosts_end_at_once_and_spring_up(fleet: Fleet) -> None:
    """A host that nobody wrote gets 404 without delay, and its virtual host once it is written."""
    fleet.write("vhds.yaml", virtual_host("r1/shop", "shop", "shop.test"))
    with fleet.running() as (_, envoy):
        assert asked(envoy, "new.test") == (404, "")
        assert asked(envoy, "shop.test") == (200, "shop")
        fleet.write("more.vhds.yaml", virtual_host("r1/new", "new", "new.test"))
        envoy.until(lambda: asked(envoy, "new.test") == (200, "new"), "the new host")

        assert envoy.rejections() == {}


@on_ads
def test_hosts_follow_their_files(fleet: Fleet) -> None:
    """A virtual host that Envoy asked for is told when it changes, and when it goes."""
    fleet.write("vhds.yaml", virtual_host("r1/shop", "one", "shop.test"), virtual_host("r1/old", "old", "old.test"))
    with fleet.running() as (_, envoy):
        assert asked(envoy, "shop.test") == (200, "one")
        assert asked(envoy, "old.test") == (200, "old")
        fleet.write("vhds.yaml", virtual_host("r1/shop", "two", "shop.test"))
        envoy.until(lambda: asked(envoy, "shop.test") == (200, "two"), "the change")
        envoy.until(lambda: asked(envoy, "old.test") == (404, ""), "the end")

        assert envoy.rejections() == {}


@on_ads
def test_hosts_outlive_a_change_of_their_route_configuration(fleet: Fleet) -> None:
    """A route configuration that changes keeps the hosts that came on demand, and gets more."""
    fleet.write("vhds.yaml", virtual_host("r1/shop", "shop", "shop.test"), virtual_host("r1/b", "b", "b.test"))
    with fleet.running() as (_, envoy):
        assert asked(envoy, "shop.test") == (200, "shop")
        fleet.write("rds.yaml", on_demand_route("r1", "2"))
        envoy.until(lambda: envoy.ask("front", host="shop.test").headers.get("x-version") == "2", "the route")

        assert asked(envoy, "shop.test") == (200, "shop")
        assert asked(envoy, "b.test") == (200, "b")


def test_a_second_route_configuration_does_not_wait(fleet: Fleet) -> None:
    """A listener with virtual hosts on demand that is added later is up at once, though Envoy does not ask anew."""
    fleet.write("vhds.yaml", virtual_host("r1/shop", "shop", "shop.test"), virtual_host("r2/shop", "2", "shop.test"))
    with fleet.running() as (_, envoy):
        fleet.write("more.rds.yaml", on_demand_route("r2"))
        fleet.write("more.lds.yaml", http_listener("back", 0, "r2", ON_DEMAND))
        envoy.until(lambda: asked(envoy, "shop.test", "back") == (200, "2"), "the second listener")


@on_ads
def test_hosts_outlive_a_restart_of_the_server(fleet: Fleet) -> None:
    """After a restart Envoy keeps its hosts, hears of what changed meanwhile, and gets more on demand."""
    shop, other = virtual_host("r1/shop", "shop", "shop.test"), virtual_host("r1/b", "b", "b.test")
    fleet.write("vhds.yaml", shop, other)
    with fleet.server() as server:
        address = str(server.ready["grpc"])
        with StreamingEnvoy(fleet.bootstrap(server)) as envoy:
            assert asked(envoy, "shop.test") == (200, "shop")
            server.stop()
            assert asked(envoy, "shop.test") == (200, "shop")
            fleet.write("vhds.yaml", virtual_host("r1/shop", "after", "shop.test"), other)
            with fleet.server(address):
                envoy.until(lambda: asked(envoy, "shop.test") == (200, "after"), "the change")
                assert asked(envoy, "b.test") == (200, "b")
                assert envoy.rejections() == {}


@on_ads
def test_a_host_for_everything_hides_no_other(fleet: Fleet) -> None:
    """Envoy does not ask for a host that a wildcard serves already; it is told the better match nevertheless."""
    fleet.write("vhds.yaml", virtual_host("r1/*", "any", "*"), virtual_host("r1/shop", "shop", "shop.test"))
    with fleet.running() as (_, envoy):
        assert asked(envoy, "other.test") == (200, "any")
        assert asked(envoy, "shop.test") == (200, "shop")
        fleet.write("rds.yaml", on_demand_route("r1", "2"))
        envoy.until(lambda: envoy.ask("front", host="shop.test").headers.get("x-version") == "2", "the route")
        fleet.write("more.vhds.yaml", virtual_host("r1/new", "new", "new.test"))
        envoy.until(lambda: asked(envoy, "new.test") == (200, "new"), "the new host")

        assert asked(envoy, "other.test") == (200, "any")
        assert envoy.rejections() == {}
