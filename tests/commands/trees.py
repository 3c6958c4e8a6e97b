"""Trees for the commands to read, and the settings to read them with."""

from __future__ import annotations

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

SECRETS = """\
- name: web
  tls_certificate:
    private_key: {inline_string: "S3CR3T"}
    certificate_chain: {inline_bytes: "UzNDUjNU"}
"""


def write_tree(root: Path, **texts: str) -> Path:
    """Write YAML files by their stems and return the directory."""
    tree = root / "xds"
    tree.mkdir()
    for stem, text in texts.items():
        (tree / f"{stem}.yaml").write_text(text)
    return tree
