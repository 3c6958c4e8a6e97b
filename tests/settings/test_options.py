from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from fsxds.model.errors import UsageError
from fsxds.settings.forms import DURATION_TEXT, OFF, SIZE_TEXT
from fsxds.settings.option import COMMON, IN_FILE_ONLY
from fsxds.settings.options import BY_NAME, OPTIONS, Settings
from fsxds.settings.reading import read_settings, settings_schema
from tests.support.settings_files import complaints_of, read_file


def test_defaults() -> None:
    """Without flags, variables and file, every option has its default."""
    settings = read_settings({}, {})

    assert Settings() == settings
    assert (0.05, 60.0, 64 * 2**20, 1_000_000) == (
        settings.settle_s,
        settings.max_hold_s,
        settings.max_file_size_bytes,
        settings.parse_apart_above_bytes,
    )


def test_precedence(tmp_path: Path) -> None:
    """A flag goes before a variable, a variable before the file, the file before the default."""
    path = tmp_path / "fsxds.yaml"
    path.write_text("settle: 1s\nlinger: 1m\npoll: 5")

    settings = read_settings({"settle": 3.0, "settings": path}, {"FSXDS_SETTLE": "2s", "FSXDS_LINGER": "2m"})

    assert (3.0, 120.0, 5.0, 10.0) == (settings.settle_s, settings.linger_s, settings.poll_s, settings.settle_cap_s)


def test_settings_file_named_by_variable(tmp_path: Path) -> None:
    """FSXDS_SETTINGS names the settings file where no flag does."""
    path = tmp_path / "fsxds.yaml"
    path.write_text("watch: poll")

    assert read_settings({}, {"FSXDS_SETTINGS": str(path)}).watch == "poll"


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("50ms", 0.05), ("2s", 2.0), ("1m", 60.0), ("1h", 3600.0), ("1.5", 1.5), ("0", 0.0), (" 3 s ", 3.0)],
)
def test_durations(written: str, seconds: float) -> None:
    """Durations have a unit, or are plain seconds."""
    assert seconds == read_settings({}, {"FSXDS_SETTLE": written}).settle_s


@pytest.mark.parametrize(
    ("written", "size_bytes"),
    [("64MiB", 64 * 2**20), ("500kB", 500_000), ("1 GiB", 2**30), ("1.5KiB", 1536), ("12b", 12), ("12", 12)],
)
def test_sizes(written: str, size_bytes: int, tmp_path: Path) -> None:
    """Sizes have a decimal or a binary unit, or are plain bytes."""
    assert size_bytes == read_file(tmp_path, f"max_file_size: {written}").max_file_size_bytes


@pytest.mark.parametrize(
    ("variable", "written"),
    [
        ("FSXDS_SETTLE", "soon"),
        ("FSXDS_SETTLE", "-1s"),
        ("FSXDS_SETTLE", "nan"),
        ("FSXDS_SETTLE", "1 parsec"),
        ("FSXDS_STEP_TIMEOUT", "0"),
        ("FSXDS_STEP_TIMEOUT", "9ms"),
        ("FSXDS_MIRROR_CONFIG_SOURCES", "perhaps"),
        ("FSXDS_WATCH", "inotfy"),
        ("FSXDS_SHOW_TYPE", "xds"),
        ("FSXDS_MIRROR", "a\0b"),
    ],
)
def test_a_bad_variable_is_named(variable: str, written: str) -> None:
    """The message names the variable, what is wrong, and what would be right."""
    with pytest.raises(UsageError, match=f"^{variable}: .* is not "):
        read_settings({}, {variable: written})


def test_did_you_mean_a_choice() -> None:
    """A word that is nearly one of the choices is answered with that choice."""
    with pytest.raises(UsageError, match=r"one of auto, inotify, poll; did you mean inotify\?$"):
        read_settings({}, {"FSXDS_WATCH": "inotfy"})


def test_an_empty_variable_is_not_set() -> None:
    """`FSXDS_MIRROR=` in a compose file leaves the default."""
    assert read_settings({}, {"FSXDS_MIRROR": "", "FSXDS_WATCH": ""}) == Settings()


def test_foreign_variables_are_left_alone() -> None:
    """What Kubernetes sets for a Service named fsxds is no mistake."""
    assert read_settings({}, {"FSXDS_PORT": "tcp://10.0.0.1:80", "FSXDS_SERVICE_HOST": "10.0.0.1"}) == Settings()


def test_no_option_has_a_variable_of_kubernetes() -> None:
    """No option's variable is one that Kubernetes sets for a Service named fsxds."""
    taken = ("FSXDS_PORT", "FSXDS_SERVICE_")

    assert [] == [row.variable for row in OPTIONS if row.variable.startswith(taken)]


@pytest.mark.parametrize(
    ("environment", "cache_dir"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/fsxds")),
        ({"HOME": "/h"}, Path("/h/.cache/fsxds")),
        ({}, None),
        ({"FSXDS_CACHE_DIR": "/mine", "HOME": "/h"}, Path("/mine")),
    ],
)
def test_cache_directory(environment: dict[str, str], cache_dir: Path | None) -> None:
    """The cache is in the user's cache directory, and nowhere for a user without a home."""
    assert cache_dir == read_settings({}, environment).cache_dir


def test_the_schema_is_valid_and_complete() -> None:
    """The schema of the settings file is valid JSON Schema, and has every option with its help and default."""
    schema = settings_schema()
    Draft202012Validator.check_schema(schema)
    properties = schema["properties"]

    assert isinstance(properties, dict)
    assert set(properties) == {row.name for row in OPTIONS} - {"settings"}
    assert all(property_["description"] for property_ in properties.values())


@given(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(),
        st.booleans(),
        st.from_regex(DURATION_TEXT),
        st.from_regex(SIZE_TEXT),
    )
)
def test_schema_and_reading_agree(written: object) -> None:
    """What the schema lets through as a duration or size can be read, and nothing else."""
    for name in ("settle", "max_file_size"):
        is_valid = Draft202012Validator(BY_NAME[name].form.schema).is_valid(written)
        try:
            BY_NAME[name].form.read(written)
            was_read = True
        except ValueError:
            was_read = False

        assert is_valid == was_read


def test_names_of_options() -> None:
    """Keys have no unit, flags of one command drop its name, variables begin with FSXDS_, and fields are unique."""
    names = {row.field: (row.name, row.flag, row.variable) for row in OPTIONS}

    assert names["settle_s"] == ("settle", "--settle", "FSXDS_SETTLE")
    assert names["max_file_size_bytes"] == ("max_file_size", "--max-file-size", "FSXDS_MAX_FILE_SIZE")
    assert names["check_format"] == ("check_format", "--format", "FSXDS_CHECK_FORMAT")
    assert names["dev_transport"] == ("dev_transport", "--transport", "FSXDS_DEV_TRANSPORT")
    assert names["mirror_format"] == ("mirror_format", "--mirror-format", "FSXDS_MIRROR_FORMAT")
    assert len(fields(Settings)) == len({row.name for row in OPTIONS}) == len(OPTIONS)


def test_options_without_a_flag() -> None:
    """The names of `IN_FILE_ONLY` and `COMMON` are options, the common ones with a flag; `serve` has at most 52 flags."""
    assert BY_NAME.keys() >= IN_FILE_ONLY
    for command, names in COMMON.items():
        assert names <= {row.name for row in OPTIONS if command in row.commands and row.has_flag}
    assert len([row for row in OPTIONS if "serve" in row.commands and row.has_flag]) <= 52


@pytest.mark.parametrize("written", ["grpc: off", "grpc: 'off'", "grpc: OFF"])
def test_grpc_can_be_switched_off(tmp_path: Path, written: str) -> None:
    """`off` stands for no address, also where YAML makes `false` of it."""
    assert read_file(tmp_path, written).grpc == OFF


def test_grpc_address_is_a_text(tmp_path: Path) -> None:
    """Any other text is an address, which is read where it is bound."""
    assert read_file(tmp_path, "grpc: unix:/run/fsxds-grpc.sock").grpc == "unix:/run/fsxds-grpc.sock"
    assert complaints_of(tmp_path, "grpc: true") == [
        (
            "fsxds.yaml:1:1: grpc: True is not an address or off "
            "(write 127.0.0.1:18000, [::1]:18000, :18000, unix:/run/fsxds.sock or off)"
        )
    ]
