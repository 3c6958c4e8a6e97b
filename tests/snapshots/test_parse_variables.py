"""Values of variables in the files that ask for them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import PlainText, PlainValue, SourceFile, VariedFile
from fsxds.server.parse_worker import ParseRules, ParseWorker
from fsxds.server.parsing import Parsing
from fsxds.settings.view_rules import Variables
from fsxds.snapshots.encoding import decode
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.parse import FileParser, Substitution
from tests.support.trees import tree_of
from tests.support.views import ViewStory, held, problems, served

MARK = "# fsxds: variables\n"


def replaced(value: PlainValue, **texts: str) -> tuple[PlainValue, list[str]]:
    """Return a value with its variables replaced, and what is wrong with them."""
    substitution = Substitution(Variables(texts, {"UNSET": "SECRET_KEY"}))
    return substitution.replaced(value), [f"{fault.field_path}: {fault.message}" for fault in substitution.faults]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a ${X} b ${X}${Y}", "a 1 b 1true"),
        ("${X}", "1"),
        (PlainText("${X}"), 1),
        (PlainText("${Y}"), True),
        (PlainText("${X}${X}"), "11"),
        (PlainText("${EMPTY}"), None),
        ("${EMPTY}", ""),
        ("$${X} $$ $X %REQ(X)%", "${X} $$ $X %REQ(X)%"),
        ("${STRUCTURE}", "a: [1]\n- {b: ${X}}"),
        (PlainText("${STRUCTURE}"), "a: [1]\n- {b: ${X}}"),
        ({"${X}": ["${X}", {"a": "${Y}"}, 3, None]}, {"${X}": ["1", {"a": "true"}, 3, None]}),
    ],
)
def test_replaced(value: PlainValue, expected: PlainValue) -> None:
    """Variables are replaced within scalars, once; what is in a value stays text."""
    made, faults = replaced(value, X="1", Y="true", EMPTY="", STRUCTURE="a: [1]\n- {b: ${X}}")

    assert (made, type(made)) == (expected, type(expected))
    assert faults == []


def test_undefined() -> None:
    """What is not defined is a fault at its place, with the name where the environment should have it."""
    made, faults = replaced({"a": ["${NO}", "${UNSET}", "${", "${not a name}"]})

    assert made == {"a": ["${NO}", "${UNSET}", "${", "${not a name}"]}
    assert faults == [
        "('a', 0): the variable NO is not defined",
        "('a', 1): the variable UNSET has no value: the environment has no SECRET_KEY",
        "('a', 2): `${` begins no variable",
        "('a', 3): `${` begins no variable",
    ]


def test_aliases_stay_one_value() -> None:
    """What many aliases stand for is replaced once: it does not grow."""
    value: PlainValue = ["${X}"]
    for _ in range(60):
        value = [value, value]
    made, _ = replaced(value, X="1")
    for _ in range(60):
        assert isinstance(made, list)
        made = made[0]

    assert made == ["1"]


def parser_with(catalogue: Catalogue, texts: Mapping[str, str]) -> FileParser:
    """Return what parses files with variables."""
    parser = FileParser(catalogue, check=Linter())
    parser.variables = Variables(texts, {})
    return parser


def clusters(catalogue: Catalogue, text: str, **texts: str) -> tuple[list[dict[str, PlainValue]], list[str]]:
    """Parse a file with variables; return its clusters, and what is wrong."""
    tree = tree_of({"cds.yaml": text})
    loaded = load(tree, None, lambda files: map(parser_with(catalogue, texts).parse, files), Acceptance(check=Linter()))
    row = BY_SHORT_NAME["cds"]
    messages = (
        catalogue.message_class(row.message_type).FromString(one.body)
        for one in loaded.snapshot.resources(row.type_url).values()
    )
    errors = [str(one) for one in loaded.problems if one.severity.value == "error"]
    return [Printer(catalogue).to_plain(message) for message in messages], errors


CLUSTER = """\
- name: ${NAME}-east
  type: STATIC
  connect_timeout: ${TIMEOUT}
  track_cluster_stats: {timeout_budgets: true}
  ignore_health_on_host_removal: ${IGNORE}
  per_connection_buffer_limit_bytes: ${LIMIT}
"""


def test_file_with_variables(catalogue: Catalogue) -> None:
    """In a file that asks for it, unquoted values mean what they would mean there."""
    found, errors = clusters(catalogue, MARK + CLUSTER, NAME="web", TIMEOUT="2s", IGNORE="true", LIMIT="100")

    assert errors == []
    assert found[0]["name"] == "web-east"
    assert (found[0]["connect_timeout"], found[0]["ignore_health_on_host_removal"]) == ("2s", True)
    assert found[0]["per_connection_buffer_limit_bytes"] == 100


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("vhds.yaml", "- {name: 'x${V}', domains: [a]}\n", "hunter2"),
        ("vhds.yaml", "- {name: '${V}', domains: [a]}\n", "hunter2"),
        ("cds.yaml", "- {name: a, connect_timeout: '${V}s'}\n", "-99887"),
        ("cds.yaml", "- &a {name: a, connect_timeout: '${V}'}\n- *a\n", "-99887s"),
        ("cds.yaml", ("- &a {name: a, outlier_detection: &o {interval: '${V}'}}\n"
         "- {name: b, outlier_detection: *o}\n- *a\n"), "-99887s"),
    ],
)  # fmt: skip
def test_no_problem_shows_a_value(catalogue: Catalogue, name: str, text: str, value: str) -> None:
    """Neither its fact nor its remedy, also if the value is a part of a scalar, or is used by an alias."""
    parsed = parser_with(catalogue, {"V": value}).parse(tree_of({name: MARK + text}).files[0])

    assert parsed.problems
    assert [str(one) for one in parsed.problems if value in f"{one} {one.remedy}"] == []


def test_file_without_the_mark(catalogue: Catalogue) -> None:
    """Other files are as they are: `${NAME}` is text, wherever the mark stands but in the first line."""
    for text in (
        "- name: ${NAME}\n",
        f"- name: ${{NAME}}\n{MARK}",
        f"\n{MARK}- name: ${{NAME}}\n",
        "# fsxds: variables!\n- name: ${NAME}\n",
    ):
        found, errors = clusters(catalogue, text, NAME="web")
        assert found == [{"name": "${NAME}"}], text
        assert errors == []


def test_places_stay_right(catalogue: Catalogue) -> None:
    """What is wrong is reported at its place, though values have more lines; no value is shown."""
    secret = "hunter2\nhunter3"
    found, errors = clusters(
        catalogue, MARK + CLUSTER, NAME="we\nb", TIMEOUT=secret, IGNORE="77 7", LIMIT="99999999999"
    )

    assert found == []
    assert [line.split(": ")[0] for line in errors] == ["cds.yaml:4:3", "cds.yaml:6:3", "cds.yaml:7:3"]
    assert "hunter" not in str(errors)
    assert "77" not in str(errors)
    assert "99999999999" not in str(errors)


def test_undefined_variable_has_its_place(catalogue: Catalogue) -> None:
    """A variable that is not defined is an error at its line and column, and the file is held back."""
    found, errors = clusters(catalogue, MARK + "- name: web\n- {name: 'a${NO}'}\n")

    assert found == []
    assert errors == [
        (
            "cds.yaml:3:4: error: [1].name: the variable NO is not defined; "
            "define it by `variables:` in the settings, or write `$${`"
        )
    ]


def test_undefined_variable_is_one_problem(catalogue: Catalogue) -> None:
    """What is left in place of a value is not reported as a wrong value, too."""
    _, errors = clusters(catalogue, MARK + "- name: web\n  connect_timeout: ${NO}\n")

    assert len(errors) == 1


def test_large_list_with_variables_is_parsed_as_a_whole(catalogue: Catalogue) -> None:
    """A list that would be parsed by its items has its variables replaced after an edit as well."""
    parser = parser_with(catalogue, {"NAME": "web"})
    text = MARK + "".join(f"- name: ${{NAME}}{number:05d}\n" for number in range(8000))
    for number, content in enumerate((text, text.replace("00007", "99997"))):
        parsed = parser.parse(tree_of({"cds.yaml": content}).files[0])
        names = [resource.name for resource in parsed.resources]
        assert names[7] == ("web00007", "web99997")[number]
        assert len(names) == 8000


# In views


CDS = MARK + "- name: ${NAME}\n  type: STATIC\n"


def test_views_have_values_of_their_own(catalogue: Catalogue) -> None:
    """A file of a shared layer has the values of each view, and those that hold everywhere where a view has none."""
    story = ViewStory(parse=parser_with(catalogue, {"NAME": "everywhere"}).parse)
    other, plain = ("common", "nodes/a", "/east"), ("common", "nodes/a")
    west = ("common", "/west")
    story.wanted = {plain: Variables(), other: Variables({"NAME": "east"}), west: Variables({"NAME": "west"})}
    views = story.step(
        {
            "common/a.cds.yaml": CDS,
            "common/b.cds.yaml": "- name: b\n",
            "nodes/a/c.cds.yaml": CDS.replace("NAME}", "NAME}-a"),
        }
    )

    assert {view: sorted(served(loaded)) for view, loaded in views.by_layers.items()} == {
        plain: ["CDS b", "CDS everywhere", "CDS everywhere-a"],
        other: ["CDS b", "CDS east", "CDS east-a"],
        west: ["CDS b", "CDS west"],
    }
    assert problems(views) == []
    assert story.parsed.count("common/b.cds.yaml") == 3

    before = views.by_layers[west]
    views = story.step({"nodes/a/c.cds.yaml": CDS.replace("NAME}", "NAME}-b")})
    assert story.parsed == ["nodes/a/c.cds.yaml"] * 2
    assert views.by_layers[west] is before
    assert sorted(served(views.by_layers[other])) == ["CDS b", "CDS east", "CDS east-b"]


def test_value_of_a_view_is_broken(catalogue: Catalogue) -> None:
    """A view in which a variable is not defined has a problem that names it; the others are served."""
    story = ViewStory(parse=parser_with(catalogue, {}).parse)
    east, west = ("common", "/east"), ("common", "/west")
    story.wanted = {east: Variables({"NAME": "east"}), west: Variables()}
    views = story.step({"common/a.cds.yaml": CDS})

    assert served(views.by_layers[east]).keys() == {"CDS east"}
    assert served(views.by_layers[west]) == {}
    assert [problem.message for problem in views.problems if problem.rule == "undefined-variable"] == [
        "the variable NAME is not defined (in common with the variables of west)"
    ]


@pytest.mark.parametrize("broken", ["[", MARK + "- name: ${NAME}\n  zzz: 1\n", MARK + "- name: ${NO}\n"])
def test_broken_file_keeps_what_each_view_had(catalogue: Catalogue, broken: str) -> None:
    """A file that breaks, and has no mark any more, stays what it was in each view, with the values of that view."""
    story = ViewStory(parse=parser_with(catalogue, {"NAME": "all"}).parse)
    east, plain = ("common", "nodes/a", "/east"), ("common",)
    story.wanted = {east: Variables({"NAME": "east"}), plain: Variables()}
    story.step({"common/a.cds.yaml": CDS, "nodes/a/own.cds.yaml": "- name: own\n"})
    for edits in ({"common/a.cds.yaml": broken}, {"nodes/a/own.cds.yaml": "- name: other\n"}):
        views = story.step(edits)
    assert served(views.by_layers[east]).keys() == {"CDS east", "CDS other"}
    assert served(views.by_layers[plain]).keys() == {"CDS all"}
    assert held(views) == {"common/a.cds.yaml": True}

    views = story.step({"common/a.cds.yaml": CDS})
    assert served(views.by_layers[east]).keys() == {"CDS east", "CDS other"}
    assert held(views) == {}


def test_first_file_with_variables_takes_nothing_away(catalogue: Catalogue) -> None:
    """What is broken when the first file with variables comes stays what it was."""
    story = ViewStory(parse=parser_with(catalogue, {"NAME": "all"}).parse)
    east = ("common", "/east")
    story.wanted = {east: Variables({"NAME": "east"})}
    story.step({"common/b.cds.yaml": "- name: b\n"})
    views = story.step({"common/b.cds.yaml": "[", "common/a.cds.yaml": CDS})

    assert served(views.by_layers[east]).keys() == {"CDS b", "CDS east"}


def test_workers_know_the_variables(catalogue: Catalogue) -> None:
    """A process that parses replaces variables, by the values of the view that a file is for, or of all."""
    file = tree_of({"cds.yaml": CDS}).files[0]
    worker = ParseWorker.start(ParseRules(catalogue, variables=((("NAME", "web"),), ())))
    try:
        encoded = worker.parse((file, VariedFile(file, {"NAME": "east"}, {})), 60.0, ())
    finally:
        worker.end()

    names = [[one.name for one in decode(file.path, file.digest, each).resources] for each in encoded]
    assert names == [["web"], ["east"]]


async def test_variants_of_a_file_are_parsed_side_by_side(catalogue: Catalogue) -> None:
    """Files of one path with other values are several files to who parses them."""
    file = tree_of({"cds.yaml": CDS}).files[0]
    files: tuple[SourceFile, ...] = (file, VariedFile(file, {"NAME": "east"}, {}), VariedFile(file, {"NAME": "w"}, {}))
    with Parsing(ParseRules(catalogue, variables=((("NAME", "web"),), ()))) as parsing:
        parsed = await parsing.parse(files)

    assert [one.resources[0].name for one in parsed] == ["web", "east", "w"]
    assert [one.digest for one in parsed] == [one.digest for one in files]
