"""YAML files: read as Envoy 1.40 reads them, and written so that Envoy and fsxds read the same values back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import yaml
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats.documents import Decoded, UnreadableError, unreadable
from fsxds.formats.utf8 import read_text
from fsxds.formats.yaml_reader import read_yaml
from fsxds.formats.yaml_scalars import LARGEST_INTEGER, resolve_plain
from fsxds.values import PlainValue

if yaml.__with_libyaml__ or TYPE_CHECKING:
    from yaml import CSafeDumper
else:
    from yaml import SafeDumper as CSafeDumper  # pragma: no cover - require_libyaml ends such a start


# Line breaks to YAML 1.1, which libyaml writes, and not to YAML 1.2, which Envoy reads: only an escape is safe.
_BREAKS: Final = re.compile("[\x85\u2028\u2029]")


# Lines, such as those of a certificate, that are the same in every way of writing them; people read them best as they are.
_PLAIN_LINES: Final = re.compile("(?:[!-~](?:[ -~]*[!-~])?\\n)+(?:[!-~](?:[ -~]*[!-~])?)?")


class _Dumper(CSafeDumper):
    """Quotes every text that Envoy would not read as that text; PyYAML alone quotes what PyYAML would not."""

    def ignore_aliases(self, data: object) -> bool:
        """Write everything out: equal parts are not the author's anchors."""
        return True


def _text_node(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    if _PLAIN_LINES.fullmatch(text):
        style: str | None = "|"
    else:
        style = '"' if _BREAKS.search(text) else None if type(resolve_plain(text)) is str else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _number_node(dumper: _Dumper, number: float) -> yaml.ScalarNode:
    # Within a Struct Envoy would read 5.0 as a text; a number field takes either. No whole number has the sign of -0.0.
    if number.is_integer() and -LARGEST_INTEGER - 1 <= number <= LARGEST_INTEGER and str(number) != "-0.0":
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

    A number in a Struct keeps its value only when it is whole and of 32 bits: others Envoy 1.40 takes as text, whatever
    their spelling (ENVOY.md H), and fsxds as Envoy does.
    """
    return encode_plain((printer.to_plain(message),))


def encode_plain(documents: Sequence[PlainValue]) -> bytes:
    """Write plain values, each as a document; numbers in a Struct fare as in `encode`."""
    text: str = yaml.dump_all(
        documents,
        Dumper=_Dumper,
        explicit_start=len(documents) > 1,
        sort_keys=False,
        allow_unicode=True,
        width=10_000,
    )
    return text.encode()
