from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fsxds.disk_cache.parsed_files import Pack, Record
from fsxds.disk_cache.private_directory import UNUSED_FOR_S, NotPrivateError

LABEL = "0" * 32
NAME = f"{LABEL}.pack"


def record(number: int, *, place: int | None = None, size: int = 10) -> Record:
    """Return a record of this number, of a place of its own if none is given."""
    owner = number if place is None else place
    return Record(owner.to_bytes(16), number.to_bytes(16), bytes([number % 256]) * size)


def numbers(folder: Path) -> list[int]:
    """Return the records of a pack, by their numbers, each as it was written."""
    found = Pack(folder, LABEL).read()
    assert all(set(payload) <= {int.from_bytes(name) % 256} for name, payload in found.items())
    return [int.from_bytes(name) for name in found]


def test_records_are_read_by_others(tmp_path: Path) -> None:
    """What one process appends, in one step or several, another one reads; a pack is for its owner alone."""
    folder = tmp_path / "a" / "parsed"
    pack = Pack(folder, LABEL)

    assert numbers(folder) == []
    assert pack.append([record(1), record(2)])
    assert pack.append([record(3)])
    assert Pack(folder, LABEL).append([record(4)])
    assert pack.append([record(5)])
    assert numbers(folder) == [1, 2, 3, 4, 5]
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600


def test_pack_may_end_anywhere(tmp_path: Path) -> None:
    """Of a pack that was cut off, all whole records are read; the next one is appended to them."""
    Pack(tmp_path, LABEL).append([record(1), record(2), record(3)])
    whole = (tmp_path / NAME).read_bytes()
    each = len(whole) // 3
    for size in range(len(whole)):
        (tmp_path / NAME).write_bytes(whole[:size])
        left = [1, 2, 3][: size // each]
        assert numbers(tmp_path) == left
        Pack(tmp_path, LABEL).append([record(4)])
        assert numbers(tmp_path) == [*left, 4]


def test_what_follows_damage_is_cut_off(tmp_path: Path) -> None:
    """Zeros, as they are left at the end of a file when the power goes, end the pack, and are written over."""
    Pack(tmp_path, LABEL).append([record(1)])
    with (tmp_path / NAME).open("ab") as file:
        file.write(bytes(1000))
    assert numbers(tmp_path) == [1]

    Pack(tmp_path, LABEL).append([record(2)])

    assert numbers(tmp_path) == [1, 2]
    assert (tmp_path / NAME).stat().st_size < 1000


def test_older_records_of_a_place_go(tmp_path: Path) -> None:
    """A pack of which more than half is out of date is written anew with the newest record of each place."""
    pack = Pack(tmp_path, LABEL, smallest_bytes=1000)
    for number in range(1000):
        assert pack.append([record(number, place=number % 3, size=100)])
        assert (tmp_path / NAME).stat().st_size < 2000

    assert numbers(tmp_path)[-3:] == [997, 998, 999]
    assert [NAME] == [path.name for path in tmp_path.iterdir()]


def test_two_packs_of_one_file_lose_nothing_when_one_writes_it_anew(tmp_path: Path) -> None:
    """A process whose pack was replaced by another process goes on with the new one."""
    first, second = (Pack(tmp_path, LABEL, smallest_bytes=500) for _ in range(2))
    for number in range(200):
        pack = first if number % 2 else second
        assert pack.append([record(number, place=number % 2, size=50)])
        assert number in numbers(tmp_path)


def test_nobody_waits_for_another_writer(tmp_path: Path) -> None:
    """While another process writes, nothing is appended, and the caller learns that."""
    pack = Pack(tmp_path, LABEL)
    pack.append([record(1)])
    with (tmp_path / NAME).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert not pack.append([record(2)])
        assert numbers(tmp_path) == [1]
    assert pack.append([record(2)])
    assert numbers(tmp_path) == [1, 2]


def test_unused_packs_go(tmp_path: Path) -> None:
    """Packs that were not used for a month go, as of a clock that was a month ahead, and what a killed process left."""
    old, ahead, recent = (f"{digit * 32}.pack" for digit in "abc")
    left, now = (f".new-{digit * 16}" for digit in "ab")
    ages_s = {old: UNUSED_FOR_S + 10, ahead: -UNUSED_FOR_S - 10, recent: 1000, left: 9999, now: 0, "others.pack": 10**8}
    now_s = time.time()
    for name, age_s in ages_s.items():
        (tmp_path / name).write_bytes(b"x")
        os.utime(tmp_path / name, (now_s - age_s, now_s - age_s))

    Pack(tmp_path, LABEL).append([record(1)])

    assert {path.name for path in tmp_path.iterdir()} == {NAME, recent, now, "others.pack"}


def test_reading_counts_as_use(tmp_path: Path) -> None:
    """A pack that is read and never changed is not evicted."""
    Pack(tmp_path, LABEL).append([record(1)])
    os.utime(tmp_path / NAME, (0, 0))

    assert numbers(tmp_path) == [1]
    Pack(tmp_path, "f" * 32).append([record(1)])

    assert numbers(tmp_path) == [1]


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of too many packs those go that were not used for longest, and of too large a pack its oldest records."""
    monkeypatch.setattr("fsxds.disk_cache.parsed_files.MOST_BYTES_OF_ALL", 1000)
    monkeypatch.setattr("fsxds.disk_cache.parsed_files.MOST_BYTES", 2000)
    now_s = time.time()
    for number in range(5):
        path = tmp_path / f"{str(number + 1) * 32}.pack"
        path.write_bytes(bytes(300))
        os.utime(path, (now_s - number, now_s - number))
    pack = Pack(tmp_path, LABEL, smallest_bytes=500)
    pack.append([record(0)])
    assert {path.name for path in tmp_path.iterdir()} == {NAME, *(f"{digit * 32}.pack" for digit in "123")}

    for number in range(100):
        pack.append([record(number, size=100)])
        assert (tmp_path / NAME).stat().st_size <= 2000
    assert numbers(tmp_path)[-1] == 99


@pytest.mark.parametrize("obstacle", ["open", "link", "pipe", "dangling"])
def test_what_is_not_ours_alone_is_replaced(tmp_path: Path, obstacle: str) -> None:
    """A file that others may write, a link and a pipe are not read and not written through, but replaced."""
    folder, elsewhere = tmp_path / "parsed", tmp_path / "elsewhere"
    Pack(folder, LABEL).append([record(1)])
    path = folder / NAME
    if obstacle == "open":
        path.chmod(0o660)
    else:
        path.rename(elsewhere)
        if obstacle == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(elsewhere if obstacle == "link" else tmp_path / "nothing")
    before = elsewhere.read_bytes() if elsewhere.exists() else b""

    assert numbers(folder) == []
    Pack(folder, LABEL).append([record(2)])

    assert numbers(folder) == [2]
    assert not path.is_symlink()
    assert before == (elsewhere.read_bytes() if elsewhere.exists() else b"")
    assert not (tmp_path / "nothing").exists()


def test_open_directory_is_closed(tmp_path: Path) -> None:
    """A directory of ours that others may look into is closed to them."""
    folder = tmp_path / "parsed"
    folder.mkdir(mode=0o755)

    Pack(folder, LABEL).append([record(1)])

    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_foreign_directory_and_file_are_not_used(tmp_path: Path) -> None:
    """What belongs to another user is not read; its directory is rejected."""
    Pack(tmp_path / "a", LABEL).append([record(1)])
    os.chown(tmp_path / "a" / NAME, 12345, 12345)
    assert numbers(tmp_path / "a") == []

    Pack(tmp_path / "a", LABEL).append([record(1)])
    os.chown(tmp_path / "a", 12345, 12345)
    with pytest.raises(NotPrivateError, match="belongs to user 12345"):
        Pack(tmp_path / "a", LABEL).read()
    with pytest.raises(NotPrivateError):
        Pack(tmp_path / "a", LABEL).append([record(2)])


def test_link_to_a_directory_is_not_followed(tmp_path: Path) -> None:
    """A link in place of the directory could lead anywhere."""
    (tmp_path / "there").mkdir()
    (tmp_path / "parsed").symlink_to(tmp_path / "there")

    with pytest.raises(OSError, match="parsed"):
        Pack(tmp_path / "parsed", LABEL).append([record(1)])


WRITER = """
import sys
from pathlib import Path
from fsxds.disk_cache.parsed_files import Pack
from tests.disk_cache.test_parsed_files_pack import LABEL, record
pack = Pack(Path(sys.argv[1]), LABEL, smallest_bytes=20_000)
first = int(sys.argv[2])
print("ready", flush=True)
for number in range(first, first + int(sys.argv[3])):
    pack.append([record(number, place=number % 7, size=1000 + number)])
"""


def start_writer(folder: Path, first: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(folder), str(first), str(count)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.readline() == b"ready\n"
    return writer


def test_killed_writers_leave_a_readable_pack(tmp_path: Path) -> None:
    """Whenever a process is killed that writes, or writes the pack anew, what is read is what was written."""
    for number in range(12):
        with start_writer(tmp_path, number * 10_000, 10_000_000) as writer:
            time.sleep(0.004 * number)
            writer.send_signal(signal.SIGKILL)
        assert len(numbers(tmp_path)) <= 400
    assert Pack(tmp_path, LABEL).append([record(7)])
    assert numbers(tmp_path)[-1] == 7


def test_processes_write_side_by_side(tmp_path: Path) -> None:
    """Two processes that write to one pack damage nothing."""
    with start_writer(tmp_path, 0, 2000) as first, start_writer(tmp_path, 100_000, 2000) as second:
        while first.poll() is None or second.poll() is None:
            numbers(tmp_path)

    assert (first.returncode, second.returncode) == (0, 0)
    assert numbers(tmp_path)


FULL = """
import resource, sys
from pathlib import Path
from fsxds.disk_cache.parsed_files import Pack
from tests.disk_cache.test_parsed_files_pack import LABEL, record
pack = Pack(Path(sys.argv[1]), LABEL)
pack.append([record(1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    pack.append([record(2, size=10_000)])
except OSError as error:
    print(error.strerror)
"""


def test_full_disk_takes_nothing_away(tmp_path: Path) -> None:
    """What cannot be written whole is not there at all, and what was there stays."""
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)

    assert done.stdout == "File too large\n"
    assert numbers(tmp_path) == [1]
    assert (tmp_path / NAME).stat().st_size < 100
