"""Which fields hold secrets, so that their values are never quoted."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.fields import owner_of
from fsxds.api.spelled import SpelledFloat

# All that stands in these messages is kept quiet, the harmless parts too.
_SECRET_TYPES = frozenset(
    {
        "envoy.extensions.transport_sockets.tls.v3.Secret",
        "envoy.extensions.transport_sockets.tls.v3.TlsCertificate",
        "envoy.extensions.transport_sockets.tls.v3.TlsSessionTicketKeys",
        "envoy.extensions.transport_sockets.tls.v3.GenericSecret",
    }
)

# Fields that hold secrets, by their names: many bear no option that says so, and a listing does not know options.
SECRET_FIELDS = frozenset({
    "access_key_id", "api_key", "auth_password", "auth_passwords", "auth_token", "auth_username", "backend_token",
    "client_secret", "credential", "credentials", "credentials_data_source", "downstream_auth_password",
    "downstream_auth_passwords", "downstream_auth_username", "hmac_secret", "keys", "password", "pkcs12", "private_key",
    "secret", "secret_access_key", "secret_data", "secrets", "session_ticket_keys", "session_token", "token",
    "token_secret", "users", "web_identity_token_data_source",
})  # fmt: skip

# What a DataSource holds itself, instead of naming a place.
INLINE_FIELDS = frozenset({"inline_bytes", "inline_string"})

_SENSITIVE = "udpa.annotations.sensitive"
_LONGEST_QUOTE = 40


class Secrecy:
    """Knows the fields of a catalogue that hold secrets: by their option, their name or their message."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._answers: dict[str, bool] = {}

    def covers(self, field: FieldDescriptor) -> bool:
        """Tell whether the value of this field, and all within it, is a secret."""
        answer = self._answers.get(field.full_name)
        if answer is None:
            answer = self._answers[field.full_name] = (
                field.name in SECRET_FIELDS | INLINE_FIELDS
                or owner_of(field).full_name in _SECRET_TYPES
                or self._is_marked(self._catalogue.field_options(field))
            )
        return answer

    def _is_marked(self, options: Message) -> bool:
        return any(extension.full_name == _SENSITIVE and value is True for extension, value in options.ListFields())


def quoted(value: object, *, secret: bool) -> str:
    """Name a value in a message: as it is when it is short and no secret, else by its kind."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    described = "text" if isinstance(value, str) else "true or false" if isinstance(value, bool) else "a number"
    if secret:
        return described
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, SpelledFloat):
        text = value.text
    else:
        # Python refuses to spell integers of more than some thousand digits.
        text = "" if isinstance(value, int) and value.bit_length() > 4 * _LONGEST_QUOTE else repr(value)
    return text if text and len(text) <= _LONGEST_QUOTE + 2 and text.isprintable() else described
