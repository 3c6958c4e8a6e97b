from __future__ import annotations

import pytest

from fsxds.snapshots.document import authored_path
from fsxds.values import FieldPath, PlainValue

WRITTEN: PlainValue = {
    "connectTimeout": "1s",
    "load_assignment": {"endpoints": [{"lbEndpoints": {"healthStatus": 1}}]},
    "metadata": {"filter_metadata": {"a_b": {}}},
}


@pytest.mark.parametrize(
    ("field_path", "expected"),
    [
        ((), ()),
        (("connect_timeout",), ("connectTimeout",)),
        (
            ("load_assignment", "endpoints", 0, "lb_endpoints", 0, "health_status"),
            ("load_assignment", "endpoints", 0, "lbEndpoints", "healthStatus"),
        ),
        (("metadata", "filter_metadata", "a_b"), ("metadata", "filter_metadata", "a_b")),
        (("lb_policy",), ("lb_policy",)),
        (("load_assignment", "endpoints", 3, "priority"), ("load_assignment", "endpoints", 3, "priority")),
        (("connect_timeout", "seconds"), ("connectTimeout", "seconds")),
    ],
)
def test_authored_path(field_path: FieldPath, expected: FieldPath) -> None:
    """Fields are found in either spelling, and in an object that stands for a list of one; what is missing keeps its name."""
    assert expected == authored_path(WRITTEN, field_path)
