"""The error that a manifest is not to be trusted."""

from __future__ import annotations

from fsxds.errors import FsxdsError


class UntrustedError(FsxdsError):
    """A manifest is not signed as it should be; `rule` is the rule that is broken, `fact` and `remedy` are for people."""

    def __init__(self, rule: str, fact: str, remedy: str) -> None:
        super().__init__(f"{fact}; {remedy}")
        self.rule, self.fact, self.remedy = rule, fact, remedy
