from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import ANY, is_map
from fsxds.api.printing import Printer
from fsxds.api.secrets import INLINE_FIELDS, Secrecy
from fsxds.model.resource_types import PREFIX
from fsxds.model.values import PlainValue, TypeUrl
from fsxds.tools.diff.compare import FieldComparer
from tests.support.messages import Generator

# Pages, which people want to see change.
CODE = frozenset({"body", "body_format"})

MARK = "S3CR3T"
# `UzNDUj` is how the mark begins in base64.
MARKS = (MARK, "UzNDUj")

TYPES = (
    "envoy.extensions.transport_sockets.tls.v3.Secret",
    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
    "envoy.extensions.filters.http.oauth2.v3.OAuth2",
    "envoy.extensions.filters.http.basic_auth.v3.BasicAuth",
    "envoy.extensions.filters.network.redis_proxy.v3.RedisProxy",
    "envoy.extensions.filters.http.jwt_authn.v3.JwtProvider",
    "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
)
# What may be seen within a secret.
OPEN = frozenset({"environment_variable", "filename", "name", "sds_config", "watched_directory", "type_url"})


class Marker:
    """Puts a mark into every text of a message that is a secret."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.count = 0
        self._catalogue = catalogue
        self._secrecy = Secrecy(catalogue)

    def mark(self, message: Any, *, is_secret: bool = False, holder: str = "") -> None:
        """Mark a message, and all that is packed in it."""
        if message.DESCRIPTOR.full_name == ANY:
            if message.type_url:
                inner = self._catalogue.message_class(message.type_url.rpartition("/")[2]).FromString(message.value)
                self.mark(inner, is_secret=is_secret)
                message.value = inner.SerializeToString(deterministic=True)
            return
        for field, value in list(message.ListFields()):
            is_code = field.name in INLINE_FIELDS and holder in CODE
            hidden = field.name not in OPEN if is_secret else self._secrecy.covers(field) and not is_code
            self._mark_field(message, field, value, hidden)

    def _mark_field(self, message: Any, field: FieldDescriptor, value: Any, hidden: bool) -> None:
        if is_map(field):
            for part in value.values():
                if isinstance(part, Message):
                    self.mark(part, is_secret=hidden, holder=field.name)
        elif field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                self.mark(part, is_secret=hidden, holder=field.name)
        elif hidden and field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
            mark: Any = MARK if field.type == FieldDescriptor.TYPE_STRING else MARK.encode()
            if field.is_repeated:
                value[:] = [mark] * len(value)
            else:
                setattr(message, field.name, mark)
            self.count += 1


@pytest.mark.parametrize("message_type", TYPES)
def test_no_secret_is_ever_shown(catalogue: Catalogue, message_type: str) -> None:
    """Whatever came, went or changed in whatever message: the mark that all secrets bear is in no change."""
    comparer, printer = FieldComparer(catalogue), Printer(catalogue)
    marker = Marker(catalogue)
    plain: list[dict[str, PlainValue]] = [{"@type": PREFIX + message_type}]
    for seed in range(60):
        message = Generator(catalogue, seed).message(message_type)
        plain.append(_plain(printer, message))
        marker.mark(message)
        plain.append(_plain(printer, message))

    for before, after in zip(plain, plain[1:] + plain[:1], strict=True):
        for change in (*comparer.compare(before, after), *comparer.compare(plain[0], after)):
            shown = json.dumps([change.path, change.before, change.after])
            assert not any(mark in shown for mark in MARKS), change.path
    assert marker.count > 0


def test_every_inline_field_is_known() -> None:
    """The fields of a DataSource that hold content are those that the test marks."""
    assert {"inline_bytes", "inline_string"} == INLINE_FIELDS


def _plain(printer: Printer, message: Message) -> dict[str, PlainValue]:
    body = message.SerializeToString(deterministic=True)
    name = message.DESCRIPTOR.full_name
    content: dict[str, PlainValue] = json.loads(printer.any_json(TypeUrl(f"{PREFIX}{name}"), body))
    return content
