from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.api.secrecy import INLINE_FIELDS, SECRET_FIELDS
from fsxds.reports.quiet_lines import LONGEST_WALKED_TEXT, QuietLines, is_quiet_field, may_be_shown
from tests.reports.findings import problem

CLUSTERS = "clusters.yaml"


def shown_parts(text: str, path: str = CLUSTERS, *, is_plain: bool = True) -> list[str]:
    """Return what may be shown of each line."""
    quiet = QuietLines(PurePosixPath(path), text, is_plain=is_plain)
    return [
        quiet.shown_part(problem(path, number, 1, pointer="resources[0]"), line)
        for number, line in enumerate(text.splitlines(), 1)
    ]


def shown_lines(text: str, path: str = CLUSTERS, *, is_plain: bool = True) -> list[int]:
    """Return the numbers of the lines that may be shown as a whole."""
    shown = shown_parts(text, path, is_plain=is_plain)
    return [number for number, line in enumerate(text.splitlines(), 1) if line == shown[number - 1]]


@pytest.mark.parametrize("field", sorted(SECRET_FIELDS | INLINE_FIELDS))
def test_values_of_secret_fields_are_quiet(field: str) -> None:
    """The line of a secret field is not shown, in any spelling; its neighbours are."""
    camel = "".join(word.title() if number else word for number, word in enumerate(field.split("_")))

    assert [1, 3] == shown_lines(f"a:\n  {field}: x\n  b: y\n")
    assert [1, 3] == shown_lines(f"a:\n  {camel}: x\n  b: y\n")
    assert [1, 3] == shown_lines(f'{{"a": 1,\n "{camel}": "x",\n "b": 2}}\n', "cds.json")


def test_a_value_of_many_lines_is_quiet() -> None:
    """All lines of a block, of a quoted text and of a container that is a secret are not shown."""
    assert [4, 5] == shown_lines("inline_string: |\n  one\n  two\n\nb: 2\n")
    assert [4] == shown_lines('inline_string: "one\n  two\n  three"\nb: 2\n')
    assert [1, 5] == shown_lines("credentials:\n  deeper:\n  - one\n  - {two: 2}\nb: 2\n")
    assert [4] == shown_lines("credentials: {\n  one: 1 # of hunter2\n  }\nb: 2\n")


def test_messages_of_secrets_are_quiet() -> None:
    """An object whose type is a secret's is not shown at all, wherever its type is written; the next one is."""
    secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"

    assert [5] == shown_lines(f'- name: a\n  odd:\n    x: 1\n  "@type": {secret}\n- name: b\n')
    assert [] == shown_lines(f"resources:\n- name: a\n  odd: 1\ntype_url: {secret}\n")


def test_files_of_secrets_are_quiet() -> None:
    """Of a file whose name or folder speaks of secrets, no line is shown."""
    assert [] == shown_lines("- name: web\n", "sds.yaml")
    assert [] == shown_lines("- name: web\n", "secrets/edge.yaml")
    assert [] == shown_lines('name: "web"\n', "edge.secrets.textproto", is_plain=False)


def test_anchors_of_secrets_are_quiet() -> None:
    """What an alias brings into a secret field is not shown where its anchor stands either."""
    assert [2, 3] == shown_lines("x: &key hunter2\ny: {private_key: *key}\nb: 2\n")
    assert [3, 4] == shown_lines("x: &key\n  deep: hunter2\ny: {password: *key}\nb: 2\n")


def test_misspelled_secrets_are_quiet() -> None:
    """A field that is nearly a secret's is taken for one: it is the typos that are reported."""
    assert [1, 3] == shown_lines("a:\n  pasword: hunter2\n  b: y\n")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("privat_key", True),
        ("prviate_key", True),
        ("private_keyy", True),
        ("clientSecrt", True),
        ("in_line_string", True),
        ("tokn", True),
        ("db_password", True),
        ("x-api-key", True),
        ("tls_certificate_sds_secret_configs", False),
        ("sds_config", False),
        ("key", False),
        ("prefix", False),
        ("stat_prefix", False),
        ("connect_timeout", False),
        ("address", False),
        ("domains", False),
        ("x" * 10_000, False),
    ],
)
def test_which_fields_are_quiet(name: str, *, expected: bool) -> None:
    """A field is a secret by its name, by a telling part of it, or when one letter of it is wrong."""
    assert expected == is_quiet_field(name)


def test_a_line_is_shown_up_to_its_secret() -> None:
    """What stands before a secret on its line may be shown, and is where the problem is there."""
    line = "a: {status: 99, body: {inline_string: hunter2}, odd: 1}"
    quiet = QuietLines(PurePosixPath(CLUSTERS), f"{line}\n", is_plain=True)

    assert "a: {status: 99, body: {inline_string: " == quiet.shown_part(problem(CLUSTERS, 1, 5, pointer="a"), line)
    assert "" == quiet.shown_part(problem(CLUSTERS, 1, line.index("odd") + 1, pointer="a"), line)
    assert ["x: ", "y: {password: *key}"] == shown_parts("x: &key hunter2\ny: {password: *key}\n")


def test_a_pointer_into_a_secret_is_quiet() -> None:
    """A problem whose own pointer leads through a secret field has no line."""
    quiet = QuietLines(PurePosixPath(CLUSTERS), "a: 1\n", is_plain=True)

    assert "" == quiet.shown_part(problem(CLUSTERS, 1, 1, pointer="[0].tls_certificate.private_key.odd"), "a: 1")
    assert "a: 1" == quiet.shown_part(problem(CLUSTERS, 1, 1, pointer="resources[0].connect_timeout"), "a: 1")


@pytest.mark.parametrize("mention", ["privateKey: x", '"inline_string": x', "# a password", '"private\\u005fkey": x'])
def test_text_that_cannot_be_read_is_quiet_when_it_mentions_secrets(mention: str) -> None:
    """Where the text is no YAML, nobody can tell which lines are secrets: one mention is enough to show none."""
    assert [] == shown_lines(f"{mention}\na: [\n")
    assert [1, 2] == shown_lines("harmless: x\na: [\n")


def test_textproto_is_quiet_when_it_mentions_secrets() -> None:
    """Of text format, all lines are shown or none."""
    assert [1, 2] == shown_lines('name: "web"\ntype: STATIC\n', "cds.textproto", is_plain=False)
    assert [] == shown_lines('name: "web"\nprivate_key { filename: "x" }\n', "cds.textproto", is_plain=False)


def test_a_long_text_is_not_walked() -> None:
    """A text that is too long to be walked is judged by its mentions."""
    filler = "# filler\n" * (LONGEST_WALKED_TEXT // 9 + 1)

    assert 1 in shown_lines(f"a: 1\n{filler}")
    assert [] == shown_lines(f"a: {{password: x}}\n{filler}")


def test_deep_nesting_is_not_walked() -> None:
    """Text deeper than is read ends the walk: what mentions a secret is quiet."""
    assert [1] == shown_lines("[" * 200 + "]" * 200)
    assert [""] == shown_parts("[" * 200 + "{password: x}" + "]" * 200)


def test_lines_that_look_like_keys_are_not_shown() -> None:
    """A line with a PEM mark, an inline value or a long run of base64 is not shown, whatever stands around it."""
    assert may_be_shown("  name: a-cluster-with-a-name.that.is.long.enough.to.be.real.example.com")
    assert may_be_shown('  "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router')
    assert not may_be_shown("  MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQghA8ZXiyf0QYx1KB9")
    assert not may_be_shown("-----BEGIN PRIVATE KEY-----")
    assert not may_be_shown("body: {inline_string: x}")
