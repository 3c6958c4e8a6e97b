import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import TYPE, Case, assert_accepted, assert_rejected, route

MATCH = TYPE + "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
REWRITE = TYPE + "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"


def templated(pattern: str, rewrite: str = "") -> Case:
    """A route that matches, and perhaps rewrites, by a template."""
    fields = {"match": {"path_match_policy": {"name": "m", "typed_config": {"@type": MATCH, "path_template": pattern}}}}
    return route({**fields, "route": {"cluster": "c", **rewriting(rewrite)}})


def rewriting(rewrite: str) -> dict[str, object]:
    """A rewrite by a template."""
    config = {"@type": REWRITE, "path_template_rewrite": rewrite}
    return {"path_rewrite_policy": {"name": "r", "typed_config": config}} if rewrite else {}


def test_templates_that_envoy_takes(catalogue: Catalogue) -> None:
    """Variables, globs and literals in any order that makes sense."""
    patterns = [
        "/a",
        "/{a}",
        "/{a=**}",
        "/{a=*}/b",
        "/a*",
        "/**",
        "/**/a",
        "/{a}x",
        "/{a=**}.m3u8",
        "/%41",
        "/a/*/",
        "/a/{b=x/*}",
        "/",
    ]
    assert_accepted(catalogue, *map(templated, patterns), templated("/{a}", "/{a}"), templated("/{a}", "/x/*"))


@pytest.mark.parametrize(
    "pattern",
    ["/{a}/{a}", "a", "/{a", "/a}", "/{}", "/{1a}", "/{c-d}", "/{abcdefghijklmnopq}", "/{a}/{b}/{c}/{d}/{e}/{f}"],
)
def test_patterns_that_envoy_rejects(catalogue: Catalogue, pattern: str) -> None:
    """Braces have partners and names in them, few and each once."""
    assert_rejected(catalogue, "wrong-path-template", templated(pattern))


@pytest.mark.parametrize(
    "case",
    [
        templated("/{a}", "/{b}"),
        templated("/{a}", "{a}"),
        route({"route": {"cluster": "c", **rewriting("/x")}}),
    ],
)
def test_rewrites_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """A rewrite uses the variables of the pattern, which there must be."""
    assert_rejected(catalogue, "wrong-path-template", case)
