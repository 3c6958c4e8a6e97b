"""What happens in a simulation: edits of a small tree in several saves, faults of clients, decisions of operators."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fsxds.publishing.node_channels import MOST_HELD
from tests.simulation.fleet import Habits
from tests.support.rollouts import Tree

# What is in one file.
FILES = (("CDS", "EDS"), ("RDS",), ("LDS",))
NAMES = "abcdefgh"
# What the names of clusters end with in the second view, and after all were exchanged.
OTHER = "2"

# How often each number of clients is: large fleets are slow, and seldom needed.
SIZES = {1: 20, 2: 40, 3: 40, 4: 20, 5: 20, 6: 20, 8: 20, 12: 20, 60: 0.6}
# Which share of a fleet comes after the first rollback.
LATER = 0.5
# How often each fault is, and each decision of an operator.
FAULTS = {
    "freeze": 20,
    "leave": 15,
    "restart_client": 10,
    "restart": 15,
    "roll_back": 10,
    "resume": 8,
    "retry": 8,
    "approve": 4,
    "heal": 7,
    "change_limit": 7,
    "see_others": 8,
}


@dataclass(frozen=True, slots=True)
class Happening:
    """Something that happens: after so many seconds a method of the world is called."""

    after_s: float
    method: str
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        """`+2.5 save({…})`."""
        return f"+{self.after_s:g} {self.method}({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fleet, a tree and what happens to them.

    Attributes:
        seed: from which it was made.
        tree: the first one.
        fleet: the habits of clients by their names.
        rules: what the settings say.
        happenings: in order.
    """

    seed: int
    tree: Tree
    fleet: Mapping[str, Habits]
    rules: Mapping[str, Any]
    happenings: tuple[Happening, ...]


@dataclass
class _Author:
    """Writes trees in which everything that is named is there, and saves them in one, two or three steps."""

    random: random.Random
    words: tuple[str, ...]
    numbers: int = 0
    files: dict[str, dict[str, dict[str, str]]] = field(default_factory=dict)
    clusters: dict[str, bool] = field(default_factory=dict)
    routes: dict[str, list[str]] = field(default_factory=dict)
    listeners: dict[str, str] = field(default_factory=dict)
    # The addresses of listeners, where they have some: no two have the same.
    addresses: dict[str, str] = field(default_factory=dict)
    contents: dict[tuple[str, str], str] = field(default_factory=dict)

    def begin(self, *, has_addresses: bool) -> Tree:
        """Return the first tree."""
        for name in self.random.sample(NAMES, self.random.randint(2, 6)):
            self.clusters[name] = self.random.random() < 0.5
        for name in ("r", "q")[: self.random.randint(1, 2)]:
            self.routes[name] = self._targets()
        self.listeners = {f"l{name}": f"RDS:{name}" for name in self.routes}
        if self.random.random() < 0.5:
            self.listeners["inline"] = f"CDS:{self.random.choice(sorted(self.clusters))}"
        if has_addresses:
            for name in self.random.sample(NAMES, self.random.randint(0, 6)):
                self.listeners[name] = f"RDS:{self.random.choice(sorted(self.routes))}"
            self.addresses = {name: str(number) for number, name in enumerate(sorted(self.listeners))}
        return self.tree()

    def _targets(self) -> list[str]:
        return self.random.sample(sorted(self.clusters), self.random.randint(1, min(2, len(self.clusters))))

    def tree(self) -> dict[str, dict[str, str]]:
        """Return the tree as it is now."""
        return {
            "CDS": {
                name: self._content("CDS", name, f"EDS:{name}" if has else "") for name, has in self.clusters.items()
            },
            "EDS": {name: self._content("EDS", name) for name, has in self.clusters.items() if has},
            "RDS": {
                name: self._content("RDS", name, " ".join(f"CDS:{each}" for each in each_of))
                for name, each_of in self.routes.items()
            },
            "LDS": {
                name: self._content("LDS", name, f"{target} @{self.addresses[name]}" if self.addresses else target)
                for name, target in self.listeners.items()
            },
        }

    def _content(self, short_name: str, name: str, references: str = "") -> str:
        return f"{self.contents.get((short_name, name), '0')} {references}".strip()

    def edit(self) -> Iterator[Happening]:
        """Change the tree; yield its saves."""
        before = self.tree()
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            self.random.choice(EDITS_OF_ADDRESSES if self.addresses else EDITS)(self)
        after = self.tree()
        files = [list(types) for types in FILES]
        self.random.shuffle(files)
        if self.random.random() < 0.4:
            files = [[each for types in files for each in types]]
        changed = [types for types in files if any(before[each] != after[each] for each in types)]
        for number, types in enumerate(changed):
            gap_s = self.random.choice((0.02, 0.3, 2.0, 7.0)) if number else self.random.choice((0.05, 0.5, 3.0, 12.0))
            yield Happening(gap_s, "save", ({each: after[each] for each in types},))

    def _next(self) -> str:
        self.numbers += 1
        return str(self.numbers)

    def _touch(self) -> None:
        tree = self.tree()
        short_name = self.random.choice([each for each in tree if tree[each]])
        name = self.random.choice(sorted(tree[short_name]))
        if "bad" not in self.contents.get((short_name, name), ""):
            self.contents[short_name, name] = self._next()

    def _break(self) -> None:
        if self.words:
            tree = self.tree()
            short_name = self.random.choice([each for each in ("CDS", "RDS", "LDS") if tree[each]])
            name = self.random.choice(sorted(tree[short_name]))
            self.contents[short_name, name] = f"{self._next()}-{self.random.choice(self.words)}"

    def _mend(self) -> None:
        for key in [key for key, content in self.contents.items() if "bad" in content]:
            self.contents[key] = self._next()

    def _rename(self) -> None:
        free = [name for name in NAMES if name not in self.clusters]
        old = self.random.choice(sorted(self.clusters))
        if not free:
            return
        new = self.random.choice(free)
        self.clusters[new] = self.random.random() < 0.5
        del self.clusters[old]
        if self.words and self.random.random() < 0.25:
            self.contents["CDS", new] = f"{self._next()}-{self.random.choice(self.words)}"
        else:
            self.contents["CDS", new] = self._next()
        self.contents["EDS", new] = self._next()
        for name, targets in self.routes.items():
            self.routes[name] = list(dict.fromkeys(new if each == old else each for each in targets))
        for name, target in self.listeners.items():
            if target == f"CDS:{old}":
                self.listeners[name] = f"CDS:{new}"

    def _move(self) -> None:
        name = self.random.choice(sorted(self.routes))
        self.routes[name] = self._targets()

    def _exchange(self) -> None:
        """Give all clusters other names."""
        names = {name: name.removesuffix(OTHER) if name.endswith(OTHER) else name + OTHER for name in self.clusters}
        if len(set(names.values())) < len(names):
            return
        self.clusters = {names[name]: has for name, has in self.clusters.items()}
        self.routes = {name: [names[each] for each in targets] for name, targets in self.routes.items()}
        self.listeners = {
            name: f"CDS:{names[target[4:]]}" if target.startswith("CDS:") else target
            for name, target in self.listeners.items()
        }

    def _shrink(self) -> None:
        """Have one cluster do what all did."""
        left = self.random.choice(sorted(self.clusters))
        self.clusters = {left: self.clusters[left]}
        self.routes = {name: [left] for name in self.routes}
        for name, target in self.listeners.items():
            if target.startswith("CDS:"):
                self.listeners[name] = f"CDS:{left}"

    def _grow(self) -> None:
        """Add as many clusters as there are names."""
        for name in NAMES[: self.random.randint(5, 8)]:
            self.clusters.setdefault(name, False)

    def _replace_listener(self) -> None:
        """Give a listener another name; it has the same address."""
        old, new = self.random.choice(sorted(self.listeners)), f"new{self._next()}"
        self.listeners[new], self.addresses[new] = self.listeners.pop(old), self.addresses.pop(old)

    def _add_listener(self) -> None:
        """Add one, perhaps at the address of another that moves on."""
        old, new = self.random.choice(sorted(self.listeners)), f"new{self._next()}"
        self.listeners[new], self.addresses[new] = self.listeners[old], self._next_address()
        if self.random.random() < 0.7:
            self.addresses[new], self.addresses[old] = self.addresses[old], self.addresses[new]

    def _rotate_addresses(self) -> None:
        """Have some listeners take the address of the next one."""
        names = self.random.sample(sorted(self.addresses), min(3, len(self.addresses)))
        taken = [self.addresses[name] for name in names]
        self.addresses |= dict(zip(names, (*taken[1:], taken[0]), strict=True))

    def _remove_listeners(self) -> None:
        """Have one listener do what some did, at the address of any of them."""
        gone = self.random.sample(sorted(self.listeners), self.random.randint(1, len(self.listeners)))
        target, address = self.listeners[gone[0]], self.addresses[gone[-1]]
        for name in gone:
            del self.listeners[name], self.addresses[name]
        name = self.random.choice((gone[0], f"new{self._next()}"))
        self.listeners[name], self.addresses[name] = target, address

    def _next_address(self) -> str:
        return str(100 + int(self._next()))


EDITS = (
    *(_Author._touch,) * 7,
    *(_Author._rename,) * 4,
    *(_Author._move,) * 2,
    *(_Author._break,) * 2,
    *(_Author._mend,) * 2,
    *(_Author._exchange, _Author._shrink, _Author._grow),
)
EDITS_OF_ADDRESSES = (
    *EDITS,
    *(_Author._replace_listener, _Author._add_listener, _Author._rotate_addresses, _Author._remove_listeners) * 4,
    *(_Author._break,) * 3,
)


def scenario_of(
    seed: int, *, has_addresses: bool = False, restarts: bool = False, most_held: int = MOST_HELD
) -> Scenario:
    """Return the scenario of a seed.

    Args:
        seed: from which it is made.
        has_addresses: listeners have addresses, which they exchange.
        restarts: some changes are made while the server is away, and no state is kept.
        most_held: so many channels of a view are for nodes with the same rejections; nodes with others share one.
    """
    chosen = random.Random(seed)
    words = chosen.choice(((), ("bad-x",), ("bad-x", "bad-y")))
    author = _Author(chosen, words)
    tree = author.begin(has_addresses=has_addresses)
    fleet = dict(_fleet(chosen, words))
    rules = {
        "nack_limit": chosen.choice(("50%", "50%", "50%", "30%", "0", "1", "off")),
        "canary": chosen.random() < 0.15 and "canary-1" in fleet,
        "linger": chosen.choice((0.0, 0.0, 20.0)),
        "max_removal": chosen.choice((None, 0.5, 0.5)),
        "has_views": chosen.random() < 0.15,
        "most_held": most_held,
        # Whether rejected versions are offered again at the end at once, and not by and by.
        "retries": chosen.random() < 0.5,
    }
    happenings: list[Happening] = [Happening(2.0, "rest")]
    for _ in range(chosen.randint(3, 9)):
        happenings += author.edit() if chosen.random() < 0.7 else [_fault(chosen, sorted(fleet), rules)]
    if (rules["canary"] or rules["has_views"]) and any(each.method == "roll_back" for each in happenings):
        # The first of a view, or of the canaries. By numbers of their own: the rest of a seed stays as it is.
        later = random.Random(f"later {seed}")
        fleet = {name: replace(one, comes_later=later.random() < LATER) for name, one in fleet.items()}
    if restarts:
        away = random.Random(f"away {seed}")
        happenings = [_while_away(one) if away.random() < 0.5 else one for one in happenings]
        # What was good before a version that is rejected would be forgotten.
        fleet = {name: replace(one, rejects="") for name, one in fleet.items()}
    return Scenario(seed, tree, fleet, rules, tuple(happenings))


def _while_away(happening: Happening) -> Happening:
    return replace(happening, method="restart_on") if happening.method == "save" else happening


def _fleet(chosen: random.Random, words: tuple[str, ...]) -> Iterator[tuple[str, Habits]]:
    (count,) = chosen.choices(tuple(SIZES), tuple(SIZES.values()))
    for number in range(count):
        wire = chosen.choice(("delta", "delta", "sotw", "rest"))
        latency_s = chosen.choice((0.001, 0.001, 0.01, 0.05, 0.4))
        name = f"{'canary' if number < count // 3 else 'node'}-{number}"
        odd = chosen.random()
        if odd < 0.62:
            yield name, Habits(wire, latency_s)
        elif odd < 0.82 and words:
            yield name, Habits(wire, latency_s, rejects=chosen.choice(words), is_named=chosen.random() < 0.6)
        elif odd < 0.87:
            yield name, Habits(wire, chosen.choice((1.5, 4.0, 8.0)))
        elif odd < 0.91:
            yield name, Habits(chosen.choice(("delta", "rest")), latency_s, is_envoy=False)
        elif odd < 0.94:
            yield name, Habits("delta", latency_s, answers=False)
        elif odd < 0.97:
            yield name, Habits("rest", latency_s, comes_once=True)
        else:
            yield name, Habits(wire, latency_s)


def _fault(chosen: random.Random, names: list[str], rules: Mapping[str, Any]) -> Happening:
    after_s, name = chosen.choice((0.02, 0.5, 3.0, 12.0)), chosen.choice(names)
    (method,) = chosen.choices(tuple(FAULTS), tuple(FAULTS.values()))
    arguments: dict[str, tuple[Any, ...]] = {
        "freeze": (name, chosen.choice((1.0, 7.0, 40.0))),
        "leave": (name, chosen.choice((0.3, 4.0, 15.0, 70.0, 1000.0))),
        "restart_client": (name,),
        "restart": (chosen.random() < 0.7,),
        "roll_back": (chosen.randint(1, 4),),
        "heal": (name,),
        "change_limit": (chosen.choice(("50%", "1", "off")),),
        "see_others": (chosen.choice((0.02, 0.5, 4.0)),),
    }
    if method == "see_others" and not rules["has_views"]:
        method = "leave"
    return Happening(after_s, method, arguments.get(method, ()))
