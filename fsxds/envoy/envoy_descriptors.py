"""Reads an Envoy executable's descriptors, for `--descriptors` on other machines.

`python -m fsxds.envoy.envoy_descriptors ENVOY > FILE` runs nothing: the executable may be foreign.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fsxds.api.descriptors import read_descriptors


def envoy_descriptors(executable: Path) -> bytes:
    """Return a serialized FileDescriptorSet.

    Raises:
        ApiError: the file is no Envoy.
        OSError: it cannot be read.
    """
    return read_descriptors(executable.read_bytes()).SerializeToString(deterministic=True)


if __name__ == "__main__":
    sys.stdout.buffer.write(envoy_descriptors(Path(sys.argv[1])))
