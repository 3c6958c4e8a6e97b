"""What fsxds/README.md says that an addition takes is all that it takes.

A resource type has a test of its own, `test_new_resource_type.py`.
"""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from tests.support.changed_copy import ChangedCopy
from tests.support.server import Server, write_file

CLUSTER = "resources: [{name: web, type: STATIC, connect_timeout: 1s}]\n"

TOML_FORMAT = '''
"""TOML files."""

import tomllib

from fsxds.formats.decoded import Decoded, PlainDocument, unreadable
from fsxds.model.values import Fault


def decode(content, catalogue, message_type):
    try:
        return Decoded((PlainDocument(tomllib.loads(content.decode()), 1),))
    except ValueError as error:
        return unreadable(Fault("bad-syntax", str(error), "write TOML", (), 1, 1))


def encode(message, printer):
    return b""
'''

LONG_NAME_RULE = """
def _check_length(cluster, path, walk):
    if len(cluster.name) > 20:
        walk.error((path, "name"), "long-name", "is long", "shorten it")


"""

LONG_NAME_PAGE = """\
## long-name

**Severity:** error

A cluster has a short name.

**Envoy:** It would not mind.

**Remedy:** Shorten it.

**Wrong**

```yaml
name: a-name-that-nobody-can-remember
```

**Right**

```yaml
name: short
```

"""

PATHS_FORMAT = '''
"""Problems as a list of the files that have some."""


def as_paths(report):
    return "".join(f"{finding.problem.path}\\n" for finding in report.findings)
'''

NAMES_TRANSPORT = '''
"""The names of all clusters in a file, one a line."""

from fsxds.model.resource_types import BY_SHORT_NAME


async def serve_names(store, path):
    generation = 0
    while True:
        snapshot = await store.newer_than(generation)
        generation = snapshot.generation
        names = snapshot.resources(BY_SHORT_NAME["cds"].type_url)
        path.write_text("".join(f"{name}\\n" for name in names))
'''


MEMORY_SOURCE = """
import asyncio
import time
from pathlib import PurePosixPath

from fsxds.source.watcher import Settled
from fsxds.model.values import SourceFile, SourceTree

CONTENT = b"resources: [{name: remembered, type: STATIC, connect_timeout: 1s}]"


async def remember(trees):
    file = SourceFile.of(PurePosixPath("cds.yaml"), CONTENT)
    while True:
        trees.replace(Settled(SourceTree((file,)), time.monotonic()))
        await asyncio.sleep(0.1)
"""


@pytest.fixture
def copy(tmp_path: Path) -> ChangedCopy:
    """A copy of fsxds that may be changed."""
    return ChangedCopy(tmp_path)


def test_a_file_format_is_a_module_and_a_row(copy: ChangedCopy, tmp_path: Path) -> None:
    """A TOML file is served, and one with a mistake is reported at its line."""
    copy.write("formats/toml_format.py", TOML_FORMAT)
    copy.insert("formats/__init__.py", "from fsxds.formats.decoded import", "from fsxds.formats import toml_format\n")
    row = '    Format("toml", (".toml",), toml_format.decode, toml_format.encode),\n'
    copy.insert("formats/__init__.py", '    Format("yaml", ', row)
    write_file(
        tmp_path / "tree/clusters.toml", '[[resources]]\nname = "web"\ntype = "STATIC"\nconnect_timeout = "1s"\n'
    )

    shown = json.loads(copy.run("show", str(tmp_path / "tree"), "--format", "json").stdout)
    assert [resource["name"] for resource in shown["cds"]["resources"]] == ["web"]

    write_file(tmp_path / "tree/clusters.toml", "resources = [")
    checked = copy.run("check", str(tmp_path / "tree"), "--no-envoy")
    assert checked.returncode == 1
    assert re.search(r"clusters\.toml:1:1: error\[bad-syntax\]", checked.stdout)


def test_a_lint_rule_is_a_function_and_its_page(copy: ChangedCopy, tmp_path: Path) -> None:
    """A breach is reported by the rule's name, which `explain` knows."""
    copy.insert("lint/clusters.py", "def hooks(", LONG_NAME_RULE.lstrip())
    copy.insert("lint/clusters.py", "            _check_lone_settings,\n", "            _check_length,\n")
    copy.insert("lint/pages/resources.md", "## stale-version\n", LONG_NAME_PAGE)
    write_file(tmp_path / "tree/cds.yaml", CLUSTER.replace("web", "a-name-that-nobody-can-remember"))

    checked = copy.run("check", str(tmp_path / "tree"), "--no-envoy")
    assert re.search(r"cds\.yaml:1:\d+: error\[long-name\]: resources\[0\]\.name: is long", checked.stdout)
    assert "A cluster has a short name." in copy.run("explain", "long-name").stdout


def test_a_report_format_is_a_module_a_row_and_a_word(copy: ChangedCopy, tmp_path: Path) -> None:
    """`fsxds check --format paths` writes what the new module returns."""
    copy.write("lint/paths.py", PATHS_FORMAT)
    copy.insert("lint/report_formats.py", "from fsxds.lint.report import", "from fsxds.lint.paths import as_paths\n")
    copy.insert("lint/report_formats.py", '    ProblemFormat("junit", ', '    ProblemFormat("paths", as_paths),\n')
    copy.insert("settings/options.py", '"junit"', '"paths", ')
    write_file(tmp_path / "tree/cds.yaml", CLUSTER.replace("STATIC", "STATIK"))

    checked = copy.run("check", str(tmp_path / "tree"), "--no-envoy", "--format", "paths")
    assert checked.stdout.splitlines() == [str(tmp_path / "tree/cds.yaml")]


def test_a_transport_is_a_package_and_a_line(
    copy: ChangedCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows what is served."""
    names = tmp_path / "names"
    copy.write("transports/names/service.py", NAMES_TRANSPORT)
    copy.insert("server/serving.py", "import asyncio\n", "from fsxds.transports.names.service import serve_names\n")
    app = (copy.site / "fsxds/server/serving.py").read_text()
    start_up = re.search(r'( +)(\w+)\.start\(tasks, "start-up"', app)
    assert start_up
    start = f'{start_up[2]}.start(tasks, "names", partial(serve_names, {start_up[2]}.store, Path({str(names)!r})))'
    copy.insert("server/serving.py", start_up[0], f"{start_up[1]}{start}\n")
    write_file(tmp_path / "tree/cds.yaml", CLUSTER)
    monkeypatch.setenv("PYTHONPATH", str(copy.site))
    monkeypatch.chdir(copy.site)

    with Server(tmp_path / "tree", tmp_path, fresh=True) as server:
        server.wait(lambda: names.exists() and names.read_text() == "web\n", "the names")
        write_file(tmp_path / "tree/cds.yaml", CLUSTER.replace("web", "api"))
        server.wait(lambda: names.read_text() == "api\n", "the new names")


def polled(server: Server) -> bytes:
    """Return what a poll for clusters is answered."""
    url, headers = f"http://127.0.0.1:{server.port}/v3/discovery:clusters", {"content-type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, b"{}", headers), timeout=30) as response:
        answer: bytes = response.read()
        return answer


def test_a_source_is_a_module_and_a_line(copy: ChangedCopy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it yields is served."""
    copy.write("source/memory.py", MEMORY_SOURCE)
    copy.insert("server/app.py", "import asyncio\n", "from fsxds.source.memory import remember\n")
    newest = re.search(r"keep_current, (self\.\w+)", (copy.site / "fsxds/server/app.py").read_text())
    assert newest
    line = f'            self.start(tasks, "memory", partial(remember, {newest[1]}))\n'
    copy.insert("server/app.py", '            self.start(tasks, "log", ', line)
    write_file(tmp_path / "tree/cds.yaml", CLUSTER)
    monkeypatch.setenv("PYTHONPATH", str(copy.site))
    monkeypatch.chdir(copy.site)

    with Server(tmp_path / "tree", tmp_path, fresh=True) as server:
        server.wait(lambda: b"remembered" in polled(server), "the clusters of the new source")
