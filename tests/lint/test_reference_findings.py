from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.lint.linter import Linter
from fsxds.lint.reference_findings import nearest
from fsxds.model.values import Severity
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.parse import FileParser
from tests.support.trees import tree_of

CLUSTER = """\
- name: web
  type: EDS
  connect_timeout: 1s
  eds_cluster_config:
    eds_config:
      path_config_source: {path: PATH}
"""


def load_with(parser: FileParser, path: str, files: dict[str, str]) -> Loaded:
    """Load a tree with a cluster whose endpoints come from a file."""
    tree = tree_of({"cds.yaml": CLUSTER.replace("PATH", path), **files})
    return load(tree, None, lambda sources: map(parser.parse, sources), Acceptance(check=Linter()))


def test_file_of_one_resource(parser: FileParser) -> None:
    """A file that holds what is asked of it is fine, and what it holds is in use."""
    loaded = load_with(parser, "/etc/envoy/eds/web.yaml", {"eds/web.yaml": "- cluster_name: web\n"})

    assert () == loaded.problems


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("- cluster_name: web\n- cluster_name: other\n", "holds 2 resources"),
        ("- cluster_name: other\n", 'holds "other"'),
    ],
)
def test_file_that_envoy_rejects(parser: FileParser, content: str, words: str) -> None:
    """A file with another resource, or several, is reported where it is named."""
    loaded = load_with(parser, "/etc/envoy/eds/web.yaml", {"eds/web.yaml": content})

    (problem,) = [problem for problem in loaded.problems if problem.rule == "wrong-file-source"]
    assert words in problem.message
    assert ("cds.yaml", 6, 28) == (str(problem.path), problem.line, problem.column)
    assert "[0].eds_cluster_config.eds_config.path_config_source.path" == problem.pointer
    assert ["cds.yaml"] == [str(file.path) for file in loaded.held]


def test_file_that_may_be_another(parser: FileParser) -> None:
    """Where only the file's own name agrees, nothing is held."""
    loaded = load_with(parser, "/elsewhere/eds.yaml", {"eds.yaml": "- cluster_name: other\n"})

    assert [Severity.WARNING] == [problem.severity for problem in loaded.problems if "file" in problem.rule]
    assert () == loaded.held


@pytest.mark.parametrize("path", ["/etc/eds/other.yaml", "/etc/rds.yaml", "web.yaml"])
def test_file_of_elsewhere(parser: FileParser, path: str) -> None:
    """Nothing is said of files that are not in the tree, or hold another type."""
    files = {"eds/web.yaml": "- cluster_name: other\n", "rds.yaml": "- {name: r, virtual_hosts: []}\n"}
    loaded = load_with(parser, path, files)

    assert [] == [problem for problem in loaded.problems if "file" in problem.rule]


NAMES = st.text("abc-1", max_size=9)


@given(NAMES, st.lists(NAMES))
def test_nearest_name_is_that_of_difflib(name: str, names: list[str]) -> None:
    """Most names are passed over without comparing them, and the same one is found."""
    near = [other for other in names if abs(len(other) - len(name)) <= 3]

    assert next(iter(difflib.get_close_matches(name, near, 1, cutoff=0.6)), "") == nearest(name, names)
