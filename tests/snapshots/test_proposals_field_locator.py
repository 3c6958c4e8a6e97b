from __future__ import annotations

from dataclasses import replace

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.values import Fault, Problem, SourceTree
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.proposals import Decision, FieldLocator, NoCheck, Proposals, ServedFiles
from tests.support.trees import tree_of

ROUTES = """\
- name: other
  virtual_hosts: []
- name: edge
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - match: {prefix: /}
      route: {timeout: 1s, cluster: wbe}
"""
CLUSTERS = "- name: web\n  type: STATIC\n"


def problem_of(parser: FileParser, files: dict[str, str | bytes], acceptance: Acceptance) -> Problem:
    """Return what is said of the one cluster that is missing."""
    loaded = load(tree_of(files), None, lambda sources: map(parser.parse, sources), acceptance)
    (problem,) = [problem for problem in loaded.problems if problem.rule == "no-cluster"]
    return problem


def test_place_of_a_reference(parser: FileParser) -> None:
    """A reference is told with the line and column of its field, by the author's path."""
    problem = problem_of(parser, {"rds.yaml": ROUTES, "cds.yaml": CLUSTERS}, Acceptance(check=Linter()))

    assert ("rds.yaml", 9, 28) == (str(problem.path), problem.line, problem.column)
    assert "[1].virtual_hosts[0].routes[0].route.cluster" == problem.pointer
    assert problem.remedy.startswith('did you mean "web"? Else define it')


def test_place_in_another_spelling(parser: FileParser) -> None:
    """The author's own spelling leads to the place."""
    problem = problem_of(
        parser, {"rds.yaml": ROUTES.replace("_h", "H"), "cds.yaml": CLUSTERS}, Acceptance(check=Linter())
    )

    assert (9, 28) == (problem.line, problem.column)
    assert "[1].virtualHosts[0].routes[0].route.cluster" == problem.pointer


def test_place_in_a_second_document(parser: FileParser) -> None:
    """The document counts."""
    problem = problem_of(
        parser, {"edge.rds.yaml": f"- name: first\n---\n{ROUTES}", "cds.yaml": CLUSTERS}, Acceptance(check=Linter())
    )

    assert (11, 28) == (problem.line, problem.column)


def test_place_in_text_format(parser: FileParser) -> None:
    """Text format has places as well."""
    text = """\
resources {
  [type.googleapis.com/envoy.config.route.v3.RouteConfiguration] {
    name: "edge"
    virtual_hosts {
      name: "all"
      domains: "*"
      routes {
        match { prefix: "/" }
        route { cluster: "wbe" }
      }
    }
  }
}
"""
    problem = problem_of(parser, {"rds.textproto": text, "cds.yaml": CLUSTERS}, Acceptance(check=Linter()))

    assert 9 == problem.line


def test_large_files_are_not_searched(parser: FileParser) -> None:
    """Where a file is larger than is wanted, the line of the resource has to do."""
    acceptance = Acceptance(check=Linter(), locate_up_to_bytes=len(ROUTES) - 1)

    assert 3 == problem_of(parser, {"rds.yaml": ROUTES, "cds.yaml": CLUSTERS}, acceptance).line
    assert (
        9
        == problem_of(
            parser,
            {"rds.yaml": ROUTES, "cds.yaml": CLUSTERS},
            Acceptance(check=Linter(), locate_up_to_bytes=len(ROUTES)),
        ).line
    )


@pytest.mark.parametrize("is_checked", [True, False])
def test_content_that_no_text_has_is_at_its_resource(parser: FileParser, *, is_checked: bool) -> None:
    """An empty digest matches none: the file may have another text by now."""
    sources = tree_of({"rds.yaml": ROUTES})
    parsed = parser.parse(sources.files[0])
    (resource, *_) = parsed.resources
    wanted = [(resource.origin, (*resource.origin.field_path, "name"))]
    (place,) = FieldLocator(sources, None).places(parsed if is_checked else replace(parsed, digest=""), wanted)

    assert (place.column == 1) is not is_checked


def test_place_of_a_ttl(parser: FileParser) -> None:
    """A ttl that would crash Envoy is told at its own place; on clusters it is none of that."""
    files = {
        "eds.yaml": "- resource:\n    cluster_name: a\n  ttl: 5s\n",
        "cds.yaml": "- ttl: 5s\n  resource:\n    name: a\n",
    }

    loaded = load(tree_of(files), None, lambda sources: map(parser.parse, sources), Acceptance(check=Linter()))

    (problem,) = [problem for problem in loaded.problems if "ttl" in problem.rule]
    assert ("eds.yaml", 3, 3, "[0].ttl") == (str(problem.path), problem.line, problem.column, problem.pointer)


def test_no_check_finds_nothing(catalogue: Catalogue) -> None:
    """Without a linter files are held back for their own errors alone."""
    check, found = NoCheck(), Fault("odd", "it is odd", "")
    judged = check.tree_check(None, FieldLocator(SourceTree(()), None), ServedFiles())

    assert {} == check.message_hooks(catalogue)
    assert found is check.adjusted(found)
    assert ((), None, {}) == (judged.rules, judged.memory, judged.report(Decision({}, Proposals(ServedFiles(), ()))))
