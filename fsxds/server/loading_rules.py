"""The settings' rules for loading and watching trees, and loading once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from time import time
from typing import cast

from fsxds.api.catalogue import Catalogue
from fsxds.disk_cache.parsed_files import ParseCache
from fsxds.events.event import Observer
from fsxds.formats import format_of
from fsxds.formats.yaml_format import require_libyaml
from fsxds.model.resources import ParsedFile
from fsxds.model.tree_trust import (
    SeenInProcess,
    SeenManifests,
    TreeVerifier,
    TrustedSigners,
    nothing_of,
)
from fsxds.model.values import Problem, Severity, SourceFile, SourceTree
from fsxds.runtime.views import Views
from fsxds.server.parse_worker import ParseRules, Progress, no_progress
from fsxds.server.parsing import ParseLimits, parse_now
from fsxds.settings.naming_rules import NamingRules
from fsxds.settings.options import Settings
from fsxds.settings.upstream_rules import at_urls
from fsxds.settings.view_rules import Variables, ViewRule
from fsxds.snapshots.load import Acceptance, LayerPatching, Loaded, load
from fsxds.snapshots.loaded_views import (
    LoadedViews,
    ResolutionRules,
    only_view,
    whole_tree,
    with_served,
)
from fsxds.snapshots.proposals import Check, Elsewhere
from fsxds.source.envoy_api import AskFeatures, find_api
from fsxds.source.listing import Exclusion, TreeBounds
from fsxds.source.scan import Scanner
from fsxds.source.targets import WatchMode, WatchOptions

# Finding a field's line costs a walk over its file: 0.2 s for a megabyte, at every edit.
LOCATE_UP_TO_BYTES = 1_000_000

# Named in a note; the others are counted.
MOST_IGNORED = 5


def find_catalogue(settings: Settings, ask: AskFeatures | None = None) -> Catalogue:
    """Return the Envoy's message types. Raises ApiError.

    `ask` runs an Envoy with unknown features; None: run none.
    """
    return find_api(envoy=settings.envoy, descriptors=settings.descriptors, cache_dir=settings.cache_dir, ask=ask)


def scanner_of(directory: Path, settings: Settings) -> Scanner:
    """Return a tree's scanner."""
    return Scanner(directory, is_read=is_read, exclusion=exclusion_of(settings), bounds=bounds_of(settings))


def bounds_of(settings: Settings) -> TreeBounds:
    """Return a tree's reading limits."""
    return TreeBounds(settings.max_file_size_bytes, settings.max_files, settings.follow_outside)


def exclusion_of(settings: Settings) -> Exclusion:
    """Return names that the settings exclude."""
    return Exclusion(settings.exclude)


def is_read(name: str) -> bool:
    """Whether a format claims this name."""
    return format_of(PurePosixPath(name)) is not None


def scan_once(directory: Path, settings: Settings) -> SourceTree:
    """Read a tree once, unverified."""
    return scanner_of(directory, settings).scan()


def scan_trusted(directory: Path, settings: Settings) -> SourceTree:
    """Read a tree once, as serving would: of an untrusted one only the problems. Raises UsageError for unreadable CAs."""
    tree = scan_once(directory, settings)
    faults = trust_faults(tree, settings)
    return nothing_of(tree, faults, has_layers=settings.views is not None) if faults else tree


def trust_faults(tree: SourceTree, settings: Settings) -> tuple[Problem, ...]:
    """Return why a tree is not trusted, if so. Raises UsageError for unreadable CAs."""
    verifier = verifier_of(_anchors_of(settings), SeenInProcess())
    return () if verifier is None else verifier.faults(tree, time())


def verifier_of(anchors: TrustedSigners | None, seen: SeenManifests) -> TreeVerifier | None:
    """Return signatures' verifier, if required."""
    if anchors is None:
        return None
    from fsxds.signing.trusted_tree import ManifestVerifier  # noqa: PLC0415 - a capability, loaded if it is used

    return ManifestVerifier(anchors, seen)


def _anchors_of(settings: Settings) -> TrustedSigners | None:
    if settings.verify_with is None:
        return None
    from fsxds.signing.trusted_tree import read_anchors  # noqa: PLC0415 - a capability, loaded if it is used

    return read_anchors(settings.verify_with)


@dataclass(frozen=True, slots=True)
class LoadingRules:
    """The rules for parsing and accepting files.

    `views` make folders layers, None: the whole tree is the one view. `variables` are for views without one of the same
    name; `anchors` None: no signature is required.
    """

    parsing: ParseRules
    limits: ParseLimits
    acceptance: Acceptance
    views: tuple[ViewRule, ...] | None = None
    variables: Variables | None = field(default=None, repr=False)
    resolution: ResolutionRules = field(default_factory=ResolutionRules)
    anchors: TrustedSigners | None = None

    @classmethod
    def of(cls, settings: Settings, catalogue: Catalogue, check: Check, directory: Path | None = None) -> LoadingRules:
        """Return a tree's rules (None: for upstreams alone). Raises UsageError for unreadable CAs."""
        unknown_fields = Severity.WARNING if settings.unknown_fields == "warn" else Severity.ERROR
        naming = NamingRules(settings.authority, settings.context_params or ())
        limits = ParseLimits(settings.parse_apart_above_bytes, time_s=settings.parse_time_s)
        acceptance = Acceptance(
            whole_trees=settings.accept == "tree",
            authored_versions=settings.versions == "authored",
            check=check,
            locate_up_to_bytes=LOCATE_UP_TO_BYTES,
            max_resources=settings.max_resources,
            elsewhere=Elsewhere(is_unknown=has_upstreams(settings)),
            patching=None if settings.views is None else _patching(catalogue, unknown_fields, check, naming),
        )
        variables = settings.variables or Variables()
        rows = tuple(variables.texts.items()), tuple(variables.unset.items())
        rules = ParseRules(catalogue, unknown_fields, check, rows, naming)
        root = "" if directory is None else str(directory.absolute())
        resolution = ResolutionRules(
            authority=settings.authority,
            authorities=at_urls(settings.authorities),
            passes_redirects=settings.redirects == "client",
            root=root,
            catalogue=catalogue,
            check=check,
            collections=settings.collections or (),
            unasked=_unasked(settings),
        )
        views, anchors = settings.views, _anchors_of(settings)
        return cls(rules, limits, acceptance, views, settings.variables, resolution, anchors)

    @property
    def view_rules(self) -> Views | None:
        """Rules that make folders layers, or None."""
        if self.views is None:
            return None
        # Without a directory, no layer has a folder.
        adjusted = self.acceptance.check.adjusted if self.resolution.root else lambda _: None
        return Views(self.views, self.variables, adjusted)


def _patching(catalogue: Catalogue, unknown_fields: Severity, check: Check, naming: NamingRules) -> LayerPatching:
    from fsxds.snapshots.layers import Patching  # noqa: PLC0415 - a capability, loaded if it is used

    return Patching(catalogue, unknown_fields, check, naming)


def has_upstreams(settings: Settings) -> bool:
    """Whether other servers may have resources."""
    return _unasked(settings) != frozenset()


def _unasked(settings: Settings) -> frozenset[str] | None:
    if settings.upstream:
        return None
    return frozenset(name for name, each in (settings.authorities or {}).items() if each.upstream)


def load_once(directory: Path, settings: Settings, catalogue: Catalogue, check: Check) -> Loaded:
    """Load a tree once, as serving would."""
    rules = LoadingRules.of(settings, catalogue, check, directory)
    (views,) = load_trees((scan_once(directory, settings),), rules, cache_of(directory, settings, rules.parsing))
    return only_view(views)


def load_trees(
    trees: Iterable[SourceTree], rules: LoadingRules, cache: ParseCache | None, progress: Progress = no_progress
) -> tuple[LoadedViews, ...]:
    """Load trees as one view each, as serving would; equal files are parsed once.

    Cached under `directory`.
    """
    require_libyaml()
    acceptance = replace(rules.acceptance, locate_up_to_bytes=None)
    trees = tuple(trees)
    files = {(file.path, file.digest): file for tree in trees for file in tree.files}
    results = parse_now(tuple(files.values()), rules.parsing, rules.limits, cache, progress)
    parsed = dict(zip(files, results, strict=True))

    def parse(files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        return tuple(parsed[file.path, file.digest] for file in files)

    loaded = (with_ignored(load(tree, None, parse, acceptance), tree.ignored, acceptance.check) for tree in trees)
    return tuple(with_served(whole_tree(one), rules.resolution, None) for one in loaded)


def cache_of(
    directory: Path, settings: Settings, rules: ParseRules, observer: Observer = lambda _: None
) -> ParseCache | None:
    """Return a tree's parse cache; None without a directory."""
    if settings.cache_dir is None:
        return None
    return ParseCache(settings.cache_dir, directory, rules, observer)


def with_ignored(loaded: Loaded, paths: tuple[PurePosixPath, ...], check: Check) -> Loaded:
    """Add a note about ignored files."""
    note = ignored_note(paths, check)
    return loaded if note is None else replace(loaded, problems=tuple(sorted((*loaded.problems, note))))


def ignored_note(paths: tuple[PurePosixPath, ...], check: Check) -> Problem | None:
    """Return one note about ignored files; None if off or none."""
    if not paths:
        return None
    first, *others = paths
    named = ", ".join(str(path) for path in others[:MOST_IGNORED])
    more = f", … {len(others) - MOST_IGNORED} more" if len(others) > MOST_IGNORED else ""
    fact = "ignored: no format has this suffix" + (f"; nor {named}{more}" if others else "")
    remedy = "rename files with resources to .yaml, .json, .textproto or .pb"
    return check.adjusted(Problem(first, 1, 1, "", "ignored-file", fact, remedy, Severity.NOTE))


@dataclass(frozen=True, slots=True)
class WatchRules:
    """The settings that restart the watcher."""

    options: WatchOptions
    exclude: tuple[str, ...]
    bounds: TreeBounds

    @classmethod
    def of(cls, settings: Settings) -> WatchRules:
        """Extract the rules."""
        options = WatchOptions(
            mode=cast("WatchMode", settings.watch),  # its form allows only these words
            settle_s=settings.settle_s,
            settle_cap_s=settings.settle_cap_s,
            writer_patience_s=settings.writer_patience_s,
            rescan_s=settings.rescan_s,
            poll_s=settings.poll_s,
        )
        return cls(options, settings.exclude, bounds_of(settings))
