"""The configurations of nginx in `docker/`, as nginx itself reads them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.nginx import MISSING, NGINX, config_text
from tests.support.ports import free_port

# Names of hosts are looked up when it starts.
HOSTS = {
    "nginx-cache.conf": {"fsxds:18001": "127.0.0.1:18001"},
    "nginx-export.conf": {},
    "nginx.conf": {f"fsxds-{number}:": f"127.0.0.{number}:" for number in (1, 2, 3)},
}


@pytest.mark.skipif(NGINX is None, reason=MISSING)
@pytest.mark.parametrize("sample", HOSTS)
def test_samples_are_valid(sample: str, tmp_path: Path) -> None:
    """`nginx -t` has no complaint, and no warning."""
    assert NGINX is not None
    config = tmp_path / "nginx.conf"
    text = config_text(sample, tmp_path, HOSTS[sample])
    # It listens to see whether it can.
    config.write_text(re.sub(r"listen \d+", lambda _: f"listen 127.0.0.1:{free_port()}", text))
    command = [NGINX, "-t", "-c", str(config), "-p", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr
