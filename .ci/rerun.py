"""Run the tests that failed once more, one after another in one process, and print `flaky: NAME` for each that passes then.

The exit status is 0 if all of them pass; 1 if one fails again, or if more than three had failed: so many are no accident.
Which tests failed is what pytest's cache says of the last run in this directory.
"""

import json
import subprocess
import sys
from pathlib import Path

LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")
MOST = 3


def main() -> int:
    """Return the exit status."""
    failed = sorted(json.loads(LAST_FAILED.read_bytes())) if LAST_FAILED.exists() else []
    if not failed or len(failed) > MOST:
        print(f".ci/run: {len(failed)} tests failed; up to {MOST} would run again", flush=True)
        return 1
    print(f".ci/run: again, alone: {' '.join(failed)}", flush=True)
    again = subprocess.run([sys.executable, "-m", "pytest", "--last-failed"], check=False).returncode
    still = set(json.loads(LAST_FAILED.read_bytes())) if LAST_FAILED.exists() else set()
    for name in failed:
        if again in (0, 1) and name not in still:
            print(f"flaky: {name}", flush=True)
    return 0 if again == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
