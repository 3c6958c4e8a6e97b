"""Problems as editors show them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlparse

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.diagnostics import (
    RelatedPlace,
    diagnostics_of,
    page_address,
    problem_positions,
    remedy_of,
    span_of_problem,
)
from fsxds.editor.outline import read_outline
from fsxds.lint.rules import rules
from fsxds.model.values import Problem
from tests.editor.trees import CLUSTERS, FILES, workbench


def problem(path: str, line: int, column: int, pointer: str = "x", rule: str = "no-cluster") -> Problem:
    """Return a problem at a place."""
    return Problem(PurePosixPath(path), line, column, pointer, rule, "message", "remedy")


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("- name: web\n", problem("a.yaml", 1, 3), "name"),
        ("- name: web\n", problem("a.yaml", 1, 1), "name"),
        ("- - x: 1", problem("a.yaml", 1, 1), "x"),
        ('{"a b": 1}', problem("a.yaml", 1, 2), '"a b"'),
        ("x: http://a/b", problem("a.yaml", 1, 4), "http://a/b"),
        ("first\nsecond", problem("a.yaml", 1, 1, "", "empty-file"), "first"),
        ("a: ]", problem("a.yaml", 1, 4, "", "bad-syntax"), "]"),
        ("😀: x", problem("a.yaml", 1, 4), "x"),
        ("a", problem("a.yaml", 9, 9), ""),
        ("name: 1", problem("a.yaml", 1, 7), "1"),
    ],
)
def test_marked_words(text: str, found: Problem, expected: str) -> None:
    """What is marked is the word at the place of the problem."""
    assert text[slice(*span_of_problem(found, problem_positions(found.path, text)))] == expected


def test_words_of_a_problem(tmp_path: Path, catalogue: Catalogue) -> None:
    """A diagnostic has the rule, its page, the fact with its remedy, and the other places."""
    bench = workbench(tmp_path, catalogue, {**FILES, "more.cds.yaml": "- name: web\n  type: STATIC\n"})
    view = bench.navigator.view
    path = PurePosixPath("more.cds.yaml")
    (found,) = diagnostics_of([one for one in view.problems if one.path == path], view.text(path), view.files)

    assert found.rule == "duplicate-name"
    assert found.message == 'Cluster "web" is already defined at clusters.yaml:1; rename or remove one of the two'
    assert found.related == (RelatedPlace(PurePosixPath("clusters.yaml"), 1),)
    assert found.page.endswith("#duplicate-name")


def test_every_rule_has_its_page() -> None:
    """The address of each rule is that of a page which has a section of its name."""
    for name in rules():
        address = urlparse(page_address(name))
        assert f"\n## {name}\n" in Path(unquote(address.path)).read_text(encoding="utf-8")
        assert address.fragment == name

    assert page_address("no-such-rule") == ""


def test_secrets_are_hidden() -> None:
    """A message that quotes a secret is masked."""
    secret = Problem(PurePosixPath("a.yaml"), 1, 1, "", "r", 'password: "hunter2" is short', "")
    (found,) = diagnostics_of([secret], "x", {})

    assert "hunter2" not in found.message


@pytest.mark.parametrize(
    ("name", "text", "wrong", "right"),
    [
        ("cds.yaml", "- name: a\n  conect_timeout: 1s\n", "conect_timeout", "connect_timeout"),
        ("cds.json", '{"name": "a", "conect_timeout": "1s"}', "conect_timeout", "connect_timeout"),
        ("cds.yaml", "- name: a\n  lb_policy: RANDUM\n", "RANDUM", "RANDOM"),
        ("cds.yaml", "- name: a\n  lb_policy: 'RANDUM'\n", "RANDUM", "RANDOM"),
        ("rds.yaml", FILES["routes.yaml"].replace("cluster: web", "cluster: wep"), "wep", "web"),
        (
            "x.yaml",
            '- "@type": type.googleapis.com/envoy.config.cluster.v3.Clutser\n  name: a\n',
            "envoy.config.cluster.v3.Clutser",
            "envoy.config.cluster.v3.Cluster",
        ),
        (
            "cds.yaml",
            '- {name: a, transport_socket: {name: tls, typed_config: {"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"}}}',
            "DownstreamTlsContext",
            "UpstreamTlsContext",
        ),
    ],
)
def test_remedies(tmp_path: Path, catalogue: Catalogue, *, name: str, text: str, wrong: str, right: str) -> None:
    """A remedy that names the word which was meant is an edit, after which the problem is gone."""
    bench = workbench(tmp_path, catalogue, {"clusters.yaml": CLUSTERS, name: text})
    path, view = PurePosixPath(name), bench.navigator.view
    found = [remedy_of(one, text, bench.navigator.outline(path)) for one in view.problems if one.path == path]
    (remedy,) = [one for one in found if one is not None]
    start, end = remedy.span
    mended = text[:start] + remedy.text + text[end:]

    assert mended == text.replace(wrong, right)
    after = bench.tree.load({path: mended}, is_disk_read=False).problems
    assert remedy.problem.rule not in {one.rule for one in after if one.path == path}


def test_no_remedy_where_the_place_is_not_certain() -> None:
    """What is not written letter by letter is left to the author."""
    text = 'lb_policy: "RAND\\u0055M"\n'
    found = Problem(PurePosixPath("a.yaml"), 1, 1, "lb_policy", "r", 'there is no "RANDUM"', 'did you mean "RANDOM"?')
    assert remedy_of(found, text, read_outline(text)) is None
    assert remedy_of(problem("a.yaml", 1, 1), text, read_outline(text)) is None
