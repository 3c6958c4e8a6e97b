from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from fsxds.events.rollout_events import RolloutCommanded
from fsxds.model.errors import UsageError
from fsxds.settings.forms import TcpAddress, UnixAddress
from fsxds.transports.admin.admin_api import MOST_CHARACTERS
from fsxds.transports.exchange import leads_here
from fsxds.transports.rest.poll_requests import MAX_REQUEST_BYTES
from tests.support.admin import BUSY, HELD, Admin, KeptRollouts, running_admin

JSON = {"content-type": "application/json"}


@pytest.fixture
async def admin() -> AsyncIterator[Admin]:
    """An admin address with a canary at work in `edge`, and a removal that waits for approval in `everyone`."""
    async with running_admin() as admin:
        yield admin


# What there is


async def test_status_has_every_field(admin: Admin) -> None:
    """Channels come with their step, whom it waits for, what lingers, what is held and since when, and what may be approved."""
    status, content = await admin.ask("GET", "/api/rollout")
    [busy, held] = content["channels"]

    assert (status, content["state"]) == (200, "/var/lib/fsxds")
    assert busy == {
        "views": ["edge"],
        "layers": ["common", "edge"],
        "cohort": "canary",
        "clients": 2,
        "served": "0123456789ab",
        "target": "ba9876543210",
        "asked": "ba9876543210",
        "is_done": False,
        "step": {
            "name": "grow",
            "since_s": 1.25,
            "ends_within_s": 3.75,
            "waits_for": [{"client": "envoy-1", "transport": "gRPC", "since_s": 1.25}],
        },
        "waits_for_canary": False,
        "baking_s": None,
        "lingering": [{"type": "cds", "name": "old", "listeners": ["web"], "left_s": 598.4}],
        "held": [
            {
                "type": "lds",
                "name": "web",
                "reason": "rejected",
                "place": "edge/lds.yaml:3",
                "message": "envoy-1 rejects listener web: cannot bind",
                "remedy": "correct the resource, or that node; until then the node keeps its version, and all other nodes get the new one",
                "nodes": ["envoy-1"],
                "since_s": 42.0,
            }
        ],
        "approval": None,
        "pinned": 0,
        "pinned_for_s": None,
    }
    assert held["approval"] == {"id": "9b8c7d6e5f4a", "removal": "6 of 10 clusters"}
    assert [(each["name"], each["reason"]) for each in held["held"]] == [("old", "waits for approval")]


async def test_head_is_get_without_its_body(admin: Admin) -> None:
    """HEAD has the status, and the length of what GET answers."""
    async with admin.client.head("/api/rollout") as response:
        assert (response.status, await response.read()) == (200, b"")
        assert int(response.headers["Content-Length"]) > 100


# What an operator decides


async def test_approve_lets_a_removal_go_on(admin: Admin) -> None:
    """It says in how many channels, and is logged with who asked."""
    answer = await admin.ask("POST", "/api/rollout/approve", json={"id": "9b8c7d6e5f4a"})

    assert answer == (200, {"channels": 1})
    assert admin.rollouts.reports[1].approval is None
    assert admin.recorder.of(RolloutCommanded) == [
        RolloutCommanded("rollout/approve", {"id": "9b8c7d6e5f4a"}, "127.0.0.1")
    ]


async def test_approve_names_what_waits(admin: Admin) -> None:
    """An id by which nothing waits is 404, with those by which something does."""
    status, content = await admin.ask("POST", "/api/rollout/approve", json={"id": "123"})
    missing = await admin.ask("POST", "/api/rollout/approve", json={})

    assert (status, content["code"]) == (404, 5)
    assert content["message"] == "123: no such removal waits for approval; the waiting ones are 9b8c7d6e5f4a"
    assert (missing[0], missing[1]["message"]) == (400, "id: is missing; send the id that fsxds rollout status shows")
    assert not admin.recorder.of(RolloutCommanded)


@pytest.mark.parametrize("words", [{}, {"name": "web"}])
async def test_retry_offers_again_what_nodes_reject(admin: Admin, words: dict[str, str]) -> None:
    """The resources of a name, or all; it says how many, and is logged with who asked."""
    assert await admin.ask("POST", "/api/rollout/retry", json=words) == (200, {"versions": 1})
    assert admin.rollouts.reports[0].held == ()
    assert admin.recorder.of(RolloutCommanded) == [RolloutCommanded("rollout/retry", words, "127.0.0.1")]


async def test_nothing_to_retry_is_a_conflict(admin: Admin) -> None:
    """What nobody rejects cannot be offered again."""
    status, content = await admin.ask("POST", "/api/rollout/retry", json={"name": "x" * 200})

    assert (status, content["code"]) == (409, 9)
    assert content["message"].startswith(f"no node rejects a resource '{'x' * 80}'; fsxds rollout status")


@pytest.mark.parametrize("words", [{}, {"view": "edge"}, {"view": "common+edge"}, {"node": "envoy-1"}])
async def test_a_rollout_is_meant_by_view_or_node(admin: Admin, words: dict[str, str]) -> None:
    """By the name of a view, its layers, or a connected node; without any, all are meant."""
    assert await admin.ask("POST", "/api/rollout/abort", json=words) == (200, {"channels": 1})
    assert admin.rollouts.reports[0].step is None


async def test_promote_ends_canaries() -> None:
    """It is for all nodes that wait for one."""
    waiting = replace(HELD, approval=None, waits_for_canary=True)
    async with running_admin(KeptRollouts([BUSY, waiting])) as admin:
        assert await admin.ask("POST", "/api/rollout/promote", json={}) == (200, {"channels": 1})
        assert (await admin.ask("POST", "/api/rollout/promote", json={}))[0] == 409


@pytest.mark.parametrize("path", ["/api/rollout/abort", "/api/resume"])
async def test_nothing_to_do_is_a_conflict(admin: Admin, path: str) -> None:
    """409, so that a script sees it."""
    status, content = await admin.ask("POST", path, json={"view": "everyone"})

    assert (status, content["code"]) == (409, 9)
    assert "fsxds rollout status shows the present state" in content["message"]


async def test_rollback_and_resume(admin: Admin) -> None:
    """A snapshot of the history is served to its nodes until the tree is followed again."""
    answer = await admin.ask("POST", "/api/rollback", json={"number": 1})
    pinned = [each.pinned for each in admin.rollouts.reports]

    assert answer == (200, {"channels": 1})
    assert pinned == [1, 0]
    assert await admin.ask("POST", "/api/resume", json={}) == (200, {"channels": 1})


@pytest.mark.parametrize(("time", "channels"), [("2500", 2), (2500, 2), ("1970-01-01T00:16:40Z", 1)])
async def test_rollback_of_all_views(admin: Admin, time: str | int, channels: int) -> None:
    """What was served at a time, in each view that has a history from then."""
    assert await admin.ask("POST", "/api/rollback", json={"time": time}) == (200, {"channels": channels})
    assert sum(each.pinned for each in admin.rollouts.reports) == channels


@pytest.mark.parametrize("time", ["", "yesterday", "inf", "nan", "2026-13-01", "12:00"])
async def test_mistakes_in_times(admin: Admin, time: str) -> None:
    """What is no time is 400, with the form of one."""
    status, content = await admin.ask("POST", "/api/rollback", json={"time": time})

    assert status == 400
    assert content["message"] == f"time: {time!r} is no time; write 2026-01-31T14:05:00Z or seconds since 1970"
    assert admin.rollouts.reports == [BUSY, HELD]


async def test_a_time_before_the_history(admin: Admin) -> None:
    """Nothing is known of what was served then."""
    status, content = await admin.ask("POST", "/api/rollback", json={"time": 1})

    assert (status, content["code"]) == (409, 9)


@pytest.mark.parametrize(
    ("words", "numbers"), [({}, [3, 2, 1]), ({"view": "edge"}, [3, 1]), ({"node": "envoy-1"}, [3, 1])]
)
async def test_history(admin: Admin, words: dict[str, str], numbers: list[int]) -> None:
    """The newest comes first, of all nodes or of some."""
    status, content = await admin.ask("GET", "/api/history", params=words)

    assert status == 200
    assert [each["number"] for each in content["snapshots"]] == numbers
    assert content["snapshots"][0] == {
        "number": 3,
        "layers": ["common", "edge"],
        "version": "333333333333",
        "time_s": 3000.0,
        "commit": "c0ffee0c0ffee0",
        "changes": {
            "cds": {
                "added": {"count": 70, "names": ["a", "b"]},
                "changed": {"count": 1, "names": ["c"]},
                "removed": {"count": 0, "names": []},
            },
            "rds": {
                "added": {"count": 0, "names": []},
                "changed": {"count": 0, "names": []},
                "removed": {"count": 1, "names": ["gone"]},
            },
        },
    }


async def test_one_snapshot_of_the_history(admin: Admin) -> None:
    """By its number; another one is 404."""
    found = await admin.ask("GET", "/api/history/2")
    missing = await admin.ask("GET", "/api/history/9")

    assert (found[0], found[1]["version"]) == (200, "2" * 12)
    assert (missing[0], missing[1]["message"]) == (
        404,
        "@9: the history has no such snapshot; fsxds history lists them",
    )


async def test_without_state_there_is_no_history() -> None:
    """409, with the remedy."""
    async with running_admin(KeptRollouts([HELD], snapshots=None, state_directory=None)) as admin:
        status, content = await admin.ask("GET", "/api/history")

        assert (status, content["message"]) == (409, "there is no history; start fsxds with --state DIR")
        assert (await admin.ask("GET", "/api/rollout"))[1]["state"] is None


@pytest.mark.parametrize(
    ("words", "status", "fact"),
    [
        ({"view": "nowhere"}, 404, "view: there is no 'nowhere'; there is edge, everyone"),
        ({"node": "nobody"}, 404, "node: no client with the id 'nobody' is connected"),
        ({"viev": "edge"}, 400, "'viev': is no parameter of this path; there is node, view"),
        ({"view": ["edge"]}, 400, "'view': is neither a string nor a whole number"),
        ({"view": True}, 400, "'view': is neither a string nor a whole number"),
        ({"view": "x" * (MOST_CHARACTERS + 1)}, 400, "'view': is over 4096 characters"),
        ([], 400, "the body is no object"),
    ],
)
async def test_mistakes_in_words(admin: Admin, words: Any, status: int, fact: str) -> None:
    """Each is answered with the fact and the remedy."""
    answered, content = await admin.ask("POST", "/api/rollout/abort", json=words)

    assert answered == status
    assert content["message"].startswith(fact)
    assert admin.rollouts.reports == [BUSY, HELD]


@pytest.mark.parametrize("number", ["", "x", "@", "0", "-1", "1.5", "1" * 30, None])
async def test_mistakes_in_numbers(admin: Admin, number: str | None) -> None:
    """What is no number of a snapshot is 400."""
    words = {} if number is None else {"number": number}
    status, content = await admin.ask("POST", "/api/rollback", json=words)

    assert status == 400
    assert "is no number of a snapshot" in content["message"]


# Bodies, methods and paths


@pytest.mark.parametrize(
    "body", [b"{", b"\xff", b'{"view": NaN}', b"[" * 100_000, b'{"a":' * 100_000, b'{"number": ' + b"9" * 9999 + b"}"]
)
async def test_what_is_not_json(admin: Admin, body: bytes) -> None:
    """400, however deep it is."""
    status, content = await admin.ask("POST", "/api/rollback", data=body, headers=JSON)

    assert (status, content["message"]) == (400, "the body is not JSON; send an object, `{}` at least")
    assert not admin.recorder.errors


async def test_a_body_that_is_too_large(admin: Admin) -> None:
    """413."""
    body = BytesIO(b" " * (MAX_REQUEST_BYTES + 1))
    status, content = await admin.ask("POST", "/api/rollout/abort", data=body, headers=JSON)

    assert (status, content["code"]) == (413, 8)


async def test_no_body_is_an_empty_object(admin: Admin) -> None:
    """What needs no word needs no body."""
    assert (await admin.ask("POST", "/api/rollout/abort", headers=JSON))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/api/rollout", "GET, HEAD"),
        ("PUT", "/api/rollout", "GET, HEAD"),
        ("OPTIONS", "/api/rollout/abort", "POST"),
        ("GET", "/api/rollout/abort", "POST"),
        ("HEAD", "/api/rollback", "POST"),
        ("DELETE", "/api/history/1", "GET, HEAD"),
    ],
)
async def test_wrong_methods(admin: Admin, method: str, path: str, allowed: str) -> None:
    """405, with those that are right; nothing is said to a preflight that would let a page ask."""
    async with admin.client.request(method, path, headers=JSON) as response:
        assert (response.status, response.headers["Allow"]) == (405, allowed)
        assert not [name for name in response.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/api/rollouts", "/api/rollout/", "/api/history/", "/api/history/1/2", "/%00"])
async def test_unknown_paths(admin: Admin, path: str) -> None:
    """404, with those that there are."""
    status, content = await admin.ask("GET", path)

    assert status == 404
    assert "GET /api/rollout, POST /api/rollout/approve" in content["message"]


# Who may ask


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:18002"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "[::1"},
        {"Host": "x@127.0.0.1.nip.io"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9"},
        {"Origin": "https://127.0.0.1", "Host": "127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("request_line", [("GET", "/api/rollout"), ("POST", "/api/rollout/abort")])
async def test_pages_of_others_are_rejected(
    admin: Admin, headers: dict[str, str], request_line: tuple[str, str]
) -> None:
    """Another origin, or a name that may have been made to lead here, is 403, and nothing happens."""
    status, content = await admin.ask(*request_line, headers={**JSON, **headers}, data=b"{}")

    assert (status, content["code"]) == (403, 7)
    assert admin.rollouts.reports == [BUSY, HELD]


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {"Host": "LocalHost:1234"},
        {"Host": "[::1]:18002"},
        {"Host": "192.0.2.7:80"},
        {"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
    ],
)
async def test_own_names_are_answered(admin: Admin, headers: dict[str, str]) -> None:
    """`localhost` and IP addresses cannot be made to lead elsewhere; ports may be forwarded; own pages may ask."""
    assert (await admin.ask("POST", "/api/rollout/abort", json={}, headers=headers))[0] == 200


async def test_a_request_without_host_is_rejected(admin: Admin) -> None:
    """HTTP/1.0 without the header does not say where it meant to go."""
    assert b" 403 " in await admin.raw(b"GET /rollout HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize(
    ("host", "leads"), [("Edge.Internal:18002", True), ("edge.internal.", True), ("internal", False), ("", False)]
)
def test_the_configured_name_is_an_own_name(host: str, *, leads: bool) -> None:
    """Who listens at a name is asked by it."""
    assert leads_here(host, TcpAddress("edge.internal", 18002)) is leads


def test_no_name_is_configured() -> None:
    """An address without a host, which means all interfaces, makes no empty Host an own one."""
    assert not leads_here("", TcpAddress("", 18002))


async def test_a_unix_socket_is_reached_under_any_name(tmp_path: Path) -> None:
    """A page cannot reach it, unless a proxy forwards its origin."""
    async with running_admin(address=UnixAddress(tmp_path / "admin.sock")) as admin:
        assert (await admin.ask("GET", "/api/rollout", headers={"Host": "any.example"}))[0] == 200
        assert (await admin.ask("GET", "/api/rollout", headers={"Origin": "http://evil.example"}))[0] == 403


@pytest.mark.parametrize(
    "headers", [{"content-type": "text/plain"}, {"content-type": "application/x-www-form-urlencoded"}]
)
async def test_a_form_is_rejected(admin: Admin, headers: dict[str, str]) -> None:
    """What a page may send without a preflight is no request."""
    status, content = await admin.ask("POST", "/api/rollout/abort", data=b"{}", headers=headers)

    assert (status, content["code"]) == (415, 3)
    assert admin.rollouts.reports == [BUSY, HELD]


async def test_a_post_without_content_type_is_rejected(admin: Admin) -> None:
    """A page can leave it out of an empty body."""
    answer = await admin.raw(
        b"POST /api/rollout/abort HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    )

    assert b" 415 " in answer


# Faults


class FailingRollouts(KeptRollouts):
    """Rollouts that fail."""

    async def rollback(self, number: int) -> int:
        """Fail as fsxds may."""
        raise RuntimeError("a mistake of fsxds")


async def test_a_fault_ends_its_request_alone() -> None:
    """500 without the words of the error; others are answered on the same connection."""
    async with running_admin(FailingRollouts()) as admin:
        status, content = await admin.ask("POST", "/api/rollback", json={"number": 1})

        assert (status, "mistake" in content["message"]) == (500, False)
        assert [where for where, _ in admin.recorder.errors] == ["admin request"]
        assert (await admin.ask("GET", "/api/rollout"))[0] == 200


async def test_clients_that_go_at_any_byte_change_nothing(admin: Admin) -> None:
    """A request of which the last byte is missing is none."""
    body = json.dumps({"view": "edge"}).encode()
    head = (
        "POST /api/rollout/abort HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    whole = head.encode() + body
    for length in range(len(whole)):
        await admin.raw(whole[:length], leave=True)

    assert admin.rollouts.reports == [BUSY, HELD]
    assert not admin.recorder.errors
    assert b" 200 " in await admin.raw(whole)


async def test_a_thousand_connections(admin: Admin) -> None:
    """All are answered, while as many send nothing."""
    assert isinstance(admin.address, TcpAddress)
    silent = [await asyncio.open_connection(admin.address.host, admin.address.port) for _ in range(300)]
    answers = await asyncio.gather(*(admin.ask("GET", "/api/rollout") for _ in range(1000)))

    assert {status for status, _ in answers} == {200}
    for _, writer in silent:
        writer.close()


async def test_a_taken_address_names_the_option(admin: Admin) -> None:
    """The remedy is the flag of this address."""
    assert isinstance(admin.address, TcpAddress)
    with pytest.raises(UsageError, match=r"is taken.*use --admin HOST:PORT"):
        async with running_admin(address=admin.address):
            pass
