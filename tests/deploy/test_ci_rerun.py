"""`.ci/rerun.py` runs failed tests once more, and passes only if all of them pass then."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RERUN = Path(__file__).parents[2] / ".ci/rerun.py"

FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("word", {words})
def test_one(word):
    seen = Path("seen" + str(len(word)))
    if not seen.exists():
        seen.touch()
        assert False
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, away from the settings and the plugins of this checkout."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def rerun(folder: Path, content: str) -> subprocess.CompletedProcess[str]:
    """Run a test file, which fails, and then what failed."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_chance.py").write_text(content)
    assert run(folder, "-m", "pytest", "-q").returncode == 1
    return run(folder, str(RERUN))


def test_a_test_that_passes_then_is_named_and_fails_nothing(tmp_path: Path) -> None:
    """The line has the whole name, with parameters and blanks in them."""
    again = rerun(tmp_path, FLAKY.format(words=["a b", "abcd"]))

    assert again.returncode == 0
    assert "flaky: test_chance.py::test_one[a b]\nflaky: test_chance.py::test_one[abcd]\n" in again.stdout


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    """Beside it, the one that passes is named as flaky all the same."""
    again = rerun(tmp_path, FLAKY.format(words=["a"]) + "\ndef test_wrong():\n    assert False\n")

    assert again.returncode == 1
    assert "flaky: test_chance.py::test_one[a]\n" in again.stdout
    assert "flaky: test_chance.py::test_wrong" not in again.stdout


def test_more_than_three_do_not_run_again(tmp_path: Path) -> None:
    """Four that fail are no accident."""
    again = rerun(tmp_path, FLAKY.format(words=["a", "ab", "abc", "abcd"]))

    assert again.returncode == 1
    assert "4 tests failed" in again.stdout
    assert "flaky" not in again.stdout


@pytest.mark.parametrize("line", ["import nothing_of_this_name", "def test_one(no_such_fixture): pass"])
def test_errors_fail_the_run(tmp_path: Path, line: str) -> None:
    """A file that cannot be imported, and a fixture that does not exist, are errors again."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_chance.py").write_text(line + "\n")
    run(tmp_path, "-m", "pytest", "-q")

    again = run(tmp_path, str(RERUN))

    assert again.returncode != 0
    assert "flaky" not in again.stdout
