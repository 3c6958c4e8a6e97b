"""Which file names are never read: hidden files, and what editors and tools leave beside the file they save."""

from __future__ import annotations

# vim writes `4913` to learn whether it may create files in a directory, and removes it at once.
_VIM_PROBE = "4913"
_SUFFIXES_OF_LEFTOVERS = ("~", ".swp", ".tmp")


def is_passed_over(name: str) -> bool:
    """Tell whether a file or directory of this name is neither read, walked nor worth a word.

    A leading dot covers hidden files, emacs' lock `.#cds.yaml`, and the `..data` and `..2026_01_31` of a Kubernetes
    volume, whose files are reached by links with ordinary names. `#cds.yaml#` is what emacs saves by itself.
    """
    return name.startswith((".", "#")) or name.endswith(_SUFFIXES_OF_LEFTOVERS) or name == _VIM_PROBE


def is_text(name: str) -> bool:
    """Tell whether a name that the operating system gave is valid UTF-8."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_text(name: str) -> str:
    """Write a name or path of any bytes as printable text."""
    return name if is_text(name) else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
