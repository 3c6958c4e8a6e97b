"""What aliases stand for, and the budget of what they may copy."""

from fsxds.formats.decoded import MAX_DEPTH
from fsxds.formats.yaml_format import MAX_COPIED_VALUES, Anchors
from fsxds.model.values import PlainValue


def rule_of(anchors, name, depth=1):
    """Return the rule that an alias breaks, None where it can be used."""
    _, complaint = anchors.use(name, depth)
    return None if complaint is None else complaint.rule


def test_an_anchor_stands_for_its_latest_value():
    """YAML lets an anchor be defined again."""
    anchors = Anchors()
    anchors.define("a", [1])
    anchors.use("a", 1)
    anchors.define("a", {"b": 2})

    assert ({"b": 2}, None) == anchors.use("a", 1)


def test_aliases_share_their_value():
    """Nothing is copied."""
    anchors = Anchors()
    value: PlainValue = {"b": [1]}
    anchors.define("a", value)

    assert anchors.use("a", 1)[0] is value


def test_an_open_anchor_is_recursive_until_it_is_defined():
    """A value cannot contain itself."""
    anchors = Anchors()
    anchors.begin("a")

    assert rule_of(anchors, "a") == "recursive-alias"

    anchors.define("a", [])

    assert rule_of(anchors, "a") is None


def test_a_new_document_knows_no_anchors_of_the_last():
    """Anchors end with their document."""
    anchors = Anchors()
    anchors.define("a", 1)
    anchors.forget()

    assert rule_of(anchors, "a") == "undefined-alias"


def test_the_budget_is_for_all_aliases_together():
    """The use that goes over the budget is the first that is refused; scalars are free."""
    anchors = Anchors()
    anchors.define("a", [0] * (MAX_COPIED_VALUES // 2 - 1))
    anchors.define("b", "text")

    rules = [rule_of(anchors, name) for name in "aabab"]

    assert [None, None, None, "alias-bomb", None] == rules


def test_levels_of_an_alias_count_from_where_it_stands():
    """Two levels fit at the last level but one, and not at the last."""
    anchors = Anchors()
    anchors.define("a", {"b": [1]})

    assert [None, "too-deep"] == [rule_of(anchors, "a", depth) for depth in (MAX_DEPTH - 1, MAX_DEPTH)]
