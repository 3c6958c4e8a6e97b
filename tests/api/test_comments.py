"""What authors say of their API, where descriptors carry it."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet, SourceCodeInfo

from fsxds.api.catalogue import Catalogue
from fsxds.api.comments import first_paragraph, read_comments


def commented() -> Catalogue:
    """Return an API with a message, an enum and what is in them, all with comments."""
    files = FileDescriptorSet()
    file = files.file.add(name="mine.proto", package="mine", syntax="proto3")
    message = file.message_type.add(name="Outer")
    message.field.add(name="size", number=1, label=1, type=5, json_name="size")
    inner = message.nested_type.add(name="Inner")
    inner.field.add(name="deep", number=1, label=1, type=9, json_name="deep")
    for enum in (file.enum_type.add(name="Colour"), message.enum_type.add(name="Shape")):
        enum.value.add(name=f"{enum.name.upper()}_NONE", number=0)
    comments = {
        (4, 0): " A message.\n",
        (4, 0, 2, 0): " How much of it,\n in bytes.\n\n More.\n",
        (4, 0, 3, 0): "",
        (4, 0, 3, 0, 2, 0): "Deep.",
        (4, 0, 4, 0): "A shape.",
        (5, 0): "A colour.",
        (5, 0, 2, 0): "No colour.",
        (6, 0): "A service, which is none of these.",
    }
    locations = file.source_code_info.location
    locations.extend(SourceCodeInfo.Location(path=path, leading_comments=text) for path, text in comments.items())
    return Catalogue.of(files.SerializeToString(), "commented")


def test_comments_by_names() -> None:
    """Of messages, fields, enums and values, at any depth."""
    assert read_comments(commented()) == {
        "mine.Outer": "A message.",
        "mine.Outer.size": "How much of it, in bytes.",
        "mine.Outer.Inner.deep": "Deep.",
        "mine.Outer.Shape": "A shape.",
        "mine.Colour": "A colour.",
        "mine.Colour.COLOUR_NONE": "No colour.",
    }


def test_descriptors_without_comments(catalogue: Catalogue) -> None:
    """Those of an Envoy have none."""
    assert read_comments(catalogue) == {}


@pytest.mark.parametrize(
    ("comment", "expected"), [("", ""), ("\n\n one\n two \n\nthree", "one two"), ("one", "one"), ("  \n", "")]
)
def test_first_paragraph(comment: str, expected: str) -> None:
    """In one line, without what follows an empty one."""
    assert expected == first_paragraph(comment)
