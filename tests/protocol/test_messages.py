"""What is shown of the reasons of NACKs."""

from __future__ import annotations

import pytest

from fsxds.protocol.messages import without_message


def test_message_of_an_older_envoy_is_left_out() -> None:
    """Until 1.36 Envoy put the message that it refused before the reason without any mark."""
    reason = "Proto constraint validation failed (ClusterValidationError.ConnectTimeout: value must be greater than 0s)"

    assert reason == without_message(f'name: "a"\ntransport_socket {{\n  secret: "s"\n}}\n: {reason}')
    assert f"Error adding: {reason}" == without_message(f"Error adding: {reason}")


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ('no such filter: goo.gle/debugproto  name: "a" secret: "s"', "no such filter"),
        (
            "Proto constraint validation failed (X: value is required): {name: a, secret: s}",
            "Proto constraint validation failed (X: value is required)",
        ),
        ("short", "short"),
        ("", ""),
    ],
)
def test_message_after_a_reason_is_left_out(reason: str, shown: str) -> None:
    """Envoy prints what it rejects, secrets included, behind the reason."""
    assert shown == without_message(reason)
