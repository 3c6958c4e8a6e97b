"""What `fsxds import` says and writes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from fsxds.cli.main import main
from tests.cli.trees import KEY

BOOTSTRAP = """\
# Ours.
static_resources:
  clusters:
  # The upstream.
  - name: web
    type: STATIC
    connect_timeout: 1s
  listeners:
  - name: in
    address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: t
          cluster: web
"""


@pytest.fixture
def bootstrap(tmp_path: Path) -> Path:
    """A bootstrap with a listener and a cluster."""
    path = tmp_path / "envoy.yaml"
    path.write_text(BOOTSTRAP)
    return path


def test_a_newcomers_first_import(bootstrap: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It lists the files, says that the tree is clean, and how to go on; those commands are right."""
    assert main(["import", str(bootstrap), str(tmp_path / "xds")]) == 0
    said = capfd.readouterr()

    assert f"{tmp_path}/xds/clusters/web.yaml\n" in said.out
    assert "imported: 1 listener, 1 cluster; the bootstrap and the tree together are complete\n" in said.out
    assert f"fsxds serve {tmp_path}/xds --bootstrap {tmp_path}/bootstrap.yaml\n" in said.out
    assert f"envoy -c {tmp_path}/bootstrap.yaml\n" in said.out
    assert "# The upstream.\nname: web\n" in (tmp_path / "xds" / "clusters" / "web.yaml").read_text()
    assert main(["check", str(tmp_path / "xds"), "--bootstrap", str(tmp_path / "bootstrap.yaml"), "--with-envoy"]) == 0


def test_a_dry_run_writes_nothing(bootstrap: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It says the same, and the disk stays as it is."""
    assert main(["import", str(bootstrap), str(tmp_path / "xds"), "--dry-run", "--format", "json"]) == 0
    said = json.loads(capfd.readouterr().out)

    assert ["envoy.yaml"] == [path.name for path in tmp_path.iterdir()]
    assert not said["written"]
    assert ["listeners/in.yaml", "clusters/web.yaml"] == [file["path"] for file in said["files"]]
    assert [] == said["problems"]


def test_errors_of_the_bootstrap(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A bootstrap that Envoy would reject is not imported: each mistake has its place."""
    path = tmp_path / "envoy.yaml"
    path.write_text(BOOTSTRAP.replace("connect_timeout", "conect_timeout"))

    assert main(["import", str(path), str(tmp_path / "xds")]) == 1
    assert (
        f'{path}:7:5: error: static_resources.clusters[0].conect_timeout: envoy.config.cluster.v3.Cluster has no field "conect_timeout"; did you mean "connect_timeout"?\n'
        in capfd.readouterr().err
    )
    assert not (tmp_path / "xds").exists()


def test_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes by stdin is read as YAML: templates can be rendered on the way."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(BOOTSTRAP.encode())))

    assert main(["import", "-", str(tmp_path / "xds")]) == 0
    assert (tmp_path / "xds" / "listeners" / "in.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.yaml", "xds"], "cannot be read: No such file or directory; give a bootstrap of Envoy"),
        (["envoy.yaml", "xds", "--transport", "files"], "add --mirror DIR"),
        (["envoy.yaml", "."], "is not empty, no file was written"),
        (["envoy.yaml", "xds", "-o", "envoy.yaml"], "exists already, no file was written; give another file"),
        (["empty.yaml", "xds"], "has no static_resources to import; `fsxds bootstrap` prints"),
        (["files.yaml", "xds"], "so their directory is a tree already: `fsxds check /etc/envoy/xds`"),
    ],
)
def test_wrong_use(
    arguments: list[str], said: str, bootstrap: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One line says what is wrong and what to do, and nothing is written."""
    monkeypatch.chdir(bootstrap.parent)
    Path("empty.yaml").write_text("node: {id: a}\n")
    file = "{path_config_source: {path: /etc/envoy/xds/%s.yaml}}"
    Path("files.yaml").write_text(f"dynamic_resources: {{lds_config: {file % 'lds'}, cds_config: {file % 'cds'}}}\n")

    assert main(["import", *arguments]) == 2
    assert said in capfd.readouterr().err
    assert not Path("xds").exists()


def test_no_secret_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither for people nor for programs, also where it has a mistake."""
    key = KEY.strip().replace("\n", "\n          ")
    path = tmp_path / "envoy.yaml"
    secret = f"  - name: s\n    tls_certificate:\n      private_key:\n        inline_string: |\n          {key}\n"
    path.write_text(f"static_resources:\n  secrets:\n{secret}")
    main(["import", str(path), str(tmp_path / "a")])
    main(["import", str(path), str(tmp_path / "b"), "--dry-run", "--format", "json", "-o", str(tmp_path / "c")])
    path.write_text(path.read_text() + "      privat_key: S3CR3T\n")
    main(["import", str(path), str(tmp_path / "d"), "-o", str(tmp_path / "e")])
    said = capfd.readouterr()

    assert 0o600 == (tmp_path / "a" / "secrets" / "s.yaml").stat().st_mode & 0o777
    assert "MHcCAQEE" not in said.out + said.err
    assert "S3CR3T" not in said.out + said.err
