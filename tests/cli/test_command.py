from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from fsxds.cli.command import TableCommand, table_command, tree_argument
from fsxds.model.errors import UsageError
from fsxds.settings.options import Settings
from fsxds.settings.reading import SettingsReader


def serving(seen: list[Settings]) -> TableCommand:
    """Return a command with the options of `serve` that remembers its settings."""

    @table_command("serve", "  fsxds serve config/xds")
    @tree_argument
    def command(directory: Path, settings: Settings, reader: SettingsReader) -> None:
        """Serve nothing."""
        seen.append(settings)
        assert settings == reader.read()
        assert directory.is_dir()

    return command


def settings_of(*flags: str) -> Settings:
    """Return the settings that a command gets for these flags."""
    seen: list[Settings] = []
    result = CliRunner(env={"FSXDS_LINGER": "5s"}).invoke(serving(seen), [".", *flags])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception

    assert result.exit_code == 0, result.output
    return seen[0]


def test_flags_become_settings() -> None:
    """Flags carry the values of their rows, with units; what is not given keeps its default."""
    settings = settings_of("--settle", "80ms", "--mirror", "out", "--watch", "poll", "--linger", "1m")

    assert (0.08, Path("out"), "poll", 60.0, 0.5) == (
        settings.settle_s,
        settings.mirror,
        settings.watch,
        settings.linger_s,
        settings.max_removal,
    )


def test_switches_have_two_flags() -> None:
    """A switch is turned on and off by a flag each."""
    assert settings_of("--mirror-config-sources").mirror_config_sources
    assert not settings_of("--mirror-config-sources", "--no-mirror-config-sources").mirror_config_sources
    assert not settings_of().mirror_config_sources


def test_flags_go_before_the_environment() -> None:
    """A variable counts where no flag is given."""
    assert (5.0, 7.0) == (settings_of().linger_s, settings_of("--linger", "7s").linger_s)


def test_a_zero_is_given() -> None:
    """A flag whose value counts as false is not taken for missing."""
    assert settings_of("--settle", "0").settle_s == 0.0


def test_off_is_given() -> None:
    """What is read as None, as `off` is for some, is as much given as a number."""
    assert settings_of("--nack-limit", "off").nack_limit is None
    assert settings_of().nack_limit is not None


def test_a_missing_directory() -> None:
    """A directory that is not there is wrong use."""
    with pytest.raises(UsageError, match=r"^nowhere: there is no such directory"):
        CliRunner().invoke(serving([]), ["nowhere"], catch_exceptions=False)
