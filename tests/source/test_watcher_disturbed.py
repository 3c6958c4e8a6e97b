"""Trees in which something is written all the time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fsxds.source.targets import WatchOptions
from tests.source.watching import Contents, Watched, contents_of, watched, write
from tests.support.patience import NEVER_S

# Each writes into the directory of its first argument, every 20 ms until it is ended.
DISTURBANCES = {
    "hidden file": "(root / '.hidden.yaml').write_text(text)",
    "git's lock": "(root / '.git/index.lock').touch(); pause(); (root / '.git/index.lock').unlink()",
    "log": "(root / 'access.log').open('a').write(text)",
    "files that come and go": "(root / f'{n}.log').touch(); pause(); (root / f'{n}.log').unlink()",
    "directory that comes and goes": "(root / 'busy').mkdir(); pause(); (root / 'busy').rmdir()",
    "emacs' lock": "(root / '.#a.yaml').symlink_to('me@here'); pause(); (root / '.#a.yaml').unlink()",
    "file rewritten in place": "(root / 'busy.yaml').write_text('x' * 100_000)",
    "file replaced": "(root / 'next').write_text(text); (root / 'next').rename(root / 'busy.yaml')",
    "file kept open": "file = file or (root / 'busy.yaml').open('w'); file.write(text); file.flush()",
    "ever other files": "(root / f'{n % 50}.busy.yaml').write_text(text)",
    "flips": "(root / '..tmp').symlink_to(f'..{n % 2}'); (root / '..tmp').rename(root / '..data')",
}
PROGRAM = """
import itertools, pathlib, sys, time
root = pathlib.Path(sys.argv[1])
pause = lambda: time.sleep(0.02)
file = None
for n in itertools.count():
    text = f"{{n}}" * 10
    {disturbance}
    print(flush=True)
    pause()
"""


@contextmanager
def disturbed(root: Path, disturbance: str) -> Iterator[None]:
    """Disturb a tree from another process."""
    program = PROGRAM.format(disturbance=disturbance)
    with subprocess.Popen([sys.executable, "-W", "ignore", "-c", program, root], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # By now it has gone on long enough to be known.
        for _ in range(8):
            assert process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def edited(record: Watched) -> Contents:
    """Return the contents of the latest tree, without what the disturbance writes."""
    return {path: text for path, text in record.history[-1].items() if "busy" not in path}


@pytest.mark.parametrize("disturbance", DISTURBANCES)
async def test_what_is_written_all_the_time_delays_nothing_else(tmp_path: Path, disturbance: str) -> None:
    """Edits arrive at once, or within half a second and a look, whatever goes on beside them; nothing is taken by half."""
    write(tmp_path, {"a.yaml": "old", "..0/c.yaml": "c", "..1/c.yaml": "c"})
    (tmp_path / ".git").mkdir()
    (tmp_path / "..data").symlink_to("..0")
    (tmp_path / "c.yaml").symlink_to("..data/c.yaml")
    # What is removed is taken for removed when all is quiet, since it may be about to be written anew.
    names = ["a.yaml"] if disturbance == "ever other files" else ["a.yaml", "b.yaml"]
    async with watched(tmp_path, WatchOptions(settle_cap_s=NEVER_S)) as record:
        with disturbed(tmp_path, DISTURBANCES[disturbance]):
            for number in range(3):
                await asyncio.sleep(0.1)
                write(tmp_path, dict.fromkeys(names, f"{number}"))
                await record.until(lambda: edited(record) == {**dict.fromkeys(names, f"{number}"), "c.yaml": "c"})  # noqa: B023
                if "b.yaml" in names:
                    (tmp_path / "b.yaml").rename(tmp_path / "d.yaml")
                    await record.until(lambda: "b.yaml" not in edited(record) and "d.yaml" in edited(record))
                    (tmp_path / "d.yaml").unlink()
        contents = [contents_of(settled.tree) for settled in record.settled]

    assert {len(each["busy.yaml"]) for each in contents if "busy.yaml" in each and "in place" in disturbance} <= {
        100_000
    }
    assert [each for each in contents if "kept open" in disturbance and "busy.yaml" in each] == []
