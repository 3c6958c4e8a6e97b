from __future__ import annotations

import json
import os
import pty
from pathlib import Path

import pytest

import fsxds
from fsxds.cli.main import main
from tests.cli.trees import CLUSTERS, TYPO, write_tree
from tests.support.costs import cost_s
from tests.support.fsxds_process import start_fsxds
from tests.support.patience import PATIENCE_S
from tests.support.server import Server
from tests.tools.diff.test_sides_revisions import commit, git

SECRETS = "- {name: web, generic_secret: {secret: {inline_string: S3CR3T}}}"
CHANGED = CLUSTERS.replace("connect_timeout: 1s", "connect_timeout: 2s\n  lb_policy: LEAST_REQUEST")


@pytest.fixture
def trees(tmp_path: Path) -> tuple[str, str]:
    """Two trees that are different in a cluster and a secret."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    before = write_tree(tmp_path / "a", cds=CLUSTERS, sds=SECRETS)
    after = write_tree(tmp_path / "b", cds=CHANGED, sds=SECRETS.replace("S3CR3T", "S3CR3T2"))
    return str(before), str(after)


def test_two_trees(trees: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """Differences end with status 1: changed fields on stdout, secrets hidden, the summary on stderr."""
    before, after = trees

    assert main(["diff", before, after]) == 1
    out, err = capfd.readouterr()
    assert out.splitlines() == [
        "secrets: 1 changed",
        f"  ~ web  {after}/sds.yaml:1",
        "      ~ generic_secret.secret.inline_string: a secret, changed",
        "clusters: 1 changed",
        f"  ~ web  {after}/cds.yaml:3",
        "      ~ connect_timeout: 1s → 2s",
        "      ~ lb_policy: ROUND_ROBIN → LEAST_REQUEST",
    ]
    assert err == f"{before} → {after}: 2 changed\n"


def test_equal_trees(trees: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """No difference ends with status 0 and nothing on stdout; another name of a file is none."""
    before, _ = trees
    renamed = Path(before).parent / "renamed"
    renamed.mkdir()
    for path in Path(before).iterdir():
        (renamed / f"edge.{path.name}").write_bytes(path.read_bytes())

    assert main(["diff", before, str(renamed)]) == 0
    assert ("", f"{before} → {renamed}: no difference\n") == capfd.readouterr()


@pytest.mark.parametrize("output_format", ["text", "json", "markdown"])
def test_no_format_shows_secrets(trees: tuple[str, str], output_format: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither the old nor the new secret is in any format; that it changed is."""
    assert main(["diff", *trees, "--format", output_format]) == 1
    out, err = capfd.readouterr()

    assert "S3CR3T" not in out + err
    assert "generic_secret.secret.inline_string" in out


def test_json(trees: tuple[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    """`--format json` prints one object."""
    assert main(["diff", *trees, "--format", "json"]) == 1
    content = json.loads(capfd.readouterr().out)

    assert [False, ["sds", "cds"]] == [content["same"], list(content["types"])]


def test_problems_are_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What is wrong with a side is told on stderr, what would be served is compared, and what cannot be is named."""
    (tmp_path / "b").mkdir()
    before = write_tree(tmp_path, cds=CLUSTERS)
    after = write_tree(tmp_path / "b", cds=CLUSTERS, clusters=TYPO)

    assert main(["diff", str(before), str(after)]) == 3
    out, err = capfd.readouterr()
    assert out.startswith(f"could not be read: {after}/clusters.yaml:3: ")
    assert err.startswith(f"{after}/clusters.yaml:3:3: error: resources[0].conect_timeout: ")
    assert "no difference in the readable resources; not compared: 1 that could not be read\n" in err


@pytest.mark.parametrize("is_first_broken", [True, False])
def test_what_may_stand_in_a_broken_file_is_unknown(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], *, is_first_broken: bool
) -> None:
    """On whichever side a file is broken: what it may hold is neither added nor removed, and no format passes it over."""
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
    good = write_tree(tmp_path / "good", cds=CLUSTERS, clusters="- {name: edge, connect_timeout: 1s}")
    bad = write_tree(tmp_path / "bad", cds=TYPO)
    sides = [str(bad), str(good)] if is_first_broken else [str(good), str(bad)]

    assert main(["diff", *sides]) == 3
    assert "  ? web" in (text := capfd.readouterr().out)
    assert f"  {'+' if is_first_broken else '-'} edge" in text
    assert main(["diff", *sides, "--format", "json"]) == 3
    content = json.loads(capfd.readouterr().out)
    assert [f"{bad}/cds.yaml:3"] == [row["place"] for row in content["unread"]]
    assert ["web"] == [row["name"] for row in content["types"]["cds"]["unknown"]]
    assert main(["diff", *sides, "--format", "markdown"]) == 3
    markdown = capfd.readouterr().out
    assert "> [!WARNING]" in markdown
    assert f"`{bad}/cds.yaml:3`" in markdown


def test_equal_broken_trees_are_not_said_to_be_the_same(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing is known of files that are broken on both sides, in whichever format it is asked."""
    tree = str(write_tree(tmp_path, cds=TYPO))

    assert main(["diff", tree, tree, "--format", "json"]) == 3
    assert json.loads(capfd.readouterr().out)["same"] is None
    assert main(["diff", tree, tree, "--format", "markdown"]) == 3
    assert "No difference in the readable resources." in capfd.readouterr().out


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with two commits, as the current directory."""
    git(tmp_path, "init", "-q", "-b", "main")
    xds = tmp_path / "xds"
    xds.mkdir()
    commit(xds, cds=CLUSTERS)
    git(xds, "checkout", "-q", "-b", "topic")
    commit(xds, cds=CHANGED)
    monkeypatch.chdir(tmp_path)
    return xds


def test_a_broken_revision(checkout: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A file that is broken in a revision is named as `git show` takes it."""
    git(checkout, "checkout", "-q", "-b", "broken")
    commit(checkout, cds=TYPO)

    assert main(["diff", "--git", "main..broken", "xds"]) == 3
    assert capfd.readouterr().out.splitlines()[1:] == ["clusters: 1 unknown", "  ? web  main:xds/cds.yaml:3"]


def test_a_server_that_has_nothing_good(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of a type that a running server withholds nothing is said to be added."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").mkdir()
    good = write_tree(tmp_path / "good", cds=CLUSTERS)
    with Server(write_tree(tmp_path / "bad", cds=TYPO, eds="[{cluster_name: web}]"), tmp_path) as server:
        address = f"http://127.0.0.1:{server.port}"

        assert main(["diff", address, str(good)]) == 3
    lines = capfd.readouterr().out.splitlines()
    assert f"could not be read: {address}: it has loaded no good clusters yet" in lines
    assert f"  ? web  {good}/cds.yaml:3" in lines


@pytest.mark.usefixtures("checkout")
def test_revisions(capfd: pytest.CaptureFixture[str]) -> None:
    """Two revisions are compared; places are written so that `git show` takes them."""
    assert main(["diff", "--git", "main..topic", "xds"]) == 1
    out, err = capfd.readouterr()

    assert "  ~ web  topic:xds/cds.yaml:3" in out.splitlines()
    assert "main → topic: 1 changed\n" == err


def test_a_revision_and_the_work_tree(
    checkout: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One revision is compared with the files as they are now, by default those of the current directory."""
    monkeypatch.chdir(checkout)

    assert main(["diff", "--git", "topic"]) == 0
    (checkout / "cds.yaml").write_text(CLUSTERS)
    assert main(["diff", "--git", "topic"]) == 1
    assert "  ~ web  cds.yaml:3" in capfd.readouterr().out.splitlines()


def test_a_running_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A running fsxds is compared with a tree, over TCP and over a unix socket."""
    tree = write_tree(tmp_path, cds=CLUSTERS, sds=SECRETS, vhds="- {name: r/x, domains: ['*']}")
    other = tmp_path / "other"
    other.mkdir()
    (other / "cds.yaml").write_text(CHANGED)
    with Server(tree, tmp_path) as server:
        address = f"http://127.0.0.1:{server.port}"

        assert main(["diff", address, str(tree)]) == 0
        assert "virtual-hosts are not compared: they have no REST form\n" in capfd.readouterr().err
        assert main(["diff", address, str(other)]) == 1
        assert capfd.readouterr().out.splitlines()[:2] == ["secrets: 1 removed", "  - web"]
    with Server(tree, tmp_path, http=f"unix:{tmp_path}/s"):
        assert main(["diff", f"unix:{tmp_path}/s", str(tree)]) == 0


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["."], "fsxds diff: give two of them: directories, addresses of a running fsxds, or @N"),
        ([".", ".", "."], "fsxds diff: give two of them"),
        ([".", "nosuch"], "fsxds: nosuch: there is no such directory"),
        (["http://127.0.0.1:1", "."], "fsxds: http://127.0.0.1:1: request failed: Connection refused"),
        (["--git", "main..nosuch", "xds"], "fsxds: xds: git knows no revision nosuch"),
        (["--git", "main", "xds", "xds"], "fsxds diff: with --git there is one directory at most"),
        (["--git", "main", "/"], "fsxds: /: is not in a git repository"),
    ],
)
@pytest.mark.usefixtures("checkout")
def test_wrong_use(arguments: list[str], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Wrong use ends with status 2 and one line."""
    assert main(["diff", *arguments]) == 2
    out, err = capfd.readouterr()

    assert ("", 1) == (out, err.count("\n"))
    assert err.startswith(line)


def test_colours_on_a_terminal(trees: tuple[str, str]) -> None:
    """On a terminal additions, removals and changes have colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"} | {"NO_COLOR": ""}
    with os.fdopen(ours, "rb", buffering=0) as terminal, Path(os.devnull).open("wb") as nothing:
        start_fsxds(["diff", *trees], stdout=theirs, stderr=nothing, env=environment).wait(PATIENCE_S)
        output = terminal.read(4096)
    os.close(theirs)

    assert b"\x1b[33m~ web" in output


def test_large_trees(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Ten thousand resources with one change: comparing takes a small part of loading one side."""
    text = "".join(f"- {{name: c{number}, connect_timeout: 1s}}\n" for number in range(10_000))
    before = write_tree(tmp_path, cds=text)
    (tmp_path / "b").mkdir()
    after = write_tree(tmp_path / "b", cds=text.replace("c77, connect_timeout: 1s", "c77, connect_timeout: 9s"))
    load_s = cost_s(lambda: fsxds.load(before), 1)
    statuses: list[int] = []

    diff_s = cost_s(lambda: statuses.append(main(["diff", str(before), str(after)])), 1)
    assert diff_s < 5 * load_s, (diff_s, load_s)
    assert statuses == [1]
    assert 3 == len(capfd.readouterr().out.splitlines())
