"""The table of formats."""

from pathlib import PurePosixPath

import pytest

from fsxds.formats import FORMATS, format_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *(("a.yaml", "yaml"), ("b/a.YML", "yaml"), ("a.json", "json"), ("a.b.Json", "json"), ("a.pb", "binary")),
        *(("a.binpb", "binary"), ("a.textproto", "textproto"), ("a.txtpb", "textproto"), ("a.pbtxt", "textproto")),
        *(("a.prototxt", "textproto"), ("a.pb_text", "textproto")),
    ],
)
def test_suffixes(name, expected):
    """A file's format is told by its suffix, in any case of letters."""
    found = format_of(PurePosixPath(name))

    assert found is not None
    assert expected == found.name


@pytest.mark.parametrize("name", ["a", "yaml", ".yaml", "a.toml", "a.yaml.bak", "a.json~", "json/a"])
def test_other_suffixes(name):
    """A file without a known suffix has no format."""
    assert format_of(PurePosixPath(name)) is None


def test_suffixes_belong_to_one_format():
    """No suffix is claimed twice."""
    suffixes = [suffix for row in FORMATS for suffix in row.suffixes]

    assert sorted(set(suffixes)) == sorted(suffixes)
