"""The only use of PyYAML's libyaml binding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yaml import YAMLError, __with_libyaml__
from yaml.error import Mark, MarkedYAMLError
from yaml.reader import ReaderError

from fsxds.formats.decoded import place_after
from fsxds.model.errors import UsageError
from fsxds.model.values import Fault

if __with_libyaml__ or TYPE_CHECKING:
    from yaml.cyaml import CParser  # type: ignore[attr-defined]  # the stubs do not know it

NextEvent = Callable[[], Any]
"""Returns the next event. Any, because each reader checks its exact class first."""

# libyaml's error, and the remedy; the first match counts.
_REMEDIES = (
    ("mapping values are not allowed", "indent the line like its neighbours, or quote a value that holds ': '"),
    ("could not find expected ':'", "add the colon, or indent the line as part of the value above"),
    ("did not find expected key", "indent the line like its neighbours, and close the brackets above"),
    ("did not find expected '-' indicator", "indent the line like the other items of the list"),
    ("did not find expected ',' or", "close the bracket, or separate its items with commas"),
    ("unexpected end of stream", "close the quote that is open here"),
    ("found unexpected document indicator", "close the quote that is open here"),
    ("block sequence entries are not allowed", "begin the list on a line of its own"),
    ("unknown escape character", "write \\\\ for a backslash, or use single quotes"),
    ("incompatible YAML document", "remove the %YAML line, or write %YAML 1.1"),
    ("undefined tag handle", "remove the tag"),
    ("that cannot start any token", "quote the value: it begins with a character that YAML keeps for itself"),
)


def require_libyaml() -> None:
    """Raise `UsageError` if PyYAML was built without libyaml."""
    if not __with_libyaml__:
        raise UsageError(
            "PyYAML was built without libyaml, which fsxds reads YAML with; "
            "install a wheel of it: pip install --force-reinstall --only-binary :all: pyyaml"
        )


def read_events(text: str) -> NextEvent:
    """Return a function that returns the next event, or raises `YAMLError`."""
    # PyYAML has no types for its binding; this is the only place that names it.
    next_event: NextEvent = CParser(text).get_event
    return next_event


def depth_limit(error: YAMLError) -> int | None:
    """Return the index at which libyaml, from 0.2.6, found more than 1000 levels, else None.

    It looks ahead in flow collections: the error may precede events of the levels above.
    """
    if isinstance(error, MarkedYAMLError) and error.problem_mark and "maximum nesting depth" in str(error.problem):
        return error.problem_mark.index
    return None


def syntax_fault(error: YAMLError, text: str) -> Fault:
    """Return libyaml's error, without quotations."""
    if isinstance(error, MarkedYAMLError) and error.problem_mark is not None:
        return _marked_fault(error, error.problem_mark, text)
    if isinstance(error, ReaderError):
        before = text.encode(errors="replace")[: error.position].decode(errors="replace")
        line, column = place_after(before)
        message = "YAML does not allow this control character"
        return Fault(
            "bad-syntax", message, 'write it as an escape in double quotes, such as "\\u0001"', (), line, column
        )
    return Fault("bad-syntax", "the text is not YAML", "check it with a YAML editor")


def _within(text: str, mark: Mark) -> tuple[int, int]:
    """Libyaml puts a text's end on an extra line, which editors lack."""
    lines = text.splitlines()
    if 0 < len(lines) <= mark.line:
        return len(lines), len(lines[-1]) + 1
    return mark.line + 1, mark.column + 1


def _marked_fault(error: MarkedYAMLError, mark: Mark, text: str) -> Fault:
    problem = str(error.problem or "bad YAML")
    line, column = _within(text, mark)
    context = f"{error.context}: " if error.context else ""
    if error.context_mark is not None and error.context_mark.line != mark.line:
        context = f"{error.context} that begins on line {error.context_mark.line + 1}: "
    if text[mark.index : mark.index + 1] == "\t":
        return Fault("bad-syntax", "expected spaces, found a tab", "indent with spaces", (), line, column)
    remedy = next((remedy for words, remedy in _REMEDIES if words in problem), "correct the YAML here or just above")
    return Fault("bad-syntax", context + problem, remedy, (), line, column)
