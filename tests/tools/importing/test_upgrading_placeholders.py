"""Templates that nobody rendered."""

from __future__ import annotations

import pytest

from fsxds.tools.importing.upgrading import placeholder_faults


@pytest.mark.parametrize(
    "value",
    [
        "${PORT}",
        '"{{ .Values.host }}"',
        "{{ host }}",
        "${HOST:-localhost}",
        "http://${HOST}/a",
        "/etc/${ENV}/c.pem",
        "'<%= x %>'",
    ],
)
def test_placeholders_are_found(value: str) -> None:
    """In the ways of envsubst, Go, Jinja and ERB, in quotes or not."""
    (fault,) = placeholder_faults(f"a: 1\nb: {value}\n", "e.yaml")

    assert (2, 4) == (fault.line, fault.column)
    assert "render the template first: envsubst < e.yaml | fsxds import - DIR" == fault.remedy


@pytest.mark.parametrize(
    "value",
    ["'/${1}-\\1'", '"%REQ(A)% ${x} {{y}}"', "|\n  local x = '${a}' .. '{{b}}'", "{a: {b: c}}", "a # ${PORT}", "$HOME"],
)
def test_what_may_be_meant_so(value: str) -> None:
    """Substitutions, format strings, code and comments are no placeholders."""
    assert [] == placeholder_faults(f"b: {value}\n", "e.yaml")


def test_text_that_is_no_yaml_because_of_them() -> None:
    """Each line with a placeholder is reported, in place of a puzzling mistake."""
    text = "a: {b: ${PORT}}\n{% if x %}\n# {{ no }}\nc: {{ d }}\n"

    assert [1, 2, 4] == [fault.line for fault in placeholder_faults(text, "e.yaml")]
