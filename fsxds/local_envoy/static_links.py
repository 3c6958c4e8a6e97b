"""Put secrets and filters that a resource asks a server for in their places, as far as they are judged with it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.local_envoy.prepared import Prepared, is_discovered
from fsxds.local_envoy.reshaping import Reshaper

_TLS = "envoy.extensions.transport_sockets.tls.v3."
_TYPED_EXTENSION = "envoy.config.core.v3.TypedExtensionConfig"


def static_name(secret: str) -> str:
    """Return the name of a served secret among static ones, which may have secrets of the same names."""
    return f"fsxds-stand-in/{secret}"


@dataclass(frozen=True, slots=True)
class Linked:
    """A resource with others in their places: its bytes, and the names of those others."""

    body: bytes
    secrets: frozenset[str] = frozenset()
    extensions: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Used:
    secrets: set[str] = field(default_factory=set)
    extensions: set[str] = field(default_factory=set)


class Linker:
    """Links resources to secrets and filters, of which it is told the forms and contents."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._reshaper = Reshaper(catalogue)
        self._known: dict[tuple[str, str, frozenset[str], frozenset[str]], Linked] = {}

    def link(self, prepared: Prepared, secrets: Mapping[str, str], extensions: Mapping[str, bytes]) -> Linked:
        """Return a resource that uses what is there, statically.

        Args:
            prepared: the resource.
            secrets: the form (`tls_certificate`) of each secret that is there.
            extensions: the serialized TypedExtensionConfig of each filter that is there.
        """
        near_secrets = prepared.secrets.intersection(secrets)
        near_extensions = prepared.extensions.intersection(extensions)
        if not near_secrets and not near_extensions:
            return Linked(prepared.body)
        key = prepared.resource.type_url, prepared.resource.name, near_secrets, near_extensions
        if (linked := self._known.get(key)) is None:
            linked = self._known[key] = self._link(prepared, secrets, extensions)
        return linked

    def _link(self, prepared: Prepared, secrets: Mapping[str, str], extensions: Mapping[str, bytes]) -> Linked:
        used = _Used()

        def use_secret(config: Any, form: str) -> None:
            if config.HasField("sds_config") and secrets.get(config.name) == form:
                used.secrets.add(config.name)
                config.ClearField("sds_config")
                config.name = static_name(config.name)

        def change_context(context: Any) -> None:
            for config in context.tls_certificate_sds_secret_configs:
                use_secret(config, "tls_certificate")
            # Reading what is absent gives an empty message, and changes nothing.
            use_secret(context.validation_context_sds_secret_config, "validation_context")
            combined = context.combined_validation_context
            use_secret(combined.validation_context_sds_secret_config, "validation_context")

        def change_downstream(context: Any) -> None:
            use_secret(context.session_ticket_keys_sds_secret_config, "session_ticket_keys")

        def use_extension(message: Any) -> None:
            if is_discovered(message) and message.name in extensions:
                used.extensions.add(message.name)
                self._place(message, extensions[message.name])

        message: Any = self._catalogue.message_class(prepared.resource.type_url.rpartition("/")[2]).FromString(
            prepared.body
        )
        changes = {f"{_TLS}CommonTlsContext": change_context, f"{_TLS}DownstreamTlsContext": change_downstream}
        self._reshaper.reshape(message, changes, use_extension)
        body = message.SerializeToString(deterministic=True)
        return Linked(body, frozenset(used.secrets), frozenset(used.extensions))

    def _place(self, message: Any, serialized: bytes) -> None:
        """Put a filter in its place; one of a type that is not expected there becomes its default, which Envoy refuses."""
        extension: Any = self._catalogue.message_class(_TYPED_EXTENSION).FromString(serialized)
        expected = {url.rpartition("/")[2] for url in message.config_discovery.type_urls}
        if extension.typed_config.type_url.rpartition("/")[2] in expected:
            message.typed_config.CopyFrom(extension.typed_config)
        else:
            message.config_discovery.default_config.CopyFrom(extension.typed_config)
