"""Trees for the commands to read, and the settings to read them with."""

from __future__ import annotations

import base64
import json
from pathlib import Path

CLUSTERS = """\
version_info: "7"
resources:
- name: web
  type: STATIC
  connect_timeout: 1s
"""

TYPO = """\
resources:
- name: api
  conect_timeout: 1s
"""

# A pair that belongs together, made for these tests alone. What stands before the first line of PEM is not looked at.
KEY = """\
S3CR3T
-----BEGIN EC PRIVATE KEY-----
MHcCAQEEINqxnoW1O8JnZGv4GZveUiadRePMiOe1gpOwc6DGFgALoAoGCCqGSM49
AwEHoUQDQgAE8rI+H8kdwmL1zgavh4RqkM/EKwFlzpfP21BSkUTch8WBN247q5GB
MUo97M+i4hZ6+tlBPu6X+i+5ajSBCFZJ3Q==
-----END EC PRIVATE KEY-----
"""
CHAIN = """\
S3CR3T
-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIUJv+eKjK8qQ5CrNqpmlVkhRgsLnAwCgYIKoZIzj0EAwIw
EDEOMAwGA1UEAwwFdGVzdHMwIBcNMjYxMTIxMDAyNzUwWhgPMjEyNjEwMjgwMDI3
NTBaMBAxDjAMBgNVBAMMBXRlc3RzMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE
8rI+H8kdwmL1zgavh4RqkM/EKwFlzpfP21BSkUTch8WBN247q5GBMUo97M+i4hZ6
+tlBPu6X+i+5ajSBCFZJ3aNTMFEwHQYDVR0OBBYEFJZ1EPeG5ciYgTmrJLgUTtxi
mi25MB8GA1UdIwQYMBaAFJZ1EPeG5ciYgTmrJLgUTtximi25MA8GA1UdEwEB/wQF
MAMBAf8wCgYIKoZIzj0EAwIDRwAwRAIgM05jdo3u58DDg5Fvxm7OH5shF93XCBkD
SchCFRcCT1ACIAVfnTrK3zAVLwsMf8VPc2XI+ibFLECJbqM5K1h1X25G
-----END CERTIFICATE-----
"""

SECRETS = f"""\
- name: web
  tls_certificate:
    private_key: {{inline_string: {json.dumps(KEY)}}}
    certificate_chain: {{inline_bytes: {base64.b64encode(CHAIN.encode()).decode()}}}
"""


def write_tree(root: Path, **texts: str) -> Path:
    """Write YAML files by their stems and return the directory."""
    tree = root / "xds"
    tree.mkdir()
    for stem, text in texts.items():
        (tree / f"{stem}.yaml").write_text(text)
    return tree
