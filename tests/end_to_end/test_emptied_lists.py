"""List collections of folders that lose their listeners: emptied ones are held like any removal, those of lost folders stay."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fsxds.cli.main import main
from tests.support.server import Server, write_file

LIST = "envoy.config.listener.v3.ListenerCollection/edge"
COUNT = 6
"""Fewer than five resources never need approval."""

Run = pytest.CaptureFixture[str]


def listeners(names: Iterable[str]) -> str:
    """Return a file of listeners."""
    return json.dumps(
        {
            "resources": [
                {"name": name, "address": {"pipe": {"path": f"@{name}"}}, "default_filter_chain": {}} for name in names
            ]
        }
    )


class Listed(Server):
    """A server of a tree whose folder `edge` makes a list, mirrored as JSON. Listeners outside keep LDS from being held."""

    def __init__(self, workdir: Path, *options: str) -> None:
        self.tree, self.mirror = workdir / "tree", workdir / "mirror"
        self.settings = workdir / "fsxds.yaml"
        self.settings.write_text(
            "authority: example.com\nsettle: 10ms\nlinger: 0s\ncollections: [{name: edge, folder: edge}]\n"
            "rules: {filter-chain: off}\n"
        )
        self.fill()
        write_file(self.tree / "other/listeners.json", listeners(f"other-{number}" for number in range(20)))
        words = ("--settings", str(self.settings), "--mirror", str(self.mirror), "--mirror-format", "json")
        super().__init__(self.tree, workdir, *words, *options)

    def fill(self) -> None:
        """Write the listeners of the folder."""
        write_file(self.tree / "edge/listeners.json", listeners(f"edge-{number}" for number in range(COUNT)))

    def empty(self) -> None:
        """Take the listeners out of the folder, on purpose."""
        write_file(self.tree / "edge/listeners.json", '{"resources": []}')

    def edit(self, name: str) -> None:
        """Leave one listener beside the folder, and wait until the mirror has it."""
        write_file(self.tree / "other/listeners.json", listeners([name]))
        self.wait(lambda: f'"{name}"' in (self.mirror / "lds.json").read_text(), "the edit")

    def listed(self) -> int:
        """Return the number of entries in the list, or the status."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{LIST}", timeout=60) as response:
                return len(json.load(response))
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    def mirrored(self) -> int | None:
        """Return the number of entries in the file of the list, or None."""
        path = self.mirror / "lcds/example.com/edge.json"
        return len(json.loads(path.read_text())["resource"].get("entries", [])) if path.exists() else None

    def approval(self) -> Any:
        """Return the removal that waits, or None."""
        with urllib.request.urlopen(f"http://{self.admin}/api/rollout", timeout=60) as response:
            return json.load(response)["channels"][0]["approval"]


@pytest.mark.parametrize("is_restarted", [True, False])
def test_an_emptied_folder_waits_for_approval(tmp_path: Path, capsys: Run, *, is_restarted: bool) -> None:
    """The list stays until the removal is approved, also if a restart comes between; `check --against` fails beforehand."""
    with Listed(tmp_path, "--state", str(tmp_path / "state")) as server:
        server.wait(lambda: (server.listed(), server.mirrored()) == (COUNT, COUNT), "the list")
        if is_restarted:
            server.stop()
            server.empty()
            server.start()
        else:
            server.empty()
        approval = server.wait(server.approval, "the removal to be held")
        assert (server.listed(), server.mirrored()) == (COUNT, COUNT)
        (line,) = server.log_events("removal_held")
        assert approval["id"] in line["message"]
        words = ["--settings", str(server.settings), "--against", server.admin, "--no-envoy"]
        assert main(["check", str(server.tree), *words]) == 1
        assert "large-removal" in capsys.readouterr().out

        assert main(["rollout", "approve", approval["id"], "--admin", server.admin]) == 0
        server.wait(lambda: (server.listed(), server.mirrored()) == (0, 0), "the empty list")


def test_without_the_guard_an_emptied_folder_empties_its_list(tmp_path: Path) -> None:
    """The list and its mirrored file follow at once, and a problem says so; then they follow the folder again."""
    with Listed(tmp_path, "--max-removal", "off") as server:
        server.wait(lambda: (server.listed(), server.mirrored()) == (COUNT, COUNT), "the list")
        server.empty()
        server.wait(lambda: (server.listed(), server.mirrored()) == (0, 0), "the empty list")
        assert [line["rule"] for line in server.log_events("problem_found")] == ["empty-collection"]
        server.fill()
        server.wait(lambda: (server.listed(), server.mirrored()) == (COUNT, COUNT), "the list")


@pytest.mark.parametrize("has_state", [True, False])
def test_a_lost_folder_takes_nothing_away(tmp_path: Path, *, has_state: bool) -> None:
    """Its list stays without the guard too; after a restart the state has it, else it is not known to be gone."""
    options = ("--state", str(tmp_path / "state")) if has_state else ()
    with Listed(tmp_path, "--max-removal", "off", *options) as server:
        server.wait(lambda: (server.listed(), server.mirrored()) == (COUNT, COUNT), "the list")
        shutil.rmtree(server.tree / "edge")
        server.wait(lambda: server.log_events("problem_found"), "the problem")
        server.edit("another")
        assert (server.listed(), server.mirrored()) == (COUNT, COUNT)

        server.stop()
        server.start()
        server.edit("one")
        assert (server.listed(), server.mirrored()) == (COUNT if has_state else 503, COUNT)
