"""SIGKILL at random: during a reload, while mirrored files are written, and while the state directory is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

from tests.end_to_end import killing
from tests.faults.faulty_system import FaultySystem
from tests.faults.site import MIRRORED, Site

BROKEN = "resources: [\n"
# From the save to the last write: reading, checking, publishing, four mirrored files and a transaction.
_LATEST_KILL_S = 0.25
# When a process that is to die at an operation makes fewer of them, it is killed after this.
_DIES_WITHIN_S = 5.0


async def kill_at_random(folder: Path, rng: random.Random, times: int) -> Counter[str]:
    """Kill a server so often, each time after an edit; return how often it died where.

    Half of the times it dies at a random moment, else before a random one of its operations on mirrored files and the state
    directory, or in the middle of it. A quarter of the edits breaks the file of clusters: what it held before is then in the
    state directory alone, and has to be served by the next process.
    """
    system = FaultySystem.here()
    system.reset()
    site = Site(folder, preloaded=system.libraries)
    died: Counter[str] = Counter()
    operations = 30
    async with site.running():
        await site.until_all()
        for _ in range(times):
            before, is_broken = site.number, rng.random() < 0.25
            is_at_operation = rng.random() < 0.5
            system.count(site.kept, rng.randrange(1, operations + 1) if is_at_operation else 0)
            now = site.edit(*(["cds.yaml"] if is_broken else []))
            if is_broken:
                (site.tree / "cds.yaml").write_text(BROKEN)
            await _die(site, rng, is_at_operation=is_at_operation)
            died[_place_of(site, system)] += 1
            operations = max(operations, system.operations)
            system.count(site.kept)
            _check(site, {before, now})
            await asyncio.to_thread(site.server.start)
            await _until_it_serves_on(site, before, now, is_broken=is_broken)
        return died


async def _die(site: Site, rng: random.Random, *, is_at_operation: bool) -> None:
    if is_at_operation:
        ends_at_s = asyncio.get_running_loop().time() + _DIES_WITHIN_S
        while site.server.is_running and asyncio.get_running_loop().time() < ends_at_s:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    else:
        await asyncio.sleep(rng.random() * _LATEST_KILL_S)
    await asyncio.to_thread(site.server.kill)


def _place_of(site: Site, system: FaultySystem) -> str:
    if not system.operations:
        return "before anything was written"
    return "writing the mirror" if system.last.startswith(str(site.out)) else "writing the state"


def _check(site: Site, allowed: set[int]) -> None:
    """No mirrored file is missing or torn, and the state is that before the edit or that after it."""
    assert set(site.mirrored().values()) <= allowed
    site.check_state()
    assert set(site.kept_numbers().values()) <= allowed
    # Beside the mirrored files there is nothing that Envoy could take for one.
    found = {str(path.relative_to(site.out)) for path in site.out.rglob("*") if path.is_file()}
    others = {name for name in found - set(MIRRORED) if not name.startswith(".fsxds/")}
    assert others <= {"srds.pb"}, others


async def _until_it_serves_on(site: Site, before: int, now: int, *, is_broken: bool) -> None:
    """All that is good is served; of the broken file what it held before, whose number is that of the last good edit."""
    if not is_broken:
        await site.until_all()
        return
    wanted = {"cds": before, "eds": now, "rds": now, "lds": now}
    await site.until(lambda: site.kept_numbers() == wanted, f"the state of {wanted}")
    mirrored = {"cds.pb": before, "eds/api.pb": now, "rds/r.pb": now, "lds.pb": now}
    await site.until(lambda: site.mirrored() == mirrored, f"a mirror of {mirrored}")
    await site.until(lambda: site.polls.numbers == {before}, "REST")
    await site.until(lambda: all(each.numbers == {before, now} for each in site.streams), "streams")
    # All that comes is compared with one number again.
    site.edit()
    await site.until_all()


async def kill_in_rollouts(folder: Path, rng: random.Random, times: int) -> Counter[str]:
    """Kill a server so often within rollouts of several steps; what is on the disk is a planned step, and completes."""
    await asyncio.to_thread(folder.mkdir, parents=True)
    steps = await killing.run(folder, times, rng.randrange(10**6))
    return Counter({f"at step {step}": count for step, count in steps.items()})
