"""Views: the layers of the tree that a node sees. Pure.

The first rule that matches a node names its layers. No client's value becomes a path: a template's expansion, as of
`nodes/{node.id}`, is looked up among existing layers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from itertools import product
from pathlib import PurePosixPath
from typing import NamedTuple, Protocol

import re2

from fsxds.model.memo import Lru
from fsxds.model.values import NO_LAYERS, WHOLE_TREE, Layers, LostLayer, Problem
from fsxds.protocol.messages import Node
from fsxds.settings.rollout_forms import Canary
from fsxds.settings.view_rules import REGEX, TEMPLATE, Variables, ViewRule
from fsxds.snapshots.accept import MISSING_LAYER

# Longer values match no pattern, and select no layer: they are not folder names, and a client may send a megabyte.
LONGEST_VALUE = 1024

# The size of the cache, for as many clients as polls remember.
MOST_NODES = 100_000

# In a view with several templates, each combination of folders is a separate view. Beyond this number, each folder is
# in one combination only.
MOST_COMBINATIONS = 10_000

# Up to this number of folders, another spelling of a layer is suggested; and the number of names in a list.
MOST_LIKE = 1000
MOST_NAMED = 3


VIEW = "view"
"""The attribute that names a view directly; clients cannot send it."""


@dataclass(frozen=True, slots=True)
class View:
    """A rule's name, and layers of its nodes."""

    name: str
    layers: Layers


EVERYTHING = View("", WHOLE_TREE)
"""The view of all nodes if the settings have none."""

Values = Mapping[str, str]
"""A node's values by attribute: `id`, `cluster`, `locality.region`, `metadata.tier`, ..."""


def layers_within(layers: Layers, existing: Collection[str]) -> Layers:
    """Return a view's layers in another tree."""
    found = tuple(layer for layer in layers if layer in existing)
    return (*found, *(layer for layer in layers if layer.startswith("/"))) if found else NO_LAYERS


def values_of(node: Node) -> dict[str, str]:
    """Leave out empty and very long values."""
    values = {"id": node.id, "cluster": node.cluster, "user_agent_name": node.agent, **dict(node.attributes)}
    return {attribute: value for attribute, value in values.items() if 0 < len(value) <= LONGEST_VALUE}


def node_of(attributes: Iterable[tuple[str, str]]) -> Node:
    """Return the node with these attributes."""
    values = dict(attributes)
    node_id, cluster, agent = (values.pop(name, "") for name in ("id", "cluster", "user_agent_name"))
    return Node(node_id, cluster, agent=agent, attributes=tuple(sorted(values.items())))


class Views:
    """The settings' views.

    `rules` are in their order, None if all nodes see the whole tree. `adjusted` sets the severity of problems of lost
    layers; None if off.
    """

    def __init__(
        self,
        rules: tuple[ViewRule, ...] | None,
        variables: Variables | None = None,
        adjusted: Callable[[Problem], Problem | None] = lambda problem: problem,
    ) -> None:
        self.made_of = rules, variables or Variables()
        self._rules = None if rules is None else tuple(_Rule(rule) for rule in rules)
        self._variables = self.made_of[1]
        self._adjusted = adjusted
        # Many rules may have the same layer.
        self._layers: dict[_Template, list[str]] = {}
        for rule in self._rules or ():
            for layer in rule.layers:
                self._layers.setdefault(layer, []).append(rule.name)
        # The rule that a node matched, and its layers, which may not exist.
        self._matched: Lru[tuple[object, ...], tuple[_Rule | None, Layers]] = Lru(MOST_NODES)

    @property
    def is_whole(self) -> bool:
        """Whether all nodes see the whole tree."""
        return self._rules is None

    @property
    def names(self) -> tuple[str, ...]:
        """All views' names, in order."""
        return tuple(rule.name for rule in self._rules or ())

    def layers_of(self, node: Node, existing: Collection[str]) -> View | None:
        """Return a node's view; None if no rule matches.

        `existing` should be a set: each layer is looked up in it.
        """
        if self._rules is None:
            return EVERYTHING
        key = node.id, node.cluster, node.agent, node.attributes
        rule, layers = self._matched.find(key, lambda: self._match(node))
        return None if rule is None else rule.view(layers, existing)

    def _match(self, node: Node) -> tuple[_Rule | None, Layers]:
        values = values_of(node)
        name = values.get(VIEW)
        for rule in self._rules or ():
            if rule.name == name if name else rule.matches(values):
                return rule, tuple(rule.filled(values))
        return None, WHOLE_TREE

    def possible(self, existing: Collection[str]) -> tuple[View, ...]:
        """Return every possible view, once per distinct layers, in the order of rules.

        Templates are matched backwards against existing folders; the view without any is included.
        """
        return tuple(View(names[0], layers) for layers, names in self.names_by_layers(existing).items())

    def names_by_layers(self, existing: Collection[str]) -> Mapping[Layers, tuple[str, ...]]:
        """Return possible layers with views' names, in the order of rules."""
        if self._rules is None:
            return {EVERYTHING.layers: (EVERYTHING.name,)}
        found: dict[Layers, dict[str, None]] = {}
        folders = lru_cache(lambda layer: tuple(layer.values_in(existing)))
        for index, rule in enumerate(self._rules):
            # A node may have any value of other attributes.
            before = [one for one in self._rules[:index] if one.tested <= rule.known]
            for values in rule.possible_values(folders):
                if not any(one.matches(values) for one in before):
                    view = rule.view(tuple(rule.filled(values)), existing)
                    found.setdefault(view.layers, {})[view.name] = None
        return {layers: tuple(names) for layers, names in found.items()}

    def layer_names(self, folders: Collection[str]) -> frozenset[str]:
        """Return the folders that are layers."""
        return frozenset(folder for layer in self._layers for folder in layer.folders_in(folders))

    def lost_layers(self, folders: Collection[str], known: Collection[str]) -> tuple[LostLayer, ...]:
        """Return required or former layers without a folder.

        A folder that a rule names is required. A template's single folder may be removed: its nodes no longer see the layer.
        If all go at once, that is a loss. `known` layers had files before.
        """
        lost: list[LostLayer] = []
        for layer, views in self._layers.items():
            stood = frozenset(layer.folders_in(known))
            wanted = stood if layer.attributes else frozenset((layer.text,))
            if wanted and not any(layer.folders_in(folders)):
                more = f" and {len(views) - MOST_NAMED} more" if len(views) > MOST_NAMED else ""
                shown = f"the view{'s' if len(views) > 1 else ''} {', '.join(views[:MOST_NAMED])}{more}"
                problem = self._adjusted(_lost(layer, shown, sorted(stood), folders))
                lost += [] if problem is None else [LostLayer(problem, wanted, bool(stood))]
        return tuple(lost)

    def variables_of(self, layers: Layers) -> Variables:
        """Return a view's values for `${NAME}`."""
        if layers and layers[-1].startswith("/"):
            for rule in self._rules or ():
                if rule.name == layers[-1].removeprefix("/"):
                    return rule.variables.over(self._variables)
        return self._variables


class _Rule:
    """With compiled patterns and templates.

    `tested` attributes have patterns; `known` ones have values that follow from patterns, or from folders of templates.
    """

    def __init__(self, rule: ViewRule) -> None:
        self.name, self.variables = rule.name, rule.variables
        has_variables = bool(rule.variables.texts or rule.variables.unset)
        self._last: Layers = (f"/{rule.name}",) if has_variables else ()
        self.layers = tuple(map(_template, rule.layers))
        self._named = frozenset(layer.text for layer in self.layers if not layer.attributes)
        self._exact = {
            name: patterns[0]
            for name, patterns in rule.match
            if len(patterns) == 1 and not patterns[0].startswith(REGEX) and not _WILDCARDS & set(patterns[0])
        }
        # Comparisons before regular expressions.
        tests = sorted(rule.match, key=lambda test: test[0] not in self._exact)
        self._tests = tuple((name, any_of(patterns)) for name, patterns in tests)
        self.tested = frozenset(name for name, _ in rule.match)
        templated = {attribute for layer in self.layers for attribute in layer.attributes}
        self.known = frozenset(templated | self._exact.keys())

    def matches(self, values: Values) -> bool:
        for attribute, test in self._tests:
            value = values.get(attribute)
            if value is None or not test(value):
                return False
        return True

    def filled(self, values: Values) -> Iterator[str]:
        """Without layers that need a missing value."""
        for layer in self.layers:
            name = layer.filled(values)
            if name is not None:
                yield name

    def view(self, layers: Iterable[str], existing: Collection[str]) -> View:
        """Only layers from templates may be missing."""
        found = tuple(dict.fromkeys(layer for layer in layers if layer in self._named or layer in existing))
        return View(self.name, (*found, *self._last) if found else NO_LAYERS)

    def possible_values(self, folders: Callable[[_Template], Iterable[Values]]) -> list[Values]:
        """Without a value, a layer has no folder."""
        found: list[Values] = [self._exact]
        for layer in self.layers:
            named = [
                values
                for values in folders(layer)
                if all(test(values[attribute]) for attribute, test in self._tests if attribute in values)
            ]
            found = _combined(found, named)
        return found


def _combined(found: list[Values], named: list[Values]) -> list[Values]:
    if not named or not named[0]:
        return found
    attributes = tuple(named[0])
    by_values: dict[tuple[str | None, ...], list[Values]] = {}
    for values in found:
        by_values.setdefault(tuple(map(values.get, attributes)), []).append(values)
    together = [
        [one for choice in product(*((value, None) for value in more.values())) for one in by_values.get(choice, ())]
        for more in named
    ]
    if sum(map(len, together)) > MOST_COMBINATIONS:
        together = [[ones[index % len(ones)]] if ones else [] for index, ones in enumerate(together)]
    joined = ({**one, **more} for more, ones in zip(named, together, strict=True) for one in ones)
    return list({frozenset(values.items()): values for values in (*found, *joined)}.values())


@dataclass(frozen=True, slots=True)
class _Template:
    """A rule's layer.

    `attributes` are those in it, in order, empty for a folder's name; `texts` are before, between and after them.
    """

    text: str
    attributes: tuple[str, ...]
    texts: tuple[str, ...]
    folders: re.Pattern[str]

    def filled(self, values: Values) -> str | None:
        """None: a value is missing, or could name another folder."""
        parts = [self.texts[0]]
        for attribute, text in zip(self.attributes, self.texts[1:], strict=True):
            value = values.get(attribute)
            if value is None or "/" in value or value in {".", ".."}:
                return None
            parts += (value, text)
        return "".join(parts)

    def values_of(self, folder: str) -> Values | None:
        match = self.folders.fullmatch(folder)
        values = dict(zip(self.attributes, match.groups(), strict=True)) if match else {}
        # The same attribute may occur twice.
        return values if match and self.filled(values) == folder else None

    def folders_in(self, existing: Collection[str]) -> Iterable[str]:
        if not self.attributes:
            return {self.texts[0]}.intersection(existing)
        return (folder for folder in existing if self.values_of(folder) is not None)

    def values_in(self, existing: Collection[str]) -> Iterator[Values]:
        for folder in sorted(existing) if self.attributes else ():
            values = self.values_of(folder)
            if values is not None:
                yield values


@lru_cache(maxsize=1024)
def _template(layer: str) -> _Template:
    texts = TEMPLATE.split(layer)
    folders = "([^/]+)".join(map(re.escape, texts[::2]))
    return _Template(layer, tuple(texts[1::2]), tuple(texts[::2]), re.compile(folders))


def _lost(layer: _Template, views: str, stood: list[str], folders: Collection[str]) -> Problem:
    fact, near = f"this folder is a layer of {views}, and has no configuration", list[str]()
    if layer.attributes:
        others = f" and {len(stood) - 1} more are" if len(stood) > 1 else " is"
        fact = f"no folder is left for {layer.text}, a layer of {views}: {stood[0]}{others} gone"
    elif len(folders) <= MOST_LIKE:
        near = get_close_matches(layer.text, folders, 1)
    kept, act = "", "create it with a file in it (`resources: []` is an empty one)"
    if stood:
        kept, act = (
            "; its resources are still served",
            "put it back; to remove that, write `resources: []` into a file there",
        )
    hint = f"did you mean {near[0]}? Else " if near else ""
    remedy = f"{hint}{act}, or take the layer out of `views` in the settings"
    return Problem.of_file(PurePosixPath(min(stood, default=layer.text)), MISSING_LAYER, fact + kept, remedy)


_WILDCARDS = frozenset("*?")


def any_of(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return whether any pattern matches, as a test."""
    if len(patterns) == 1:
        return _test(patterns[0])
    tests = tuple(map(_test, patterns))
    return lambda text: any(test(text) for test in tests)


@lru_cache(maxsize=1024)
def _test(pattern: str) -> Callable[[str], bool]:
    if pattern.startswith(REGEX):
        return _regex(pattern.removeprefix(REGEX))
    stem = pattern.strip("*")
    if not _WILDCARDS & set(stem):
        if pattern == stem:
            return stem.__eq__
        if pattern.startswith("*"):
            return (lambda text: stem in text) if pattern.endswith("*") else (lambda text: text.endswith(stem))
        return lambda text: text.startswith(stem)
    return _regex("".join({"*": ".*", "?": "."}.get(one) or re2.escape(one) for one in pattern))


def _regex(regex: str) -> Callable[[str], bool]:
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True
    compiled = re2.compile(regex, options)
    return lambda text: compiled.fullmatch(text) is not None


class NodeRules(NamedTuple):
    """The rules that decide nodes' channels.

    `canary` nodes get a change first. `admit` is called with the number of channels before another is created;
    LimitError rejects the node.
    """

    views: Views
    canary: Canary | None = None
    admit: Callable[[int], object] = lambda _: None


class ViewLoading(Protocol):
    """Loads views."""

    @property
    def existing(self) -> frozenset[str]:
        """The last tree's folders; each may be a layer."""

    def is_loaded_by(self, views: Views) -> bool:
        """Whether the last tree was loaded by these rules."""

    def want(self, layers: Layers) -> None:
        """Load a view with each tree."""

    def drop(self, layers: Layers) -> None:
        """Stop loading a view."""
