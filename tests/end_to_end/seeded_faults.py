"""Faults put into a copy of the sample tree, one of a sort, and what is told of them in every format.

`python -m tests.end_to_end.seeded_faults` writes the expected outputs anew; read the difference before you keep it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support.fsxds_process import run_fsxds

TOP = Path(__file__).parents[2]
GOLDEN = TOP / "tests" / "data" / "seeded_faults"

# The suffix of the expected output by its format.
FORMATS = {"text": "txt", "json": "json", "github": "github", "sarif": "sarif", "junit": "xml"}

SECOND_AUTHORITY = """\
resources:
- name: other-authority
  validation_context: {}
- name: demo-authority
  validation_context: {}
"""

_RESPONSE = r'direct_response: {status: 200, body: {inline_string: "hello from fsxds\n"}}'


@dataclass(frozen=True, slots=True)
class SeededFault:
    """One edit of the sample tree; `new` stands for the first `old` of the file, or is a new file where that is empty.

    `rule` and `line` are what must be told of it.
    """

    file: str
    old: str
    new: str
    rule: str
    line: int


FAULTS = (
    SeededFault("listeners/web.yaml", "stat_prefix: web", "stat_prefx: web", "unknown-field", 11),
    SeededFault("listeners/web.yaml", "api_type: REST", "api_type: REZT", "unknown-enum-value", 19),
    SeededFault("routes.yaml", "status: 404", "status: 99", "out-of-range", 18),
    SeededFault("routes.yaml", "{path: /secure}", '{safe_regex: {regex: "/secure(["}}', "wrong-regex", 20),
    SeededFault("routes.yaml", 'domains: ["*"]', 'domains: ["*", example.com, "*"]', "duplicate-domain", 8),
    SeededFault("listeners/backend.yaml", _RESPONSE, "route: {cluster: backnd}", "no-cluster", 20),
    SeededFault("endpoints/backend.json", "127.0.0.1", "127.0.0.300", "wrong-address", 7),
    SeededFault("trust/secrets.yaml", "", SECOND_AUTHORITY, "duplicate-name", 4),
)


def seed(folder: Path) -> Path:
    """Copy the sample tree into a folder, with all faults in it, and return it."""
    tree = folder / "xds"
    shutil.copytree(TOP / "config" / "xds", tree)
    for fault in FAULTS:
        path = tree / fault.file
        if fault.old:
            text = path.read_text(encoding="utf-8")
            assert fault.old in text, fault
            path.write_text(text.replace(fault.old, fault.new, 1), encoding="utf-8")
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(fault.new, encoding="utf-8")
    return tree


def checked(tree: Path, format_name: str) -> tuple[int, bytes, bytes]:
    """Run `fsxds check` beside a tree, as a pipeline does; return its status, output and summary."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FSXDS_")}
    done = run_fsxds(["check", tree.name, "--format", format_name], cwd=tree.parent, env=environment)
    # SARIF says where the files are on this machine.
    return done.returncode, done.stdout.replace(tree.parent.as_uri(), "file:///checkout").encode(), done.stderr.encode()


def main() -> None:
    """Write the expected outputs."""
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = seed(Path(folder))
        for name, suffix in FORMATS.items():
            (GOLDEN / f"expected.{suffix}").write_bytes(checked(tree, name)[1])


if __name__ == "__main__":
    main()
