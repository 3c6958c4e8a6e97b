"""Envoy's format strings."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable
from functools import partial

from fsxds.api.catalogue import Catalogue, DynamicMessage, Features
from fsxds.api.fields import FieldValue
from fsxds.api.walk import Hook, Hooks, Path, Walk
from fsxds.lint.field_values import inline
from fsxds.model.memo import Lru

_COMMAND = re.compile(r"%([A-Z0-9_]+)(?:\((.*?)\))?(?::([0-9]+))?%", re.ASCII)
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z:]*")
_MOST_REMEMBERED = 10_000

_HEADERS = frozenset({"REQ", "RESP", "TRAILER", "REQUEST_HEADER", "RESPONSE_HEADER", "RESPONSE_TRAILER"})

# In the values of headers, the old spelling of FILTER_STATE.
_OF_HEADERS = frozenset({"PER_REQUEST_STATE"})
# The version whose parameters are known here.
_KNOWN_VERSION = "1.40"

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


def hooks(catalogue: Catalogue) -> Hooks:
    """Return the checks of format strings."""
    formats = _FormatChecks(catalogue)
    found: dict[str, tuple[Hook, ...]] = {
        "envoy.config.core.v3.SubstitutionFormatString": (formats.check_format,),
        "envoy.config.core.v3.HeaderValueOption.header": (formats.check_header,),
        "envoy.extensions.filters.http.ext_authz.v3.AuthorizationRequest": (formats.headers_in("headers_to_add"),),
        "envoy.config.core.v3.GrpcService": (formats.headers_in("initial_metadata"),),
        "envoy.extensions.access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig": (
            formats.check_open_telemetry,
        ),
        "envoy.extensions.filters.http.header_mutation.v3.Mutations.query_parameter_mutations": (
            formats.check_parameters,
        ),
    }
    texts = (f"{message_type}.{field}" for message_type, fields in _TEXTS.items() for field in fields)
    structs = (f"{message_type}.{field}" for message_type, fields in _STRUCTS.items() for field in fields)
    return found | dict.fromkeys(texts, (formats.check_text,)) | dict.fromkeys(structs, (formats.check_struct,))


class _FormatChecks:
    """Checks each format string once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._formats = FormatStrings(catalogue.features)

    def check_format(self, formatted: DynamicMessage, path: Path, walk: Walk) -> None:
        is_extended = bool(formatted.formatters)
        chosen = formatted.WhichOneof("format")
        if chosen == "text_format":
            self.check_text(formatted.text_format, (path, chosen), walk, is_extended=is_extended)
        elif chosen == "text_format_source":
            source, text = formatted.text_format_source, inline(formatted.text_format_source)
            if text is not None:
                place = ((path, chosen), source.WhichOneof("specifier"))
                self.check_text(text.decode(errors="replace"), place, walk, is_extended=is_extended)
        elif chosen == "json_format":
            self.check_struct(formatted.json_format, (path, chosen), walk, is_extended=is_extended)

    def check_header(self, header: DynamicMessage, path: Path, walk: Walk) -> None:
        fault = self._formats.fault(header.value, is_header=True)
        if fault is not None:
            walk.error((path, "value"), "wrong-format-string", *fault)

    def headers_in(self, field: str) -> Hook:
        def check_headers(message: DynamicMessage, path: Path, walk: Walk) -> None:
            for index, header in enumerate(getattr(message, field)):
                self.check_header(header, ((path, field), index), walk)

        return check_headers

    def check_open_telemetry(self, config: DynamicMessage, path: Path, walk: Walk) -> None:
        is_extended = bool(config.formatters)
        if config.HasField("body"):
            self._check_any_value(config.body, (path, "body"), walk, is_extended=is_extended)
        self._check_pairs(config.attributes, (path, "attributes"), walk, is_extended=is_extended)

    def check_parameters(self, mutations: FieldValue, path: Path, walk: Walk) -> None:
        for index, mutation in enumerate(mutations):
            place: Path = (((path, index), "append"), "record")
            if mutation.HasField("append") and not mutation.append.HasField("record"):
                walk.error(place, "wrong-filter", "is missing", "write the key and the value of the parameter")
            elif mutation.HasField("append") and mutation.append.record.value.WhichOneof("kind") != "string_value":
                walk.error((place, "value"), "wrong-filter", "is not text", "write a text, in quotes if it is a number")
            elif mutation.HasField("append"):
                self.check_text(mutation.append.record.value.string_value, (place, "value"), walk)

    def check_text(self, text: str, path: Path, walk: Walk, *, is_extended: bool = False) -> None:
        fault = self._formats.fault(text, is_extended=is_extended)
        if fault is not None:
            walk.error(path, "wrong-format-string", *fault)

    def _check_any_value(self, value: FieldValue, path: Path, walk: Walk, *, is_extended: bool) -> None:
        chosen = value.WhichOneof("value")
        if chosen == "string_value":
            self.check_text(value.string_value, (path, chosen), walk, is_extended=is_extended)
        elif chosen == "kvlist_value":
            self._check_pairs(value.kvlist_value, (path, chosen), walk, is_extended=is_extended)
        elif chosen == "array_value":
            for index, one in enumerate(value.array_value.values):
                place: Path = (((path, chosen), "values"), index)
                self._check_any_value(one, place, walk, is_extended=is_extended)
        else:
            walk.error(path, "wrong-filter", "is no text, nor a list of some", "write string_value")

    def _check_pairs(self, pairs: FieldValue, path: Path, walk: Walk, *, is_extended: bool) -> None:
        for index, pair in enumerate(pairs.values):
            self._check_any_value(pair.value, (((path, "values"), index), "value"), walk, is_extended=is_extended)

    def check_struct(self, struct: DynamicMessage, path: Path, walk: Walk, *, is_extended: bool = False) -> None:
        for key, value in struct.fields.items():
            self._check_value(value, (path, key), walk, is_extended=is_extended)

    def _check_value(self, value: FieldValue, path: Path, walk: Walk, *, is_extended: bool) -> None:
        chosen = value.WhichOneof("kind")
        if chosen == "string_value":
            self.check_text(value.string_value, path, walk, is_extended=is_extended)
        elif chosen == "struct_value":
            self.check_struct(value.struct_value, path, walk, is_extended=is_extended)
        elif chosen == "list_value":
            for index, element in enumerate(value.list_value.values):
                self._check_value(element, (path, index), walk, is_extended=is_extended)


class FormatStrings:
    """Reads each string once, as Envoy does."""

    def __init__(self, features: Features | None) -> None:
        """Take an Envoy's commands; None if unknown."""
        self._known: Lru[tuple[str, bool, bool], tuple[str, str] | None] = Lru(_MOST_REMEMBERED)
        self._commands = features.commands if features is not None else None
        self._knows_parameters = features is not None and features.minor_version == _KNOWN_VERSION

    def fault(self, text: str, *, is_extended: bool = False, is_header: bool = False) -> tuple[str, str] | None:
        """Return fact and remedy, or None.

        `is_extended`: custom formatters may know more commands; `is_header`: older spellings are understood.
        """
        if "%" not in text:
            return None
        key = text, is_extended, is_header
        return self._known.find(key, lambda: self._fault(text, is_extended=is_extended, is_header=is_header))

    def _fault(self, text: str, *, is_extended: bool, is_header: bool) -> tuple[str, str] | None:
        position = text.find("%")
        while position >= 0:
            if text.startswith("%%", position):
                position = text.find("%", position + 2)
                continue
            match = _COMMAND.match(text, position)
            if match is None:
                remedy = 'write "%%" for a percent sign, "%NAME(parameters)%" for a command'
                return "holds a percent sign that begins no command", remedy
            name, parameters, length = match.groups()
            is_open = is_extended or (is_header and name in _OF_HEADERS)
            fault = self._command_fault(name, parameters or "", has_length=length is not None, is_open=is_open)
            if fault is not None:
                return fault
            position = text.find("%", match.end())
        return None

    def _command_fault(self, name: str, parameters: str, *, has_length: bool, is_open: bool) -> tuple[str, str] | None:
        if self._commands is None:
            return None
        command = self._commands.get(name)
        if command is None:
            return None if is_open else _unknown(name, self._commands)
        if parameters and not command.takes_parameters:
            return f"%{name}% takes no parameters and no length", f"write %{name}%"
        if has_length and not command.takes_length:
            return f"%{name}% takes no length", "remove the colon and the number"
        if command.needs_parameters and not parameters:
            return f"%{name}% needs parameters", f"write them in parentheses: %{name}(...)%"
        check = _CHECKS.get(name) if self._knows_parameters else None
        return None if check is None else check(parameters)


def _unknown(name: str, commands: Iterable[str]) -> tuple[str, str]:
    remedy = 'see "Command Operators" in Envoy\'s documentation of access logs'
    near = difflib.get_close_matches(name, commands, n=1)
    if not near:
        return "holds a command that Envoy does not know", remedy
    return f"%{name}% is not a command that Envoy knows", f"did you mean %{near[0]}%? {remedy}"


def _header_fault(parameters: str) -> tuple[str, str] | None:
    names, remedy = parameters.split("?"), "write one or two names of headers: A?B"
    if len(names) > 2:
        return "a command has more than one alternative", remedy
    is_wrong = any(_HEADER_NAME.fullmatch(name) is None for name in names)
    return ("a command has a parameter that is not the name of a header", remedy) if is_wrong else None


def _filter_state_fault(parameters: str) -> tuple[str, str] | None:
    key, *form = parameters.split(":", 2)
    if not key:
        return "the key is empty", "write %FILTER_STATE(KEY:PLAIN)%"
    if form and form[0] not in {"PLAIN", "TYPED", "FIELD"}:
        return "the parameter of a command has no form of a filter state", "write PLAIN, TYPED or FIELD"
    if form and (form[0] == "FIELD") != (len(form) == 2):
        return "FIELD, and no other form, is followed by the name of a field", "write %FILTER_STATE(KEY:FIELD:NAME)%"
    return None


def _duration_fault(parameters: str) -> tuple[str, str] | None:
    parts = parameters.split(":")
    if len(parts) not in {2, 3}:
        return "the parameter of %COMMON_DURATION% is not two points in time", "write %COMMON_DURATION(START:END:ms)%"
    if len(parts) == 3 and parts[2] not in {"ms", "us", "ns"}:
        return "the parameter of %COMMON_DURATION% ends with no precision", "write ms, us or ns"
    return None


def _coalesce_fault(parameters: str) -> tuple[str, str] | None:
    remedy = 'write %COALESCE({"operators": [{"command": "REQ", "param": "x-a"}, ...]})%'
    try:
        config = json.loads(parameters)
    except (ValueError, RecursionError):
        return "the parameters are not JSON", remedy
    if not isinstance(config, dict) or not isinstance(config.get("operators"), list):
        return 'the parameters have no list "operators"', remedy
    return None


# The words of each part of a command's parameters, "" among them, and the fact of others.
_PARTS = {
    "METADATA": (
        (
            "CLUSTER DYNAMIC LISTENER LISTENER_FILTER_CHAIN ROUTE UPSTREAM_HOST VIRTUAL_HOST",
            "the parameter of %METADATA% begins with no source of metadata",
        ),
    ),
    "PATH": (
        (" WQ NQ", "the parameter of %PATH% does not say whether the query belongs to it"),
        (" ORIG PATH ORIG_OR_PATH", "the parameter of %PATH% does not say which path"),
    ),
    "REQUESTED_SERVER_NAME": (
        (" SNI_ONLY SNI_FIRST HOST_FIRST", "the parameter of a command does not name the source of the name"),
        (" ORIG HOST ORIG_OR_HOST", "the parameter of a command does not say which host"),
    ),
    "GRPC_STATUS": (
        (" CAMEL_STRING SNAKE_STRING NUMBER", "the parameter of %GRPC_STATUS% is no form of a gRPC status"),
    ),
    "QUERY_PARAMS": ((" ORIG DECODED", "the parameter of %QUERY_PARAMS% does not say whether the query is decoded"),),
}
_OF_ONE_PART = frozenset({"GRPC_STATUS", "QUERY_PARAMS"})


def _parts_fault(name: str, parameters: str) -> tuple[str, str] | None:
    values = [parameters] if name in _OF_ONE_PART else parameters.split(":")
    for value, (words, fact) in zip(values, _PARTS[name], strict=False):
        if value not in words.split(" "):
            return fact, f"write {' or '.join(words.split())}"
    return None


# Return the fact and the remedy of wrong parameters of a command.
_CHECKS: dict[str, Callable[[str], tuple[str, str] | None]] = {
    **dict.fromkeys(_HEADERS, _header_fault),
    **{name: partial(_parts_fault, name) for name in _PARTS},
    "COALESCE": _coalesce_fault,
    "FILTER_STATE": _filter_state_fault,
    "UPSTREAM_FILTER_STATE": _filter_state_fault,
    "COMMON_DURATION": _duration_fault,
}
