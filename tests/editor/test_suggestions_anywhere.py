"""Suggestions, hover, names and symbols at any place of any text, whole or cut off: an answer, and no value of the text."""

from __future__ import annotations

import random
from pathlib import Path, PurePosixPath

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.editor.api_words import hover
from fsxds.editor.edited_tree import NOTHING_READ
from fsxds.editor.navigation import Navigator
from fsxds.editor.suggestions import Completion

TOP = Path(__file__).parents[2]
SAMPLES = sorted(path for path in (TOP / "config" / "xds").rglob("*") if path.suffix in {".yaml", ".json"})
SAMPLES += sorted((TOP / "tests" / "trees").glob("*/*.yaml"))[::4]
PLACES = 12
SECRET = "hunter2"


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(TOP)))
def test_any_place(catalogue: Catalogue, path: Path) -> None:
    """No place makes a question fail, also where the text ends there."""
    text = path.read_bytes().decode(errors="replace")
    name = PurePosixPath(path.name)
    completion = Completion(catalogue)
    for index in random.Random(path.name).sample(range(len(text) + 1), min(PLACES, len(text) + 1)):
        for shown in (text, text[:index], text[:index] + "x\n" + text[index:]):
            navigator = Navigator(NOTHING_READ, catalogue, {name: shown})
            suggestions = completion.suggest(shown, index, name, {})
            start, end = suggestions.span
            assert 0 <= start <= index <= end <= len(shown)
            hover(navigator, name, index)
            navigator.name_at(name, index)
            navigator.symbols(name)


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_no_secret_is_repeated(catalogue: Catalogue, quote: str) -> None:
    """Nothing that is said of a file with secrets has one in it, wherever it is asked."""
    value = f"{quote}{SECRET}{quote}"
    text = (
        '- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret\n'
        f"  name: a\n  generic_secret: {{secret: {{inline_string: {value}}}}}\n"
        f"- name: b\n  tls_certificate:\n    private_key:\n      inline_string: {value}\n    password: {value}\n"
    )
    name = PurePosixPath("secrets.yaml")
    navigator = Navigator(NOTHING_READ, catalogue, {name: text})
    said = [repr(hover(navigator, name, index)) for index in range(len(text))]
    said += [repr(Completion(catalogue).suggest(text, index, name, {}).found) for index in range(0, len(text), 3)]
    said.append(repr(navigator.symbols(name)))

    assert not any(SECRET in one for one in said)
