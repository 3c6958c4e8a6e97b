"""Who may GET: as who may poll, with answers that caches of others do not keep, and pages of other origins do not read."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

from fsxds.runtime.access import Access, AccessInUse
from fsxds.settings.access_rules import AccessRule, Tokens
from fsxds.transports import exchange
from fsxds.transports.http_get.get_responses import GetRules
from tests.support.polls import Answer, Server, named, running

TOKENS = Tokens(tuple((name, sha256(f"{name}-token".encode()).digest()) for name in ("edge", "all")))
ACCESS = Access((AccessRule("edge", nodes=("edge-*",)), AccessRule("all")), TOKENS)
WEB, KEY = "/envoy.config.cluster.v3.Cluster/web", "/envoy.extensions.transport_sockets.tls.v3.Secret/key"
PAGE = "https://ui.example.com"


async def get(server: Server, path: str, token: str = "", method: str = "GET", **headers: str) -> Answer:
    """Ask for a path."""
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    sent |= {"authorization": f"Bearer {token}"} if token else {}
    return await server.ask(method, path, headers=sent)


async def test_each_request_is_decided_by_its_node() -> None:
    """Strangers learn nothing, not even which paths there are; what is answered is for who asked alone."""
    async with running(access=AccessInUse(ACCESS)) as server:
        server.publish(named("cds", "web"))
        asked = [
            *(("/nowhere", ""), ("/", ""), (WEB, "wrong-token"), (WEB, "edge-token"), ("/", "edge-token")),
            *(
                (f"{WEB}?xds.node.id=edge-1", "edge-token"),
                (f"{WEB}?xds.node.id=batch", "edge-token"),
                (WEB, "all-token"),
            ),
        ]
        answers = [await get(server, path, token) for path, token in asked]

        assert [answer.status for answer in answers] == [401, 401, 401, 403, 403, 200, 403, 200]
        assert answers[5].headers["Cache-Control"] == "private, no-cache"
        assert answers[0].headers["WWW-Authenticate"] == "Bearer"


async def test_a_wait_ends_when_access_changes() -> None:
    """With 403, at once; one that may go on does."""
    in_use = AccessInUse(ACCESS)
    async with running(access=in_use) as server:
        server.publish(named("cds", "web"))
        path = f"{WEB}?xds.node.id=edge-1&wait=50"
        tag = (await get(server, path, "edge-token")).headers["ETag"]
        async with asyncio.TaskGroup() as tasks:
            edge = tasks.create_task(get(server, path, "edge-token", if_none_match=tag))
            other = tasks.create_task(get(server, path, "all-token", if_none_match=tag))
            await server.until_held(2)
            in_use.replace(Access((AccessRule("all"),), TOKENS))
            assert (await edge).status == 403
            await server.until_held(1)
            server.publish(named("cds", "web", alt_stat_name="x"))

        assert other.result().status == 200


async def test_secrets_are_not_kept() -> None:
    """By nobody in between; lists have their names alone."""
    async with running() as server:
        server.publish(named("sds", "key"))
        answer = await get(server, KEY)

        assert (answer.content, answer.headers["Cache-Control"]) == ({"name": "key"}, "no-store")
        assert (await get(server, KEY, if_none_match=answer.headers["ETag"])).headers["Cache-Control"] == "no-store"
        assert b"version" not in (await get(server, KEY.removesuffix("key"))).body


async def test_secrets_are_withheld_in_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also from who waits for one, and has its tag; other types are served."""
    # Nobody is on this machine, as far as the server knows.
    monkeypatch.setattr(exchange, "is_loopback", lambda _: False)
    in_use = AccessInUse(Access(has_insecure_secrets=True))
    async with running(access=in_use) as server:
        server.publish(named("cds", "web"), named("sds", "key"))
        tag = (await get(server, KEY)).headers["ETag"]
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(get(server, f"{KEY}?wait=50", if_none_match=tag))
            await server.until_held()
            in_use.replace(Access())

        assert waiting.result().status == 403
        denied = await get(server, KEY)
        assert (denied.status, "--insecure-secrets" in denied.content["message"]) == (403, True)
        assert (await get(server, WEB)).status == 200


async def test_pages_of_other_origins_read_nothing() -> None:
    """Unless they are named."""
    async with running() as server:
        server.publish(named("cds", "web"))
        answers = await get(server, WEB, origin=PAGE), await get(server, WEB, method="OPTIONS", origin=PAGE)

        assert not [name for answer in answers for name in answer.headers if name.startswith("Access-Control")]


@pytest.mark.parametrize(("origins", "allowed"), [(("https://x.example", PAGE), PAGE), (("*",), "*")])
async def test_pages_of_named_origins_read(origins: tuple[str, ...], allowed: str) -> None:
    """Answers of every status, with tags; others' do not. Secrets are for none, nor is anything that is posted."""
    async with running(rules=GetRules(cors_origins=origins)) as server:
        server.publish(named("cds", "web"), named("sds", "key"))
        answer = await get(server, WEB, origin=PAGE)
        tag = answer.headers["ETag"]
        answers = [answer, await get(server, WEB, origin=PAGE, if_none_match=tag), await get(server, "/x", origin=PAGE)]

        assert [each.status for each in answers] == [200, 304, 404]
        for each in answers:
            assert each.headers["Access-Control-Allow-Origin"] == allowed
            assert "ETag" in each.headers["Access-Control-Expose-Headers"]
            assert ("Origin" in each.headers.get("Vary", "")) is (allowed != "*")
        for each in (
            await get(server, KEY, origin=PAGE),
            await server.ask("POST", "/v3/discovery:clusters", json={}, headers={"origin": PAGE}),
        ):
            assert each.status == 200
            assert "Access-Control-Allow-Origin" not in each.headers
        if allowed != "*":
            other = await get(server, WEB, origin="https://evil.example")
            assert (other.status, "Access-Control-Allow-Origin" in other.headers) == (403, False)


async def test_a_page_asks_whether_it_may_ask() -> None:
    """Before it has a token: a preflight needs none, and says what may be sent."""
    asks = {"origin": PAGE, "access-control-request-method": "GET", "access-control-request-headers": "if-none-match"}
    async with running(access=AccessInUse(ACCESS), rules=GetRules(cors_origins=(PAGE,))) as server:
        answer = await server.ask("OPTIONS", WEB, headers=asks)

        assert (answer.status, answer.body) == (204, b"")
        assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD"
        assert {"Authorization", "If-None-Match", "Prefer"} <= set(
            answer.headers["Access-Control-Allow-Headers"].split(", ")
        )
