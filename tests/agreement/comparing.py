"""Ask both about all cases, and keep what they said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from fsxds.api.catalogue import Catalogue
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import Problem
from tests.agreement import envoy_bootstrap, static_judge
from tests.agreement.cases import Case, text_of
from tests.agreement.envoy_judge import EnvoyJudge, Verdict
from tests.agreement.fsxds_judge import FsxdsJudge
from tests.agreement.seeds import Seed, seeds


@dataclass(frozen=True, slots=True)
class Opinion:
    """What both said about a case."""

    case: Case
    envoy: Verdict
    errors: tuple[Problem, ...]

    @property
    def is_false_alarm(self) -> bool:
        """Envoy takes it, fsxds does not."""
        return self.envoy.accepted and bool(self.errors)

    @property
    def is_missed(self) -> bool:
        """Envoy rejects it, fsxds does not."""
        return not self.envoy.accepted and not self.errors


def file_text(case: Case) -> str:
    """Write a case as fsxds reads it, which but for virtual hosts is what Envoy reads."""
    type_url = BY_SHORT_NAME[case.seed.type_name].type_url
    return text_of({"resources": [{"@type": type_url, **case.resource}]}, case.suffix)


def known_seeds(catalogue: Catalogue) -> list[Seed]:
    """Return the seeds that fsxds calls right; in others there are fields or extensions that an older Envoy lacks."""
    fsxds = FsxdsJudge(catalogue)
    cases = [Case(seed, "", "", "", "", seed.resource, ".yaml") for seed in seeds()]
    return [case.seed for case in cases if not fsxds.judge(f"{case.seed.type_name}.yaml", file_text(case))]


def compare(cases: Iterable[Case], catalogue: Catalogue, cache: Path | None = None) -> list[Opinion]:
    """Ask both about every case, and leave out those that hang on files or on the bootstrap.

    Verdicts of Envoy are remembered in the file `cache`, where there is one.
    """
    cases = list(cases)
    known = json.loads(cache.read_text()) if cache and cache.exists() else {}
    unknown = [case for case in cases if _key(case) not in known]
    with ThreadPoolExecutor(2) as threads:
        for answered in threads.map(_ask_envoy, *zip(*_shares(unknown), strict=True)) if unknown else ():
            known |= answered
    if cache:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known))
    fsxds = FsxdsJudge(catalogue)
    verdicts = {_key(case): Verdict(**known[_key(case)]) for case in cases}
    return [
        Opinion(case, verdicts[_key(case)], fsxds.judge(f"{case.seed.type_name}{case.suffix}", file_text(case)))
        for case in cases
        if not static_judge.blames_what_is_around(verdicts[_key(case)].words)
    ]


def _key(case: Case) -> str:
    return hashlib.sha256(case.key.encode()).hexdigest()[:24]


def _shares(cases: list[Case]) -> list[tuple[list[Case], str]]:
    shares = [([case for case in cases if case.suffix == suffix], suffix) for suffix in (".json", ".yaml")]
    return [share for share in shares if share[0]]


def _ask_envoy(cases: list[Case], suffix: str) -> dict[str, dict[str, object]]:
    verdicts: dict[str, Verdict] = {}
    last = ""
    with EnvoyJudge(seeds(), suffix) as envoy:
        for case in cases:
            verdict = _verdict(envoy, case)
            if verdict.crashed:
                # It may have been at work on the case before, such as with a timer of no time.
                again = _verdict(envoy, case)
                if not again.crashed and last:
                    verdicts[last] = verdict
                verdict = again
            last = _key(case)
            verdicts[last] = verdict
    return {key: asdict(verdict) for key, verdict in verdicts.items()}


def _verdict(envoy: EnvoyJudge, case: Case) -> Verdict:
    text = text_of(envoy_bootstrap.document(case.seed, case.resource), case.suffix)
    verdict = envoy.judge(case.seed, text)
    alone = case.seed.type_name in {"cds", "lds", "ecds"}
    if alone and not verdict.accepted and static_judge.blames_others(verdict.words):
        return Verdict(*static_judge.judge_alone(case.seed.type_name, case.resource))
    return verdict
