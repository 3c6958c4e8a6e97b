from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, SECRETS, TYPO


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with some files."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("cds", CLUSTERS), ("sds", SECRETS), ("clusters", TYPO)):
        Path(f"{name}.yaml").write_text(text)
    return tmp_path


def test_all_formats(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """A file goes through all formats and says the same in the end, with its version; nothing is said on stderr."""
    source = "cds.yaml"
    for target in ("textproto", "pb", "json", "yaml"):
        assert main(["convert", source, "--to", target, "-o", f"out.{target}"]) == 0
        source = f"out.{target}"

    written = yaml.safe_load(Path("out.yaml").read_text())
    assert b"" == capfdbinary.readouterr().err
    assert "7" == written["version_info"]
    assert {
        "@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        "name": "web",
        "type": "STATIC",
        "connect_timeout": "1s",
    } == written["resources"][0]


def test_the_name_after_o_tells_the_format(capfd: pytest.CaptureFixture[str]) -> None:
    """Without --to, the suffix of the new file decides."""
    assert main(["convert", "cds.yaml", "-o", "new.json"]) == 0
    assert "web" == json.loads(Path("new.json").read_text())["resources"][0]["name"]
    assert ("", "") == capfd.readouterr()


def test_stdin_to_stdout() -> None:
    """Without a file, stdin is read; the bytes go to stdout as they are."""
    command = [sys.executable, "-m", "fsxds", "convert", "--from", "json", "--to", "pb", "--type", "cds"]
    done = subprocess.run(command, input=b'{"name": "a"}', capture_output=True, check=False)

    assert (0, b"-: the resource became one DiscoveryResponse\n") == (done.returncode, done.stderr)
    assert b"envoy.config.cluster.v3.Cluster" in done.stdout


def test_secrets_are_written() -> None:
    """What is written is the content, secrets included."""
    assert main(["convert", "sds.yaml", "--to", "json", "-o", "sds.json"]) == 0
    assert "S3CR3T" in Path("sds.json").read_text()


def test_problems(capfd: pytest.CaptureFixture[str]) -> None:
    """A mistake is told as `check` tells it, ends with status 1, and nothing is written."""
    assert main(["convert", "clusters.yaml", "--to", "json", "-o", "new.json"]) == 1
    out, err = capfd.readouterr()

    assert ("", False) == (out, Path("new.json").exists())
    assert err.startswith("clusters.yaml:3:3: error: resources[0].conect_timeout: envoy.config.cluster.v3.Cluster has")


def test_problems_hide_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    """A wrong value in a secret is not quoted."""
    Path("sds.yaml").write_text("name: a\ntls_certificate: {password: {inline_bytes: '?S3CR3T'}}")

    assert main(["convert", "sds.yaml", "--to", "json"]) == 1
    out, err = capfd.readouterr()
    assert err.startswith("sds.yaml:2:30: error: tls_certificate.password.inline_bytes: ")
    assert "S3CR3T" not in out + err


def test_comments(capfd: pytest.CaptureFixture[str]) -> None:
    """That comments are not kept is said once."""
    Path("eds.yaml").write_text("# one\ncluster_name: a # two")

    assert main(["convert", "eds.yaml", "--to", "yaml"]) == 0
    assert "eds.yaml: comments are not kept\n" == capfd.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nosuch.yaml", "--to", "json"], "fsxds: nosuch.yaml: cannot be read: No such file or directory"),
        (["cds.yaml"], "fsxds convert: no name tells the format; give --to yaml|json|textproto|pb"),
        (["--to", "json"], "fsxds convert: no name tells the format; give --from yaml|json|textproto|pb"),
        (["cds.yaml", "--to", "xml"], "fsxds convert: Invalid value for '--to'"),
        (["cds.yaml", "--to", "json", "-o", "no/such"], "fsxds: no/such: cannot be written: No such file or directory"),
        (["half.json", "--to", "yaml"], "fsxds: half.json: layer.a: yaml cannot hold this (in YAML a number within"),
        (["two.yaml", "--to", "pb", "--type", "cds"], "fsxds: two.yaml: its documents have different versions"),
    ],
)
def test_wrong_use(
    arguments: list[str], line: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be done ends with status 2 and one line, and nothing is written."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"name: a")))
    Path("half.json").write_text(
        '{"@type": "type.googleapis.com/envoy.service.runtime.v3.Runtime", "layer": {"a": 0.5}}'
    )
    Path("two.yaml").write_text(f"{CLUSTERS}---\n{CLUSTERS.replace('7', '8').replace('web', 'api')}")

    assert main(["convert", *arguments]) == 2
    out, err = capfd.readouterr()
    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(line)


def test_no_binary_on_a_terminal() -> None:
    """Binary is not written to a terminal."""
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "fsxds", "convert", "cds.yaml", "--to", "pb"]
    done = subprocess.run(command, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(ours)
    os.close(theirs)

    assert (2, "fsxds: a terminal cannot show binary; give -o FILE\n") == (done.returncode, done.stderr)
