"""Which web pages may ask over HTTP: the forms of the options `cors_origin`, and `allowed_hosts`."""

from __future__ import annotations

import re

from fsxds.settings.forms import OptionForm

ANY_ORIGIN = ANY_HOST = "*"
# As browsers write it: in lower case, without a path, and without the port of the scheme.
_ORIGIN = re.compile(r"https?://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?", re.ASCII)
_HOST = re.compile(r"[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?", re.ASCII)
_SCHEMA_TEXT = {"type": "string", "pattern": rf"^(\*|{_ORIGIN.pattern})$"}


def _read_origins(written: object) -> tuple[str, ...]:
    texts = written if isinstance(written, list) else str(written).split(",")
    origins = tuple(text.strip() if isinstance(text, str) else "" for text in texts)
    if not origins or not all(origin == ANY_ORIGIN or _ORIGIN.fullmatch(origin) for origin in origins):
        raise ValueError(written)
    return origins


def _read_hosts(written: object) -> tuple[str, ...]:
    texts = written if isinstance(written, list) else str(written).split(",")
    hosts = tuple(text.strip().lower() if isinstance(text, str) else "" for text in texts)
    if not hosts or not all(host == ANY_HOST or _HOST.fullmatch(host) for host in hosts):
        raise ValueError(written)
    return hosts


ORIGINS = OptionForm(
    "ORIGINS",
    "a list of origins or * (write https://ui.example.com,http://localhost:3000)",
    _read_origins,
    {"anyOf": [{"type": "array", "items": _SCHEMA_TEXT, "minItems": 1}, {"type": "string", "minLength": 1}]},
)
HOSTS = OptionForm(
    "HOSTS",
    "a list of host names without ports, or * (write xds.example.com,xds)",
    _read_hosts,
    {
        "anyOf": [
            {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
            {"type": "string", "minLength": 1},
        ]
    },
)
