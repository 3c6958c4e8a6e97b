"""A resource type is one row of the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.changed_copy import ChangedCopy
from tests.support.server import Server, write_file

END_OF_TABLE = ")  # fmt: skip"
# A message that Envoy knows, and serves by no service of its own.
ROW = """\
    ResourceType("alds", "envoy.config.accesslog.v3.AccessLog", "access-logs", "access_logs"),
"""
TREE = "resources:\n- {name: all}\n- {name: errors}\n"
EVERY_WAY = """
import sys
from fsxds.cli.main import main

tree, grpc, rest, out = sys.argv[1:]
once = ["--count", "1", "--format", "json"]
for arguments in (
    ["check", tree, "--format", "json"],
    ["show", tree, "--type", "alds", "--format", "json"],
    ["watch", grpc, "--ads", "--type", "alds", "--names", "all,errors", *once],
    ["watch", grpc, "--ads", "--delta", "--type", "alds", *once],
    ["watch", f"http://{rest}", "--type", "alds", *once],
    ["mirror", tree, out],
):
    print("=", " ".join(arguments[:1] + arguments[2:5]), flush=True)
    status = main(arguments)
    assert status == 0, (arguments, status)
"""


@pytest.fixture
def with_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a copy of fsxds with one more row, which every process that is started imports."""
    copy = ChangedCopy(tmp_path)
    copy.insert("model/resource_types.py", END_OF_TABLE, ROW)
    monkeypatch.setenv("PYTHONPATH", str(copy.site))
    # `python -m` looks into the current directory first.
    monkeypatch.chdir(copy.site)


@pytest.mark.usefixtures("with_row")
def test_one_row_makes_a_type(tmp_path: Path) -> None:
    """A type whose row was added is checked, shown, streamed in both variants, polled and mirrored, and follows edits."""
    tree = tmp_path / "tree"
    write_file(tree / "access-logs.yaml", TREE)
    mirrored = tmp_path / "mirrored"

    with Server(tree, tmp_path, "--mirror", str(mirrored), fresh=True) as server:
        everything = [str(tree), server.ready["grpc"], server.ready["http"], str(tmp_path / "out")]
        done = subprocess.run(
            [sys.executable, "-c", EVERY_WAY, *everything],
            env=dict(os.environ), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        check, *tellers, _mirror = done.stdout.split("= ")[1:]
        assert json.loads(check.partition("\n")[2]) == []
        assert [] == [told for told in tellers if "all" not in told or "errors" not in told]
        assert "errors" in contents(tmp_path / "out")

        write_file(tree / "access-logs.yaml", TREE.replace("errors", "changed"))
        server.wait(lambda: "changed" in contents(mirrored), "the edit in the mirror")


def contents(directory: Path) -> str:
    """Return the names and the texts of all files below a directory, but for those that are being written or removed."""
    texts = []
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            texts.append(f"{path.name} {path.read_bytes()!r}")
    return "".join(texts)
