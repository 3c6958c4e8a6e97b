"""Random messages: the rules say what a slow, plain reading of the API's options says, and never fail."""

from __future__ import annotations

from collections import Counter

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from tests.api.pgv_by_reflection import Oracle
from tests.api.random_messages import RandomMessages

SEED = 20
ROUNDS = 2

# What random messages are known to break; the rest is rare and has its own tests.
COMMON = {
    "required-field", "required-choice", "out-of-range", "wrong-length", "wrong-pattern", "not-allowed",
    "undefined-enum-value", "wrong-count", "disallowed-field",
}  # fmt: skip


@pytest.fixture(scope="module")
def field_rules(catalogue: Catalogue) -> FieldRules:
    """The rules of this Envoy, without hooks."""
    return FieldRules(catalogue)


def test_random_messages_of_all_types(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """Faults are where the oracle has them, and are among those that it has there."""
    oracle, messages = Oracle(catalogue.pool), RandomMessages(catalogue, SEED)
    told: Counter[str] = Counter()
    disputes = []
    for descriptor in ROUNDS * [one for one in catalogue.descriptors() if not one.GetOptions().map_entry]:
        message = messages.message(descriptor)
        ours = {(fault.field_path, fault.rule) for fault in field_rules.check(message).faults}
        theirs = oracle.broken(message)
        told.update(rule for _, rule in ours)
        if not ours <= theirs or {path for path, _ in ours} != {path for path, _ in theirs}:
            disputes.append((descriptor.full_name, ours ^ theirs))

    assert [] == disputes
    assert {rule for rule, count in told.items() if count >= 5} >= COMMON


def test_a_message_is_told_of_the_same_way_each_time(catalogue: Catalogue, field_rules: FieldRules) -> None:
    """The order of faults is that of the message, also where a map has another order after each reading."""
    messages = RandomMessages(catalogue, SEED)
    descriptor = catalogue.descriptor("envoy.config.cluster.v3.Cluster")
    for _ in range(50):
        message = messages.message(descriptor)
        again = type(message).FromString(message.SerializeToString())

        assert field_rules.check(message).faults == field_rules.check(again).faults
