"""Format strings wherever messages hold them: access logs, headers, bodies, rewrites."""

from __future__ import annotations

from typing import Any

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk
from fsxds.rules.format_strings import FormatStrings

# Plain fields that are format strings.
_TEXTS = {
    "envoy.config.route.v3.RouteAction": ("host_rewrite", "path_rewrite"),
    "envoy.extensions.filters.http.oauth2.v3.OAuth2Config": ("redirect_uri",),
    "envoy.extensions.access_loggers.file.v3.FileAccessLog": ("format",),
}
_STRUCTS = {
    "envoy.extensions.access_loggers.file.v3.FileAccessLog": ("json_format", "typed_json_format"),
    "envoy.extensions.access_loggers.fluentd.v3.FluentdAccessLogConfig": ("record",),
}


def hooks(catalogue: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over format strings."""
    rules = FormatRules(catalogue)
    found: dict[str, tuple[Hook, ...]] = {
        "envoy.config.core.v3.SubstitutionFormatString": (rules.check_format,),
        "envoy.config.core.v3.HeaderValueOption.header": (rules.check_header,),
        "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest": (rules.check_headers_to_add,),
        "envoy.config.core.v3.GrpcService": (rules.check_initial_metadata,),
        "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig": (rules.check_open_telemetry,),
    }
    texts = (f"{message_type}.{field}" for message_type, fields in _TEXTS.items() for field in fields)
    structs = (f"{message_type}.{field}" for message_type, fields in _STRUCTS.items() for field in fields)
    return found | dict.fromkeys(texts, (rules.check_text,)) | dict.fromkeys(structs, (rules.check_plain_struct,))


class FormatRules:
    """Checks format strings, each once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._formats = FormatStrings(catalogue.features)

    def check_text(self, text: Any, path: Path, walk: Walk) -> None:
        """Check a field that is a format string."""
        if "%" in text:
            self._check(text, path, walk)

    def check_plain_struct(self, struct: Any, path: Path, walk: Walk) -> None:
        """Check a field whose texts, at any depth, are format strings."""
        self._check_struct(struct, path, walk, is_extended=False)

    def check_format(self, formatted: Any, path: Path, walk: Walk) -> None:
        """Check a format string, in whichever form it was written."""
        is_extended = bool(formatted.formatters)
        chosen = formatted.WhichOneof("format")
        if chosen == "text_format":
            self._check(formatted.text_format, (path, chosen), walk, is_extended=is_extended)
        elif chosen == "text_format_source":
            source = formatted.text_format_source
            if source.WhichOneof("specifier") == "inline_string":
                place = ((path, chosen), "inline_string")
                self._check(source.inline_string, place, walk, is_extended=is_extended)
        elif chosen == "json_format":
            self._check_struct(formatted.json_format, (path, chosen), walk, is_extended=is_extended)

    def check_header(self, header: Any, path: Path, walk: Walk) -> None:
        """Check the value of a header to add."""
        value = header.value
        if "%" in value:
            self._check_header_value(value, (path, "value"), walk)

    def check_headers_to_add(self, request: Any, path: Path, walk: Walk) -> None:
        """Check the values of headers that an authorization service is sent."""
        for index, header in enumerate(request.headers_to_add):
            if "%" in header.value:
                self._check_header_value(header.value, (((path, "headers_to_add"), index), "value"), walk)

    def check_initial_metadata(self, service: Any, path: Path, walk: Walk) -> None:
        """Check the values of headers that a gRPC service is sent."""
        for index, header in enumerate(service.initial_metadata):
            if "%" in header.value:
                self._check_header_value(header.value, (((path, "initial_metadata"), index), "value"), walk)

    def check_open_telemetry(self, config: Any, path: Path, walk: Walk) -> None:
        """Check the body and the attributes of an OpenTelemetry log."""
        is_extended = bool(config.formatters)
        if config.HasField("body"):
            self._check_any_value(config.body, (path, "body"), walk, is_extended=is_extended)
        for index, pair in enumerate(config.attributes.values):
            place: Path = (((((path, "attributes"), "values"), index)), "value")
            self._check_any_value(pair.value, place, walk, is_extended=is_extended)

    def _check(self, text: str, path: Path, walk: Walk, *, is_extended: bool = False) -> None:
        fault = self._formats.fault(text, is_extended=is_extended)
        if fault is not None:
            walk.tell(path, "wrong-format-string", *fault)

    def _check_header_value(self, text: str, path: Path, walk: Walk) -> None:
        fault = self._formats.fault(text, is_header=True)
        if fault is not None:
            walk.tell(path, "wrong-format-string", *fault)

    def _check_any_value(self, value: Any, path: Path, walk: Walk, *, is_extended: bool) -> None:
        if value.WhichOneof("value") == "string_value":
            self._check(value.string_value, (path, "string_value"), walk, is_extended=is_extended)

    def _check_struct(self, struct: Any, path: Path, walk: Walk, *, is_extended: bool) -> None:
        for key, value in struct.fields.items():
            self._check_value(value, (path, key), walk, is_extended=is_extended)

    def _check_value(self, value: Any, path: Path, walk: Walk, *, is_extended: bool) -> None:
        chosen = value.WhichOneof("kind")
        if chosen == "string_value":
            self._check(value.string_value, path, walk, is_extended=is_extended)
        elif chosen == "struct_value":
            self._check_struct(value.struct_value, path, walk, is_extended=is_extended)
        elif chosen == "list_value":
            for index, element in enumerate(value.list_value.values):
                self._check_value(element, (path, index), walk, is_extended=is_extended)
