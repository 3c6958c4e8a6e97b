"""Definitions are made shorter, and mean the same."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from fsxds.tools.json_schema import shared
from fsxds.tools.schema_documents import compact

TEXT = {"type": "string", "minLength": 1, "description": "must not be empty"}


def closed(**properties: Any) -> dict[str, Any]:
    """Return the schema of a message."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def test_what_is_used_once_stands_where_it_is_used() -> None:
    """With the words that stand beside the reference; what leads nowhere is gone."""
    definitions = {
        "root": closed(only=shared("a.Once") | {"description": "x"}),
        "a.Once": closed(name={"type": "string"}),
        "a.Unused": {"type": "string"},
    }

    assert compact(definitions, "root") == {"root": closed(only=closed(name={"type": "string"}) | {"description": "x"})}


def test_references_with_keywords_of_their_own_stay() -> None:
    """Keywords of both would get in each other's way."""
    definitions = {"root": closed(port=shared("number") | {"maximum": 5}), "number": {"type": "integer", "minimum": 1}}

    assert compact(definitions, "root") == definitions


def test_what_is_repeated_becomes_a_definition() -> None:
    """It is named after a property of which it is the schema."""
    found = compact({"root": closed(name=TEXT, other=TEXT, name2=closed(name=TEXT))}, "root")

    assert found["name"] == TEXT
    assert found["root"] == closed(name=shared("name"), other=shared("name"), name2=closed(name=shared("name")))


def test_equal_definitions_become_one() -> None:
    """Also those that are equal only when what they lead to has become one."""
    message = closed(**{f"field{number}": {"type": "string"} for number in range(9)})
    outer = [
        closed(inner=shared(f"x.Inner{letter}"), again=shared(f"x.Inner{letter}"), more=message) for letter in "AB"
    ]
    definitions = {
        "root": closed(a=shared("x.OuterA"), b=shared("x.OuterB")),
        "x.OuterA": outer[0], "x.OuterB": outer[1], "x.InnerA": message, "x.InnerB": message,
    }  # fmt: skip
    found = compact(definitions, "root")

    assert found["root"] == closed(a=shared("OuterA"), b=shared("OuterA"))
    assert set(found) == {"root", "OuterA", "InnerA"}
    assert found["OuterA"] == closed(inner=shared("InnerA"), again=shared("InnerA"), more=shared("InnerA"))


def test_names_are_short_and_differ() -> None:
    """The one that is used most has the shortest; what is behind a colon stays."""
    big = {
        name: closed(**{f"{name[0]}{number}": {"type": "string"} for number in range(9)})
        for name in ("a.v3.X", "b.v3.X")
    }
    uses = {f"p{number}": shared("b.v3.X") for number in range(3)} | {
        f"q{number}": shared("a.v3.X") for number in range(2)
    }
    special = {"c.Y:a.b": closed(**{f"z{number}": {"type": "string"} for number in range(9)})}
    found = compact({"root": closed(**uses, r=shared("c.Y:a.b"), s=shared("c.Y:a.b")), **big, **special}, "root")

    assert set(found) == {"root", "X", "v3.X", "Y:a.b"}
    assert found["X"] == big["b.v3.X"]


def test_messages_that_hold_themselves_stay() -> None:
    """They cannot be written where they are used."""
    definitions = {"root": closed(first=shared("a.Tree")), "a.Tree": closed(left=shared("a.Tree"), value=TEXT)}
    found = compact(definitions, "root")

    assert found["Tree"]["properties"]["left"] == shared("Tree")
    assert Draft202012Validator({**shared("root"), "$defs": found}).is_valid({"first": {"left": {"left": {}}}})
    assert not Draft202012Validator({**shared("root"), "$defs": found}).is_valid({"first": {"left": {"right": {}}}})


def test_properties_are_no_keywords() -> None:
    """A field may be called as a keyword is."""
    fields = dict.fromkeys(("type", "items", "anyOf", "$ref", "if", "properties", "description"), TEXT)
    found = compact({"root": closed(**fields, properties2=closed(**fields))}, "root")
    validator = Draft202012Validator({**shared("root"), "$defs": found})

    assert validator.is_valid(dict.fromkeys(fields, "x"))
    assert not validator.is_valid({"type": ""})
    assert not validator.is_valid({"typo": "x"})


def test_types_that_are_demanded_already() -> None:
    """A type is left out where the schema around demands it of the same value."""
    inner = closed(name={"type": "string"})
    root = {"type": "object", "if": {"required": ["name"]}, "then": {"allOf": [inner]}, "else": {"type": "object"}}

    assert compact({"root": root}, "root")["root"] == {
        "type": "object",
        "if": {"required": ["name"]},
        "then": {"allOf": [{"properties": {"name": {"type": "string"}}, "additionalProperties": False}]},
        "else": {},
    }
