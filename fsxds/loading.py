"""Load trees as the settings ask: which files, by which API, by which rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path, PurePosixPath

from fsxds.api.catalogue import Catalogue
from fsxds.errors import UsageError
from fsxds.formats import PlainDocument, format_of, require_libyaml
from fsxds.formats.documents import UnreadableError, unreadable
from fsxds.formats.utf8 import read_text
from fsxds.formats.yaml_reader import read_yaml
from fsxds.parse_worker import parse_one
from fsxds.parsing import ParseRules
from fsxds.protocol.ttl import TtlMode
from fsxds.rules.levels import RuleLevels
from fsxds.settings import Settings
from fsxds.snapshots.document import FileParser
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.parsed import ParsedFile
from fsxds.snapshots.static_names import StaticNames, static_names
from fsxds.sources.envoy_api import AskFeatures, find_api
from fsxds.sources.file_names import Exclusion
from fsxds.sources.scan import Scanner
from fsxds.values import PlainValue, Problem, Severity, SourceFile, SourceTree

# Finding the line of a field costs a walk over its file: 0.2 s for a megabyte, at every edit as long as the problem lasts.
LOCATE_UP_TO_BYTES = 1_000_000

# Ignored files that are named in one note; the others are counted.
MOST_IGNORED = 5

# The rule that tells of what `--ttl spec` does not leave out.
TTL_DROPPED = "ttl-dropped"


def find_catalogue(settings: Settings, ask: AskFeatures | None = None) -> Catalogue:
    """Find the message types of the Envoy in use; ApiError when they cannot be had.

    Args:
        settings: where they are looked for.
        ask: runs an Envoy of which nothing but its message types is known; None to run none.
    """
    return find_api(envoy=settings.envoy, descriptors=settings.descriptors, cache_dir=settings.cache_dir, ask=ask)


def load_once(directory: Path, settings: Settings, catalogue: Catalogue) -> Loaded:
    """Load a tree as serving would, once, and return what it holds and what is wrong with it."""
    (loaded,) = load_trees((scan_once(directory, settings),), settings, catalogue)
    return loaded


def scan_once(directory: Path, settings: Settings) -> SourceTree:
    """Read the files of a tree as serving would, once."""
    return scanner_of(directory, settings).scan()


def load_trees(trees: Iterable[SourceTree], settings: Settings, catalogue: Catalogue) -> tuple[Loaded, ...]:
    """Load trees as serving would, each on its own; a file that stands in several of them is parsed once."""
    require_libyaml()
    parser = ParsedOnce(_parser(settings, catalogue))
    return tuple(_load_tree(tree, parser, settings) for tree in trees)


def _parser(settings: Settings, catalogue: Catalogue) -> FileParser:
    rules = parse_rules(settings, catalogue)
    return FileParser(rules.catalogue, rules.unknown_fields, rules.levels)


def _load_tree(tree: SourceTree, parser: ParsedOnce, settings: Settings) -> Loaded:
    loaded = load(tree, None, parser.parse_all, acceptance(settings, locate_up_to_bytes=None))
    levels = levels_of(settings)
    ignored = levels.weigh(_ignored(tree.ignored)) if tree.ignored else None
    return replace(loaded, problems=tuple(sorted((*loaded.problems, *((ignored,) if ignored else ())))))


class ParsedOnce:
    """Parses files, and remembers what became of each content at each path."""

    def __init__(self, parser: FileParser) -> None:
        self._parser = parser
        self._known: dict[tuple[PurePosixPath, str], ParsedFile] = {}

    def parse_all(self, files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        """Parse those files that are not known yet, and return what became of all."""
        for file in files:
            if (file.path, file.digest) not in self._known:
                self._known[file.path, file.digest] = parse_one(self._parser, file)
        return tuple(self._known[file.path, file.digest] for file in files)


def _ignored(paths: tuple[PurePosixPath, ...]) -> Problem:
    """Return one note about all of them, at the first."""
    first, *others = paths
    named = ", ".join(str(path) for path in others[:MOST_IGNORED])
    more = f", … {len(others) - MOST_IGNORED} more" if len(others) > MOST_IGNORED else ""
    fact = "ignored: no format has this suffix" + (f"; nor {named}{more}" if others else "")
    remedy = "rename what holds resources to .yaml, .json, .textproto or .pb"
    return Problem(first, 1, 1, "", "ignored-file", fact, remedy, Severity.NOTE)


def scanner_of(directory: Path, settings: Settings) -> Scanner:
    """Return what reads the files of a tree."""
    limit = settings.max_file_size_bytes
    return Scanner(directory, is_read=is_read, exclusion=exclusion_of(settings), max_file_size_bytes=limit)


def exclusion_of(settings: Settings) -> Exclusion:
    """Return what the settings exclude from every tree."""
    return Exclusion(settings.exclude)


def is_read(name: str) -> bool:
    """Tell by a file's name whether a format claims it."""
    return format_of(PurePosixPath(name)) is not None


def levels_of(settings: Settings) -> RuleLevels:
    """Return how much breaches of rules weigh: as the settings say, and less where they make a rule pointless."""
    levels = settings.rules or RuleLevels()
    if settings.ttl != TtlMode.SPECIFICATION.value:
        return levels
    return RuleLevels({TTL_DROPPED: None, **levels.changed})


def parse_rules(settings: Settings, catalogue: Catalogue) -> ParseRules:
    """Return what files are parsed by."""
    return ParseRules(catalogue, _unknown_fields(settings), levels_of(settings))


def _unknown_fields(settings: Settings) -> Severity:
    return Severity.WARNING if settings.unknown_fields == "warn" else Severity.ERROR


def acceptance(settings: Settings, *, locate_up_to_bytes: int | None = LOCATE_UP_TO_BYTES) -> Acceptance:
    """Return how trees are accepted; UsageError when the bootstrap that the settings name cannot be read."""
    return Acceptance(
        whole_trees=settings.accept == "tree",
        authored_versions=settings.versions == "authored",
        levels=levels_of(settings),
        static=_static(settings),
        locate_up_to_bytes=locate_up_to_bytes,
    )


def _static(settings: Settings) -> StaticNames:
    """Return the names that the bootstrap defines, as far as the settings tell them."""
    told = settings.static_clusters
    if settings.bootstrap is None:
        return StaticNames(None if told is None else frozenset(told))
    names = static_names(_bootstrap(settings.bootstrap))
    return replace(names, clusters=(names.clusters or frozenset()) | frozenset(told or ()))


def _bootstrap(path: Path) -> PlainValue:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; --bootstrap names Envoy's bootstrap") from error
    try:
        decoded = read_yaml(read_text(content))
    except UnreadableError as error:
        decoded = unreadable(error.fault)
    if decoded.faults:
        fault = decoded.faults[0]
        raise UsageError(f"{path}:{fault.line or 1}:{fault.column or 1}: {fault.message}; {fault.remedy}")
    return next((document.value for document in decoded.documents if isinstance(document, PlainDocument)), None)
