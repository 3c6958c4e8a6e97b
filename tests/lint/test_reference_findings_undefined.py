"""Names that nothing defines: errors before a tree is served, warnings while it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsxds.cli.main import main
from fsxds.lint.reference_findings import with_undefined_names
from fsxds.model.values import Problem, Severity
from fsxds.settings.options import Settings
from fsxds.testing import serve
from tests.cli.trees import write_tree
from tests.lint.findings import problem

CLUSTERS = "- {name: web, type: STATIC, connect_timeout: 1s}\n"
ROUTES = """\
- name: edge
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - {match: {prefix: /api}, route: {cluster: wbe}}
    - {match: {prefix: /}, route: {cluster: web}}
"""
REMEDY = "define it, or list it in `static_clusters` if the bootstrap defines it"


def found(rule: str, severity: Severity) -> Problem:
    """Return a problem of a rule."""
    return problem(rule=rule, severity=severity)


@pytest.mark.parametrize(
    ("rule", "severity", "expected"),
    [
        ("no-cluster", Severity.WARNING, Severity.ERROR),
        ("no-cluster", Severity.NOTE, Severity.NOTE),
        ("no-endpoints", Severity.WARNING, Severity.ERROR),
        ("no-endpoints", Severity.NOTE, Severity.NOTE),
        ("no-route-configuration", Severity.WARNING, Severity.ERROR),
        ("no-scoped-route", Severity.WARNING, Severity.ERROR),
        # By gRPC from a server of its own: an agent that hands out secrets.
        ("no-secret", Severity.WARNING, Severity.WARNING),
        ("no-secret", Severity.ERROR, Severity.ERROR),
        ("unused-cluster", Severity.NOTE, Severity.NOTE),
    ],
)
def test_severities(rule: str, severity: Severity, expected: Severity) -> None:
    """What serving would hold is an error; what may come from another server is what it was."""
    (one,) = with_undefined_names([found(rule, severity)], Settings())

    assert expected is one.severity


def test_what_the_settings_say_goes_before() -> None:
    """`--references warn` changes nothing, nor is a rule changed whose severity is set."""
    one = found("no-cluster", Severity.WARNING)

    assert (one,) == with_undefined_names([one], replace(Settings(), references="warn"))
    assert (one,) == with_undefined_names([one], replace(Settings(), rules={"no-cluster": "warning"}))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "error"),
        (("--references", "warn"), "warning"),
        (("--rules", "no-cluster=note"), "note"),
        (("--static-clusters", "wbe"), ""),
    ],
)
def test_check(tmp_path: Path, capfd: pytest.CaptureFixture[str], arguments: tuple[str, ...], expected: str) -> None:
    """`fsxds check` fails, and names both remedies; a name that is listed is defined."""
    tree = write_tree(tmp_path, cds=CLUSTERS, rds=ROUTES)

    assert main(["check", str(tree), "--no-envoy", *arguments]) == (expected == "error")
    out = capfd.readouterr().out
    if expected:
        assert (
            f"rds.yaml:6:39: {expected}[no-cluster]: [0].virtual_hosts[0].routes[0].route.cluster: there is no" in out
        )
        assert f'did you mean "web"? Else {REMEDY}' in out
    else:
        assert out == ""


def test_a_tree_without_clusters(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """They are somebody else's, unless those of the bootstrap are known; one of the names stands for all."""
    tree = write_tree(tmp_path, rds=ROUTES)

    assert main(["check", str(tree), "--no-envoy"]) == 0
    out = capfd.readouterr().out
    assert out.count("note[no-cluster]") == 1
    assert REMEDY in out
    assert main(["check", str(tree), "--no-envoy", "--static-clusters", "web"]) == 1
    assert "error[no-cluster]" in capfd.readouterr().out
    assert main(["check", str(tree), "--no-envoy", "--static-clusters", "web,wbe"]) == 0


def test_files_alone_demand_nothing_of_others(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a file by itself names may be defined by another one; within its tree, nothing defines it."""
    tree = write_tree(tmp_path, cds=CLUSTERS, rds=ROUTES)

    assert main(["check", str(tree / "rds.yaml"), "--no-envoy"]) == 0
    assert "note[no-cluster]" in capfd.readouterr().out
    assert main(["check", "--tree", str(tree), str(tree / "cds.yaml"), "--no-envoy"]) == 1
    assert "rds.yaml:6:39: error[no-cluster]" in capfd.readouterr().out


def test_names_of_upstreams_are_no_errors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What an upstream may have is not missing: no name, and no redirect into an authority that only it serves."""
    cds = "envoy.config.cluster.v3.Cluster"
    redirect = f"- {{name: old, resource_name: {{name: 'xdstp://far.example/{cds}/web'}}}}\n"
    tree = write_tree(tmp_path, cds=CLUSTERS + redirect, rds=ROUTES)
    settings = tmp_path / "fsxds.yaml"
    settings.write_text('authorities: {far.example: {upstream: ["127.0.0.1:1"]}}\n')

    assert main(["check", str(tree), "--no-envoy"]) == 1
    assert "error[dangling-redirect]" in capfd.readouterr().out
    assert main(["check", str(tree), "--no-envoy", "--settings", str(settings)]) == 0
    assert capfd.readouterr().out == ""


def test_a_first_start_serves_them() -> None:
    """The server warns, and holds no file: what names nothing is served as it is."""
    with serve({"cds.yaml": CLUSTERS, "rds.yaml": ROUTES}) as server:
        assert [("no-cluster", Severity.WARNING)] == [(one.rule, one.severity) for one in server.problems]
        assert server.names("rds") == ("edge",)
        assert server.views.held == ()
