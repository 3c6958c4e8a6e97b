"""The examples of the page on the commands, as a user would type them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from fsxds.cli.main import fsxds, main
from tests.support.signing import lasting_signer
from tests.tools.diff.test_sides_revisions import git

TOP = Path(__file__).parent.parent.parent
PAGE = (TOP / "fsxds" / "cli" / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
LINES = [line for block in BLOCKS for line in block.splitlines()]
EXAMPLES = [line.partition(" > ")[0] for line in LINES if line.startswith("fsxds ")]
ROWS = {name: status.strip() for name, status in re.findall(r"^\| \[`fsxds (\w+).*\|([^|]*)\|$", PAGE, re.MULTILINE)}

# They run until they are ended, or ask a server; `tests/end_to_end` runs them, and `tests/editor` the last one.
ASKING = ("fsxds status", "fsxds rollout ", "fsxds history", "fsxds rollback ", "fsxds diff @")
LASTING = ("fsxds dev ", "fsxds serve ", "fsxds watch ", "fsxds lsp ", *ASKING)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with the configuration of this one, a second tree beside it, and mirrored files."""
    top = tmp_path_factory.mktemp("checkout")
    shutil.copytree(TOP / "config", top / "config")
    shutil.copytree(TOP / "config" / "xds", top / "other" / "xds")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "x")
    key, cert, _ = lasting_signer(top)
    key.rename(top / "signer.key")
    cert.rename(top / "signer.crt")
    command = [
        "openssl",
        "pkey",
        "-in",
        top / "signer.key",
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        top / "encrypted.key",
    ]
    subprocess.run([str(one) for one in command], check=True, capture_output=True)
    (top / "password").write_text("x\n")
    (top / "fsxds.yaml").touch()
    assert main(["mirror", str(top / "config" / "xds"), str(top / "build" / "mirror"), "--mirror-config-sources"]) == 0
    return top


@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if not (one.startswith(LASTING) or "://" in one or "--against" in one)]
)
def test_examples_work(example: str, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example does what it should with the sample tree."""
    monkeypatch.chdir(checkout)

    assert main(shlex.split(example)[1:]) == 0


def test_every_command_is_on_the_page() -> None:
    """The page has each command, with its exit statuses and an example or what it prints."""
    assert ROWS.keys() == fsxds.commands.keys()
    assert all(ROWS.values())
    assert {f"fsxds {name}" for name in fsxds.commands} == set(re.findall(r"^## (fsxds \w+)$", PAGE, re.MULTILINE))
