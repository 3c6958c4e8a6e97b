"""Whether a text has comments, which no message can hold."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import yaml

if yaml.__with_libyaml__ or TYPE_CHECKING:
    from yaml import CSafeLoader
else:
    from yaml import SafeLoader as CSafeLoader  # pragma: no cover - require_libyaml ends such a start

_QUOTED_OR_COMMENT: Final = re.compile(
    r""" "(?:[^"\\\n]|\\.)*+" | '(?:[^'\\\n]|\\.)*+' | \#(?P<comment>[^\n]*+) """, re.VERBOSE
)
# Said by the type in any other format.
_HEADER: Final = re.compile(r"\s*proto-(?:file|message):")


def has_comments(content: bytes, format_name: str) -> bool:
    """Tell whether a readable file of a format has comments; the header of a text format file is none."""
    if b"#" not in content:
        return False
    if format_name == "yaml":
        return _in_yaml(content.decode("utf-8-sig"))
    if format_name == "textproto":
        found = _QUOTED_OR_COMMENT.finditer(content.decode("utf-8-sig"))
        return any(match["comment"] is not None and not _HEADER.match(match["comment"]) for match in found)
    return False


def _in_yaml(text: str) -> bool:
    """Look for a # between the tokens; within one it is text."""
    end = 0
    for token in yaml.scan(text, Loader=CSafeLoader):
        if "#" in text[end : token.start_mark.index]:
            return True
        end = token.end_mark.index
    return "#" in text[end:]
