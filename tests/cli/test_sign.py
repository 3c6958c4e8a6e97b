from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from fsxds.cli.main import main
from fsxds.model.values import MANIFEST, MANIFEST_SIGNATURE
from fsxds.signing.tree_manifest import read_manifest
from tests.cli.trees import CLUSTERS, SECRETS, TYPO, write_tree
from tests.support.signing import CODE_SIGNING, Spec, authority, key_of, lasting_signer

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
VIEWS = """\
views:
  - {name: edge, layers: [common, edge], match: {id: "edge-*"}}
  - {name: core, layers: [common], match: {}}
"""


def run(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return the status and what is printed."""
    status = main([*map(str, arguments)])
    printed = capfd.readouterr()
    return status, printed.out, printed.err


@pytest.fixture
def flags(tmp_path: Path) -> tuple[str, ...]:
    """Return the flags of who signs."""
    key, cert, _ = lasting_signer(tmp_path)
    return "--key", str(key), "--cert", str(cert)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_tree_is_signed_and_verified(
    tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """Each command that serves takes it, as long as no byte changes; then each says so."""
    tree, out, ca = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS), tmp_path / "out", tmp_path / "ca.crt"
    status, printed, _ = run(capfd, "sign", tree, *flags)

    assert status == 0
    assert printed.startswith(f"{tree}: 2 files and 2 resources signed by CN=release, serial ")
    assert names_in(tree) == {"cds.yaml", "sds.yaml", MANIFEST, MANIFEST_SIGNATURE}
    commands = (
        ["check", tree, "--no-envoy"],
        ["show", tree],
        ["mirror", tree, out],
        ["export", tree, tmp_path / "public"],
    )
    for command in commands:
        status, printed, errors = run(capfd, *command, "--verify-with", ca)
        assert (status, "trust" in printed + errors) == (0, False), command
    served = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}

    (tree / "cds.yaml").write_text(CLUSTERS.replace("1s", "2s"))
    fact = "the content is not as in the signed tree (serial "
    status, printed, _ = run(capfd, "check", tree, "--no-envoy", "--verify-with", ca)
    assert (status, f"cds.yaml:1:1: error[file-changed]: {fact}" in printed) == (1, True)
    assert "1 cluster" in run(capfd, "check", tree, "--no-envoy", "--verify-with", ca)[2]
    for command in commands[2:]:
        status, _, errors = run(capfd, *command, "--verify-with", ca)
        assert (status, f"cds.yaml:1:1: error: {fact}" in errors) == (1, True), command
    assert {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()} == served
    assert "web" not in run(capfd, "show", tree, "--verify-with", ca)[1]
    # Nobody else is asked for a signature.
    assert run(capfd, "check", tree, "--no-envoy")[0] == 0


def test_the_settings_file_says_who_is_trusted(
    tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """Its path is seen from that file; those who edit a tree or look at it are not asked."""
    tree, settings = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "fsxds.yaml"
    settings.write_text("verify_with: ca.crt\n")
    (tmp_path / "other").mkdir()
    again = write_tree(tmp_path / "other", cds=CLUSTERS)

    assert (
        "error[manifest-missing]: the tree has no manifest"
        in run(capfd, "check", tree, "--no-envoy", "--settings", settings)[1]
    )
    assert run(capfd, "diff", tree, again, "--settings", settings)[0] == 0
    assert run(capfd, "sign", tree, *flags, "--settings", settings)[0] == 0
    assert run(capfd, "check", tree, "--no-envoy", "--settings", settings)[0] == 0


def test_views_are_signed(tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """The manifest has each content that a view of the settings serves, of a name several."""
    tree, settings, ca = tmp_path / "xds", tmp_path / "fsxds.yaml", tmp_path / "ca.crt"
    settings.write_text(VIEWS)
    for layer, seconds in (("common", 1), ("edge", 2)):
        (tree / layer).mkdir(parents=True)
        (tree / layer / "cds.yaml").write_text(f"[{{name: web, connect_timeout: {seconds}s}}]")
    trusted = ("--settings", settings, "--verify-with", ca)

    assert run(capfd, "sign", tree, *flags, "--settings", settings)[0] == 0
    assert len(read_manifest((tree / MANIFEST).read_bytes()).resources[CDS]["web"]) == 2  # type: ignore[index]
    assert run(capfd, "check", tree, "--no-envoy", *trusted)[0] == 0
    assert "web" in run(capfd, "show", tree, "--view", "edge", *trusted)[1]
    (tree / "edge" / "lds.yaml").write_text("[]")
    assert "web" not in run(capfd, "show", tree, "--view", "edge", *trusted)[1]
    status, _, errors = run(capfd, "mirror", tree, tmp_path / "out", "--view", "edge", *trusted)
    assert (status, "lds.yaml:1:1: error: the file is not part of the signed tree" in errors) == (1, True)


def test_serials_grow(tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """By default they are the time; never less than the one before, whatever the clock says."""
    tree = write_tree(tmp_path, cds=CLUSTERS)

    def serial() -> int:
        return read_manifest((tree / MANIFEST).read_bytes()).serial

    before_s = int(time.time())
    run(capfd, "sign", tree, *flags)
    assert before_s <= serial() <= time.time()
    assert run(capfd, "sign", tree, *flags, "--serial", 2**50)[0] == 0
    assert run(capfd, "sign", tree, *flags)[0] == 0
    assert serial() == 2**50 + 1
    status, _, errors = run(capfd, "sign", tree, *flags, "--serial", 5)
    assert (status, "--serial: 5 is not more than" in errors) == (2, True)
    (tree / MANIFEST).write_text("nonsense")
    assert run(capfd, "sign", tree, *flags, "--serial", 5)[0] == 0
    assert serial() == 5


def test_mistakes_are_not_signed(tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """They are reported, and nothing is written; nor is it for a directory without configuration."""
    tree, empty = write_tree(tmp_path, cds=CLUSTERS, lds=TYPO), tmp_path / "empty"
    empty.mkdir()
    status, printed, errors = run(capfd, "sign", tree, *flags)

    assert (status, printed, "lds.yaml:" in errors) == (1, "", True)
    assert "has mistakes; not signed" in errors
    assert run(capfd, "sign", empty, *flags)[::2] == (1, f"{empty} has no configuration; not signed\n")
    assert (names_in(tree), names_in(empty)) == ({"cds.yaml", "lds.yaml"}, set())


def test_encrypted_keys(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The password is the first line of a file."""
    lasting_signer(tmp_path)
    tree, password = write_tree(tmp_path, cds=CLUSTERS), tmp_path / "password"
    encrypted = tmp_path / "encrypted.key"
    command = ["openssl", "pkey", "-in", str(tmp_path / "release.key"), "-aes256", "-passout", "pass:hush hush"]
    encrypted.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)
    flags = ("--key", encrypted, "--cert", tmp_path / "release.crt", "--password-file", password)

    password.write_text("hush hush\nmore\n")
    assert run(capfd, "sign", tree, *flags)[0] == 0
    password.write_text("wrong words")
    status, printed, errors = run(capfd, "sign", tree, *flags)
    assert (status, printed, "--key: cannot be read with this password" in errors) == (2, "", True)
    assert "wrong words" not in errors


def test_openssl_verifies_what_is_signed(
    tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """The signature is one of the bytes of the manifest, which other programs can verify too."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    run(capfd, "sign", tree, *flags)
    signature = json.loads((tree / MANIFEST_SIGNATURE).read_text())
    (tmp_path / "own.crt").write_text(signature["certificates"][0])
    script = (
        "openssl x509 -in own.crt -noout -pubkey > own.pub && base64 -d > own.sig && "
        f"openssl dgst -sha256 -verify own.pub -signature own.sig xds/{MANIFEST}"
    )
    verified = subprocess.run(
        ["sh", "-c", script], check=False, cwd=tmp_path, input=signature["signature"].encode(), capture_output=True
    )

    assert verified.stdout == b"Verified OK\n"


def test_wrong_use(tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """One line says what is wrong; nothing is written."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    server = authority().issue("server", key_of("secp256r1", 40), Spec(purposes=(CODE_SIGNING,), hours=(-9, -8)))
    ended = server.write(tmp_path, "ended")
    cases = {
        "--key: nowhere: cannot be read: No such file": ("--key", "nowhere", *flags[2:]),
        "--cert: nowhere: cannot be read: No such file": (*flags[:2], "--cert", "nowhere"),
        "--password-file: nowhere: cannot be read": (*flags, "--password-file", "nowhere"),
        "--key: is not encrypted; leave out --password-file": (*flags, "--password-file", tmp_path / "ca.crt"),
        "--key: does not belong to the first certificate": (*flags[:2], "--cert", ended[1]),
        "--cert: the certificate CN=server": ("--key", ended[0], "--cert", ended[1]),
        "Missing option '--key'": flags[2:],
    }
    for words, wrong in cases.items():
        status, _, errors = run(capfd, "sign", tree, *wrong)
        assert (status, words in errors) == (2, True), (words, errors)
    for words, path in {
        "verify_with: nowhere: cannot be read: No such file or directory; give a file": "nowhere",
        "has no certificate in PEM that can be read; give a file": tree / "cds.yaml",
    }.items():
        status, _, errors = run(capfd, "check", tree, "--no-envoy", "--verify-with", path)
        assert (status, words in errors) == (2, True), (words, errors)
    assert names_in(tree) == {"cds.yaml"}


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, flags: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    """It is said, and what was signed before stays."""
    tree = write_tree(tmp_path, cds=CLUSTERS)
    run(capfd, "sign", tree, *flags)
    before = (tree / MANIFEST).read_bytes()
    (tree / f"{MANIFEST}.tmp").mkdir()
    status, _, errors = run(capfd, "sign", tree, *flags)

    assert (status, "cannot be written: Is a directory; make it writable" in errors) == (2, True)
    assert (tree / MANIFEST).read_bytes() == before


def test_the_commands_of_the_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `config/signing/README.md` says makes a CA and a signer, signs the sample tree, and verifies it."""
    top = Path(__file__).parent.parent.parent
    shutil.copytree(top / "config" / "xds", tmp_path / "config" / "xds")
    page = (top / "config" / "signing" / "README.md").read_text()
    (block,) = re.findall(r"^<!-- sign -->\n```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    for line in block.splitlines():
        if line.startswith("fsxds "):
            assert run(capfd, *shlex.split(line)[1:])[0] == 0, line
        else:
            subprocess.run(["sh", "-c", line], check=True, capture_output=True)
    (tmp_path / "config" / "xds" / "cds.yaml").write_text("[]")
    assert run(capfd, *shlex.split(line)[1:], "--no-envoy")[0] == 1
