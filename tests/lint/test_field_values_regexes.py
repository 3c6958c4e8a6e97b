import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.field_values import RegexChecks
from fsxds.values import Severity
from tests.lint.envoy_answers import Case, action, assert_accepted, assert_rejected, route, rules_found


def matching(regex: str, more: str = "") -> Case:
    """A route that matches by an expression."""
    return route(
        {"match": {"safe_regex": {"regex": regex, **({"google_re2": {"max_program_size": 10}} if more else {})}}}
    )


def test_expressions_that_envoy_takes(catalogue: Catalogue) -> None:
    """What RE2 knows is right, up to a program of 100 steps."""
    assert_accepted(
        catalogue,
        *(matching(regex) for regex in ("/a.*", r"\C", "(?P<a>x)(?<b>y)", "é", "a{90}")),
        matching("/aaaa", "small"),
    )


@pytest.mark.parametrize("regex", ["/a(", "(?!x)", r"(a)\1", "a++", r"a\Z", "a{1001}"])
def test_expressions_that_envoy_rejects(catalogue: Catalogue, regex: str) -> None:
    """What Perl knows and RE2 does not is rejected."""
    assert_rejected(catalogue, "wrong-regex", matching(regex))


@pytest.mark.parametrize("case", [matching("a{1000}"), matching("/aaaaaaaaaaaaaa", "small")])
def test_large_expressions(catalogue: Catalogue, case: Case) -> None:
    """Envoy limits the size of a program, by default or by what the expression says of itself."""
    assert_rejected(catalogue, "large-regex", case)


def test_case_is_not_ignored_in_expressions(catalogue: Catalogue) -> None:
    """`ignore_case` excludes `safe_regex`."""
    headers = "{match: {prefix: /, headers: [{name: a, string_match: {ignore_case: true, safe_regex: {regex: a}}}]}}"

    assert_rejected(catalogue, "wrong-regex", route(headers))


@pytest.mark.parametrize(
    ("substitution", "rules"),
    [
        (r"\1", set()),
        (r"\0", set()),
        (r"x\\", set()),
        ("$1", set()),
        (r"\2", {"wrong-substitution"}),
        (r"\x", {"wrong-substitution"}),
        ("x\\", {"wrong-substitution"}),
    ],
)
def test_substitutions(catalogue: Catalogue, substitution: str, rules: set[str]) -> None:
    """A reference to no group is worth a warning: Envoy takes it and rewrites nothing."""
    case = action(f"{{regex_rewrite: {{pattern: {{regex: (a)}}, substitution: '{substitution}'}}}}")

    assert_accepted(catalogue, case)
    assert rules == rules_found(catalogue, case, Severity.WARNING)


def test_a_broken_pattern_is_told_once(catalogue: Catalogue) -> None:
    """Of a substitution whose pattern is broken, only the pattern is reported."""
    case = action(r"{regex_rewrite: {pattern: {regex: (a}, substitution: '\1'}}")

    assert {"wrong-regex"} == rules_found(catalogue, case)
    assert set() == rules_found(catalogue, case, Severity.WARNING)


def test_an_expression_is_compiled_once() -> None:
    """Compiled expressions are remembered."""
    rules = RegexChecks()

    assert rules.compiled("a+") is rules.compiled("a+")
