"""What an Envoy says it has, and what rules make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue, Features
from fsxds.api.converter import Converter
from fsxds.envoy.envoy_features import read_features
from fsxds.lint.linter import make_field_rules
from fsxds.model.errors import ApiError
from fsxds.source.envoy_api import ApiCache, find_api, packaged_features
from tests.support.envoy import find_envoy

LOG = "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog"


@pytest.fixture(scope="module")
def asked() -> Features:
    """The features of the Envoy of the tests."""
    return read_features(Path(find_envoy()))


def test_what_is_packaged_is_what_the_envoy_says(asked: Features) -> None:
    """The file in the package was written by the command that is named beside it."""
    assert asked == packaged_features()
    assert {"P-256": "P-256", "prime256v1": "P-256"}.items() <= asked.curves.items()
    assert len(asked.extensions) > 100


def test_features_are_the_same_when_read_again(asked: Features) -> None:
    """What is written into the cache is what comes back."""
    assert Features.of_json(asked.to_json()) == asked


def test_what_is_no_envoy_does_not_answer(tmp_path: Path) -> None:
    """Another executable is an error in one line."""
    other = tmp_path / "envoy"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)

    with pytest.raises(ApiError, match="does not answer as Envoy does"):
        read_features(other)


def test_another_envoy_is_asked_once(tmp_path: Path) -> None:
    """What a build says is kept by its content; who does not ask hears what is kept, or nothing."""
    other, cache = tmp_path / "envoy", tmp_path / "cache"
    other.write_bytes(Path(find_envoy()).read_bytes().replace(b"\x001.40.0\x00", b"\x001.41.0\x00") + b"other")
    questions: list[Path] = []

    def ask(path: Path) -> Features:
        questions.append(path)
        return replace(packaged_features(), version="1.41.0")

    def found(*, asks: bool) -> Features | None:
        return find_api(envoy=other, descriptors=None, cache_dir=cache, ask=ask if asks else None).features

    before = found(asks=False)
    versions = {one.version for one in (found(asks=True), found(asks=True), found(asks=False)) if one}

    assert (before, {"1.41.0"}, [other]) == (None, versions, questions)


def test_what_is_kept_and_broken_is_as_if_it_were_not(tmp_path: Path) -> None:
    """A file of the cache that is not sound is not read."""
    cache = ApiCache(tmp_path)
    cache.store_features("key", packaged_features())
    for path in tmp_path.iterdir():
        path.write_text('{"version": 5}')

    assert cache.load_features("key") is None


def test_rules_go_by_the_envoy_in_use(catalogue: Catalogue) -> None:
    """A command that this Envoy lacks is an error, one of another Envoy is not; of an unknown Envoy nothing is said."""
    packaged = packaged_features()
    commands = {name: command for name, command in packaged.commands.items() if name != "TRACE_ID"}

    def rules_of(features: Features | None, text: str) -> list[str]:
        api = Catalogue.of(catalogue.serialized, "API", features)
        log = {"@type": LOG, "log_format": {"text_format_source": {"inline_string": text}}}
        listener: Any = {"access_log": [{"name": "log", "typed_config": log}], "filter_chains": [{}]}
        message = Converter(api).convert(listener, "envoy.config.listener.v3.Listener").message
        assert message is not None
        return [
            fault.rule for fault in make_field_rules(api).check(message).faults if fault.rule == "wrong-format-string"
        ]

    assert [] == rules_of(packaged, "%TRACE_ID%")
    assert ["wrong-format-string"] == rules_of(replace(packaged, commands=commands), "%TRACE_ID%")
    assert [] == rules_of(None, "%NO_SUCH_COMMAND%")
