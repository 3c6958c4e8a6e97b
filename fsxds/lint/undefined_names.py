"""Undefined names are errors before a tree is served: `fsxds serve` holds new references to them.

| rule | source |
| --- | --- |
| Serving warns of them: the references may be served already, and a first start serves them. | `rollout.holding` |
| Names of a type that the tree lacks entirely belong elsewhere, except clusters if the bootstrap's are known. | `rollout.holding` |
| A secret or an extension from a separate gRPC service stays a warning: most often that is another server. | ENVOY.md E6 |
| Settings of a rule take precedence over this, and so does `--references warn`. | |
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from fsxds.lint.reference_findings import REFERENTS
from fsxds.model.values import Problem, Severity
from fsxds.rollout.uses import MAY_BE_REMOTE
from fsxds.settings.options import Settings

_DEMANDED = frozenset(referent.missing for type_url, referent in REFERENTS.items() if type_url not in MAY_BE_REMOTE)


def with_undefined_names(problems: Iterable[Problem], settings: Settings) -> tuple[Problem, ...]:
    """Return problems with their severities before the tree is served."""
    if settings.references != "hold":
        return tuple(problems)
    demanded = _DEMANDED - (settings.rules or {}).keys()
    return tuple(
        replace(one, severity=Severity.ERROR) if one.rule in demanded and one.severity is Severity.WARNING else one
        for one in problems
    )
