from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from fsxds.model.errors import UsageError
from fsxds.settings.option import IN_FILE_ONLY
from fsxds.settings.options import BY_NAME, Settings
from fsxds.settings.reading import GONE, SettingsChange, read_settings, settings_schema, user_state_dir
from tests.support.settings_files import complaints_of, read_file


def test_paths_of_a_file_are_relative_to_it(tmp_path: Path) -> None:
    """A settings file means the same wherever fsxds is started."""
    settings = read_file(tmp_path, "mirror: out\nenvoy: /opt/envoy")

    assert (tmp_path / "out", Path("/opt/envoy")) == (settings.mirror, settings.envoy)


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    """A settings file of comments alone, and an optional key without a value, leave the defaults."""
    assert Settings() == replace(read_file(tmp_path, "# settle: 50ms\n"), settings=None)
    assert Settings() == replace(read_file(tmp_path, "mirror:\nshow_type:\n"), settings=None)


def test_every_mistake_of_a_file_is_told(tmp_path: Path) -> None:
    """All mistakes come in one go, each with place, key, fact and remedy."""
    text = "settle: 50 parsecs\nmax_hld: 1\nwatch: poll\nwatch: auto\n  \nrescan: 0\nmirror_durable: 'yes'\nhttp:\n"

    assert complaints_of(tmp_path, text) == [
        "fsxds.yaml:1:1: settle: '50 parsecs' is not a duration (write 50ms, 2s, 1m or a number of seconds)",
        "fsxds.yaml:2:1: max_hld: there is no such setting; did you mean max_hold?",
        "fsxds.yaml:4:1: watch: is set twice; keep one of them",
        "fsxds.yaml:6:1: rescan: 0 is not a duration (write 50ms, 2s, 1m or a number of seconds, 10ms at least)",
        "fsxds.yaml:7:1: mirror_durable: 'yes' is not true or false",
        "fsxds.yaml:8:1: http: None is not an address or off (write 127.0.0.1:18000, [::1]:18000, :18000, unix:/run/fsxds.sock or off)",
    ]


def test_options_that_are_gone_say_what_to_use_instead(tmp_path: Path) -> None:
    """In a settings file with the place of the key, and in the environment; an empty variable counts as not set."""
    remedy = "a rejected resource is held back in any case; --nack-limit off replaces --on-nack continue"
    assert complaints_of(tmp_path, "settle: 50ms\non_nack: hold\n") == [f"fsxds.yaml:2:1: on_nack is gone: {remedy}"]
    with pytest.raises(UsageError, match=f"^FSXDS_ON_NACK is gone: {remedy}$"):
        read_settings({}, {"FSXDS_ON_NACK": "continue"})
    read_settings({}, {"FSXDS_ON_NACK": ""})


@pytest.mark.parametrize("name", sorted(IN_FILE_ONLY))
def test_variables_that_are_settings_of_the_file(name: str) -> None:
    """A variable of an option that stands in the file alone is rejected, and named with the setting that replaces it."""
    with pytest.raises(
        UsageError, match=f"^FSXDS_{name.upper()} is gone: write `{name}: .*` into the file that --settings"
    ):
        read_settings({}, {f"FSXDS_{name.upper()}": "1"})


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_is_no_option(name: str) -> None:
    """Else it would be rejected although it is there."""
    assert name not in BY_NAME


def test_mistakes_within_a_value_have_a_place(tmp_path: Path) -> None:
    """A rule that does not exist is reported with the others, at the line of its setting."""
    assert complaints_of(tmp_path, "rules: {unused-clustr: off}\nmax_hld: 1\n") == [
        "fsxds.yaml:1:1: rules: there is no rule unused-clustr; did you mean unused-cluster?",
        "fsxds.yaml:2:1: max_hld: there is no such setting; did you mean max_hold?",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("settle: [1", "fsxds.yaml:1:11: "),
        ("- settle", "fsxds.yaml:1:1: is not a mapping"),
        ("a: 1\n---\nb: 2", "fsxds.yaml:2:1: "),
        ("a: !!python/none x", "fsxds.yaml:1:4: "),
        ("a: \x00", "fsxds.yaml:1:1: "),
        ("authority: 2024-13-45", "fsxds.yaml:1:1: has a number or a date that does not exist"),
        ("authority: !!bool maybe", "fsxds.yaml:1:1: has a number or a date that does not exist"),
        ("authority: !!int ''", "fsxds.yaml:1:1: has a number or a date that does not exist"),
        ("authority: !!timestamp x", "fsxds.yaml:1:1: has a number or a date that does not exist"),
        (f"max_views: {'9' * 5000}", "fsxds.yaml:1:1: has a number or a date that does not exist"),
        (f"max_hold: {'9' * 400}", "fsxds.yaml:1:1: "),
        (f"max_body: {'9' * 400}", "fsxds.yaml:1:1: "),
    ],
)
def test_what_is_no_settings_file(tmp_path: Path, text: str, complaint: str) -> None:
    """What is not one YAML mapping is reported with its place."""
    (line,) = complaints_of(tmp_path, text)

    assert line.startswith(complaint)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """A settings file that is not there is wrong use."""
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_settings({"settings": tmp_path / "none.yaml"}, {})


def test_every_default_is_allowed_by_the_schema() -> None:
    """A settings file that spells out the defaults is valid."""
    properties = settings_schema()["properties"]
    assert isinstance(properties, dict)
    defaults = {name: rule["default"] for name, rule in properties.items()}

    assert [] == list(Draft202012Validator(settings_schema()).iter_errors(defaults))


def test_a_change_of_settings_is_applied_where_that_is_possible() -> None:
    """What can change while fsxds runs is taken over; the others of this command are named, and stay."""
    before = Settings()
    after = replace(before, settle_s=1.0, http="127.0.0.1:1", check_format="json")
    change = SettingsChange.between(before, after, "serve")

    assert change == SettingsChange(replace(before, settle_s=1.0), ("settle",), ("http",))
    assert SettingsChange.between(before, before, "serve") == SettingsChange(before, (), ())


@pytest.mark.parametrize(
    ("environment", "directory"),
    [
        ({"XDG_STATE_HOME": "/s", "HOME": "/h"}, Path("/s/fsxds")),
        ({"HOME": "/h"}, Path("/h/.local/state/fsxds")),
        ({}, None),
    ],
)
def test_state_directory_of_the_user(environment: dict[str, str], directory: Path | None) -> None:
    """As the XDG specification has it; a user without a home has none."""
    assert directory == user_state_dir(environment)
