from __future__ import annotations

import pytest

from fsxds.cli import running
from fsxds.cli.running import progress_bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Make every console take itself for a terminal."""
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    return monkeypatch


def test_nothing_is_shown_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    """In a pipeline, progress leaves no trace."""
    with progress_bar("asking Envoy") as tell:
        tell(1, 2)

    assert ("", "") == tuple(capfd.readouterr())


@pytest.mark.usefixtures("terminal")
def test_short_work_needs_no_bar(capfd: pytest.CaptureFixture[str]) -> None:
    """Within the first second nothing is shown."""
    with progress_bar("asking Envoy") as tell:
        tell(1, 2)

    assert "asking" not in capfd.readouterr().err


def test_long_work_shows_how_far_it_is(terminal: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """After a second, a terminal shows how much is done, of how much; stdout stays clean."""
    terminal.setattr(running, "SPINNER_DELAY_S", -1.0)
    with progress_bar("asking Envoy") as tell:
        tell(1, 2)
        tell(3, 4)
    out, err = capfd.readouterr()

    assert ("", True, True) == (out, "asking Envoy" in err, "3/4" in err)
