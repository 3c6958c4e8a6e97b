from __future__ import annotations

from dataclasses import replace

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Version
from fsxds.protocol.messages import ClientStatus, Node, WatchStatus
from fsxds.transports.exchange import Clients

CDS = BY_SHORT_NAME["cds"].type_url


def test_a_stream_is_told_of_while_it_is_open() -> None:
    """As it is when somebody asks, and not after it was closed."""
    clients = Clients()
    watch = WatchStatus(CDS, None)
    status_rows = [ClientStatus(Node("edge-1"), "StreamClusters", (watch,))]
    token = clients.opened(lambda: status_rows[-1])
    status_rows.append(ClientStatus(Node("edge-1"), "StreamClusters", (replace(watch, sent=Version("1")),)))

    assert list(clients.statuses()) == [status_rows[-1]]

    clients.closed(token)

    assert list(clients.statuses()) == []


def test_two_streams_that_tell_the_same_are_two() -> None:
    """Each is closed by what it was given when it opened; twice is once."""
    clients = Clients()
    status = ClientStatus(Node("edge-1"), "StreamClusters")
    first, _ = clients.opened(lambda: status), clients.opened(lambda: status)
    clients.closed(first)
    clients.closed(first)

    assert list(clients.statuses()) == [status]


def test_streams_may_come_and_go_while_they_are_told_of() -> None:
    """One that is gone is left out; a report that is being made does not break."""
    clients = Clients()
    one, two = ClientStatus(Node("one"), "StreamClusters"), ClientStatus(Node("two"), "StreamClusters")
    clients.opened(lambda: one)
    token = clients.opened(lambda: two)
    telling = clients.statuses()

    assert next(telling) == one

    clients.closed(token)
    clients.opened(lambda: two)

    assert list(telling) == []


def test_streams_come_before_others() -> None:
    """Clients without a stream are asked for their statuses at that time."""
    clients = Clients()
    clients.add(lambda: iter([ClientStatus(Node("edge-7"), "REST")]))
    clients.opened(lambda: ClientStatus(Node("edge-2"), "StreamClusters"))

    assert [status.node.id for status in clients.statuses()] == ["edge-2", "edge-7"]
