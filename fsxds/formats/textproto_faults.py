"""What text_format's errors mean, without what they quote: its messages repeat the whole line, secrets included."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from google.protobuf.text_format import ParseError

from fsxds.formats.documents import shown
from fsxds.values import Fault


@dataclass(frozen=True, slots=True)
class Explained:
    """An error as a fault; `unknown_type` is the message type that is missing where that is the error."""

    fault: Fault
    unknown_type: str | None = None


# (the end of text_format's message, rule, what to say with the groups in quotes, remedy): the first that fits.
_MEANINGS: Final = tuple(
    (re.compile(pattern + r"\Z", re.DOTALL), rule, message, remedy)
    for pattern, rule, message, remedy in (
        (r'Message type "([\w.]+)" has no field named "([^"]*)"\.', "unknown-field",
         "{0} has no field {1}", "correct the name, or remove it"),
        (r'Field "(\w+)" is specified along with field "(\w+)", another member of oneof "\w+" .*', "oneof-conflict",
         "{0} and {1} exclude each other", "keep one of them"),
        (r'Message type "([\w.]+)" should not have multiple "([\w.]+)" (?:fields|extensions)\.', "duplicate-field",
         "{1} of {0} is already set", "keep one of them"),
        (r'Enum type "([\w.]+)" has no value (?:named|with number) [^"\s]+?', "wrong-value",
         "this is no value of {0}", "use one of the enum's names"),
        (r'Extension "([\w.]+)" not registered.*', "unknown-field",
         "there is no extension {0}", "remove it; a type in an Any is written [type.googleapis.com/…]"),
        (r'Message type "([\w.]+)" does not have extensions\.', "unknown-field",
         "{0} has no extensions", "[type.googleapis.com/…] may stand in fields of type google.protobuf.Any only"),
        (r"Type URL does not contain \"/\"\.", "wrong-value",
         "this type URL has no slash", "write [type.googleapis.com/the.type.Name]"),
        (r"Couldn't parse integer: .*|Value out of range: .*|Integer too large.*", "wrong-value",
         "a whole number is due here, within the field's range", "correct the number"),
        (r"(?:Couldn't parse float|Couldn't parse integer|could not convert).*", "wrong-value",
         "a number is due here", "correct the number"),
        (r'Expected "true" or "false".*', "wrong-value", "a bool is due here", "write true or false"),
        (r"(?:Expected string but found: .*)", "wrong-value", "a text is due here", "put it in quotes"),
        (r"String missing ending quote: .*", "bad-syntax", "this text has no closing quote", "close it on its line"),
        (r"Couldn't parse string: .*", "wrong-value", "this text is not UTF-8", "write it in UTF-8"),
        (r'Expected "(.)"\.', "bad-syntax", "{0} is due here", "add it, or close what is open above"),
        (r"Expected identifier(?: or number, got .*|\.)", "bad-syntax", "the name of a field is due here",
         "write a field name, or close what is open above"),
    )
)  # fmt: skip
_MISSING_TYPE: Final = re.compile(r"Type ([\w.]+) not found in descriptor pool\Z")


def explain(error: ParseError) -> Explained:
    """Return what an error of text_format means to an author."""
    words = str(error)
    line, column = error.GetLine(), error.GetColumn()
    missing = _MISSING_TYPE.search(words)
    if missing:
        return Explained(Fault("unknown-type", "there is no such type", "", (), line, column), missing[1])
    for pattern, rule, message, remedy in _MEANINGS:
        found = pattern.search(words)
        if found:
            fact = message.format(*(shown(group.rpartition(".")[2]) for group in found.groups()))
            return Explained(Fault(rule, fact, remedy, (), line, column))
    return Explained(Fault("bad-syntax", "this is not text format", "correct the text here", (), line, column))
