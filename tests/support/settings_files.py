"""Settings files, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

import pytest

from fsxds.cli.command import DEMANDS
from fsxds.model.errors import UsageError
from fsxds.settings.options import Settings
from fsxds.settings.reading import read_settings


def read_file(tmp_path: Path, text: str) -> Settings:
    """Read a settings file of this text, with nothing else set."""
    path = tmp_path / "fsxds.yaml"
    path.write_text(text)
    return read_settings({"settings": path}, {}, DEMANDS)


def complaints_of(tmp_path: Path, text: str) -> list[str]:
    """Return what is said of a settings file, without its directory."""
    with pytest.raises(UsageError) as caught:
        read_file(tmp_path, text)
    return str(caught.value).replace(f"{tmp_path}/", "").splitlines()


_KEPT = TemporaryDirectory(prefix="fsxds-settings-")


def file_flags(**values: str) -> tuple[str, str]:
    """Return `--settings` and the path of a new file with these settings, which is kept until the tests end."""
    path = Path(mkdtemp(dir=_KEPT.name)) / "fsxds.yaml"
    path.write_text("".join(f"{name}: {value}\n" for name, value in values.items()))
    return "--settings", str(path)
