"""The addresses that listeners of a whole tree take: each of them once.

Envoy 1.40 compares protocol, IP address and port, or the path of a socket. It does not matter whether a listener binds
its port, and how; port 0, internal listeners and other network namespaces are free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from fsxds.snapshots.file_names import FileNames
from fsxds.snapshots.findings import Finding
from fsxds.values import Reference, Resource, Severity

RULE = "listener-address"


def address_conflicts(files: Iterable[FileNames], severity: Severity) -> Mapping[PurePosixPath, tuple[Finding, ...]]:
    """Find the listeners whose address is another's already; files that come first are in the right."""
    taken: dict[str, Resource] = {}
    found = {}
    for names in files:
        if not names.claims:
            continue
        own: dict[str, Resource] = {}
        findings = []
        for listener, claim in names.claims:
            other = taken.get(claim.name) or own.setdefault(claim.name, listener)
            if other is not listener:
                findings.append(_finding(listener, claim, other, severity))
        if findings:
            found[names.parsed.path] = tuple(findings)
        else:
            # What is held back takes no addresses from those that come after it.
            taken |= own
    return found


def _finding(listener: Resource, claim: Reference, other: Resource, severity: Severity) -> Finding:
    message = f'{claim.name} is already the address of listener "{other.name}" at {other.origin}'
    return Finding(listener, claim.field_path, RULE, message, "give one of the two another address or port", severity)
