"""Path templates (`/users/{id}/*`): matching by them, and rewriting with their variables."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Path, Walk

_MATCH = "envoy.extensions.path.match.uri_template.v3.UriTemplateMatchConfig"
_REWRITE = "envoy.extensions.path.rewrite.uri_template.v3.UriTemplateRewriteConfig"
_RULE = "wrong-path-template"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\{([^{}=]*)(=[^{}]*)?\}")
_MOST_VARIABLES, _LONGEST_NAME = 5, 16


class PathTemplates:
    """Checks the templates of routes, where the catalogue has them."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._match, self._rewrite = (
            catalogue.message_class(name) if catalogue.knows(name) else None for name in (_MATCH, _REWRITE)
        )
        # The route that was met last with a template, and its template.
        self._matched: tuple[Path, Any] = None, None

    def check_match(self, policy: Any, path: Path, walk: Walk) -> None:
        """Check the template that a route matches by, and remember it for the rewriting of the same route."""
        pattern = _content(policy.typed_config, self._match)
        self._matched = _route_of(path), pattern
        if pattern is not None:
            _check_pattern(pattern.path_template, ((path, "typed_config"), "path_template"), walk)

    def check_rewrite(self, policy: Any, path: Path, walk: Walk) -> None:
        """Check that the rewriting of a route fits the template that it matches by."""
        rewrite = _content(policy.typed_config, self._rewrite)
        if rewrite is None:
            return
        place = (path, "typed_config")
        route, pattern = self._matched
        if route is not None and route is _route_of(path):
            _check_rewrite(rewrite.path_template_rewrite, pattern, (place, "path_template_rewrite"), walk)
        else:
            message = "a route that does not match by a path template cannot rewrite by one"
            remedy = "match by a path template too, or rewrite with prefix_rewrite or regex_rewrite"
            walk.tell(place, _RULE, message, remedy)


def _route_of(path: Path) -> Path:
    """Return the path of the route that holds a policy of its match or action; it is one and the same object for both."""
    return path[0][0] if path and path[0] else None


def _content(packed: Any, message_class: type[Message] | None) -> Any:
    """Return what is in an Any, None when it is of another type."""
    if message_class is None or packed.type_url.rpartition("/")[2] != message_class.DESCRIPTOR.full_name:
        return None
    try:
        return message_class.FromString(packed.value)
    except DecodeError:
        return None


def _check_pattern(pattern: str, path: Path, walk: Walk) -> None:
    fault = None
    names = [match[1] for match in _VARIABLE.finditer(pattern)]
    if not pattern.startswith("/"):
        fault = "must begin with a slash"
    elif len(names) > _MOST_VARIABLES:
        fault = f"must have at most {_MOST_VARIABLES} variables, has {len(names)}"
    elif len(set(names)) < len(names):
        fault = "names a variable twice"
    elif pattern.count("{") != len(names) or pattern.count("}") != len(names):
        fault = "has a brace without its partner"
    else:
        fault = next((told for told in map(_name_fault, names) if told), None)
    if fault is not None:
        remedy = 'write it such as "/users/{id}/*": variables in braces, * for one segment, ** for the rest'
        walk.tell(path, _RULE, fault, remedy)


def _name_fault(name: str) -> str | None:
    if _NAME.fullmatch(name) is None:
        return "has a name that a variable cannot have"
    return f"has a variable whose name is longer than {_LONGEST_NAME} characters" if len(name) > _LONGEST_NAME else None


def _check_rewrite(rewrite: str, pattern: Any, path: Path, walk: Walk) -> None:
    if rewrite and not rewrite.startswith("/"):
        walk.tell(path, _RULE, "must begin with a slash", 'write it such as "/people/{id}"')
    elif pattern is not None:
        known = {match[1] for match in _VARIABLE.finditer(pattern.path_template)}
        for match in _VARIABLE.finditer(rewrite):
            if match[2] is None and match[1] not in known:
                message = "has a variable that the path template does not have"
                walk.tell(path, _RULE, message, "write the variables of the path template alone")
                return
