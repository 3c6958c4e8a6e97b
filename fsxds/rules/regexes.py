"""Regular expressions: RE2 reads them, and Envoy limits how large their programs may be."""

from __future__ import annotations

import re
from typing import Any

import re2

from fsxds.api.catalogue import Catalogue
from fsxds.api.walk import Hook, Path, Walk

# The default of the runtime key re2.max_program_size.error_level.
LARGEST_PROGRAM = 100
_LIMIT = "max_program_size"  # which only Envoy's own matcher has
_MOST_REMEMBERED = 10_000

_REFERENCE = re.compile(r"\\(.?)", re.DOTALL)
_REMEDY = "RE2 has no look-around and no back-references: https://github.com/google/re2/wiki/Syntax"


def hooks(_: Catalogue) -> dict[str, tuple[Hook, ...]]:
    """Return the rules over regular expressions."""
    rules = RegexRules()
    return {
        "envoy.type.matcher.v3.RegexMatcher": (rules.check_matcher,),
        "xds.type.matcher.v3.RegexMatcher": (rules.check_matcher,),
        "envoy.type.matcher.v3.RegexMatchAndSubstitute": (rules.check_substitution,),
        "envoy.type.matcher.v3.StringMatcher": (_check_case,),
        "xds.type.matcher.v3.StringMatcher": (_check_case,),
    }


# Longer ones have larger programs than Envoy takes by far, and RE2 needs a gigabyte for the worst of a megabyte.
_LONGEST = 100_000


class RegexRules:
    """Compiles expressions as Envoy does, each once."""

    def __init__(self) -> None:
        self._options = re2.Options()
        self._options.log_errors = False
        self._options.encoding = re2.Options.Encoding.LATIN1  # as in Envoy: the sizes of programs depend on it
        self._compiled: dict[str, Any] = {}  # what re2 made of an expression, or why it did not

    def compiled(self, regex: str) -> Any:
        """Return the compiled expression, or the text of RE2's complaint."""
        known = self._compiled.get(regex)
        if known is not None:
            return known
        try:
            compiled = re2.compile(regex.encode(), options=self._options)
        except re2.error as error:
            reason = error.args[0] if error.args else ""
            words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            # Behind the colon RE2 repeats a part of the expression.
            compiled = words.partition(":")[0]
        if len(self._compiled) >= _MOST_REMEMBERED:
            self._compiled.clear()
        self._compiled[regex] = compiled
        return compiled

    def check_matcher(self, matcher: Any, path: Path, walk: Walk) -> None:
        """Check an expression, and the size of its program."""
        regex = matcher.regex
        if not regex:
            return
        if len(regex) > _LONGEST:
            message = f"is longer than {_LONGEST} characters"
            walk.tell((path, "regex"), "large-regex", message, "match less at once")
            return
        compiled = self.compiled(regex)
        if isinstance(compiled, str):
            walk.tell((path, "regex"), "wrong-regex", f"is not a regular expression of RE2: {compiled}", _REMEDY)
            return
        size = compiled.programsize
        limit = next((value for field, value in matcher.google_re2.ListFields() if field.name == _LIMIT), None)
        largest = LARGEST_PROGRAM if limit is None else limit.value
        if size > largest:
            message = f"compiles to a program of size {size}, and Envoy takes at most {largest}"
            remedy = "match less at once, or raise re2.max_program_size.error_level in the bootstrap's runtime"
            walk.tell((path, "regex"), "large-regex", message, remedy)

    def check_substitution(self, rewrite: Any, path: Path, walk: Walk) -> None:
        r"""Check the references `\0`, `\1` ... of a substitution: Envoy takes wrong ones, and then rewrites nothing."""
        substitution = rewrite.substitution
        if "\\" not in substitution:
            return
        compiled = self.compiled(rewrite.pattern.regex)
        if isinstance(compiled, str):
            return
        for reference in _REFERENCE.findall(substitution):
            if reference == "\\":
                continue
            if not (reference.isascii() and reference.isdigit()):
                message = "a backslash means nothing here; nothing will be rewritten"
                remedy = r'write "\1" for the first group, "\\" for a backslash'
            elif int(reference) > compiled.groups:
                message = f'"\\{reference}" names a group that the pattern does not have; nothing will be rewritten'
                remedy = f"the pattern has {compiled.groups} groups"
            else:
                continue
            walk.warn((path, "substitution"), "wrong-substitution", message, remedy)
            return


def _check_case(matcher: Any, path: Path, walk: Walk) -> None:
    if matcher.ignore_case and matcher.WhichOneof("match_pattern") == "safe_regex":
        remedy = 'remove it, and begin the regex with "(?i)"'
        walk.tell((path, "ignore_case"), "wrong-regex", "ignore_case has no effect on a safe_regex", remedy)
