from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import is_map, map_parts
from fsxds.api.walk import merge_hooks
from fsxds.lint.linter import Linter, linter_of, make_field_rules
from fsxds.model.errors import UsageError
from fsxds.model.values import Fault, Severity
from fsxds.settings.options import Settings
from fsxds.snapshots import references

TEXTS = (
    "",
    "x",
    "%",
    "%REQ(a)%",
    "é",
    "a" * 300,
    "127.0.0.1",
    "::1",
    "(",
    "*",
    "*.a",
    "\\9",
    "-----BEGIN CERTIFICATE-----",
)
NUMBERS = (0, 1, 2, 3, 7, 100, 2**31 - 1)
DEPTH = 4


def fill(message: Any, rng: random.Random, depth: int = DEPTH) -> None:
    """Give a message random fields, those that may be set twice among them."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < (0.75 if depth == DEPTH else 0.4):
            set_field(message, field, rng, depth)


def set_field(message: Any, field: FieldDescriptor, rng: random.Random, depth: int) -> None:
    """Give one field a random value."""
    held = getattr(message, field.name)
    if is_map(field) or field.message_type is not None:
        if depth == 0:
            return
        if is_map(field):
            key, value = map_parts(field)
            if value.message_type is not None:
                fill(held[rng.choice(TEXTS) if key.type == FieldDescriptor.TYPE_STRING else 1], rng, depth - 1)
        elif field.is_repeated:
            for _ in range(rng.randint(1, 3)):
                fill(held.add(), rng, depth - 1)
        else:
            held.SetInParent()
            fill(held, rng, depth - 1)
        return
    if field.is_repeated:
        held.extend([scalar(field, rng), scalar(field, rng)])
    else:
        setattr(message, field.name, scalar(field, rng))


def scalar(field: FieldDescriptor, rng: random.Random) -> Any:
    """Return a value of a field's own form."""
    if field.type == FieldDescriptor.TYPE_STRING:
        return rng.choice(TEXTS)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return rng.choice(TEXTS).encode()
    if field.type == FieldDescriptor.TYPE_BOOL:
        return rng.random() < 0.5
    if field.enum_type is not None:
        return rng.choice(list(field.enum_type.values_by_number))
    return rng.choice(NUMBERS)


@pytest.fixture(scope="module")
def hooked(catalogue: Catalogue) -> list[type[Message]]:
    """The messages that rules look at."""
    names = sorted(merge_hooks(references.hooks(catalogue), Linter().message_hooks(catalogue)))
    return [catalogue.message_class(name) for name in names if catalogue.knows(name)]


def test_no_rule_raises(catalogue: Catalogue, hooked: list[type[Message]]) -> None:
    """Whatever is in a message, right or wrong, is looked at without an exception."""
    rules = make_field_rules(catalogue)
    rng = random.Random(5)
    for message_class in hooked:
        rules.check(message_class())
        for _ in range(40):
            message = message_class()
            fill(message, rng)
            rules.check(message)


def test_a_linter_is_a_value() -> None:
    """A copy in another process judges alike, and is equal; one of other settings is not."""
    settings = Settings(rules={"unused-cluster": "off", "no-cluster": "error"}, static_clusters=("xds",))
    linter = linter_of(settings)

    assert linter == pickle.loads(pickle.dumps(linter)) == linter_of(settings)
    assert linter != linter_of(Settings())
    assert linter != linter_of(Settings(rules=settings.rules))


@pytest.mark.parametrize(
    ("rule", "level", "severity"),
    [
        ("no-cluster", "error", Severity.ERROR),
        ("no-cluster", "note", Severity.NOTE),
        ("no-cluster", "off", None),
        ("no-secret", "off", Severity.WARNING),
    ],
)
def test_settings_change_severities(rule: str, level: str, severity: Severity | None) -> None:
    """A fault has the severity that the settings give its rule, or none at all; those of other rules stay."""
    fault = Fault("no-cluster", "there is none", "add it", severity=Severity.WARNING)
    adjusted = linter_of(Settings(rules={rule: level})).adjusted(fault)

    assert severity == (None if adjusted is None else adjusted.severity)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"no-clustr": "off"}, "there is no rule no-clustr; did you mean no-cluster?"),
        ({"zzz": "off"}, "there is no rule zzz; `fsxds explain` lists the rules"),
        ({"bad-syntax": "off"}, "bad-syntax: is always an error: fsxds cannot serve"),
    ],
)
def test_severities_that_cannot_be_changed(rules: dict[str, str], words: str) -> None:
    """A rule that does not exist, and one without which nothing could be served, are wrong settings."""
    with pytest.raises(UsageError) as caught:
        linter_of(Settings(rules=rules))

    assert words in str(caught.value)


def test_a_time_to_live_that_is_sent_is_no_problem() -> None:
    """With `ttl: spec`, the rule about times to live that are not sent is off."""
    fault = Fault("ttl-dropped", "it is not sent", "remove it", severity=Severity.WARNING)

    assert linter_of(Settings()).adjusted(fault) == fault
    assert linter_of(Settings(ttl="spec")).adjusted(fault) is None


@pytest.mark.parametrize("field", ["request_headers_to_remove", "response_headers_to_remove"])
def test_removals_are_checked_in_every_message(catalogue: Catalogue, field: str) -> None:
    """Every list of headers to remove that the API has is checked."""
    hooks = Linter().message_hooks(catalogue)
    having = {one.full_name for one in catalogue.descriptors() if field in one.fields_by_name}

    assert {one for one in having if f"{one}.{field}" not in hooks} == set()


def test_versions_are_checked_in_every_message(catalogue: Catalogue) -> None:
    """Every version of a transport is checked, except in a bootstrap, and beside `self`, which has no transport."""
    hooks = Linter().message_hooks(catalogue)
    having = {one.full_name for one in catalogue.descriptors() if "transport_api_version" in one.fields_by_name}
    checked = {name for name, found in hooks.items() if any("_check_version" in repr(hook) for hook in found)}

    assert having - checked == {
        "envoy.config.core.v3.SelfConfigSource",
        "envoy.config.metrics.v3.MetricsServiceConfig",
    }
