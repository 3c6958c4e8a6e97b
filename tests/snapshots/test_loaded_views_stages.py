"""Stages between files and what is served: one that is not needed is not applied, and its coming and going is a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter, linter_of
from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Rows, Snapshot
from fsxds.model.values import WHOLE_TREE, Severity, SourceFile
from fsxds.settings.naming_rules import CollectionRule
from fsxds.settings.options import Settings
from fsxds.snapshots.load import Acceptance, load
from fsxds.snapshots.loaded_views import LoadedViews, ResolutionRules, whole_tree, with_served
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.proposals import Check
from fsxds.snapshots.upstream_content import UpstreamContent, origin_of
from tests.support.snapshots import resource
from tests.support.trees import tree_of

CDS, LCDS = BY_SHORT_NAME["cds"].type_url, BY_SHORT_NAME["lcds"].type_url
WEB = "- {name: web, type: STATIC, connect_timeout: 1s}\n"
REDIRECT = '- {name: one, resource_name: {name: "web"}}\n'
LISTENER = "- {name: a, address: {socket_address: {address: 127.0.0.1, port_value: 1}}, default_filter_chain: {}}\n"


class View:
    """One view, as it is loaded and served step by step."""

    def __init__(self, parser: FileParser, catalogue: Catalogue) -> None:
        self.check: Check = Linter()
        self._parser = parser
        self._catalogue = catalogue
        self.views: LoadedViews | None = None

    def step(
        self,
        files: Mapping[str, str],
        contents: tuple[UpstreamContent, ...] = (),
        collections: tuple[CollectionRule, ...] = (),
    ) -> Snapshot:
        """Load files, and return what is served."""

        def parse(changed: tuple[SourceFile, ...]) -> list[object]:
            return [self._parser.parse(file) for file in changed]

        catalogue = self._catalogue
        rules = ResolutionRules(catalogue=catalogue, collections=collections, check=self.check)
        before = self.views.by_layers[WHOLE_TREE] if self.views else None
        loaded = load(tree_of(files), before, parse, Acceptance(check=Linter()))  # type: ignore[arg-type]
        self.views = with_served(whole_tree(loaded), rules, self.views, contents)
        return self.views.served[WHOLE_TREE]

    def used(self) -> list[bool]:
        """Return of each stage whether it was applied."""
        assert self.views is not None
        return [one is not None for one in self.views.staged[WHOLE_TREE]]


@pytest.fixture
def view(parser: FileParser, catalogue: Catalogue) -> View:
    """A view that was not loaded yet."""
    return View(parser, catalogue)


def changed(snapshot: Snapshot, type_url: str = CDS) -> tuple[tuple[str, ...], ...]:
    """Return the names that were added, changed and removed by the last change of a type."""
    change = next(each for url, each in snapshot.changes.items() if url == type_url)
    return change.added, change.changed, change.removed


def upstream(*names: str) -> UpstreamContent:
    """Return what an upstream holds: clusters."""
    of_path = {name: resource("cds", name, path=str(origin_of("east").path)) for name in names}
    # A cluster of that name: a string is its first field.
    rows = Rows(CDS, {name: replace(one, body=b"\n%c%b" % (len(name), name.encode())) for name, one in of_path.items()})
    return UpstreamContent("east", {CDS: rows}, frozenset(), frozenset({CDS}), 1)


def test_a_view_that_needs_no_stage_is_served_as_it_was_loaded(view: View) -> None:
    """Nothing is made, so an edit costs nothing more."""
    for files in ({"cds.yaml": WEB}, {"cds.yaml": WEB, "lds.yaml": LISTENER}):
        served = view.step(files)

        assert view.used() == [False, False, False]
        assert view.views is not None
        assert served is view.views.by_layers[WHOLE_TREE].snapshot


def test_the_first_redirect_changes_its_own_name_alone(view: View) -> None:
    """What was served before the stage was needed is no part of the change; nor is what stays when it is gone."""
    view.step({"cds.yaml": WEB})

    assert changed(view.step({"cds.yaml": WEB, "one.cds.yaml": REDIRECT})) == (("one",), (), ())
    assert view.used() == [False, True, False]
    assert changed(view.step({"cds.yaml": WEB})) == ((), (), ("one",))
    assert changed(view.step({"cds.yaml": WEB.replace("1s", "2s")})) == ((), ("web",), ())


def test_the_first_content_of_an_upstream_changes_its_own_names_alone(view: View) -> None:
    """So it is when the upstream has nothing any more."""
    view.step({"cds.yaml": WEB})
    served = view.step({"cds.yaml": WEB}, (upstream("far"),))

    assert changed(served) == (("far",), (), ())
    assert view.used() == [True, False, False]
    assert set(view.step({"cds.yaml": WEB}).resources(CDS)) == {"web"}
    assert set(view.step({"cds.yaml": WEB}).resources(CDS)) == {"web"}
    assert view.used() == [False, False, False]


def test_a_collection_comes_and_goes_with_the_setting(view: View) -> None:
    """The stage is applied once more when the setting is gone, so that its end is a change."""
    name = ResourceName("", BY_SHORT_NAME["lcds"].message_type, "all")
    rule = CollectionRule(name, "edge", is_inline=True)
    files = {"edge/lds.yaml": LISTENER}
    view.step(files)
    served = view.step(files, collections=(rule,))

    assert changed(served, LCDS) == ((str(name),), (), ())
    gone = view.step(files)
    assert (changed(gone, LCDS), view.used()) == (((), (), (str(name),)), [False, False, True])
    assert set(view.step(files).resources(LCDS)) == set()


def test_stages_feed_each_other(view: View) -> None:
    """A redirect leads to what an upstream holds, although neither was there at first."""
    view.step({"cds.yaml": WEB})
    served = view.step({"cds.yaml": WEB, "one.cds.yaml": REDIRECT.replace('"web"', '"far"')}, (upstream("far"),))

    assert set(served.resources(CDS)) == {"web", "far", "one"}
    assert view.used() == [True, True, False]
    assert changed(served) == (("far", "one"), (), ())


def test_a_stage_that_follows_another_changes_what_that_made(view: View) -> None:
    """What an upstream holds was served already when the first redirect comes, and is no part of its change."""
    view.step({"cds.yaml": WEB}, (upstream("far"),))
    served = view.step({"cds.yaml": WEB, "one.cds.yaml": REDIRECT}, (upstream("far"),))

    assert changed(served) == (("one",), (), ())
    assert view.used() == [True, True, False]


@pytest.mark.parametrize(
    ("level", "expected"),
    [(None, [Severity.NOTE, Severity.WARNING]), ("off", []), ("error", [Severity.ERROR, Severity.ERROR])],
)
def test_what_stages_find_is_as_bad_as_the_rules_say(view: View, level: str | None, expected: list[Severity]) -> None:
    """A note of a redirect to an alternative, and a warning of a folder of which no collection can be made."""
    rules = ("redirect-alternative", "empty-collection")
    view.check = linter_of(Settings(rules=dict.fromkeys(rules, level) if level else None))
    cluster = "xdstp:///envoy.config.cluster.v3.Cluster"
    redirect = f'- {{name: one, resource_name: {{name: "{cluster}/gone#alt={cluster}/web"}}}}\n'
    name = ResourceName("", BY_SHORT_NAME["lcds"].message_type, "all")
    view.step({"cds.yaml": WEB, "one.cds.yaml": redirect}, collections=(CollectionRule(name, "edge", is_inline=True),))

    assert view.views is not None
    found = {problem.rule: problem.severity for problem in view.views.problems}
    assert [found[rule] for rule in rules if rule in found] == expected
