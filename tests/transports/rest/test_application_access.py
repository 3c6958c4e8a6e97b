"""Who may poll: each poll carries its node, and one that is held is decided about again when access changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from fsxds.model.errors import ProtocolError
from fsxds.runtime.access import Access, AccessInUse
from fsxds.settings.access_rules import AccessRule, Tokens
from fsxds.settings.forms import TcpAddress
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import Authority
from fsxds.transports import exchange
from fsxds.transports.exchange import check_host
from fsxds.transports.http_get.get_responses import GetRules
from tests.support.polls import Answer, Server, named, running

TOKENS = Tokens(tuple((name, sha256(f"{name}-token".encode()).digest()) for name in ("edge", "all")))
BOTH = named("cds", "a"), named("sds", "s")
ACCESS = Access((AccessRule("edge", nodes=("edge-*",)), AccessRule("all")), TOKENS)


@pytest.fixture
async def in_use() -> AccessInUse:
    """What holds, with a token for a fleet and one for all nodes."""
    return AccessInUse(ACCESS)


@pytest.fixture
async def server(in_use: AccessInUse) -> AsyncIterator[Server]:
    async with running(access=in_use) as server:
        server.publish(*BOTH)
        yield server


async def polled(server: Server, token: str, node: str | None = "edge-1", service: str = "clusters") -> Answer:
    """Poll as a node."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    fields = {} if node is None else {"node": {"id": node}}
    return await server.ask("POST", f"/v3/discovery:{service}", json=fields, headers=headers)


async def test_each_poll_is_decided_by_its_node(server: Server) -> None:
    """With 401 and `WWW-Authenticate` where nobody knows who asks, with 403 where they ask as somebody else."""
    answers = [
        (await polled(server, token, node)).status
        for token, node in (
            *(("edge-token", "edge-1"), ("edge-token", "batch-1"), ("edge-token", None), ("all-token", None)),
            *(("", "edge-1"), ("wrong-token", "edge-1"), ("edge", "edge-1")),
        )
    ]
    assert answers == [200, 403, 403, 200, 401, 401, 401]
    denied = await polled(server, "wrong-token")
    assert denied.headers["WWW-Authenticate"] == "Bearer"
    assert "wrong-token" not in denied.body.decode()


async def test_credentials_are_who_votes(server: Server) -> None:
    """Whatever a client calls itself, it has the vote of its token."""
    for node in ("edge-1", "edge-2"):
        await polled(server, "edge-token", node)
    await polled(server, "all-token", "batch-1")

    assert {client.node.id: client.identity for client in server.channels.channel.clients} == {
        "edge-1": "edge",
        "edge-2": "edge",
        "batch-1": "all",
    }


@pytest.mark.parametrize(
    "headers", [["Basic ZWRnZTp0b2tlbg=="], ["Bearer"], ["Bearer edge-token", "Bearer edge-token"]]
)
async def test_other_headers_are_no_token(server: Server, headers: list[str]) -> None:
    """Nor are two of them, of which each reader might take another."""
    sent = [("authorization", value) for value in headers]
    assert (await server.ask("POST", "/v3/discovery:clusters", json={}, headers=sent)).status == 401
    answer = await server.ask("POST", "/v3/discovery:clusters", json={}, headers={"authorization": "bEARER  all-token"})
    assert answer.status == 200


async def test_a_stranger_is_not_read(server: Server) -> None:
    """Whatever the body is: the answer comes without it."""
    answer = await server.ask(
        "POST", "/v3/discovery:clusters", data=b"x" * 1000, headers={"content-type": "application/json"}
    )

    assert answer.status == 401


async def test_a_held_poll_ends_when_access_changes(in_use: AccessInUse, server: Server) -> None:
    """With 403, at once; one that may go on does, and gets the next snapshot."""
    version = (await polled(server, "edge-token")).content["version_info"]

    async def hold(token: str, node: str) -> Answer:
        fields = {"node": {"id": node}, "version_info": version}
        headers = {"authorization": f"Bearer {token}"}
        return await server.ask("POST", "/v3/discovery:clusters", json=fields, headers=headers)

    async with asyncio.TaskGroup() as tasks:
        edge, other = tasks.create_task(hold("edge-token", "edge-1")), tasks.create_task(hold("all-token", "batch-1"))
        await server.until_held(2)
        in_use.replace(Access((AccessRule("all"),), TOKENS))
        assert (await edge).status == 403
        await server.until_held(1)
        server.publish(named("cds", "a", alt_stat_name="x"))
        assert (await other).status == 200

    in_use.replace(ACCESS)
    assert (await polled(server, "edge-token")).status == 200


async def test_client_status_is_about_all_nodes(server: Server) -> None:
    """A rule for some nodes is not enough for it."""
    answers = [
        (await polled(server, token, None, "client_status")).status for token in ("all-token", "edge-token", "x")
    ]

    assert answers == [200, 403, 401]


async def test_secrets_are_withheld_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the remedy; other types are served, and secrets where that is allowed."""
    # Nobody is on this machine, as far as the server knows.
    monkeypatch.setattr(exchange, "is_loopback", lambda _: False)
    in_use = AccessInUse()
    async with running(access=in_use) as server:
        server.publish(*BOTH)
        denied = await server.poll("secrets")

        assert (denied.status, "--insecure-secrets" in denied.body.decode()) == (403, True)
        assert (await server.poll()).status == 200
        in_use.replace(Access(has_insecure_secrets=True))
        assert (await server.poll("secrets")).status == 200


async def test_ends_leave_no_listener(in_use: AccessInUse) -> None:
    """What is not served any more is not called any more."""
    async with running(access=in_use):
        assert in_use.listeners
    assert not in_use.listeners


# Which pages may ask


FOREIGN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe"},
]
SECRET = "/envoy.extensions.transport_sockets.tls.v3.Secret/s"
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize(
    "asked", [("POST", "/v3/discovery:clusters"), ("POST", "/v3/discovery:client_status"), ("GET", "/"), ("GET", "/x")]
)
async def test_pages_of_others_are_rejected(headers: dict[str, str], asked: tuple[str, str]) -> None:
    """Whatever they ask for, with a remedy; their poll is no vote, and nothing is served."""
    async with running() as server:
        server.publish(*BOTH)
        answer = await server.ask(*asked, json={"node": {"id": "edge-1"}}, headers=headers)

        assert (answer.status, answer.content["code"]) == (403, 7)
        assert "cors_origin" in answer.content["message"]
        assert not list(server.clients.statuses())


async def test_links_of_other_pages_are_followed() -> None:
    """To what can be read, that nobody can be made to post to; and pages that are named ask for anything."""
    async with running(rules=GetRules(cors_origins=("https://ui.example",))) as server:
        server.publish(*BOTH)

        async def posted(**headers: str) -> int:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            return (await server.ask("POST", "/v3/discovery:clusters", json={}, headers=sent)).status

        assert (await server.ask("GET", "/", headers=LINK)).status == 200
        assert await posted(sec_fetch_site="cross-site", sec_fetch_dest="document") == 403
        assert await posted(sec_fetch_site="none") == 200
        assert await posted(sec_fetch_site="cross-site", origin="https://ui.example") == 200


REBOUND = [
    "evil.example",
    "evil.example:18001",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "x@127.0.0.1.nip.io",
]
DEADLINE = {"x-envoy-expected-rq-timeout-ms": "100"}


@pytest.mark.parametrize("host", REBOUND)
async def test_names_that_were_made_to_lead_here_are_rejected(host: str) -> None:
    """At a loopback address: a page of that name is of the same origin, so that nothing else tells. The remedy is named."""
    async with running() as server:
        server.publish(*BOTH)
        for method, path in (("GET", SECRET), ("POST", "/v3/discovery:secrets"), ("OPTIONS", "/"), ("GET", "/nothing")):
            headers = {"host": host, "origin": f"http://{host}"} if method == "POST" else {"host": host}
            answer = await server.ask(method, path, json={}, headers=headers)
            assert (answer.status, answer.content["code"]) == (403, 7)
            assert "allowed_hosts" in answer.content["message"]
        assert (await server.ask("POST", "/v3/discovery:secrets", json={}, headers={"host": host})).status == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "[::1]:18001", "192.0.2.7:80", "xds.example", "XDS.example.:80"]
)
async def test_own_and_allowed_names_are_answered(host: str) -> None:
    """`localhost`, IP addresses, and names that are given; all where `*` is."""
    async with running(settings=Settings(allowed_hosts=("xds.example",))) as server:
        server.publish(*BOTH)
        assert (await server.ask("GET", SECRET, headers={"host": host})).status == 200
        assert (await server.ask("GET", SECRET, headers={"host": "any.example"})).status == 403
    async with running(settings=Settings(allowed_hosts=("*",))) as server:
        server.publish(*BOTH)
        assert (await server.ask("GET", "/", headers={"host": "any.example"})).status == 200


async def test_authorities_are_hosts() -> None:
    """A resource of another authority is asked for with that in `Host`; who owns that name is trusted with its resources."""
    async with running(
        settings=Settings(authority="Ours.example", authorities={"theirs.example": Authority("")})
    ) as server:
        server.publish(*BOTH)
        for host, status in (("ours.example", 200), ("theirs.example:80", 200), ("evil.example", 403)):
            assert (await server.ask("GET", "/", headers={"host": host})).status == status


async def test_an_envoy_has_the_name_of_its_cluster_in_host() -> None:
    """It is told by its deadline, which a page may send too, but never without an origin."""
    async with running() as server:
        server.publish(*BOTH)
        cluster = {"host": "xds.cluster", **DEADLINE}
        for headers, status in ((cluster, 200), (cluster | {"origin": "http://xds.cluster"}, 403)):
            assert (await server.ask("POST", "/v3/discovery:clusters", json={}, headers=headers)).status == status
        assert (await server.ask("GET", "/", headers=cluster)).status == 403


@pytest.mark.parametrize("address", ["192.0.2.1", "::", "", "edge.internal"])
def test_other_addresses_have_any_name(address: str) -> None:
    """Unless names are given: what leads there, fsxds cannot know."""
    where, asked = TcpAddress(address, 18001), {"host": "any.example"}
    check_host(asked, where, None)
    check_host(asked, where, ("any.example",))
    with pytest.raises(ProtocolError):
        check_host(asked, where, ("xds.example",))
