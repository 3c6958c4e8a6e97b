"""The names of requests: their canonical forms, and which are refused."""

from __future__ import annotations

import pytest

from fsxds.model.errors import LimitError, ProtocolError
from fsxds.model.values import Version
from fsxds.protocol.lookup import Spellings
from fsxds.protocol.messages import DeltaRequest
from fsxds.protocol.subscription import (
    MOST_DECODED,
    MOST_REASONS,
    NO_STRUCTURED_NAMES,
    checked_names,
    read_names,
)
from tests.support.costs import cost_s
from tests.support.snapshots import type_url

CDS, EDS, VHDS = type_url("CDS"), type_url("EDS"), type_url("VHDS")
CLUSTER = "xdstp://x/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "xdstp://x/envoy.config.endpoint.v3.ClusterLoadAssignment"


def test_plain_names_are_left_alone() -> None:
    """Names without structure mean themselves, whatever is in them."""
    assert read_names(["web", "*", "", "a/*", "http://x/y z"], CDS) is NO_STRUCTURED_NAMES


def test_names_are_read() -> None:
    """A name that is written otherwise has its canonical form; a glob, too; an authority is put in where there is none."""
    written = ["web", f"{CLUSTER}/a", f"{CLUSTER}/d/*?b=n 1&a=2", "udpa:///envoy.config.cluster.v3.Cluster/c"]
    read = read_names(written, CDS, "x")

    assert read.among(written) == ("web", f"{CLUSTER}/a", f"{CLUSTER}/d/*?a=2&b=n%201", f"{CLUSTER}/c")
    assert not read.rejected


def test_refused() -> None:
    """A name of another type is refused in its canonical form, a malformed one as it is written; others are not."""
    written = [f"{CLUSTER}/a b", "xdstp://bad", f"{ENDPOINTS}/a", f"{ENDPOINTS}/a#alt=xdstp:"]
    read = read_names(written, EDS)

    assert read.among(written) == (f"{CLUSTER}/a%20b", *written[1:])
    assert read.rejected.keys() == {f"{CLUSTER}/a%20b", "xdstp://bad", f"{ENDPOINTS}/a#alt=xdstp:"}
    assert read.rejected[f"{CLUSTER}/a%20b"] == (
        f"'{CLUSTER}/a b' is a name of envoy.config.cluster.v3.Cluster, and the resource is of "
        "envoy.config.endpoint.v3.ClusterLoadAssignment; write "
        "xdstp://<authority>/envoy.config.endpoint.v3.ClusterLoadAssignment/<path>"
    )
    assert "directives" in read.rejected[f"{ENDPOINTS}/a#alt=xdstp:"]


def test_names_in_bounds() -> None:
    """Reasons are given for so many names, and so many are decoded; names that are canonical as written are not counted."""
    read = read_names([f"xdstp://{number}" for number in range(MOST_REASONS + 1)], CDS)
    assert len(read.rejected) == MOST_REASONS
    plain = [f"{CLUSTER}/{number}" for number in range(MOST_DECODED + 1)]
    assert not read_names(plain, CDS).rejected
    with pytest.raises(LimitError, match="more than 20000 names with codes or parameters"):
        read_names([f"{name}?a" for name in plain], CDS)
    assert read_names([f"{CLUSTER}/{'x ' * 200}"], CDS).canonical


def test_virtual_hosts_have_names_of_their_own() -> None:
    """A host of a route configuration with a structured name is asked for by that name, a slash and the host."""
    host = "xdstp://x/envoy.config.route.v3.RouteConfiguration/r/foo.com:8080"

    assert read_names([host, "xdstp://bad"], VHDS) is NO_STRUCTURED_NAMES


def test_requests_that_stand_for_themselves() -> None:
    """A poll or a unary request is rejected as a whole."""
    assert checked_names(iter([f"{CLUSTER}/a b", "web"]), CDS) == (f"{CLUSTER}/a%20b", "web")
    with pytest.raises(ProtocolError, match=r"^resource_names: 'xdstp://bad' is no structured name; write") as caught:
        checked_names(["web", "xdstp://bad"], CDS)
    assert caught.value.code == "INVALID_ARGUMENT"


def test_spellings_are_noted_where_they_differ() -> None:
    """Who writes canonical names costs nothing; two spellings of one request are both in use."""
    spellings, plain = Spellings(), DeltaRequest(CDS, subscribe=("a", "b"), unsubscribe=("c",))
    assert spellings.receive(plain, frozenset()) is plain
    assert not spellings

    request = DeltaRequest(
        CDS, ("a", "A"), ("B",), {"A": Version("1"), "x": Version("2")}, canonical={"A": "a", "B": "b"}
    )
    read = spellings.receive(request, frozenset())
    assert (read.subscribe, read.unsubscribe) == (("a", "a"), ("b",))
    assert dict(read.initial_resource_versions) == {"a": "1", "x": "2"}
    assert spellings.others("a") == {"A"}
    assert spellings.with_others(frozenset("ab")) == {"a", "A", "b"}
    assert (
        spellings.receive(DeltaRequest(CDS, unsubscribe=("A",), canonical={"A": "a"}), frozenset("a")).unsubscribe == ()
    )
    assert spellings.receive(DeltaRequest(CDS, unsubscribe=("a",)), frozenset("a")).unsubscribe == ("a",)
    assert not spellings


def test_many_spellings_of_one_name() -> None:
    """Eight times the spellings of one name cost about eight times as much, not the square."""

    def use(count: int) -> None:
        spellings, written = Spellings(), tuple(map(str, range(count)))
        request = DeltaRequest(CDS, written, canonical=dict.fromkeys(written, "a"))
        spellings.receive(request, frozenset())
        spellings.receive(DeltaRequest(CDS, unsubscribe=written, canonical=request.canonical), frozenset("a"))
        assert not spellings

    assert cost_s(lambda: use(8000)) < 25 * cost_s(lambda: use(1000))
