"""The composite action: its steps run by a shell, as the host runs them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.support.checkout import TOP, copy_checkout, offline_environment

ACTION = TOP / "docker/action/action.yml"
SARIF = TOP / "tests/data/schemas/sarif-2.1.0.json"
GOOD = "resources: [{name: a, type: STATIC, connect_timeout: 1s}]\n"
BAD = "resources: [{name: a, type: STATIC, conect_timeout: 1s}]\n"
EXPRESSION = re.compile(r"\$\{\{ ([\w.-]+) \}\}")
# How the host runs `shell: bash`.
SHELL = ["bash", "--noprofile", "--norc", "-eo", "pipefail"]


def steps() -> list[dict[str, Any]]:
    """Return the steps of the action."""
    content = yaml.safe_load(ACTION.read_text())
    found: list[dict[str, Any]] = content["runs"]["steps"]
    return found


class Host:
    """Runs the steps that are scripts, one after the other; those that use other actions are not run."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.workspace.mkdir()
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        self._action = copy_checkout(folder / "action") / "docker/action"
        self._folder = folder
        self._environment = offline_environment(folder)
        self.outputs: dict[str, str] = {}
        self.summary = ""

    def run(self, *names: str, **inputs: str) -> tuple[int, str]:
        """Run these steps until one fails, with inputs as a workflow gives them; return the status and the output."""
        defaults = {name: one.get("default", "") for name, one in yaml.safe_load(ACTION.read_text())["inputs"].items()}
        values = {f"inputs.{name}": value for name, value in (defaults | inputs).items()}
        values["github.action_path"] = str(self._action)
        printed = ""
        for step in steps():
            if step.get("name") in names:
                status, text = self._run_step(step, values | self.outputs)
                printed += text
                if status:
                    return status, printed
        return 0, printed

    def _run_step(self, step: dict[str, Any], values: dict[str, str]) -> tuple[int, str]:
        output, summary = self._folder / "output", self._folder / "summary"
        for file in (output, summary):
            file.write_text("")
        environment = {name: EXPRESSION.sub(lambda one: values[one[1]], text) for name, text in step["env"].items()}
        host = {
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(summary),
        }
        script = self._folder / "step.sh"
        script.write_text(step["run"])
        done = subprocess.run(
            [*SHELL, str(script)],
            cwd=self.workspace,
            env=self._environment | host | environment,
            check=False,
            capture_output=True,
            text=True,
        )
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{name}"] = value
        self.summary = summary.read_text() or self.summary
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A host on which the action has installed fsxds."""
    host = Host(tmp_path_factory.mktemp("action"))
    status, printed = host.run("Install fsxds", envoy="false")
    assert status == 0, printed
    return host


@pytest.fixture
def host(installed: Host) -> Host:
    """The same, with an empty workspace and no outputs."""
    shutil.rmtree(installed.workspace)
    (installed.workspace / "envoy").mkdir(parents=True)
    installed.outputs.clear()
    installed.summary = ""
    return installed


def check(host: Host, **inputs: str) -> tuple[int, str]:
    """Run what follows the installation."""
    return host.run("Check", "Result", **{"tree": "envoy", "envoy": "false"} | inputs)


def test_mistake_is_annotated_reported_and_summed_up(host: Host) -> None:
    """The job fails; the file's line is annotated, in a valid SARIF report, and in the summary as plain text."""
    (host.workspace / "envoy/clusters.yaml").write_text(BAD)
    status, printed = check(host, sarif="true")
    report = json.loads(Path(host.outputs["steps.check.outputs.sarif-file"]).read_text())
    (result,) = report["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]

    assert 1 == status
    assert "::error file=envoy/clusters.yaml,line=1,col=37," in printed
    assert ("envoy/clusters.yaml", 1) == (place["artifactLocation"]["uri"], place["region"]["startLine"])
    assert [] == list(Draft7Validator(json.loads(SARIF.read_text())).iter_errors(report))
    assert "    envoy/clusters.yaml:1:37: error[unknown-field]" in host.summary


def test_wrong_use_fails_with_its_reason(host: Host) -> None:
    """Without a tree there is no report to upload."""
    status, printed = check(host, tree="missing", sarif="true")

    assert (2, "2") == (status, host.outputs["steps.check.outputs.status"])
    assert "missing" in printed
    assert "steps.check.outputs.sarif-file" not in host.outputs


@pytest.mark.parametrize("name", ["$(touch ran)`touch ran`\"; touch ran; '; touch ran\ntouch ran #", "--help"])
def test_inputs_are_never_run(host: Host, name: str) -> None:
    """A good tree of any name is checked and passes; nothing of its name is a command or an option."""
    (host.workspace / name).mkdir()
    (host.workspace / name / "clusters.yaml").write_text(GOOD)
    status, printed = check(host, tree=name)

    assert (0, "0") == (status, host.outputs["steps.check.outputs.status"]), printed
    assert "clean" in host.summary
    assert not (host.workspace / "ran").exists()


def test_text_of_a_file_is_no_command_of_the_host(host: Host) -> None:
    """A name with a line break starts no line of the output, where `::` would be a command to the host."""
    (host.workspace / "envoy/clusters.yaml").write_text('resources: [{"name": "a", "x\\n::set-env name=a::b": 1}]\n')
    status, printed = check(host)

    assert 1 == status
    assert [] == [line for line in printed.splitlines() if line.startswith("::set-env")]


def test_settings_and_severity_are_followed(host: Host) -> None:
    """The settings file makes the unknown field a warning, which fails the job where that is asked for."""
    (host.workspace / "envoy/clusters.yaml").write_text(BAD)
    (host.workspace / "fsxds.yaml").write_text("unknown_fields: warn\n")

    status, printed = check(host, settings="fsxds.yaml", severity="warning")

    assert (1, True) == (status, "::warning file=envoy/clusters.yaml" in printed), printed


def test_scripts_hold_no_expression() -> None:
    """The host would put its value into the script, where it is run."""
    assert [] == [step for step in steps() if "${{" in step.get("run", "")]


def test_other_actions_are_pinned_by_commit() -> None:
    """A tag can be moved by who owns it."""
    used = [step["uses"] for step in steps() if "uses" in step]

    assert used
    assert [] == [one for one in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", one)]


def test_real_envoy_is_installed_by_default() -> None:
    """The extra that it is asked for exists."""
    (install,) = [step for step in steps() if step.get("name") == "Install fsxds"]

    assert "extras+=,envoy" in install["run"]
    assert "\nenvoy = [" in (TOP / "pyproject.toml").read_text()


def test_actions_and_workflows_are_of_the_form_that_the_host_reads() -> None:
    """check-jsonschema has the schemas of both."""
    workflows = [str(path) for path in (TOP / ".github/workflows").iterdir()]
    for schema, files in (("vendor.github-actions", [str(ACTION)]), ("vendor.github-workflows", workflows)):
        done = subprocess.run(
            [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files],
            check=False,
            capture_output=True,
            text=True,
        )
        assert 0 == done.returncode, done.stdout
