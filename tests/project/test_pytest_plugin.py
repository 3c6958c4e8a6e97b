from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

TOP = Path(__file__).parents[2]

TEST = """\
import json
import threading
from urllib.request import Request, urlopen

def test_two_servers(fsxds_server):
    first = fsxds_server({"cds.yaml": "[{name: a, connect_timeout: 1s}]"})
    second = fsxds_server({"cds.yaml": "[{name: b, connect_timeout: 1s}]"})
    for server, name in ((first, "a"), (second, "b")):
        assert server.names("cds") == (name,)
        request = Request(f"{server.http}/v3/discovery:clusters", b"{}", {"content-type": "application/json"})
        assert json.load(urlopen(request))["resources"][0]["name"] == name

def test_they_ended():
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("fsxds server")]
"""

LIGHT = """\
import sys

def test_nothing_is_loaded():
    assert "fsxds.pytest_plugin" in sys.modules
    assert not {"aiohttp", "google.protobuf", "fsxds.server.app"} & sys.modules.keys()
"""


def outcome(directory: Path, text: str) -> str:
    """Run a test file in a pytest of its own, whether or not this checkout is installed, and return the last line."""
    (directory / "test_it.py").write_text(text)
    plugins = ("-p", "no:fsxds", "-p", "fsxds.pytest_plugin", "-p", "no:cacheprovider")
    # Others warn of their own settings, which are not in this directory.
    others = ("-p", "no:aiohttp", "-p", "no:asyncio")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins, *others, "test_it.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines()[-1] + done.stderr


def test_the_fixture(tmp_path: Path) -> None:
    """The fixture makes servers that end with the test."""
    assert outcome(tmp_path, TEST).startswith("2 passed")


def test_the_plugin_is_light(tmp_path: Path) -> None:
    """Who does not use the fixture pays nothing for it."""
    assert outcome(tmp_path, LIGHT).startswith("1 passed")


def test_the_entry_point() -> None:
    """The package tells pytest of the plugin."""
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    module = import_module(project["entry-points"]["pytest11"]["fsxds"])

    assert "fsxds_server" in vars(module)
