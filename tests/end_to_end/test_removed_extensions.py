"""Extension configurations that an operator deletes: a real Envoy goes on without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.grpc_envoy import DELTA, DELTA_ADS, Fleet, Variant
from tests.support.resources import direct_route, http_listener

FAULT = "type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault"
DEFAULT = f'default_config: {{"@type": {FAULT}, abort: {{http_status: 418, percentage: {{numerator: 100}}}}}}'


def faults(default: str) -> str:
    """Return a filter whose configuration comes by ECDS."""
    return f"""\
        - name: fault
          config_discovery:
            config_source: {{api_config_source: {{}}}}
            type_urls: [{FAULT}]
            {default}
"""


@pytest.mark.parametrize("variant", [DELTA_ADS, DELTA], ids=str)
@pytest.mark.parametrize(("default", "status"), [(DEFAULT, 418), ("", 500)], ids=["default", "none"])
def test_a_filter_that_is_deleted_ends(tmp_path: Path, variant: Variant, default: str, status: int) -> None:
    """What the listener has for that case takes its place, and ends when the filter is back."""
    fleet = Fleet(tmp_path, variant, "--settle", "10ms", "--linger", "0s")
    resource = f"""\
- "@type": type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig
  name: fault
  typed_config: {{"@type": {FAULT}, abort: {{http_status: 421, percentage: {{numerator: 100}}}}}}
"""
    fleet.write("lds.yaml", http_listener("front", 0, "front", faults(default)))
    fleet.write("rds.yaml", direct_route("front", "fine"))
    fleet.write("ecds.yaml", resource)
    with fleet.running() as (_, envoy):
        envoy.until(lambda: envoy.ask("front").status == 421, "the fault")
        (fleet.tree / "ecds.yaml").unlink()
        envoy.until(lambda: envoy.ask("front").status == status, "the end of the fault")
        fleet.write("ecds.yaml", resource)
        envoy.until(lambda: envoy.ask("front").status == 421, "the fault again")

        assert envoy.rejections() == {}
