import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    Case,
    action,
    assert_accepted,
    assert_rejected,
    cluster,
    envoy_accepts,
    manager,
    rules_found,
)

CHECK = "timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, tcp_health_check: {}"


def test_durations_that_envoy_takes(catalogue: Catalogue) -> None:
    """No time, little time, and up to 292 years are durations."""
    assert_accepted(
        catalogue,
        action("{timeout: 0s, idle_timeout: 0.0001s}"),
        action("{timeout: 9223372035s}"),
        cluster("{connect_timeout: 0.0001s}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        action("{timeout: -1s}"),
        action("{timeout: 9223372036s}"),
        action("{max_stream_duration: {max_stream_duration: -1s}}"),
        action("{hash_policy: [{cookie: {name: a, ttl: -1s}}]}"),
        cluster("{connect_timeout: -1s}"),
        cluster("{connect_timeout: 9223372036s}"),
        cluster("{outlier_detection: {max_ejection_time_jitter: -1s}}"),
        cluster(f"{{health_checks: [{{{CHECK}, no_traffic_interval: -1s}}]}}"),
        manager("{drain_timeout: -1s}"),
        manager("{common_http_protocol_options: {idle_timeout: -1s}}"),
    ],
)
def test_durations_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Envoy rejects negative durations, and those that it cannot count in nanoseconds; field rules may say so too."""
    assert not envoy_accepts(case)[0]
    assert "wrong-duration" in rules_found(catalogue, case)


def test_back_off_grows(catalogue: Catalogue) -> None:
    """The longest pause is at least the first one."""
    back_off = "{retry_policy: {retry_on: 5xx, retry_back_off: {base_interval: 1s, max_interval: %s}}}"

    assert_accepted(catalogue, action(back_off % "1s"))
    assert_rejected(catalogue, "wrong-duration", action(back_off % "0.5s"))
