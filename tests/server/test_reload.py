from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pytest

from fsxds.events.event import Event, Observer
from fsxds.events.file_events import SnapshotPublished, TreeLoaded
from fsxds.lint.linter import Linter
from fsxds.model.resources import ParsedFile, Snapshot
from fsxds.model.values import Layers, Severity, SourceFile, SourceTree
from fsxds.protocol.messages import Node
from fsxds.protocol.poll import PollMemory, PollRequest, Wait
from fsxds.protocol.subscription import Subscription, version_of
from fsxds.runtime.channels import Latest, SnapshotStore
from fsxds.runtime.views import Views as ViewRules
from fsxds.server.parse_worker import ParseRules
from fsxds.server.parsing import Parsing
from fsxds.server.reload import Loader, Reload
from fsxds.settings.view_rules import ViewRule
from fsxds.snapshots.load import Acceptance, same_content
from fsxds.snapshots.loaded_views import LoadedViews
from fsxds.source.watcher import Settled
from tests.support.faulty_server import until
from tests.support.snapshots import type_url
from tests.support.this_envoy import this_envoy
from tests.support.trees import tree_of

CDS, RDS = type_url("CDS"), type_url("RDS")


@dataclass
class Listener:
    """Writes down what it is reported, with what the store held at that moment."""

    store: SnapshotStore
    events: list[tuple[str, object]] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        """Write down the problems, or the moment and the names of the clusters."""
        match event:
            case TreeLoaded():
                self.events.append(("problems", [problem.rule for problem in event.problems]))
            case SnapshotPublished():
                self.events.append(("published", (event.detected_s, list(event.snapshot.resources(CDS)))))
                self.snapshots.append(event.snapshot)


@dataclass
class AtOnce:
    """Publishes what is loaded at once, where it differs."""

    store: SnapshotStore
    observer: Observer

    def receive(self, targets: Mapping[Layers, Snapshot], detected_s: float) -> None:
        """Publish."""
        snapshot = targets[()]
        if self.store.current is None or not same_content(snapshot, self.store.current):
            self.observer(SnapshotPublished(snapshot, detected_s))
            self.store.publish(snapshot)


@pytest.fixture(scope="module")
def rules() -> ParseRules:
    """What Envoy knows."""
    return ParseRules(this_envoy())


@pytest.fixture
def parsing(rules: ParseRules) -> Iterator[Parsing]:
    """Real parsing, in this process for such small files."""
    with Parsing(rules) as parsing:
        yield parsing


async def run(parsing: Parsing, *contents: dict[str, str], acceptance: Acceptance | None = None) -> Listener:
    """Keep a store current with these trees, detected at 1.0, 2.0, and so on."""
    store = SnapshotStore()
    listener = Listener(store)
    reload, loader = Reload(AtOnce(store, listener), listener), Loader(parsing, acceptance or Acceptance())
    for number, files in enumerate(contents, 1):
        await reload.receive(Settled(tree_of(files), float(number)), loader)
    return listener


async def test_every_changed_tree_is_published(parsing: Parsing) -> None:
    """The first tree, and each one that changes what is served, becomes current, with the time it was detected."""
    listener = await run(parsing, {"cds.yaml": "- name: a\n"}, {"cds.yaml": "- name: a\n- name: b\n"})

    expected = [
        ("problems", []),
        ("published", (1.0, ["a"])),
        ("problems", []),
        ("published", (2.0, ["a", "b"])),
    ]
    assert expected == listener.events
    assert listener.store.current is not None
    assert listener.store.current.generation == 2


async def test_tree_that_serves_the_same_is_not_published(parsing: Parsing) -> None:
    """A comment, or a resource that moved to another file, changes nothing for anybody."""
    listener = await run(
        parsing,
        {"cds.yaml": "- name: a\n"},
        {"cds.yaml": "# a comment\n- name: a\n"},
        {"clusters.yaml": "- name: a\n"},
    )

    assert [event for event, _ in listener.events] == ["problems", "published", "problems", "problems"]
    assert listener.store.current is not None
    assert listener.store.current.generation == 1


async def test_text_is_packed_when_it_is_served(parsing: Parsing) -> None:
    """What is in the tree for the next load to compare with takes little memory, and has its content all the same."""
    text = "".join(f"- name: a{number:05d}\n" for number in range(2000))
    tree = tree_of({"cds.yaml": text, "eds.yaml": ""})
    store = SnapshotStore()
    await Reload(AtOnce(store, Listener(store)), Listener(store)).receive(
        Settled(tree, 1.0), Loader(parsing, Acceptance())
    )

    assert store.current is not None
    assert len(store.current.by_type[CDS]) == 2000
    assert [file.content for file in tree.files] == [text.encode(), b""]
    assert [file._content is None for file in tree.files] == [True, False]


async def test_other_rules_judge_every_file_anew(parsing: Parsing, rules: ParseRules) -> None:
    """What is the same by them is not published again, what they allow is, and what they forbid stays as it was."""
    tree = Settled(tree_of({"cds.yaml": "- name: a\n", "more.cds.yaml": "- {name: b, no_such_field: 1}\n"}), 1.0)
    store = SnapshotStore()
    listener = Listener(store)
    reload = Reload(AtOnce(store, listener), listener)
    await reload.receive(tree, Loader(parsing, Acceptance()))
    with Parsing(replace(rules, unknown_fields=Severity.WARNING)) as lenient:
        for other, acceptance in (
            (parsing, Acceptance()),
            (lenient, Acceptance()),
            (parsing, Acceptance(whole_trees=True)),
        ):
            reload.change_rules()
            await reload.receive(tree, Loader(other, acceptance))

    assert listener.events == [
        *[("problems", ["unknown-field"]), ("published", (1.0, ["a"]))],
        ("problems", ["unknown-field"]),
        *[("problems", ["unknown-field"]), ("published", (1.0, ["a", "b"]))],
        ("problems", ["unknown-field"]),
    ]


@pytest.mark.parametrize("around", ["ttl: 5s", "aliases: [b]", "ttl: 60s, aliases: [a]"])
async def test_what_is_around_a_resource_is_published(parsing: Parsing, around: str) -> None:
    """Another time to live, or other aliases, are an update for streams; to who asks for contents alone nothing changed."""
    first = "- {ttl: 60s, resource: {name: a}}\n"
    second = f"- {{{around}, resource: {{name: a}}}}\n"
    listener = await run(parsing, {"cds.yaml": first}, {"cds.yaml": second})

    assert [event for event, _ in listener.events] == ["problems", "published"] * 2
    before, after = [published.resources(CDS)["a"] for published in listener.snapshots]
    assert before.version == after.version
    assert not before.equals_for_clients(after)


async def test_polls_are_not_woken_by_a_time_to_live(parsing: Parsing) -> None:
    """A poll that holds the content is held on when only its time to live changes."""
    files = ({"cds.yaml": f"- {{ttl: {ttl}s, resource: {{name: a}}}}\n"} for ttl in (60, 5))
    before, after = (await run(parsing, *files)).snapshots
    request = PollRequest(Node("n"), Subscription(CDS), version_of(before, Subscription(CDS)))

    assert isinstance(PollMemory().receive_request(request, after, 0.0)[0], Wait)


async def test_broken_file_keeps_what_it_held(parsing: Parsing) -> None:
    """A file that breaks is reported, and what it held is served on; what is fixed later is published."""
    listener = await run(parsing, {"cds.yaml": "- name: a\n"}, {"cds.yaml": "- name: ["}, {"cds.yaml": "- name: b\n"})

    expected = [
        ("problems", []),
        ("published", (1.0, ["a"])),
        ("problems", ["bad-syntax"]),
        ("problems", []),
        ("published", (3.0, ["b"])),
    ]
    assert expected == listener.events


async def test_first_tree_is_published_though_nothing_in_it_is_good(parsing: Parsing) -> None:
    """A snapshot that withholds everything is one too: who waits for a first answer learns that there is none."""
    listener = await run(parsing, {"cds.yaml": "["})

    assert [("problems", ["bad-syntax"]), ("published", (1.0, []))] == listener.events
    assert listener.store.current is not None
    assert type_url("CDS") in listener.store.current.withheld


async def test_acceptance_is_that_of_the_options(parsing: Parsing) -> None:
    """A tree that is accepted whole waits for its worst file."""
    listener = await run(
        parsing,
        {"cds.yaml": "- name: a\n", "rds.yaml": "- name: r\n"},
        {"cds.yaml": "- name: b\n", "rds.yaml": "["},
        acceptance=Acceptance(whole_trees=True),
    )

    assert [("published", (1.0, ["a"]))] == [row for row in listener.events if row[0] == "published"]


async def test_type_that_became_incomplete_is_published(parsing: Parsing) -> None:
    """A broken new file changes no resource, but what may be reported as missing."""
    listener = await run(parsing, {"cds.yaml": "- name: a\n"}, {"cds.yaml": "- name: a\n", "more.clusters.yaml": "["})

    assert ("published", (2.0, ["a"])) in listener.events


async def test_waiters_are_woken(parsing: Parsing) -> None:
    """Whoever waits for a snapshot gets it, and the listener received the events before."""
    store = SnapshotStore()
    listener = Listener(store)
    async with asyncio.TaskGroup() as tasks:
        waiter = tasks.create_task(store.newer_than(0))
        trees: Latest[Settled | None] = Latest(None)
        loader = Loader(parsing, Acceptance())
        keeper = tasks.create_task(Reload(AtOnce(store, listener), listener).keep_current(trees, loader))
        trees.replace(Settled(tree_of({"cds.yaml": "- name: a\n"}), 1.0))
        snapshot = await waiter
        keeper.cancel()

    assert list(snapshot.resources(type_url("CDS"))) == ["a"]
    assert ("published", (1.0, ["a"])) in listener.events


async def test_only_changed_files_are_parsed(parsing: Parsing) -> None:
    """A file that did not change keeps its row: the very same resource is served."""
    before, after = (
        await run(
            parsing,
            {"cds.yaml": "- name: a\n", "rds.yaml": "- name: r\n"},
            {"cds.yaml": "- name: a\n", "lds.yaml": "- name: m\n"},
        )
    ).snapshots

    assert before.by_type[type_url("CDS")] is after.by_type[type_url("CDS")]


async def test_a_tree_that_comes_while_another_is_loaded_is_not_missed(parsing: Parsing) -> None:
    """Of many, the newest is loaded."""
    store, trees = SnapshotStore(), Latest[Settled | None](None)
    listener = Listener(store)
    for name in ("a", "b", "c"):
        trees.replace(Settled(tree_of({"cds.yaml": f"- name: {name}\n"}), 1.0))
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(
            Reload(AtOnce(store, listener), listener).keep_current(trees, Loader(parsing, Acceptance()))
        )
        await store.newer_than(0)
        keeper.cancel()

    assert [("published", (1.0, ["c"]))] == [row for row in listener.events if row[0] == "published"]


class CountingLoader(Loader):
    """Checks references, and notes each tree that was loaded."""

    def __init__(self, parsing: Parsing, rules: ViewRules | None = None) -> None:
        super().__init__(parsing, Acceptance(check=Linter()), rules)
        self.loaded = asyncio.Queue[None]()

    async def load(self, tree: SourceTree, before: LoadedViews | None, wanted: Collection[Layers]) -> LoadedViews:
        """Load it, and note that."""
        result = await super().load(tree, before, wanted)
        self.loaded.put_nowait(None)
        return result


CLUSTERS = "[{name: NAME, type: STATIC, connect_timeout: 1s}]"
ROUTES = """
- name: front
  virtual_hosts: [{name: all, domains: ["*"], routes: [{match: {prefix: /}, route: {cluster: NAME}}]}]
"""


def moved(cluster: str, route: str) -> SourceTree:
    """Return a tree with a cluster, and with a route to one of this or another name."""
    return tree_of({"cds.yaml": CLUSTERS.replace("NAME", cluster), "rds.yaml": ROUTES.replace("NAME", route)})


async def published(parsing: Parsing, *trees: SourceTree) -> list[tuple[list[str], list[bytes]]]:
    """Return the clusters and routes of all snapshots of these trees, each of which comes when the one before was loaded."""
    latest = Latest[Settled | None](None)
    listener = Listener(SnapshotStore())
    reload, loader = Reload(AtOnce(listener.store, listener), listener), CountingLoader(parsing)
    async with asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(reload.keep_current(latest, loader))
        for tree in trees:
            latest.replace(Settled(tree, 1.0))
            await loader.loaded.get()
        await until(lambda: reload.loaded is not None and reload._tree is trees[-1])
        keeper.cancel()
    return [
        (list(one.resources(CDS)), [routes.body for routes in one.resources(RDS).values()])
        for one in listener.snapshots
    ]


@pytest.mark.parametrize("half", [moved("a", "b"), moved("b", "a")], ids=["routes-first", "clusters-first"])
async def test_half_an_edit_is_passed_on(parsing: Parsing, half: SourceTree) -> None:
    """A tree that breaks a reference waits for no other one: whoever publishes it holds back what would break."""
    (first, changed, last) = await published(parsing, moved("a", "a"), half, moved("b", "b"))

    assert [first, last] == await published(parsing, moved("a", "a"), moved("b", "b"))
    assert [first, changed] == await published(parsing, moved("a", "a"), half)


# Views


@dataclass
class Views:
    """Keeps the clusters of each view that was passed on, and how often something was."""

    clusters: dict[Layers, list[str]] = field(default_factory=dict)
    count: int = 0

    def receive(self, targets: Mapping[Layers, Snapshot], _: float) -> None:
        """Keep them."""
        self.clusters = {layers: list(snapshot.resources(CDS)) for layers, snapshot in targets.items()}
        self.count += 1


RULES = ViewRules((ViewRule("all", (), ("common", "a", "b")),))
TREE = {"common/cds.yaml": "- name: web\n", "a/cds.yaml": "- name: a\n", "b/cds.yaml": "- name: b\n"}


async def test_views_are_loaded_when_they_are_wanted(parsing: Parsing) -> None:
    """A view that is wanted is loaded of the tree that is there, and then of each tree, until it is dropped."""
    latest = Latest[Settled | None](Settled(tree_of(TREE), 1.0))
    views, loader = Views(), Loader(parsing, Acceptance(), RULES)
    reload = Reload(views, lambda _: None)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(reload.keep_current(latest, loader))
        await until(lambda: views.count == 1)
        assert views.clusters == {}
        assert reload.views is not None
        assert reload.views.existing == {"common", "a", "b"}

        reload.want(("common", "a"))
        await until(lambda: views.clusters == {("common", "a"): ["a", "web"]})
        reload.want(("common", "a"))
        reload.want(("common",))
        await until(lambda: views.clusters == {("common", "a"): ["a", "web"], ("common",): ["web"]})
        assert views.count == 3

        reload.drop(("common",))
        latest.replace(Settled(tree_of({**TREE, "a/cds.yaml": "- name: c\n"}), 2.0))
        await until(lambda: views.clusters == {("common", "a"): ["c", "web"]})
        keeper.cancel()


async def test_view_on_which_loading_fails_stops_no_other(parsing: Parsing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fsxds itself fails on a file of a new view, that file is set aside, and the other views go on."""
    views, loader = Views(), Loader(parsing, Acceptance(), RULES)
    reload = Reload(views, lambda _: None)
    tree = Settled(tree_of(TREE), 1.0)
    reload.want(("common", "a"))
    await reload.receive(tree, loader)
    reload.want(("common", "b"))
    parse = parsing.parse

    async def fail(files: tuple[SourceFile, ...]) -> tuple[ParsedFile, ...]:
        if any(file.path.parts[0] == "b" for file in files):
            raise RuntimeError("of fsxds")
        return await parse(files)

    monkeypatch.setattr(parsing, "parse", fail)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await reload.receive(tree, loader)
    await reload.receive(tree, loader)

    assert views.clusters == {("common", "a"): ["a", "web"], ("common", "b"): ["web"]}
    assert reload.views is not None
    assert [str(problem.path) for problem in reload.views.problems] == ["b/cds.yaml"]


async def test_by_which_rules_a_tree_was_loaded(parsing: Parsing) -> None:
    """Nodes follow other rules when a tree was loaded by these, and not before."""
    reload, tree = Reload(Views(), lambda _: None), Settled(tree_of(TREE), 1.0)
    assert (reload.is_loaded_by(ViewRules(None)), reload.is_loaded_by(RULES)) == (True, False)
    await reload.receive(tree, Loader(parsing, Acceptance(), RULES))
    assert (reload.is_loaded_by(RULES), reload.is_loaded_by(LAYERS)) == (True, False)
    reload.change_rules()
    await reload.receive(tree, Loader(parsing, Acceptance(), LAYERS))

    assert (reload.is_loaded_by(RULES), reload.is_loaded_by(LAYERS)) == (False, True)


async def test_other_rules_keep_what_views_serve(parsing: Parsing, rules: ParseRules) -> None:
    """What was good in a view stays where other rules forbid it."""
    views = Views()
    reload = Reload(views, lambda _: None)
    reload.want(("common", "a"))
    tree = Settled(tree_of({**TREE, "a/cds.yaml": "- {name: a, no_such_field: 1}\n"}), 1.0)
    with Parsing(replace(rules, unknown_fields=Severity.WARNING)) as lenient:
        await reload.receive(tree, Loader(lenient, Acceptance(), RULES))
    reload.change_rules()
    await reload.receive(tree, Loader(parsing, Acceptance(), RULES))

    assert views.clusters == {("common", "a"): ["a", "web"]}
    assert reload.views is not None
    assert [file.has_last_good for file in reload.views.held] == [True]


LAYERS = ViewRules((ViewRule("all", (), ("common", "a")),))


async def test_layer_that_is_lost_is_reported_until_it_is_back(parsing: Parsing) -> None:
    """What it held last stays meanwhile; where it is back within a second, it was half an edit."""
    latest, views, held = Latest[Settled | None](None), Views(), list[list[str]]()
    loader = CountingLoader(parsing, LAYERS)
    reload = Reload(views, lambda _: None, lambda one: held.append([str(file.path) for file in one.held]))
    reload.want(("common", "a"))
    lacking = {path: text for path, text in TREE.items() if not path.startswith("a/")}
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        keeper = tasks.create_task(reload.keep_current(latest, loader))
        for tree in (TREE, lacking, {**TREE, "a/cds.yaml": "- name: c\n"}, lacking):
            latest.replace(Settled(tree_of(tree), 1.0))
            await loader.loaded.get()
        await until(lambda: len(held) == 3)
        keeper.cancel()

    assert held == [[], [], ["a"]]
    assert views.clusters == {("common", "a"): ["c", "web"]}
