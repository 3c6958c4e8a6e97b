"""What `check --with-envoy` says of cases that fsxds by itself finds nothing wrong with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.validate import ValidationOptions, rejections_of
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
