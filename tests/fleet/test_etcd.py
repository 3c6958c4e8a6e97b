"""Asking a real etcd whose members freeze, die, forget, ask for credentials, or have no space left."""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing

import grpc
import pytest

from fsxds.fleet.etcd import EtcdKeyValues, Members
from fsxds.fleet.key_values import Changed, CompactedError, Guard, Put, RejectedRequestError, UnreachableError
from tests.fleet.engines import asked
from tests.support.certificates import Authority
from tests.support.etcd import ETCD, MISSING, Etcd, running_etcd
from tests.support.patience import PATIENCE_S

ETCDCTL = shutil.which("etcdctl")

pytestmark = pytest.mark.skipif(ETCD is None or ETCDCTL is None, reason=MISSING)


def etcdctl(etcd: Etcd, *argv: str) -> None:
    subprocess.run([str(ETCDCTL), "--endpoints", ",".join(etcd.targets), *argv], check=True, capture_output=True)


@pytest.mark.parametrize("sent", [signal.SIGSTOP, signal.SIGKILL])
async def test_another_member_is_asked(sent, tmp_path) -> None:
    """If the member that is asked freezes or dies, calls go to the next one, and a watch goes on there; nothing is missed."""
    with running_etcd(tmp_path, 3) as etcd:
        async with asked(*etcd.targets) as engine:
            revision = await _written(engine, b"0")
            heard = asyncio.Queue[bytes]()

            async def watch() -> None:
                async for changed in engine.watch(b"p", revision):
                    heard.put_nowait(max(one.value for one in changed.values.values() if one))

            async def keep_asking() -> None:
                # As a server does, for its lease.
                while True:
                    await _read(engine)
                    await asyncio.sleep(0.2)

            running = [asyncio.create_task(watch()), asyncio.create_task(keep_asking())]
            async with asyncio.timeout(PATIENCE_S):
                assert await heard.get() == b"0"
                for number in range(2):
                    at = etcd.targets.index(engine.member)
                    etcd.signal(at, sent)
                    async with asked(etcd.targets[at - 1]) as other:
                        await _written(other, b"%d" % (number + 1))
                    assert (await _read(engine)) == b"%d" % (number + 1)
                    # What was written without an answer may have been written twice.
                    while await heard.get() != b"%d" % (number + 1):
                        pass
                    if sent is signal.SIGSTOP:
                        etcd.signal(at, signal.SIGCONT)
                    else:
                        etcd.start(at)
                    etcd.await_ready()
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def _written(engine: EtcdKeyValues, value: bytes) -> int:
    """Write a value, again until it is certain."""
    while True:
        try:
            revision = await engine.write([Put(b"p", value)])
        except UnreachableError:
            continue
        assert revision is not None
        return revision


async def _next(watching: AsyncIterator[Changed]) -> dict[bytes, bytes | None]:
    """Return the values in the next change."""
    return {key: one.value if one else None for key, one in (await anext(watching)).values.items()}


async def _read(engine: EtcdKeyValues) -> bytes:
    while True:
        try:
            return (await engine.read([b"p"])).values[b"p"].value
        except UnreachableError:
            await asyncio.sleep(0.05)


async def test_no_member_answers(tmp_path) -> None:
    """A call fails, and so do those after it, until one is back: with what it had."""
    with running_etcd(tmp_path) as etcd:
        async with asked(*etcd.targets) as engine:
            created = await engine.write([Put(b"p", b"1")])
            etcd.signal(0, signal.SIGKILL)
            for _ in range(2):
                with pytest.raises(UnreachableError, match="no member answers"):
                    await engine.read([b"p"])
            with pytest.raises(UnreachableError):
                await engine.write([Put(b"p", b"2")])

            etcd.start(0)
            etcd.await_ready()
            async with asyncio.timeout(PATIENCE_S):
                assert await _read(engine) == b"1"
            assert await engine.write([Put(b"p", b"3")], [Guard(b"p", created=created)]) is not None


async def test_compacted_changes_are_not_passed_over(tmp_path) -> None:
    """Who watches from before a compaction is told so, and reads anew; from then on nothing is missing."""
    with running_etcd(tmp_path) as etcd:
        async with asked(*etcd.targets) as engine:
            first, last = await _written(engine, b"1"), await _written(engine, b"2")
            etcdctl(etcd, "compact", str(last))

            async with aclosing(engine.watch(b"p", first)) as watching:
                with pytest.raises(CompactedError, match=f"before revision {last} was compacted"):
                    await anext(watching)
            async with aclosing(engine.watch(b"p", last)) as watching:
                assert await _next(watching) == {b"p": b"2"}


async def test_member_without_space_refuses(tmp_path) -> None:
    """What is there is still read, and its lease is kept alive; a new lease is refused."""
    options = ["--quota-backend-bytes", str(4 * 1024 * 1024)]
    with running_etcd(tmp_path, options=options) as etcd:
        async with asked(*etcd.targets) as engine:
            lease = await engine.grant(60)
            for number in range(20):
                try:
                    await engine.write([Put(b"p%d" % number, bytes(900_000))])
                except RejectedRequestError:
                    break

            with pytest.raises(RejectedRequestError, match="database space exceeded"):
                await engine.write([Put(b"p", b"")])
            assert (await engine.read([b"p0"])).values
            await engine.keep_alive(lease)
            with pytest.raises(RejectedRequestError, match="database space exceeded"):
                await engine.grant(60)


async def test_token_that_ends_is_renewed(tmp_path) -> None:
    """With users, each call has a token, which etcd forgets after a while."""
    with running_etcd(tmp_path, options=["--auth-token", "simple", "--auth-token-ttl", "1"]) as etcd:
        for argv in (
            *(["role", "add", "fleet"], ["role", "grant-permission", "fleet", "readwrite", "f/", "f0"]),
            *(["user", "add", "fsxds:secret"], ["user", "grant-role", "fsxds", "fleet"]),
            *(["user", "add", "root:r"], ["user", "grant-role", "root", "root"], ["auth", "enable"]),
        ):
            etcdctl(etcd, *argv)
        engine = EtcdKeyValues(Members(etcd.targets, user=("fsxds", "secret")))
        revision = await engine.write([Put(b"f/p", b"1")])
        async with aclosing(engine.watch(b"f/p", revision or 0)) as watching:
            assert await _next(watching) == {b"f/p": b"1"}
            await asyncio.sleep(4)
            await engine.write([Put(b"f/p", b"2")])
            async with asyncio.timeout(PATIENCE_S):
                assert await _next(watching) == {b"f/p": b"2"}
        with pytest.raises(RejectedRequestError, match="permission denied"):
            await engine.write([Put(b"other", b"")])
        await engine.close()

        other = EtcdKeyValues(Members(etcd.targets, user=("fsxds", "wrong")))
        with pytest.raises(RejectedRequestError, match="authentication failed"):
            await other.read([b"f/p"])
        await other.close()


async def test_members_that_ask_for_certificates(tmp_path) -> None:
    """Who shows one that they trust is answered, and who shows none is not."""
    authority = Authority()
    ca = authority.write(tmp_path / "ca.crt")
    chain, key = authority.issue("127.0.0.1").write(tmp_path, "server")
    options = ["--cert-file", str(chain), "--key-file", str(key), "--trusted-ca-file", str(ca), "--client-cert-auth"]
    with running_etcd(tmp_path, options=options, scheme="https") as etcd:
        own = [path.read_bytes() for path in authority.issue("fsxds").write(tmp_path, "own")]
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), own[1], own[0])
        engine = EtcdKeyValues(Members(etcd.targets, credentials))
        await engine.write([Put(b"p", b"1")])
        assert (await engine.read([b"p"])).values[b"p"].value == b"1"
        await engine.close()

        stranger = EtcdKeyValues(Members(etcd.targets, grpc.ssl_channel_credentials(ca.read_bytes())))
        with pytest.raises(UnreachableError):
            await stranger.read([b"p"])
        await stranger.close()
