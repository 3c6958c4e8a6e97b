"""All exceptions that fsxds raises on purpose."""

from __future__ import annotations


class FsxdsError(Exception):
    """Its text has lines for users: place, fact, remedy."""


class UsageError(FsxdsError):
    """fsxds was started wrongly. The process ends with status 2."""


class StateError(FsxdsError):
    """The state directory cannot be read or written."""


class ApiError(FsxdsError):
    """The API descriptors could not be obtained."""


class ProtocolError(FsxdsError):
    """A client violated the protocol; only it is affected.

    `code` is the gRPC status code name, which each transport maps. `subject`, such as the node, is added in the log;
    errors that differ only in it are repetitions.
    """

    def __init__(self, message: str, code: str = "INVALID_ARGUMENT", subject: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.subject = subject


class LimitError(ProtocolError):
    """A client exceeds an option's limit, such as `max-streams`."""

    def __init__(self, limit: str, fact: str) -> None:
        super().__init__(
            f"{fact}; ask for less, or have the setting {limit.replace('-', '_')} raised", "RESOURCE_EXHAUSTED"
        )
        self.limit = limit


class TreeLost(FsxdsError):  # noqa: N818 - it says what happened, as the observers' methods do
    """The served directory is missing, is none, or lost all files at once."""
