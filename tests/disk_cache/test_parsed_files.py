from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import DIRECTORY, LEAST_CACHED_BYTES, ParseCache, sealed, unsealed
from fsxds.events.event import Event
from fsxds.events.file_events import CacheFailed, CacheRead
from fsxds.lint.linter import Linter
from fsxds.lint.rules import RuleLevels
from fsxds.model.resources import ParsedFile
from fsxds.model.values import Severity, SourceFile
from fsxds.server.parse_worker import ParseRules, parse_all
from fsxds.settings.naming_rules import NO_RULES, ContextRule, NamingRules
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.proposals import NoCheck
from tests.support.trees import tree_of

# So that looking is worth it.
PADDING = "#" * LEAST_CACHED_BYTES + "\n"

CLUSTERS = "- name: b\n- name: a\n"


@dataclass(frozen=True)
class Digested:
    """Rules with this digest."""

    content: bytes
    naming: NamingRules

    def digest(self) -> bytes:
        """Return it."""
        return self.content


@dataclass
class Caching:
    """Caches of one directory, each as that of another process, and what they reported."""

    folder: Path
    parser: FileParser
    rules: bytes = b"rules"
    naming: NamingRules = NO_RULES
    events: list[Event] = field(default_factory=list)

    def cache(self, rules: bytes = b"rules") -> ParseCache:
        """Return the cache of a process that starts."""
        return ParseCache(self.folder, Path("/tree"), Digested(rules, self.naming), self.events.append)

    def fill(self, files: Iterable[SourceFile]) -> None:
        """Do what a start does."""
        files = tuple(files)
        cache = self.cache()
        cache.find(files)
        for file, parsed in zip(files, parse_all(self.parser, files), strict=True):
            cache.add(file, parsed)
        assert cache.write()

    def found(self, files: Iterable[SourceFile], rules: bytes = b"rules") -> list[ParsedFile | None]:
        """Return what a process that starts finds."""
        return list(self.cache(rules).find(tuple(files)))

    @property
    def pack(self) -> Path:
        """The one pack that there is."""
        (path,) = (self.folder / DIRECTORY).iterdir()
        return path


@pytest.fixture
def caching(tmp_path: Path, parser: FileParser) -> Caching:
    """A directory for caches, and a parser."""
    return Caching(tmp_path, parser)


def files_of(**contents: str) -> tuple[SourceFile, ...]:
    """Return files by their names, the first of them so large that looking is worth it."""
    names = [name.replace("_", ".") for name in contents]
    texts = [PADDING + text if not number else text for number, text in enumerate(contents.values())]
    return tree_of(dict(zip(names, texts, strict=True))).files


def test_results_are_known_to_the_next_process(caching: Caching) -> None:
    """What was parsed and written is found, as it was; the log is given the counts."""
    files = files_of(cds_yaml=CLUSTERS, eds_yaml="- cluster_name: x\n")
    caching.fill(files)

    assert caching.found(files) == list(parse_all(caching.parser, files))
    assert caching.events == [CacheRead(0, 2), CacheRead(2, 2)]


def test_warnings_are_kept(caching: Caching, catalogue: Catalogue) -> None:
    """What is wrong and no error is reported at every start."""
    caching.parser = FileParser(catalogue, Severity.WARNING)
    files = files_of(cds_yaml=f"{CLUSTERS}  typo: 1\n")
    caching.fill(files)

    (parsed,) = caching.found(files)
    assert parsed is not None
    assert [(row.rule, row.severity) for row in parsed.problems] == [("unknown-field", Severity.WARNING)]


def test_small_trees_are_not_kept(caching: Caching) -> None:
    """Of what is parsed at once, nothing is read or written."""
    caching.fill(tree_of({"cds.yaml": CLUSTERS}).files)

    assert not list(caching.folder.iterdir())
    assert not caching.events


def test_file_is_found_by_what_decides(caching: Caching) -> None:
    """Another path with the same content is found; not so other content, another type, another format, other rules."""
    caching.fill(files_of(cds_yaml=CLUSTERS))
    content = PADDING + CLUSTERS

    def found(path: str, text: str = content, rules: bytes = b"rules") -> list[ParsedFile | None]:
        return caching.found(tree_of({path: text}).files, rules)

    assert found("deep/down/cds.yml") == list(parse_all(caching.parser, tree_of({"deep/down/cds.yml": content}).files))
    assert found("cds.yaml", content + "\n") == [None]
    assert found("lds.yaml") == [None]
    assert found("a.yaml") == [None]
    assert found("cds.json") == [None]
    assert found("cds.yaml", rules=b"others") == [None]


def test_errors_are_not_kept(caching: Caching) -> None:
    """A file with an error is parsed at every start."""
    files = files_of(cds_yaml=CLUSTERS, eds_yaml="- typo: 1\n")
    caching.fill(files)

    assert [parsed is not None for parsed in caching.found(files)] == [True, False]


def test_what_is_no_result_yet_is_not_kept(caching: Caching) -> None:
    """The stand-in for a file that is still being parsed is no result of its content."""
    (file,) = files_of(cds_yaml=CLUSTERS)
    cache = caching.cache()
    cache.find((file,))

    assert not cache.add(file, ParsedFile(file.path, ""))


KEY = "-----BEGIN PRIVATE KEY-----\\nMIIEabcdef\\n-----END PRIVATE KEY-----"
TLS = "'@type': type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


def test_secrets_are_not_written(caching: Caching) -> None:
    """`Secret` resources and private keys are parsed at every start, and files beside them are not."""
    files = files_of(
        cds_yaml=CLUSTERS,
        sds_yaml="- name: s\n  generic_secret: {secret: {inline_string: hush}}\n",
        ecds_yaml=f"- name: k\n  typed_config:\n    {TLS}\n    common_tls_context:\n      tls_certificates:\n"
        f'      - private_key: {{inline_string: "{KEY}"}}\n        certificate_chain: {{filename: /c}}\n',
    )
    caching.fill(files)

    assert [str(file.path) for file, parsed in zip(files, caching.found(files), strict=True) if parsed] == ["cds.yaml"]


def test_pack_shows_nothing(caching: Caching) -> None:
    """A pack has no text of a file in it, deflated or not: only who has the file can read it."""
    caching.fill(files_of(cds_yaml="- name: canary\n  health_checks: []\n"))
    (again,) = files_of(cds_yaml="- name: canary\n  health_checks: []\n")
    content = caching.pack.read_bytes()

    assert b"canary" not in content
    assert b"type.googleapis.com" not in content
    assert again.digest.encode() not in content
    assert bytes.fromhex(again.digest) not in content


@given(st.data())
def test_any_damage_gives_the_right_content_or_none(parser: FileParser, data: st.DataObject) -> None:
    """Whatever bytes of a pack are changed, cut out or put in, what is found is what the file parses to."""
    files = files_of(cds_yaml=CLUSTERS, eds_yaml="- cluster_name: x\n")
    with TemporaryDirectory() as folder:
        caching = Caching(Path(folder), parser)
        caching.fill(files)
        content = bytearray(caching.pack.read_bytes())
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(content) - 1))
            match data.draw(st.sampled_from(["flip", "cut", "insert", "end", "repeat"])):
                case "flip":
                    content[place] ^= 1 << data.draw(st.integers(0, 7))
                case "cut":
                    del content[place : place + data.draw(st.integers(1, 50))]
                case "insert":
                    content[place:place] = data.draw(st.binary(max_size=50))
                case "end":
                    del content[place + 1 :]
                case _:
                    content += content[place:]
        caching.pack.write_bytes(content)

        right = parse_all(parser, files)
        for parsed, expected in zip(caching.found(files), right, strict=True):
            assert parsed in (None, expected)
        caching.fill(files)
        assert caching.found(files) == list(right)


def test_every_flipped_bit_is_noticed(caching: Caching) -> None:
    """Each single bit of a record that is changed gives the right content, or none."""
    files = files_of(cds_yaml=CLUSTERS)
    caching.fill(files)
    whole, (right,) = caching.pack.read_bytes(), parse_all(caching.parser, files)
    for place in range(len(whole)):
        caching.pack.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        (parsed,) = caching.found(files)
        assert parsed is None or parsed == right


@given(st.binary(max_size=200), st.binary(min_size=1, max_size=64), st.binary(min_size=1, max_size=64))
def test_seal(content: bytes, key: bytes, other: bytes) -> None:
    """What is sealed is read with its key alone, and is never twice the same."""
    payload = sealed(content, key)

    assert unsealed(payload, key) == content
    assert key.ljust(64, b"\0") == other.ljust(64, b"\0") or unsealed(payload, other) is None
    assert payload != sealed(content, key)
    assert unsealed(payload[:-1], key) is None
    assert unsealed(b"", key) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_foreign_directory_is_reported_once(caching: Caching) -> None:
    """A directory of another user is not used; that is reported once, and parsing goes on."""
    (caching.folder / DIRECTORY).mkdir()
    os.chown(caching.folder / DIRECTORY, 12345, 12345)
    files = files_of(cds_yaml=CLUSTERS)
    cache = caching.cache()

    for _ in range(3):
        assert list(cache.find(files)) == [None]
        assert not cache.add(files[0], parse_all(caching.parser, files)[0])
        assert cache.write()
    assert caching.events == [
        CacheFailed(caching.folder / DIRECTORY, f"{caching.folder}/{DIRECTORY} belongs to user 12345")
    ]


def test_directory_that_cannot_be_made_is_reported_once(caching: Caching) -> None:
    """What the system says about a directory is reported."""
    (caching.folder / DIRECTORY).write_text("a file")

    caching.fill(files_of(cds_yaml=CLUSTERS))
    assert caching.events == [CacheFailed(caching.folder / DIRECTORY, "Not a directory")]


EDGE = NamingRules("", (ContextRule("edge", (("env", "prod"),)),))


def test_a_folder_that_names_otherwise(caching: Caching, catalogue: Catalogue) -> None:
    """What a file of another folder parsed to is found where that gives names the same parameters, and nowhere else."""
    name = "xdstp://example.com/envoy.config.cluster.v3.Cluster/web"
    content = f"{PADDING}- {{name: '{name}', type: STATIC, connect_timeout: 1s}}\n"
    caching.parser = FileParser(catalogue, check=Linter())
    caching.parser.name_by(EDGE)
    caching.naming = EDGE
    caching.fill(tree_of({"edge/cds.yaml": content}).files)

    def found(path: str) -> list[list[str]]:
        return [
            [one.name for one in parsed.resources] for parsed in caching.found(tree_of({path: content}).files) if parsed
        ]

    assert found("edge/deep/cds.yaml") == [[f"{name}?env=prod"]]
    assert found("cds.yaml") == found("other/cds.yaml") == []


def test_rules_differ_where_results_may(catalogue: Catalogue) -> None:
    """Rules that parse alike have one digest, in every process; each thing that may change a result changes it."""
    rules = ParseRules(catalogue, check=Linter(RuleLevels({"a": None, "b": Severity.NOTE})))
    same = ParseRules(catalogue, check=Linter(RuleLevels({"b": Severity.NOTE, "a": None})))
    others = (
        ParseRules(catalogue, Severity.WARNING, rules.check),
        ParseRules(catalogue, check=Linter()),
        ParseRules(catalogue, check=Linter(RuleLevels({"a": None, "b": Severity.ERROR}))),
        ParseRules(catalogue, check=NoCheck()),
        ParseRules(Catalogue.of(catalogue.serialized, "another", catalogue.features), check=rules.check),
        ParseRules(Catalogue.of(catalogue.serialized, catalogue.description), check=rules.check),
        ParseRules(Catalogue.of(b"\x0a\x03\x0a\x01x", catalogue.description), check=rules.check),
        ParseRules(catalogue, check=rules.check, naming=NamingRules("example.com")),
        ParseRules(catalogue, check=rules.check, naming=NamingRules("", EDGE.contexts)),
    )

    assert rules.digest() == same.digest()
    assert len({rules.digest(), *(each.digest() for each in others)}) == len(others) + 1
