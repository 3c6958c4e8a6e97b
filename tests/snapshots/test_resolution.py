"""What is served of a view: redirects are followed, and what leads nowhere takes nothing away."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.lint.linter import Linter
from fsxds.model.resource_names import ResourceName
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.resources import Resource
from fsxds.model.values import Severity, SourceFile
from fsxds.settings.naming_rules import CollectionRule
from fsxds.settings.upstream_rules import Authority
from fsxds.snapshots.load import Acceptance, Loaded, load
from fsxds.snapshots.loaded_views import Inputs, ResolutionRules
from fsxds.snapshots.parse import FileParser
from fsxds.snapshots.resolution import Resolved, apply
from tests.support.trees import tree_of

CDS = "envoy.config.cluster.v3.Cluster"
WEB = "- {name: web, type: STATIC, connect_timeout: 1s}\n"


def cluster(name: str, seconds: int = 1) -> str:
    """Write a cluster."""
    return f"- {{name: {name}, type: STATIC, connect_timeout: {seconds}s}}\n"


def redirect(name: str, to: str) -> str:
    """Write a redirect."""
    return f'- {{name: {name}, resource_name: {{name: "{to}"}}}}\n'


class Served:
    """A tree, and what is served of it, step by step."""

    def __init__(self, parser: FileParser, catalogue: Catalogue, **rules: Any) -> None:
        self.files: dict[str, str] = {}
        self.loaded: Loaded | None = None
        self.resolved: Resolved | None = None
        self.rules = ResolutionRules(catalogue=catalogue, check=Linter(), root="/tree", **rules)
        self._parser = parser
        self._catalogue = catalogue

    def step(self, edits: Mapping[str, str | None]) -> dict[str, str]:
        """Change files (None deletes one), and return what is then served of clusters: how long each waits, by name."""
        changed = {**self.files, **edits}
        self.files = {path: text for path, text in changed.items() if text is not None}
        self.loaded = load(tree_of(self.files), self.loaded, self._parse, Acceptance(check=Linter()))
        self.resolved = apply(self.loaded.snapshot, Inputs(self.rules), self.resolved)
        self.agrees_with_anew()
        return self.waits()

    def waits(self) -> dict[str, str]:
        """Return how long each cluster waits, as the digits of its timeout."""
        found = {name: self.message("cds", name) for name, row in self.rows("cds").items() if row.body}
        assert all(message.name == name for name, message in found.items())
        return {name: str(message.connect_timeout.seconds) for name, message in found.items()}

    def rows(self, short_name: str) -> Mapping[str, Resource]:
        """Return what is served of a type."""
        assert self.resolved is not None
        return self.resolved.snapshot.resources(BY_SHORT_NAME[short_name].type_url)

    def loaded_rows(self, short_name: str) -> Mapping[str, Resource]:
        """Return what was loaded of a type."""
        assert self.loaded is not None
        return self.loaded.snapshot.resources(BY_SHORT_NAME[short_name].type_url)

    def message(self, short_name: str, name: str) -> Any:
        """Return the message of a resource."""
        row = BY_SHORT_NAME[short_name]
        return self._catalogue.message_class(row.message_type).FromString(self.rows(short_name)[name].body)

    def told(self) -> list[str]:
        """Return what is wrong, but for notes, as it is printed."""
        assert self.resolved is not None
        return [str(problem) for problem in self.resolved.problems if problem.severity is not Severity.NOTE]

    def agrees_with_anew(self) -> None:
        """Check that following the change gave what working everything out gives, but for what is kept."""
        assert self.resolved is not None
        assert self.loaded is not None
        anew = apply(self.loaded.snapshot, Inputs(self.rules), None)
        assert anew.problems == self.resolved.problems
        assert dict(anew.snapshot.unresolved) == dict(self.resolved.snapshot.unresolved)
        for type_url, rows in self.resolved.snapshot.by_type.items():
            kept = rows.keys() - anew.snapshot.by_type[type_url].keys()
            assert {(type_url, name) for name in kept} <= self.resolved.snapshot.unresolved.keys()
            if not kept:
                assert rows.version == anew.snapshot.by_type[type_url].version

    def _parse(self, files: tuple[SourceFile, ...]) -> list[Any]:
        return [self._parser.parse(file) for file in files]


@pytest.fixture
def tree(parser: FileParser, catalogue: Catalogue) -> Served:
    """A tree without files."""
    return Served(parser, catalogue, authorities={"far.example": Authority("https://far.example")})


def test_a_tree_without_redirects_is_served_as_it_is(tree: Served) -> None:
    """The snapshot is the raw one, and nothing is worked out."""
    tree.step({"cds.yaml": WEB})

    assert tree.resolved is not None
    assert tree.loaded is not None
    assert tree.resolved.snapshot is tree.loaded.snapshot


def test_a_redirect_has_the_content_of_its_target_under_its_own_name(tree: Served) -> None:
    """What the target holds is served under the asked name (xRFC TP1, "Redirects"), over up to ten steps."""
    edits = {"a/cds.yaml": cluster("web", 3), "b/cds.yaml": redirect("one", "two") + redirect("two", "web")}

    assert tree.step(edits) == {"one": "3", "two": "3", "web": "3"}
    assert tree.told() == []
    assert tree.rows("cds")["one"].redirect == f"xdstp:///{CDS}/two"
    assert str(tree.rows("cds")["one"].origin) == "b/cds.yaml:1"


def test_versions_follow_the_target_and_the_redirect(tree: Served) -> None:
    """Another content of the target is another version of the redirect, and so is another target."""
    tree.step({"a/cds.yaml": cluster("web", 3) + cluster("api", 4), "b/cds.yaml": redirect("one", "web")})
    versions = [tree.rows("cds")["one"].version]
    for edit in (
        {"a/cds.yaml": cluster("web", 5) + cluster("api", 4)},
        {"b/cds.yaml": redirect("one", "api")},
        {"b/cds.yaml": cluster("one", 6)},
    ):
        tree.step(edit)
        versions.append(tree.rows("cds")["one"].version)

    assert len(set(versions)) == 4
    assert tree.waits() == {"one": "6", "web": "5", "api": "4"}


def test_an_edit_changes_nothing_but_what_leads_to_it(tree: Served) -> None:
    """What a redirect is made of is shared with the snapshot before, as long as nothing changes on the way."""
    tree.step({"a/cds.yaml": WEB, "b/cds.yaml": redirect("one", "web"), "c/cds.yaml": cluster("other")})
    before = tree.rows("cds")["one"]
    tree.step({"c/cds.yaml": cluster("other", 2)})

    assert tree.rows("cds")["one"] is before
    assert tree.resolved is not None
    change = tree.resolved.snapshot.changes[BY_SHORT_NAME["cds"].type_url]
    assert (change.added, change.changed, change.removed) == ((), ("other",), ())


def test_the_version_of_the_same_content_is_the_same_however_it_came_about(tree: Served) -> None:
    """A cluster that is written out under the name of the redirect has the same version as the redirect."""
    tree.step({"cds.yaml": WEB + redirect("one", "web")})
    before = tree.rows("cds")["one"].version
    tree.step({"cds.yaml": WEB + cluster("one")})

    assert tree.rows("cds")["one"].version == before


@pytest.mark.parametrize(
    ("edit", "fact"),
    [
        (
            {"b/cds.yaml": redirect("one", "gone")},
            "leads to xdstp:///envoy.config.cluster.v3.Cluster/gone, which is the name of no",
        ),
        ({"b/cds.yaml": redirect("one", "one")}, 'back to "one" at b/cds.yaml:1'),
        (
            {"a/cds.yaml": None},
            "leads to xdstp:///envoy.config.cluster.v3.Cluster/web, which is the name of no resource",
        ),
        ({"a/cds.yaml": redirect("web", "one")}, 'by way of "web" at a/cds.yaml:1 back to "one" at b/cds.yaml:1'),
        ({"a/cds.yaml": redirect("web", "no")}, 'by way of "web" at a/cds.yaml:1 to xdstp:///envoy.config.cluster'),
        ({"b/cds.yaml": redirect("one", f"xdstp://far.example/{CDS}/a")}, "of the authority far.example"),
        (
            {"b/cds.yaml": redirect("one", f"xdstp://other.example/{CDS}/a")},
            "give its URL in the setting `authorities`",
        ),
        ({"b/cds.yaml": redirect("one", "file:///etc/passwd")}, "outside of the tree; write the path of a file"),
        ({"b/cds.yaml": redirect("one", "file:///tree/b/cds.yaml#entry=web")}, "which has no entry web"),
    ],
)
def test_what_leads_nowhere_takes_nothing_away(tree: Served, edit: Mapping[str, str | None], fact: str) -> None:
    """The name goes on to stand for what it stood for last; the problem has both places; the next good edit counts."""
    tree.step({"a/cds.yaml": cluster("web", 3), "b/cds.yaml": redirect("one", "web")})
    waits = tree.step(edit)

    assert waits["one"] == "3"
    assert any(fact in line and line.startswith("b/cds.yaml:1:1: ") for line in tree.told()), tree.told()
    assert tree.resolved is not None
    assert (BY_SHORT_NAME["cds"].type_url, "one") in tree.resolved.snapshot.unresolved
    assert tree.step({"c/cds.yaml": cluster("c")})["one"] == "3"
    assert tree.step({"a/cds.yaml": cluster("web", 4), "b/cds.yaml": redirect("one", "web")})["one"] == "4"
    assert tree.told() == []
    assert not tree.resolved.snapshot.unresolved


def test_a_cluster_that_becomes_a_dangling_redirect_stays(tree: Served) -> None:
    """What the name stood for last was no redirect; it stays all the same."""
    tree.step({"cds.yaml": cluster("web", 3)})

    assert tree.step({"cds.yaml": redirect("web", "gone")}) == {"web": "3"}
    assert tree.step({"cds.yaml": None}) == {}


def test_a_dangling_redirect_names_only_what_it_leads_to_now(tree: Served) -> None:
    """What its content is a copy of is not in use any more, and may go."""
    tree.step({"cds.yaml": WEB + redirect("one", "web")})
    assert {"web"} == {each.name for each in tree.rows("cds")["one"].references} & {"web", "gone"}
    tree.step({"cds.yaml": redirect("one", "gone")})

    assert {"gone"} == {each.name for each in tree.rows("cds")["one"].references} & {"web", "gone"}


def test_a_dangling_redirect_at_a_start_is_unresolved(tree: Served) -> None:
    """Nothing is known of what the name stood for; all else is served, and the type is complete."""
    tree.step({"cds.yaml": WEB + redirect("one", "gone")})

    assert tree.resolved is not None
    assert list(tree.resolved.snapshot.unresolved) == [(BY_SHORT_NAME["cds"].type_url, "one")]
    assert tree.resolved.snapshot.incomplete == frozenset()
    assert [(str(file.path), file.has_last_good) for file in tree.resolved.held] == [("cds.yaml", False)]
    tree.step({"cds.yaml": WEB + redirect("one", "web")})
    assert tree.resolved.held == ()


def test_ten_redirects_are_followed_and_no_more(tree: Served) -> None:
    """A chain of ten leads to its end; of eleven, the first one leads nowhere."""
    chain = "".join(redirect(f"r{number:02}", f"r{number + 1:02}") for number in range(10))
    tree.step({"cds.yaml": chain + cluster("r10", 7)})
    assert tree.waits() == dict.fromkeys([f"r{number:02}" for number in range(11)], "7")

    tree.step({"cds.yaml": chain.replace("r10", "last") + redirect("last", "end") + cluster("end", 8)})
    assert tree.waits() == {
        **dict.fromkeys([f"r{number:02}" for number in range(1, 10)], "8"),
        "last": "8",
        "end": "8",
        "r00": "7",
    }
    (fact,) = tree.told()
    assert "leads over more than 10 redirects, the last one at cds.yaml:10" in fact


def test_alternatives_are_used_in_order_and_said_so(tree: Served) -> None:
    """An alternative is used where nothing is at the end of what comes before it, and no longer (xRFC TP1)."""
    to = f"xdstp:///{CDS}/new#alt=xdstp:///{CDS}/loop,alt=xdstp:///{CDS}/web"
    edits = {"a/cds.yaml": cluster("web", 3) + redirect("loop", "loop"), "b/cds.yaml": redirect("one", to)}

    assert tree.step(edits)["one"] == "3"
    assert tree.resolved is not None
    (note,) = [str(one) for one in tree.resolved.problems if one.severity is Severity.NOTE]
    assert note.startswith(
        f'b/cds.yaml:1:1: note: the redirect of Cluster "one" uses the alternative xdstp:///{CDS}/web: '
        f"otherwise it leads to xdstp:///{CDS}/new, which is the name of no resource"
    )
    assert tree.step({"c/cds.yaml": cluster("new", 9)})["one"] == "9"
    assert not [one for one in tree.resolved.problems if one.severity is Severity.NOTE]


def test_a_flood_of_alternatives_ends(tree: Served) -> None:
    """Redirects with many alternatives that lead to each other are given up after a hundred locators."""
    names = [f"r{number}" for number in range(10)]
    texts = [
        redirect(name, "#".join((f"xdstp:///{CDS}/x", ",".join(f"alt=xdstp:///{CDS}/{other}" for other in names))))
        for name in names
    ]
    tree.step({"cds.yaml": "".join(texts)})

    assert len(tree.told()) == len(names)


def test_endpoints_stay_those_of_the_target(tree: Served) -> None:
    """Envoy asks for endpoints by the cluster's own name by default: under another name they are asked for by the target's."""
    text = "- {name: web, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds_config: {ads: {}}}}\n"
    tree.step({"cds.yaml": text + redirect("one", "web")})

    assert tree.message("cds", "one").eds_cluster_config.service_name == "web"
    endpoints = BY_SHORT_NAME["eds"].type_url
    assert "web" in [one.name for one in tree.rows("cds")["one"].references if one.type_url == endpoints]


def test_a_redirect_refers_to_what_it_leads_to(tree: Served) -> None:
    """So the target goes after those who use the redirect have moved on."""
    tree.step({"cds.yaml": WEB + redirect("one", "web")})

    clusters = BY_SHORT_NAME["cds"].type_url
    assert "web" in [one.name for one in tree.rows("cds")["one"].references if one.type_url == clusters]


ECHO = '{"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}'


def listener(name: str, port: int) -> str:
    """Write a listener."""
    address = f"{{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}"
    return f"- {{name: {name}, address: {address}, filter_chains: [{{filters: [{{name: echo, typed_config: {ECHO}}}]}}]}}\n"


def test_no_two_listeners_get_one_address(tree: Served) -> None:
    """Envoy would refuse both; what the name stood for last is served, as long as nothing else has its address."""
    tree.step({"a/lds.yaml": listener("web", 80), "b/lds.yaml": listener("one", 81)})
    tree.step({"b/lds.yaml": redirect("one", "web")})
    assert tree.message("lds", "one").address.socket_address.port_value == 81
    assert [line for line in tree.told() if "redirect-conflict" in line or 'share with "web" at a/lds.yaml:1' in line]

    tree.step({"c/lds.yaml": listener("other", 81)})
    assert set(tree.rows("lds")) == {"web", "other"}


def test_members_of_different_collections_may_have_one_address(tree: Served) -> None:
    """Clients ask for one collection; that those of all listeners would get both is a warning."""
    name = "xdstp:///envoy.config.listener.v3.Listener/edge/web"
    tree.step(
        {"lds.yaml": listener(name.replace("edge/web", "web"), 80) + redirect(name, name.replace("edge/web", "web"))}
    )

    assert tree.message("lds", name).address.socket_address.port_value == 80
    (fact,) = tree.told()
    assert "warning: the redirect of Listener" in fact


def test_clients_that_follow_by_themselves_may_go_elsewhere(parser: FileParser, catalogue: Catalogue) -> None:
    """With `redirects: client` it is no more than a note that another authority has the target."""
    tree = Served(parser, catalogue, passes_redirects=True)
    tree.step({"cds.yaml": WEB + redirect("far", f"xdstp://far/{CDS}/a") + redirect("gone", "nothing")})

    (fact,) = tree.told()
    assert "which is the name of no resource" in fact
    assert tree.resolved is not None
    assert {name for _, name in tree.resolved.snapshot.unresolved} == {"far", "gone"}


@pytest.mark.parametrize(
    "locator",
    [
        "file:///tree/dir/web.clusters.yaml",
        "file://localhost/tree/dir/web.clusters.yaml",
        "file:///tree/dir/both.clusters.yaml#entry=b",
        "file:///tree/none.yaml#alt=file:///tree/dir/web.clusters.yaml",
    ],
)
def test_files_of_the_tree_are_found(tree: Served, locator: str) -> None:
    """A locator may lead to a file with one resource, or by `#entry=` to one of several (xRFC TP1, "Filesystem transport")."""
    tree.step(
        {
            "dir/web.clusters.yaml": cluster("web", 3),
            "dir/both.clusters.yaml": cluster("a", 2) + cluster("b", 3),
            "cds.yaml": redirect("one", locator),
        }
    )

    assert tree.waits()["one"] == "3"
    assert (
        tree.step({"dir/web.clusters.yaml": cluster("web", 5), "dir/both.clusters.yaml": cluster("b", 5)})["one"] == "5"
    )


@pytest.mark.parametrize(
    ("locator", "fact"),
    [
        ("file:///tree/cds.yaml", "which holds 2 of this type"),
        ("file:///tree/nothing.yaml", "which has no loaded resource of this type"),
        ("file:///tree2/cds.yaml", "which is outside of the tree"),
        ("file:///etc/shadow", "which is outside of the tree"),
        ("file:///", "which is outside of the tree"),
    ],
)
def test_other_files_are_not_found(tree: Served, locator: str, fact: str) -> None:
    """Nothing is read for a locator: what was not loaded of the tree is not there."""
    tree.step({"cds.yaml": WEB + redirect("one", locator)})

    assert any(fact in line for line in tree.told()), tree.told()


def eds_cluster(service_name: str) -> str:
    """Write a cluster whose endpoints come by this name."""
    eds = f'{{service_name: "{service_name}", eds_config: {{ads: {{}}}}}}'
    return f"- {{name: web, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds}}}\n"


EDS = "xdstp:///envoy.config.endpoint.v3.ClusterLoadAssignment"


def test_references_with_directives_become_the_name_that_is_there(tree: Served) -> None:
    """What is sent has no directive; the alternative is used while the first is absent, and a note says so."""
    text = eds_cluster(f"{EDS}/foo#alt={EDS}/bar")

    def name() -> str:
        return str(tree.message("cds", "web").eds_cluster_config.service_name)

    tree.step({"cds.yaml": text + redirect("one", "web")})
    assert (name(), tree.message("cds", "one").eds_cluster_config.service_name) == (f"{EDS}/foo", f"{EDS}/foo")
    tree.step({"a/eds.yaml": f"- cluster_name: {EDS}/bar\n"})
    assert (name(), tree.message("cds", "one").eds_cluster_config.service_name) == (f"{EDS}/bar", f"{EDS}/bar")
    assert f"{EDS}/bar" in [one.name for one in tree.rows("cds")["web"].references]
    assert tree.resolved is not None
    notes = [str(one) for one in tree.resolved.problems]
    (note,) = [note for note in notes if 'Cluster "web"' in note]
    assert f'cds.yaml:1:1: note: Cluster "web" uses the alternative {EDS}/bar, because {EDS}/foo is not there' in note
    tree.step({"b/eds.yaml": redirect(f"{EDS}/foo", f"{EDS}/bar")})
    assert (name(), tree.resolved.problems) == (f"{EDS}/foo", ())
    tree.step({"b/eds.yaml": redirect(f"{EDS}/foo", f"{EDS}/foo")})
    assert name() == f"{EDS}/bar"
    tree.step({"cds.yaml": eds_cluster(f"{EDS}/foo")})
    assert tree.rows("cds")["web"] is tree.loaded_rows("cds")["web"]


def test_rules_that_change_are_followed(tree: Served) -> None:
    """What was served by other rules is what a name stood for last."""
    tree.step({"cds.yaml": redirect("one", "file:///tree/b/cds.yaml#entry=b"), "b/cds.yaml": cluster("b", 3)})
    tree.rules = ResolutionRules(catalogue=tree.rules.catalogue, check=Linter(), root="/elsewhere")

    assert tree.step({"c/cds.yaml": cluster("c")})["one"] == "3"
    assert "outside of the tree" in tree.told()[0]


@pytest.mark.parametrize("unasked", [frozenset({"far.example"}), None])
def test_what_an_upstream_may_have_is_not_missing(
    parser: FileParser, catalogue: Catalogue, unasked: frozenset[str] | None
) -> None:
    """A command asks no upstream: nothing is said of redirects to its names, and an alternative is taken without a note."""
    tree = Served(parser, catalogue, unasked=unasked)
    far, near = f"xdstp://far.example/{CDS}/web", f"xdstp:///{CDS}/web"

    assert tree.step({"cds.yaml": redirect("one", far)}) == {}
    assert tree.resolved is not None
    assert tree.resolved.problems == ()
    assert [name for _, name in tree.resolved.snapshot.unresolved] == ["one"]
    assert tree.step({"cds.yaml": redirect("one", f"{far}#alt={near}") + WEB})["one"] == tree.waits()["web"]
    assert tree.resolved.problems == ()
    tree.step({"cds.yaml": redirect("one", "file:///tree/gone.yaml")})
    assert ["outside of the tree" in told or "no loaded resource of this type" in told for told in tree.told()] == [
        True
    ]


def test_an_upstream_has_the_names_of_its_authority_alone(parser: FileParser, catalogue: Catalogue) -> None:
    """A redirect to another authority, or to the tree's own, leads nowhere still."""
    tree = Served(parser, catalogue, unasked=frozenset({"far.example"}))
    tree.step({"cds.yaml": redirect("one", f"xdstp://other.example/{CDS}/web") + redirect("two", "gone")})

    assert len(tree.told()) == 2


NAMES = (*"abcd", f"xdstp:///{CDS}/d/x", f"xdstp:///{CDS}/d/y")


def locator(name: str) -> str:
    """Return the locator of a name."""
    return name if name.startswith("xdstp") else f"xdstp:///{CDS}/{name}"


def some(rng: random.Random, name: str) -> str:
    """Write a cluster or a redirect of this name."""
    first, second = rng.sample(NAMES, 2)
    return rng.choice(
        [
            cluster(name, rng.randint(1, 9)),
            redirect(name, first),
            redirect(name, f"{locator(first)}#alt={locator(second)}"),
            redirect(name, f"file:///tree/{rng.choice('fg')}/cds.yaml#entry=a"),
        ]
    )


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_edited_what_is_defined_stays_served(tree: Served, seed: int) -> None:
    """Following changes gives what a look at everything gives; what was served is served as long as a file defines it."""
    rng, owners, before = random.Random(seed), dict[str, str](), set[str]()
    for _ in range(10):
        file = rng.choice("fg")
        owners = {name: owner for name, owner in owners.items() if owner != file}
        owners |= {name: file for name in NAMES if name not in owners and rng.random() < 0.6}
        text = "".join(some(rng, name) for name, owner in owners.items() if owner == file)
        now = set(tree.step({f"{file}/cds.yaml": text or "[]"}))

        assert before & owners.keys() <= now <= owners.keys()
        before = now


LDS = "envoy.config.listener.v3.Listener"
EDGE = f"xdstp://example.com/{LDS}Collection/edge"


@pytest.mark.parametrize(
    ("is_inline", "fact"), [(True, "has this name"), (False, "has locators, and no inline entries")]
)
def test_entries_of_collections_made_of_folders(
    parser: FileParser, catalogue: Catalogue, *, is_inline: bool, fact: str
) -> None:
    """`#entry=` leads to a listener in the folder and below, whose edits are followed; one of locators has no such entries."""
    rule = CollectionRule(ResourceName("", f"{LDS}Collection", "edge"), "edge", is_inline)
    tree = Served(parser, catalogue, authority="example.com", collections=(rule,))
    name, inner = f"xdstp://example.com/{LDS}/a/old", f"xdstp://example.com/{LDS}/in/web"
    address = "{socket_address: {address: 127.0.0.1, port_value: PORT}}"
    written = f'- {{name: "{inner}", address: {address}, filter_chains: [{{}}]}}\n'
    tree.step({"r.lds.yaml": redirect(name, f"{EDGE}#entry=in/web"), "x/lds.yaml": written.replace("PORT", "1")})
    assert name not in tree.rows("lds")
    assert [fact in told for told in tree.told()] == [True]

    for port in (2, 3):
        tree.step({"x/lds.yaml": None, "edge/deep/er/lds.yaml": written.replace("PORT", str(port))})
        if is_inline:
            assert tree.message("lds", name).address.socket_address.port_value == port
            assert ["an address or a domain" in told for told in tree.told()] == [True]
        else:
            assert name not in tree.rows("lds")
    tree.step({"edge/deep/er/lds.yaml": None})
    assert [fact in told for told in tree.told()] == [True]
