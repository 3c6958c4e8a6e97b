"""Whatever stands in a file, there is a result or a problem, soon, and no exception."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.api.printing import Printer
from fsxds.formats import FORMATS
from fsxds.resources import ParsedFile
from fsxds.snapshots.parse import FileParser
from fsxds.values import SourceFile

TOP = Path(__file__).parent.parent.parent
SAMPLES = sorted(path for path in (TOP / "config" / "xds").rglob("*.*") if path.is_file())
SUFFIXES = (".yaml", ".json", ".textproto", ".pb")
# An eighth of what `python -m tests.bench` measures, and more than twice what it may take: here, a cost out of all proportion
# shall be found, and not a busy machine.
HOSTILE_BYTES = 1 << 17
MOST_SECONDS = 2.0
MOST_MIB = 250.0
MUTANTS_PER_SAMPLE = 25

# What the formats are made of; random text would hardly ever get past the first character.
MARKS = (
    "{ } [ ] < > ( ) : , ; - ? | > & * ! % # ~ = / \\ \" ' ` @ . $ << --- ... \n \t \r \x00 \ufeff \u2028 é \U0001f642 a b null true y 1 "
    "1.5 -1 0x1 1e999 .inf NaN 2024-01-01 name resources version_info @type type_url value &a *a !!str !!binary !x "
    "'' \"\" //x /*x*/ #x 1_0 [x.y/Z] type.googleapis.com/envoy.config.cluster.v3.Cluster connect_timeout load_assignment"
)
PIECES = MARKS.split(" ")


def _parse(parser: FileParser, content: bytes, suffix: str) -> ParsedFile:
    return parser.parse(SourceFile.of(PurePosixPath(f"clusters{suffix}"), content))


def _says_something(parsed: ParsedFile) -> bool:
    return bool(parsed.documents or parsed.problems)


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=150)
@given(content=st.binary(max_size=300))
def test_any_bytes(parser: FileParser, suffix: str, content: bytes) -> None:
    """Bytes without any sense are told as a problem, if they are no resources."""
    assert _says_something(_parse(parser, content, suffix))


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=400)
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40), glue=st.sampled_from(["", " ", "\n", "\n  ", ": "]))
def test_any_tokens(parser: FileParser, suffix: str, pieces: list[str], glue: str) -> None:
    """The marks and words of the formats, in any order, are told as a problem, if they are no resources."""
    assert _says_something(_parse(parser, glue.join(pieces).encode(), suffix))


def _broken(rng: random.Random, content: bytes) -> bytes:
    """Return the content with one to three things done to it."""
    for _ in range(rng.randint(1, 3)):
        at, to = sorted(rng.randrange(len(content) + 1) for _ in range(2))
        to = min(to, at + 50)
        content = rng.choice(
            [
                content[:at] + content[to:],
                content[:at] + content[at:to] * 2 + content[to:],
                content[:at] + rng.randbytes(rng.randint(1, 4)) + content[at:],
                content[:at] + rng.choice(b"{}[]:,\"'-&*!#\n\t \\\0").to_bytes(1, "big") + content[at + 1 :],
                content[:at],
                content[:at]
                + bytes(byte ^ (1 << rng.randrange(8)) for byte in content[at : at + 1])
                + content[at + 1 :],
            ]
        )
    return content


def _in_format(sample: Path, suffix: str, parser: FileParser, catalogue: Catalogue) -> list[bytes]:
    """Write what a sample file holds in another format."""
    if sample.suffix == suffix:
        return [sample.read_bytes()]
    if suffix == ".json" and sample.suffix == ".yaml":
        return [json.dumps(one, indent=1).encode() for one in yaml.safe_load_all(sample.read_text(encoding="utf-8"))]
    parsed = parser.parse(SourceFile.of(PurePosixPath(sample.name), sample.read_bytes()))
    row = next(row for row in FORMATS if suffix in row.suffixes)
    messages = [
        catalogue.message_class(resource.type_url.rpartition("/")[2]).FromString(resource.body)
        for resource in parsed.resources
    ]
    return [row.encode(message, Printer(catalogue)) for message in messages]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_broken_samples(parser: FileParser, catalogue: Catalogue, suffix: str) -> None:
    """Sample files with some bytes lost, doubled or changed are read, or are told as a problem."""
    rng = random.Random(3)
    contents = [content for sample in SAMPLES for content in _in_format(sample, suffix, parser, catalogue)]
    silent = []
    for content in contents:
        for _ in range(MUTANTS_PER_SAMPLE):
            broken = _broken(rng, content)
            silent += [] if _says_something(_parse(parser, broken, suffix)) else [broken]

    assert len(contents) >= len(SAMPLES)
    assert [] == silent


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_hostile_files(suffix: str) -> None:
    """Whatever is in a file of 128 KiB, reading it does not take out of all proportion, and 250 MiB at most."""
    argv = [sys.executable, "-m", "tests.support.parse_hostile", suffix, str(HOSTILE_BYTES)]
    done = subprocess.run(argv, cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    cost = json.loads(done.stdout)

    slow = {name: seconds for name, seconds in cost["seconds"].items() if seconds > MOST_SECONDS * cost["slowness"]}
    assert {} == slow
    assert cost["mib"] <= MOST_MIB
