"""Measure how far fsxds and the real Envoy agree, and print where they do not."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from pathlib import Path

from fsxds.envoy.envoy_features import read_features
from fsxds.server.loading_rules import find_catalogue
from fsxds.settings.options import Settings
from tests.agreement.cases import make_cases
from tests.agreement.comparing import compare, known_seeds
from tests.agreement.report import alarm_cause, disagreements, miss_cause, table
from tests.agreement.seeds import seeds
from tests.agreement.with_envoy import overruled, refused


def main() -> int:
    """Compare, print, and return 1 when fsxds refuses anything that Envoy takes."""
    parser = argparse.ArgumentParser(prog="python -m tests.agreement", description=__doc__)
    parser.add_argument("--cases", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**9), help="fresh by default")
    parser.add_argument(
        "--kind", action="append", default=[], help="only cases of this kind; may be given several times"
    )
    parser.add_argument("--cache", type=Path, help="a file that remembers Envoy's verdicts")
    parser.add_argument("--out", type=Path, help="a directory for misses.txt and false_alarms.txt")
    parser.add_argument("--envoy", type=Path, help="another Envoy than that of the tests, such as an older one")
    parser.add_argument(
        "--with-envoy", action="store_true", help="ask what `check` with Envoy says of what is missed, and overrules"
    )
    arguments = parser.parse_args()
    if arguments.envoy:
        os.environ["ENVOY_BIN"] = str(arguments.envoy.absolute())
    catalogue = find_catalogue(Settings(envoy=arguments.envoy), read_features)
    known = known_seeds(catalogue)
    cases = make_cases(catalogue, arguments.cases, arguments.seed, frozenset(arguments.kind), known)
    opinions = compare(cases, catalogue, arguments.cache)
    alarms = [*disagreements((one for one in opinions if one.is_false_alarm), alarm_cause)]
    misses = [*disagreements((one for one in opinions if one.is_missed), miss_cause)]
    lines = [
        f"seed {arguments.seed}",
        *(f"left out, as it is new to this Envoy: {one.type_name} {one.name}" for one in seeds() if one not in known),
        "",
        *table(opinions, lambda one: one.case.kind),
        "",
        *table(opinions, lambda one: one.case.mutation),
        "",
        *table(opinions, lambda one: one.case.seed.type_name),
    ]
    sys.stdout.write("\n".join([*lines, ""]))
    if arguments.with_envoy:
        wrongly = overruled((one for one in opinions if not one.envoy.accepted), catalogue)
        sys.stdout.write(f"\n{len(wrongly)} errors of what Envoy rejects are overruled by check with Envoy\n")
        sys.stdout.write("".join(f"overruled: {one.case.name}\n" for one in wrongly))
        missed = [one for one in opinions if one.is_missed]
        found = refused(missed, catalogue)
        sys.stdout.write(f"\n{len(found)} of {len(missed)} missed are found by check with Envoy\n")
        sys.stdout.write("".join(f"not found: {one.case.name}\n" for one in missed if one not in found))
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / "false_alarms.txt").write_text("\n".join([*lines, *alarms, ""]))
        (arguments.out / "misses.txt").write_text("\n".join([*lines, *misses, ""]))
    else:
        sys.stdout.write("\n".join(["", "# False alarms", *alarms, "", "# Missed", *misses, ""]))
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
