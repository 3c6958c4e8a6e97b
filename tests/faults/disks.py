"""Files that cannot be written or read: a full disk, one that is read-only, errors of the disk, permissions that are lost."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from random import Random

from tests.faults.faulty_system import FaultySystem
from tests.faults.site import FILES, Site, files_of
from tests.support.server import write_file

# Root reads and writes everything, until it has not got these.
_LIKE_OTHERS = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search,-fowner")


@contextmanager
def mounted(place: Path, *arguments: str) -> Iterator[None]:
    """Mount something in a place, by default a file system of 2 MB."""
    what = arguments or ("-t", "tmpfs", "-o", "size=2m,mode=755", "tmpfs")
    subprocess.run(["mount", *what, str(place)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@cache
def cannot_mount() -> str:
    """Return why nothing can be mounted here; empty where it can."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["mount", "-t", "tmpfs", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            return "there is no `mount`"
        subprocess.run(["umount", folder], capture_output=True, check=False)
    return f"mounting is not allowed: {done.stderr.strip()}" if done.returncode else ""


async def disk_full(folder: Path, rng: Random, times: int) -> None:
    """The disk of the mirror and of the state directory has no byte left."""
    site = Site(folder)

    @contextmanager
    def full() -> Iterator[None]:
        filler = site.kept / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        yield
        filler.unlink()

    with mounted(site.kept):
        await _kept_fails(site, _edits(rng, times), full, "No space left on device")


async def disk_read_only(folder: Path, rng: Random, times: int) -> None:
    """The mirror and the state directory are on a read-only file system from now on."""
    site = Site(folder)

    @contextmanager
    def read_only() -> Iterator[None]:
        # A file system with open files can only be covered: what is opened anew, in any way, is on the read-only one.
        with mounted(site.kept, "--bind", str(site.kept)):
            subprocess.run(["mount", "-o", "remount,bind,ro", str(site.kept)], check=True)
            yield

    await _kept_fails(site, _edits(rng, times), read_only, "Read-only file system")


async def disk_fails_to_write(folder: Path, rng: Random, times: int) -> None:
    """Each write to the mirror and to the state directory is EIO."""
    system = FaultySystem.here()
    system.reset()
    site = Site(folder, preloaded=system.libraries)

    @contextmanager
    def failing() -> Iterator[None]:
        system.fail(site.kept, write=errno.EIO)
        yield
        system.reset()

    await _kept_fails(site, _edits(rng, times), failing, "Input/output error", is_restarted=False)


def _edits(rng: Random, times: int) -> Iterator[int]:
    """Return how many edits are made while nothing can be written, so many times; each makes the wait for the next try longer."""
    return (rng.randrange(1, 4) for _ in range(times))


async def _kept_fails(
    site: Site,
    edits: Iterable[int],
    failing: Callable[[], AbstractContextManager[None]],
    words: str,
    *,
    is_restarted: bool = True,
) -> None:
    """Clients get every edit; the log says what fails; mirrored files stay whole, and all goes on when it can.

    `is_restarted`: also from a process that starts meanwhile.
    """
    async with site.running():
        for count in edits:
            await site.until_all()
            lines = {event: len(site.server.log_events(event)) for event in ("mirror_failed", "state_failed")}
            recovered, before = len(site.server.log_events("state_recovered")), site.number
            with failing():
                for number in range(count):
                    site.edit()
                    if number and is_restarted:
                        await _restart(site)
                    await site.until_served()
                    # Clients are served. A process that started meanwhile is not ready: the mirror may be its only client.
                    if not is_restarted or number == 0:
                        await site.until(site.is_ready, "/readyz")
                    assert set(site.mirrored().values()) <= {before}
                failure = await site.until_logged("mirror_failed", lines["mirror_failed"])
                assert words in failure["message"], failure
                await site.until_logged("state_failed", lines["state_failed"])
            await site.until_all()
            await site.until_logged("state_recovered", recovered)


async def _restart(site: Site) -> None:
    """Kill the process, and start another one, which serves what the tree has."""
    failed = len(site.server.log_events("state_failed"))
    await asyncio.to_thread(site.server.kill)
    # The ready file waits for the mirrored files, which cannot be written yet.
    await asyncio.to_thread(site.server.start, wait=False)
    await site.until_logged("state_failed", failed)


async def disk_fails_to_read(folder: Path, rng: Random, times: int) -> None:
    """Reading one file of the tree is EIO: its last good content stays, and all others go on."""
    system = FaultySystem.here()
    system.reset()
    site = Site(folder, preloaded=system.libraries)
    async with site.running():
        for _ in range(times):
            lost = rng.choice(FILES)
            system.fail(site.tree / lost, read=errno.EIO)
            await _file_is_lost(site, lost, "Input/output error", system.reset)


async def _file_is_lost(site: Site, lost: str, words: str, end: Callable[[], None]) -> None:
    """What a file held before stays, other files go on, the log says why, and what it holds now is served in the end."""
    found = len(site.server.log_events("problem_found"))
    before, now = site.number, site.edit()
    line = await site.until_logged("problem_found", found, path=lost, rule="unreadable-file")
    assert words in line["message"], line
    word = lost.removesuffix(".yaml")
    wanted = {each: before if each == word else now for each in ("cds", "eds", "lds", "rds")}
    await site.until(lambda: site.kept_numbers() == wanted, f"the state of {wanted}")
    clusters = {wanted["cds"]}
    await site.until(lambda: site.polls.numbers == clusters, "the clusters over REST")
    end()
    # Nothing says that it can be read again: it is looked for.
    await site.until_all()


async def permission_lost(folder: Path, rng: Random, times: int) -> None:
    """A process without privileges loses the permission to read a file, the tree, and to write the mirror and the state."""
    site = Site(folder, wrapped=_LIKE_OTHERS if os.geteuid() == 0 else ())
    async with site.running():
        for _ in range(times):
            await site.until_all()
            await _unreadable_file(site, rng)
            await _unreadable_tree(site)
            await _unwritable(site)


async def _unreadable_file(site: Site, rng: Random) -> None:
    lost = site.tree / rng.choice(FILES)
    lost.chmod(0)
    found = len(site.server.log_events("problem_found"))
    before, now = site.number, site.edit(lost.name)
    line = await site.until_logged("problem_found", found, path=lost.name, rule="unreadable-file")
    assert "Permission denied" in line["message"], line
    word = lost.stem
    wanted = {each: before if each == word else now for each in ("cds", "eds", "lds", "rds")}
    await site.until(lambda: site.kept_numbers() == wanted, f"the state of {wanted}")
    lost.chmod(0o644)
    site.edit()
    await site.until_all()


async def _unreadable_tree(site: Site) -> None:
    lost, found = (len(site.server.log_events(event)) for event in ("tree_lost", "tree_found"))
    site.tree.chmod(0)
    site.edit()
    await site.until_logged("tree_lost", lost)
    assert site.clients_are_at(site.number - 1)
    site.tree.chmod(0o755)
    await site.until_logged("tree_found", found)
    await site.until_all()


async def _unwritable(site: Site) -> None:
    failed = len(site.server.log_events("mirror_failed"))
    places = (site.out, site.out / "eds", site.out / "rds", site.out / ".fsxds", site.state)
    for place in places:
        place.chmod(0o500)
    before = set(site.mirrored().values())
    site.edit()
    await site.until_served()
    await site.until_logged("mirror_failed", failed)
    assert set(site.mirrored().values()) == before
    for place in places:
        place.chmod(0o700)
    await site.until_all()


async def tree_deleted(folder: Path, rng: Random, times: int) -> None:
    """The directory is deleted, renamed or emptied, and comes back: all stays served meanwhile, also after a restart."""
    site = Site(folder)
    away = folder / "away"
    async with site.running():
        for _ in range(times):
            await site.until_all()
            lost, found = (len(site.server.log_events(event)) for event in ("tree_lost", "tree_found"))
            way = rng.choice(("deleted", "renamed", "emptied"))
            if way == "deleted":
                shutil.rmtree(site.tree)
            elif way == "renamed":
                site.tree.rename(away)
            else:
                for name in FILES:
                    (site.tree / name).unlink()
            await site.until_logged("tree_lost", lost)
            is_restarted = way == "emptied"
            if is_restarted:
                # There is nothing to read at this start: what the process before served is served. Where there is not even a
                # directory, fsxds does not start.
                await asyncio.to_thread(site.server.kill)
                await asyncio.to_thread(site.server.start, wait=False)
                await site.until_answered()
            else:
                assert site.clients_are_at(site.number)
            if way == "renamed":
                away.rename(site.tree)
            site.edit()
            await site.until_all()
            if not is_restarted:
                await site.until_logged("tree_found", found)


async def all_replaced(folder: Path, _rng: Random, times: int, count: int = 20_000) -> None:
    """So many files are replaced at once, by a link that is turned to another folder, and one by one."""
    site = Site(folder, "--linger", "0s")
    generations = [folder / "generation-0", folder / "generation-1"]
    shutil.move(site.tree, generations[0])
    _write_many(generations[0], site.number, count)
    site.tree.symlink_to(generations[0])
    async with site.running():
        await site.until_all()
        for number in range(1, times + 1):
            generation = generations[number % 2]
            shutil.rmtree(generation, ignore_errors=True)
            site.number += 1
            _write_many(generation, site.number, count)
            mixed = site.streams[0].mixed
            following = folder / "following"
            following.symlink_to(generation)
            following.replace(site.tree)
            await site.until_all()
            assert site.streams[0].mixed == mixed, "files of two generations were served together"
            # One by one takes seconds, and what is written by then may be served.
            site.edit()
            await asyncio.to_thread(_write_many, generation, site.number, count)
            await site.until_all()


def _write_many(folder: Path, number: int, count: int) -> None:
    for name, text in files_of(number).items():
        write_file(folder / name, text)
    (folder / "many").mkdir(exist_ok=True)
    for each in range(count):
        text = f"[{{name: many-{each}, alt_stat_name: number-{number}-, type: STATIC, connect_timeout: 1s}}]\n"
        (folder / "many" / f"cds-{each}.yaml").write_text(text)
