"""Which virtual host serves a host, and what is sent with it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.resources import Reference, Resource
from fsxds.model.values import Severity
from fsxds.protocol.subscription import VIRTUAL_HOSTS
from fsxds.protocol.virtual_hosts import (
    aliases_to_send,
    domain_matches,
    ends_of_any_wait,
    ends_of_wait,
    find_virtual_hosts,
    is_hidden,
)
from tests.support.snapshots import resource, snapshot

LABELS = st.sampled_from(["a", "b", "ab", "x"])
HOSTS = st.lists(LABELS, min_size=1, max_size=3).map(".".join)
DOMAINS = st.one_of(
    HOSTS,
    st.just("*"),
    HOSTS.map("*.{}".format),
    HOSTS.map("*{}".format),
    HOSTS.map("{}.*".format),
    HOSTS.map("{}*".format),
)


def _rank_as_envoy(host: str, domain: str) -> tuple[int, int] | None:
    """Return how well a domain serves a host, as Envoy's documentation of `VirtualHost.domains` has it."""
    if domain == host:
        return 3, 0
    if domain == "*":
        return 0, 0
    if domain.startswith("*") and len(host) >= len(domain) and host.endswith(domain[1:]):
        return 2, len(domain)
    if domain.endswith("*") and len(host) >= len(domain) and host.startswith(domain[:-1]):
        return 1, len(domain)
    return None


def _host(name: str, *domains: str) -> Resource:
    return replace(resource("VHDS", name), aliases=domains)


@given(HOSTS, st.sets(DOMAINS, max_size=12))
def test_best_domain_serves_a_host(host: str, domains: set[str]) -> None:
    """Whatever the domains are: the one that Envoy would take is found, and none where it finds none."""
    by_alias = {f"r/{domain}": (f"r/of {domain}",) for domain in domains}
    ranks = {rank: domain for domain in domains if (rank := _rank_as_envoy(host, domain)) is not None}
    expected = (f"r/of {ranks[max(ranks)]}",) if ranks else ()

    assert expected == find_virtual_hosts(f"r/{host}", (), by_alias)


def test_a_wildcard_stands_for_something() -> None:
    """`*.com` does not serve `.com`, nor `*` an empty host: a wildcard stands for at least one character."""
    assert "r/*.com" not in domain_matches("r/.com")
    assert ["r/"] == list(domain_matches("r/"))


def test_a_long_host_is_looked_for_as_it_is() -> None:
    """A name that is longer than any host is not taken apart: anybody may ask for it."""
    assert ["r/" + "x" * 10_000] == list(islice(domain_matches("r/" + "x" * 10_000), 10))


def test_a_name_without_a_route_configuration() -> None:
    """A name without a slash names no host."""
    assert ["host"] == list(domain_matches("host"))


def test_one_virtual_host_by_its_name_and_its_domain() -> None:
    """What is named as the host that it serves is found once."""
    assert ("r/a.com",) == find_virtual_hosts("r/a.com", ("r/a.com",), {"r/a.com": ("r/a.com",)})


@pytest.mark.parametrize(
    ("domains", "requested", "sent"),
    [
        (("r/a", "r/*.b", "r/c.*", "r/*"), (), ("r/a",)),
        (("r/a",), ("r/a", "r/x"), ("r/a", "r/x")),
        (("r/web", "r/a"), ("r/web",), ("r/a",)),
        (("*/a",), (), ("*/a",)),
    ],
)
def test_aliases_that_are_sent(domains: tuple[str, ...], requested: tuple[str, ...], sent: tuple[str, ...]) -> None:
    """Sent are the domains without wildcards and what was requested, but not the own name."""
    assert sent == aliases_to_send(_host("r/web", *domains), requested)


@given(DOMAINS, DOMAINS, HOSTS)
def test_what_serves_a_host_better_is_hidden(domain: str, wildcard: str, host: str) -> None:
    """Where a host matches two domains, the better one is hidden by the other, which is a wildcard then."""
    ranks = _rank_as_envoy(host, domain), _rank_as_envoy(host, wildcard)

    if None not in ranks and ranks[0] > ranks[1]:  # type: ignore[operator]
        assert is_hidden(domain, wildcard)
    assert not is_hidden("*", wildcard)
    assert not is_hidden(wildcard, wildcard)


def test_suffixes_come_before_prefixes() -> None:
    """A wildcard of a prefix is preceded by every one of a suffix: one host may have both."""
    assert is_hidden("*.com", "a.*")
    assert is_hidden("*m", "a.b.c.*")


def test_what_is_not_hidden() -> None:
    """A wildcard hides nothing that lies elsewhere, and nothing that it precedes."""
    assert not is_hidden("a.org", "*.com")
    assert not is_hidden("b.com", "a.*")
    assert not is_hidden("a.*", "*.com")
    assert not is_hidden("*.com", "*.a.com")


def test_ends_of_wait() -> None:
    """The wait for virtual hosts ends by a name for each route configuration that has some on demand."""
    vhds = Reference(VIRTUAL_HOSTS, "dir/r/*", ("vhds",), Severity.NOTE)
    other = Reference(resource("CDS", "c").type_url, "c", ("cluster",), Severity.ERROR)
    routes = (replace(resource("RDS", "dir/r"), references=(other, vhds)), resource("RDS", "plain"))

    assert {"dir/r/"} == ends_of_wait(routes)
    assert {"dir/r/", "s/"} == ends_of_any_wait(snapshot({"VHDS": {"dir/r/a": "1", "s/a": "1"}}))
