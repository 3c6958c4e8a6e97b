from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.model.values import NO_LAYERS, WHOLE_TREE
from fsxds.protocol.messages import Node
from fsxds.runtime.views import LONGEST_VALUE, MOST_COMBINATIONS, View, Views, layers_within, node_of
from fsxds.settings.options import BY_NAME
from fsxds.settings.view_rules import Variables

EXISTING = frozenset({"common", "edge", "nodes", "nodes/a", "nodes/b", "regions/eu", "regions/us"})


def views(*rules: dict[str, Any], variables: dict[str, Any] | None = None) -> Views:
    """Make views of rules as the settings file has them."""
    return Views(BY_NAME["views"].form.read(list(rules)), BY_NAME["variables"].form.read(variables or {}))


def rule(name: str = "edge", *, layers: list[str] | None = None, **match: Any) -> dict[str, Any]:
    """Return a rule as the settings file has it."""
    return {"name": name, "layers": layers or ["common", "edge"], **({"match": match} if match else {})}


def matches(node: Node, **match: Any) -> bool:
    """Whether a rule with these patterns matches a node."""
    return views(rule(**match)).layers_of(node, EXISTING) is not None


def test_without_views_every_node_sees_the_whole_tree() -> None:
    """Where the settings have no views there is one, of everything."""
    everything = View("", WHOLE_TREE)

    assert everything == Views(None).layers_of(Node("any"), EXISTING)
    assert (everything,) == Views(None).possible(EXISTING)


def test_the_first_rule_that_matches_wins() -> None:
    """Rules are asked in order, and the rest is not looked at."""
    two = views(rule("first", layers=["edge"], cluster="edge"), rule("everyone", layers=["common"]))

    assert View("first", ("edge",)) == two.layers_of(Node("n", "edge"), EXISTING)
    assert View("everyone", ("common",)) == two.layers_of(Node("n", "other"), EXISTING)


def test_a_node_that_no_rule_matches_has_no_view() -> None:
    """Nothing is served to a node that the rules do not know."""
    assert views(rule(cluster="edge")).layers_of(Node("n", "other"), EXISTING) is None


@pytest.mark.parametrize(
    ("pattern", "text", "is_matched"),
    [
        ("edge", "edge", True),
        ("edge", "edges", False),
        ("edge-*", "edge-1", True),
        ("edge-*", "edge", False),
        ("*-1", "edge-1", True),
        ("*-1", "edge-12", False),
        ("*ge*", "edge", True),
        ("*ge*", "eg", False),
        ("*", "anything/at\nall", True),
        ("e?ge-*1", "edge-x1", True),
        ("e?ge-*1", "ege-1", False),
        ("e*ge*1", "e\nge\n1", True),
        ("a.b", "axb", False),
        ("[a]", "a", False),
        ("re:edge-[0-9]+", "edge-12", True),
        ("re:edge-[0-9]+", "edge-12x", False),
        (["edge", "gold-*"], "gold-1", True),
        (["edge", "gold-*"], "silver", False),
    ],
)
def test_patterns(pattern: object, text: str, is_matched: bool) -> None:
    """A pattern is the text itself, a glob of `*` and `?`, or a regular expression of all of the text."""
    assert is_matched is matches(Node("n", text), cluster=pattern)


def test_all_of_a_match_has_to_match() -> None:
    """A node is matched by its id, cluster, locality, metadata, user agent and version, all of those that are given."""
    attributes = (
        ("locality.region", "eu-1"),
        ("metadata.labels.tier", "gold"),
        ("metadata.weight", "3"),
        ("user_agent_version", "1.40.0"),
    )
    node = Node("edge-1", "edge", agent="envoy", attributes=attributes)
    match: dict[str, Any] = {
        "id": "edge-*",
        "cluster": "edge",
        "locality": {"region": "eu-*"},
        "metadata": {"labels": {"tier": "gold"}, "weight": 3},
        "user_agent_name": "envoy",
        "user_agent_version": "1.40.*",
    }

    assert matches(node, **match)
    for key, other in [
        ("id", "x"),
        ("locality", {"zone": "*"}),
        ("metadata", {"labels": {"tier": "silver"}}),
        ("metadata", {"labels": "gold"}),
    ]:
        assert not matches(node, **{**match, key: other})


def test_templates_without_a_folder_are_left_out() -> None:
    """A template that no folder stands for is no layer; where none is left, the view is empty and not the whole tree."""
    some = views(
        rule(layers=["common", "none", "nodes/{node.id}"], cluster="x"), rule("own", layers=["nodes/{node.id}"])
    )

    assert View("edge", ("common", "none")) == some.layers_of(Node("x", "x"), EXISTING)
    assert View("edge", ("common", "none", "nodes/a")) == some.layers_of(Node("a", "x"), EXISTING)
    assert View("edge", ("common", "none")) == some.layers_of(Node("a", "x"), frozenset())
    assert View("own", NO_LAYERS) == some.layers_of(Node("a"), frozenset())


def test_templates_name_folders_by_what_the_node_says() -> None:
    """Each attribute that can be matched can stand in the name of a layer, alone or with others."""
    attributes = (("locality.region", "eu"), ("metadata.labels.app", "shop"), ("user_agent_version", "1.40.0"))
    node = Node("a", "c", agent="envoy", attributes=attributes)
    layers = [
        "{node.cluster}",
        "x-{node.locality.region}/{node.metadata.labels.app}-{node.id}",
        "{node.user_agent_name}/{node.user_agent_version}",
    ]
    existing = frozenset({"c", "x-eu/shop-a", "envoy/1.40.0"})

    view = views(rule(layers=layers)).layers_of(node, existing)

    assert View("edge", ("c", "x-eu/shop-a", "envoy/1.40.0")) == view


HOSTILE = ["", ".", "..", "../common", "a/b", "/etc", "a\0", "a" * 1_000_000, "nodes/a", "{node.cluster}", "*", "A"]


@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: repr(value[:20]))
def test_hostile_values_select_nothing(value: str) -> None:
    """A value that is no name of a folder selects none, also where joining it would lead to one."""
    existing = EXISTING | {
        "nodes/a/b",
        "nodes/..",
        "nodes/.",
        "nodes/../common",
        "nodes/nodes/a",
        f"nodes/{'a' * 2000}",
    }
    layers = ["common", "nodes/{node.id}", "nodes/{node.metadata.x}", "nodes/{node.cluster}"]
    node = Node(value, value, attributes=(("metadata.x", value),))

    assert View("edge", ("common",)) == views(rule(layers=layers)).layers_of(node, existing)


@given(st.text(), st.frozensets(st.text(min_size=1)))
def test_any_value_selects_existing_layers_alone(value: str, existing: frozenset[str]) -> None:
    """Whatever a client sends, its layers exist, and a template stands for one name without a slash."""
    view = views(rule(layers=["{node.id}", "n/{node.id}"])).layers_of(Node(value), existing | {"n/x"})

    assert view is not None
    assert view == View("edge", NO_LAYERS) or all(
        layer in {value, f"n/{value}"} & (existing | {"n/x"}) for layer in view.layers
    )


def test_long_values_match_nothing() -> None:
    """A megabyte of id is no more matched than an empty one, except by a rule that matches everybody."""
    assert matches(Node("a" * LONGEST_VALUE), id="*")
    assert not matches(Node("a" * (LONGEST_VALUE + 1)), id="*")
    assert not matches(Node(""), id="*")
    assert matches(Node("a" * 1_000_000))


def test_expressions_that_others_backtrack_on_take_linear_time() -> None:
    """A client cannot make a pattern slow: this would take Python's own expressions longer than the universe is old."""
    assert not matches(Node("a" * 1000), id="re:(a*)*b")
    assert not matches(Node("a" * 1000), id="*a" * 200 + "b")


def test_a_node_is_matched_once() -> None:
    """1000 rules are asked about 10 000 nodes once for each, wherever it comes from."""
    many = views(*(rule(f"r{i}", layers=["common"], id=f"team{i}-*") for i in range(1000)))
    nodes = [Node(f"team{i % 1000}-{i}", peer=str(peer)) for i in range(10_000) for peer in range(2)]

    found = [many.layers_of(node, EXISTING) for node in nodes]

    assert View("r999", ("common",)) == found[-1]
    assert 10_000 == len(many._matched)


def test_a_folder_that_appears_counts_at_once() -> None:
    """What is remembered of a node is its rule: whether its layers exist is asked each time."""
    some = views(rule(layers=["common", "nodes/{node.id}"]))

    assert View("edge", ("common",)) == some.layers_of(Node("c"), EXISTING)
    assert View("edge", ("common", "nodes/c")) == some.layers_of(Node("c"), EXISTING | {"nodes/c"})


def test_nodes_that_differ_in_an_attribute_are_not_confused() -> None:
    """A node is remembered with all that rules match, and without its address."""
    some = views(rule("gold", layers=["edge"], metadata={"tier": "gold"}), rule("rest", layers=["common"]))

    gold = some.layers_of(Node("n", attributes=(("metadata.tier", "gold"),)), EXISTING)
    plain = some.layers_of(Node("n"), EXISTING)

    assert ("gold", "rest") == (gold and gold.name, plain and plain.name)


def test_a_view_can_be_chosen_by_its_name() -> None:
    """Commands and mirrors choose a view by name; what its templates stand for comes from the node, if there is one."""
    two = views(rule("own", layers=["common", "nodes/{node.id}"], id="x"), rule("all", layers=["edge"]))

    assert ("own", "all") == two.names
    assert View("own", ("common",)) == two.layers_of(node_of([("view", "own")]), EXISTING)
    assert View("own", ("common", "nodes/a")) == two.layers_of(node_of([("view", "own"), ("id", "a")]), EXISTING)
    assert two.layers_of(node_of([("view", "none"), ("id", "a")]), EXISTING) is None


def layers_of(found: tuple[View, ...]) -> list[tuple[str, ...]]:
    """Return the layers of views."""
    return [view.layers for view in found]


def test_possible_views_of_a_template() -> None:
    """Each folder that a template can stand for makes a view, and so does a node without a folder."""
    some = views(rule(layers=["common", "nodes/{node.id}"]))

    assert [("common",), ("common", "nodes/a"), ("common", "nodes/b")] == layers_of(some.possible(EXISTING))


def test_possible_views_of_several_templates() -> None:
    """Folders of different attributes are combined, those of the same attribute go together."""
    combined = views(rule(layers=["nodes/{node.id}", "regions/{node.locality.region}"])).possible(EXISTING)
    existing = frozenset({"n/a", "n/b", "s/b", "s/c"})
    joined = views(rule(layers=["n/{node.id}", "s/{node.id}"])).possible(existing)

    assert 9 == len(combined)
    assert {("n/a",), ("n/b", "s/b"), ("s/c",), NO_LAYERS} == set(layers_of(joined))


def test_possible_views_are_those_that_the_patterns_allow() -> None:
    """A folder whose name the rule, or an earlier one, does not leave to it makes no view."""
    some = views(
        rule("a", layers=["edge"], id="a"),
        rule("other", layers=["common", "nodes/{node.id}"], cluster="x"),
        rule("eu", layers=["regions/{node.locality.region}"], locality={"region": "eu"}),
    )

    assert [("edge",), ("common",), ("common", "nodes/b"), ("regions/eu",)] == layers_of(some.possible(EXISTING))


def test_an_attribute_that_stands_twice_has_one_value() -> None:
    """A folder is a layer where one value of the attribute gives its whole name."""
    some, existing = views(rule(layers=["{node.id}/{node.id}"])), frozenset({"a/b", "c/c"})

    assert {"c/c"} == some.layer_names(existing)
    assert {NO_LAYERS, ("c/c",)} == set(layers_of(some.possible(existing)))


def test_equal_layers_are_one_possible_view() -> None:
    """Two rules with equal layers are checked once, as the first of them."""
    two = views(rule("one", id="1"), rule("two"))

    assert (View("one", ("common", "edge")),) == two.possible(EXISTING)


def test_names_of_equal_layers() -> None:
    """Of layers that several rules have, all names are known; a rule without layers of its own adds its name."""
    three = views(rule("one", id="1"), rule("two", layers=["common", "nodes/{node.id}"], id="2*"), rule("three"))

    assert {("common", "edge"): ("one", "three"), ("common",): ("two",)} == three.names_by_layers(EXISTING)
    assert {WHOLE_TREE: ("",)} == Views(None).names_by_layers(EXISTING)


def test_layers_of_a_view_in_another_tree() -> None:
    """Those that it has; the mark of variables stays where there are any, and a view of none is no whole tree."""
    assert layers_within(("a", "b", "/v"), {"b"}) == ("b", "/v")
    assert layers_within(("a", "/v"), {"b"}) == layers_within(NO_LAYERS, {"b"}) == NO_LAYERS


def test_too_many_combinations_still_have_each_folder() -> None:
    """A thousand nodes in a thousand regions are not a million views: each folder is in one of them at least."""
    existing = frozenset(f"{kind_}/{number}" for kind_ in ("n", "r") for number in range(1000))
    found = views(rule(layers=["n/{node.id}", "r/{node.locality.region}"])).possible(existing)

    assert len(found) < MOST_COMBINATIONS
    assert existing == {layer for view in found for layer in view.layers if layer != "/"}


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=2), st.data())
def test_every_view_of_a_node_is_possible(texts: list[str], data: st.DataObject) -> None:
    """No node has a view that was not among the possible ones."""
    folder = st.sampled_from(["n/a", "n/b", "m/a", "m/a-b", "c", "x"])
    existing = data.draw(st.frozensets(folder))
    pattern = st.sampled_from(["a", "?", "b*", "re:[ab]"])
    layer = st.sampled_from(["n/{node.id}", "m/{node.cluster}", "m/{node.id}-{node.cluster}", "c", "x"])
    rules = [
        rule(
            f"r{index}", layers=data.draw(st.lists(layer, min_size=1, unique=True)), id=one, cluster=f"re:{two}|{index}"
        )
        for index, (one, two) in enumerate(data.draw(st.lists(st.tuples(pattern, st.sampled_from("ab")), min_size=1)))
    ]
    some = views(*rules)

    view = some.layers_of(Node(texts[0], texts[1]), existing)

    assert view is None or view.layers in layers_of(some.possible(existing))


def test_layers_are_the_folders_that_rules_name() -> None:
    """A folder is a layer where a rule names it, or a template can stand for it; the others are not."""
    some = views(rule("a", layers=["common", "gone", "nodes/{node.id}"], id="x"), rule("b", layers=["common"]))

    assert {"common", "nodes/a", "nodes/b"} == some.layer_names(EXISTING)
    assert frozenset() == Views(None).layer_names(EXISTING)


def test_the_node_of_attributes() -> None:
    """What a command or a mirror says of a node is what such a node would send."""
    attributes = [
        ("metadata.tier", "gold"),
        ("id", "i"),
        ("cluster", "c"),
        ("user_agent_name", "envoy"),
        ("locality.zone", "z"),
    ]
    expected = Node("i", "c", agent="envoy", attributes=(("locality.zone", "z"), ("metadata.tier", "gold")))

    assert expected == node_of(attributes)


def test_variables_make_views_of_equal_layers_different() -> None:
    """Two environments over the same layers, each with its variables, are two views; others share one."""
    some = views(
        {**rule("staging", cluster="staging"), "variables": {"DOMAIN": "staging.example.com"}},
        {**rule("blue", cluster="blue")},
        {**rule("green")},
        variables={"DOMAIN": "example.com", "PORT": 80},
    )
    staging, blue, green = (some.layers_of(Node("n", each), EXISTING) for each in ("staging", "blue", "green"))
    assert staging is not None
    assert blue is not None
    assert green is not None

    assert ("common", "edge", "/staging") == staging.layers
    assert blue.layers == green.layers == ("common", "edge")
    assert {"DOMAIN": "staging.example.com", "PORT": "80"} == some.variables_of(staging.layers).texts
    assert {"DOMAIN": "example.com", "PORT": "80"} == some.variables_of(blue.layers).texts
    assert {"DOMAIN": "example.com", "PORT": "80"} == some.variables_of(WHOLE_TREE).texts


def test_variables_of_the_environment() -> None:
    """A variable may name one of the environment; where that is unset it has no value, whatever others say."""
    own = Variables({"A": "1"}, {"B": "HOST", "C": "NONE"}).found_in({"HOST": "h"})

    assert Variables({"A": "1", "B": "h"}, {"C": "NONE"}) == own
    assert Variables({"A": "1", "B": "h", "D": "d"}, {"C": "NONE"}) == own.over(
        Variables({"A": "2", "C": "c", "D": "d"})
    )


def lost(some: Views, folders: str, known: str = "") -> list[str]:
    """Return what is wrong where a tree has these folders, after one in which these layers had files."""
    return [str(one.problem) for one in some.lost_layers(frozenset(folders.split()), frozenset(known.split()))]


def test_a_layer_without_a_folder_is_lost() -> None:
    """The problem is at the folder, and has the views, what is served of it, and a folder with a similar name."""
    some = views(rule("east", layers=["common", "edge"], id="1"), rule("west", layers=["edge", "nodes/{node.id}"]))

    settings = "or take the layer out of `views` in the settings"
    fact = "edge:1:1: error: this folder is a layer of the views east, west, and has no configuration"
    create, restore = (
        "create it with a file in it (`resources: []` is an empty one)",
        "put it back; to remove that, write `resources: []` into a file there",
    )
    assert lost(some, "common edges") == [f"{fact}; did you mean edges? Else {create}, {settings}"]
    literal, template = lost(some, "common", "common edge nodes/a")
    assert literal == f"{fact}; its resources are still served; {restore}, {settings}"
    fact = "nodes/a:1:1: error: no folder is left for nodes/{node.id}, a layer of the view west: nodes/a is gone"
    assert template == f"{fact}; its resources are still served; {restore}, {settings}"
    assert "nodes/a and 1 more are gone" in lost(some, "common edge", "nodes/a nodes/b")[0]
    assert lost(some, "common edge nodes/b", "nodes/a nodes/b") == []


def test_lost_layers_of_many_views() -> None:
    """A layer of many views is one problem, which names some; among very many folders, no similar one is looked for."""
    many = views(*(rule(f"v{number}", layers=["edge"], id=f"{number}") for number in range(5)))

    assert ["edge"] == [str(one.problem.path) for one in many.lost_layers(frozenset(), frozenset())]
    assert "a layer of the views v0, v1, v2 and 2 more, and" in lost(many, "")[0]
    assert "did you mean" not in lost(many, " ".join(f"edge{number}" for number in range(2000)))[0]


def test_a_rule_that_is_off_loses_nothing() -> None:
    """Where the rule of lost layers is off, they are empty layers."""
    rules = BY_NAME["views"].form.read([rule(layers=["edge"])])

    assert Views(rules, None, lambda _: None).lost_layers(frozenset(), frozenset({"edge"})) == ()
