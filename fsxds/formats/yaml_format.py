"""YAML files: read as Envoy 1.40 reads them, and written so that Envoy and fsxds read the same values back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.documents import Decoded, UnreadableError, unreadable
from fsxds.formats.utf8 import read_text
from fsxds.formats.yaml_reader import read_yaml
from fsxds.formats.yaml_scalars import LARGEST_INTEGER, resolve_plain

if yaml.__with_libyaml__ or TYPE_CHECKING:
    from yaml import CSafeDumper
else:
    from yaml import SafeDumper as CSafeDumper  # pragma: no cover - require_libyaml ends such a start


# Line breaks to YAML 1.1, which libyaml writes, and not to YAML 1.2, which Envoy reads: only an escape is safe.
_BREAKS: Final = re.compile("[\x85\u2028\u2029]")


class _Dumper(CSafeDumper):
    """Quotes every text that Envoy would not read as that text; PyYAML alone quotes what PyYAML would not."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out: equal parts are not the author's anchors."""
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = '"' if _BREAKS.search(text) else None if type(resolve_plain(text)) is str else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number_node(dumper: _Dumper, number: float) -> yaml.ScalarNode:
    # Within a Struct Envoy would read 5.0 as a text; a number field takes either.
    if number.is_integer() and abs(number) <= LARGEST_INTEGER:
        return dumper.represent_int(int(number))
    return dumper.represent_float(number)


_Dumper.add_representer(str, _text_node)
_Dumper.add_representer(float, _number_node)


def decode(content: bytes, catalogue: Catalogue, message_type: str | None) -> Decoded:  # noqa: ARG001 - one signature for all
    """Read the documents of a YAML file; neither catalogue nor message type matter to plain values."""
    try:
        text = read_text(content)
    except UnreadableError as error:
        return unreadable(error.fault)
    return read_yaml(text)


def encode(message: Message, printer: Printer) -> bytes:
    """Write a message as YAML.

    A number in a Struct keeps its value for fsxds only: Envoy 1.40 takes one with a fraction as text, whatever its
    spelling (ENVOY.md H).
    """
    plain = printer.to_plain(message)
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
    return text.encode()
