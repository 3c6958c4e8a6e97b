"""An API of one message, `tiny.M`, made for one test."""

from __future__ import annotations

from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.descriptors import parse_set

HEAD = """
name: "tiny.proto" package: "tiny" syntax: "proto3"
dependency: ["validate/validate.proto", "google/protobuf/wrappers.proto", "google/protobuf/duration.proto",
             "google/protobuf/any.proto", "google/protobuf/timestamp.proto", "envoy/annotations/deprecation.proto"]
enum_type { name: "E" value { name: "ZERO" number: 0 } value { name: "ONE" number: 1 } value { name: "TWO" number: 2 } }
"""
WHOLES = ("TYPE_MESSAGE", "TYPE_ENUM")


def field(type_name: str, rules: str = "", more: str = "", *, name: str = "f", number: int = 1) -> str:
    """Return a field of a scalar type (`uint32`), a message (`.google.protobuf.Any`) or an enum (`.tiny.E`)."""
    if type_name.startswith("."):
        form = f'type: {WHOLES[type_name == ".tiny.E"]} type_name: "{type_name}"'
    else:
        form = f"type: TYPE_{type_name.upper()}"
    options = f"options {{ [validate.rules] {{ {rules} }} }}" if rules else ""
    return f'field {{ name: "{name}" number: {number} label: LABEL_OPTIONAL {form} {options} {more} }}'


def repeated(type_name: str, rules: str) -> str:
    """Return a list."""
    return field(type_name, rules).replace("LABEL_OPTIONAL", "LABEL_REPEATED")


def map_of(key: str, value: str, rules: str) -> str:
    """Return a map, and the message of its entries."""
    parts = f"{field(key, name='key')} {field(value, name='value', number=2)}"
    entries = f'nested_type {{ name: "FEntry" {parts} options {{ map_entry: true }} }}'
    return f"{repeated('.tiny.M.FEntry', rules)} {entries}"


def tiny_api(catalogue: Catalogue, body: str, more: str = "") -> Catalogue:
    """Return a catalogue with a message of this body; `more` stands beside it."""
    proto: Any = catalogue.message_class("google.protobuf.FileDescriptorProto")()
    text_format.Parse(f'{HEAD} message_type {{ name: "M" {body} }} {more}', proto, descriptor_pool=catalogue.pool)
    files = FileDescriptorSet()
    files.file.add().ParseFromString(proto.SerializeToString())
    files.file.extend(file for file in parse_set(catalogue.serialized).file if file.name in proto.dependency)
    return Catalogue.of(files.SerializeToString(), "tiny")


def findings(catalogue: Catalogue, body: str, text: str) -> list[tuple[str, str]]:
    """Return the path, and the rule with its message, of all faults of a message that is given as text."""
    api = tiny_api(catalogue, body)
    message = text_format.Parse(text, api.message_class("tiny.M")(), descriptor_pool=api.pool)
    faults = FieldRules(api).check(message).faults
    return [(".".join(map(str, fault.field_path)), f"{fault.rule}: {fault.message}") for fault in faults]
