"""What `check --with-envoy` says of cases: of those that fsxds finds nothing wrong with, and which errors it overrules."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.validate import ValidationOptions, accepted_of, rejections_of
from fsxds.lint.rules import rules
from tests.agreement.comparing import Opinion, file_text
from tests.agreement.fsxds_judge import FsxdsJudge
from tests.support.envoy import find_envoy


def refused(opinions: Iterable[Opinion], catalogue: Catalogue) -> list[Opinion]:
    """Return the cases of which `check --with-envoy` refuses something, each asked about by itself."""
    bench = ValidationOptions(Path(find_envoy()), catalogue)
    fsxds = FsxdsJudge(catalogue)
    found = []
    for opinion in opinions:
        parsed = fsxds.parse(f"{opinion.case.seed.type_name}{opinion.case.suffix}", file_text(opinion.case))
        if rejections_of(parsed.resources, bench):
            found.append(opinion)
    return found


def overruled(opinions: Iterable[Opinion], catalogue: Catalogue) -> list[Opinion]:
    """Return the cases of which `check --with-envoy` makes all errors notes, each asked about by itself."""
    bench = ValidationOptions(Path(find_envoy()), catalogue)
    fsxds = FsxdsJudge(catalogue)
    predicting = {rule.name for rule in rules().values() if rule.predicts_envoy}
    found = []
    for opinion in opinions:
        if not opinion.errors or not predicting.issuperset(error.rule for error in opinion.errors):
            continue
        parsed = fsxds.parse(f"{opinion.case.seed.type_name}{opinion.case.suffix}", file_text(opinion.case))
        if parsed.resources and len(accepted_of(parsed.resources, bench)) == len(parsed.resources):
            found.append(opinion)
    return found
