"""Where Envoy 1.40 does not hold messages to the rules of the API, as trying each out has shown.

What is done with each field that is set: its values are judged, and the messages in it visited.

The rules of the API over the fields of messages (`validate.rules`), compiled once per type of message.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraint_checks import Check, show_value
from fsxds.api.constraint_options import (
    Demand,
    RuleGroups,
    RuleSurvey,
    beyond_presence,
    choice_demand,
    default_demand,
    disallowed_checks,
    element_checks,
    is_unvisited,
    presence_demand,
    whole_checks,
)
from fsxds.api.fields import ANY, descriptor_of, is_map, map_parts
from fsxds.api.secrets import Secrecy
from fsxds.api.walk import MAX_DEPTH, EnoughError, Hook, Path, Visit, Walk

UNOPENED = frozenset(
    {
        # Kept as they are: whoever needs one reads it later, and nobody validates it.
        "envoy.config.core.v3.Metadata.typed_filter_metadata",
        # Listeners that are an API are passed over where they are served.
        "envoy.config.listener.v3.Listener.api_listener",
    }
)
"""Fields of which Envoy does not look into the Anys."""

_BALANCERS = "envoy.extensions.load_balancing_policies."

UNVALIDATED = frozenset(
    {
        "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck",
        "envoy.extensions.internal_redirect.filter_state.v3.FilterStateConfig",
        "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
        "envoy.extensions.upstreams.http.dynamic_modules.v3.Config",
        f"{_BALANCERS}client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        f"{_BALANCERS}least_request.v3.LeastRequest",
        f"{_BALANCERS}maglev.v3.Maglev",
        f"{_BALANCERS}random.v3.Random",
        f"{_BALANCERS}ring_hash.v3.RingHash",
        f"{_BALANCERS}round_robin.v3.RoundRobin",
        f"{_BALANCERS}wrr_locality.v3.WrrLocality",
    }
)
"""Messages that Envoy takes from an Any as they are."""

Step: TypeAlias = "Callable[[Any, Path, Walk], None]"
"""Takes the value of one field, and the path of the message that holds it."""

Judge: TypeAlias = "Callable[[Any, Path, str | int, Walk], None]"
"""Tells what is wrong with a value; its path is that of its holder and one step more, made only for a fault."""


def judge_of(checks: Sequence[Check], *, secret: bool, prefix: str = "") -> Judge | None:
    """Return what judges a value by checks, of which the first broken one is told; None when there are none."""
    if not checks:
        return None
    tests = tuple(check.is_broken for check in checks)

    def judge(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        for is_broken in tests:
            if is_broken(value):
                check = checks[tests.index(is_broken)]
                walk.tell((path, step), check.rule, prefix + check.message(value, secret=secret), check.remedy)
                return

    if len(checks) > 1:
        return judge
    (is_alone_broken,) = tests

    def judge_by_one(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        if is_alone_broken(value):
            judge(value, path, step, walk)

    return judge_by_one


def step_for_one(name: str, judge: Judge | None, visit: Visit | None) -> Step | None:
    """Return what is done with a field of one value."""
    if visit is None:
        return None if judge is None else _step_to_judge(name, judge)
    if judge is None:

        def step(value: Any, path: Path, walk: Walk) -> None:
            visit(value, (path, name), walk)

    else:

        def step(value: Any, path: Path, walk: Walk) -> None:
            judge(value, path, name, walk)
            visit(value, (path, name), walk)

    return step


def step_with_hooks(name: str, hooks: Sequence[Hook], step: Step | None) -> Step | None:
    """Return what is done with a field whose value hooks look at first."""
    for hook in reversed(hooks):
        step = _step_after(hook, name, step)
    return step


def _step_after(hook: Hook, name: str, step: Step | None) -> Step:
    def step_behind(value: Any, path: Path, walk: Walk) -> None:
        hook(value, (path, name), walk)
        if step is not None:
            step(value, path, walk)

    return step_behind


def _step_to_judge(name: str, judge: Judge) -> Step:
    def step(value: Any, path: Path, walk: Walk) -> None:
        judge(value, path, name, walk)

    return step


def step_for_list(name: str, judges: tuple[Judge | None, Judge | None], visit: Visit | None) -> Step | None:
    """Return what is done with a list: the judges are of the whole and of an element."""
    judge_whole, judge = judges
    if judge_whole is None and judge is None and visit is None:
        return None

    def step(values: Any, path: Path, walk: Walk) -> None:
        if judge_whole is not None:
            judge_whole(values, path, name, walk)
        place = (path, name)
        if judge is not None:
            for index, value in enumerate(values):
                judge(value, place, index, walk)
        if visit is not None:
            for index, value in enumerate(values):
                visit(value, (place, index), walk)

    return step


def step_for_map(
    name: str, judges: tuple[Judge | None, Judge | None, Judge | None], visit: Visit | None
) -> Step | None:
    """Return what is done with a map: the judges are of the whole, of a key and of a value."""
    judge_whole, judge_key, judge = judges
    if judge_whole is None and judge_key is None and judge is None and visit is None:
        return None

    def step(values: Any, path: Path, walk: Walk) -> None:
        if judge_whole is not None:
            judge_whole(values, path, name, walk)
        place = (path, name)
        # In the order of keys: that of a map changes from process to process.
        for key in sorted(values):
            key_step = key if isinstance(key, str) else str(key).lower()
            if judge_key is not None:
                judge_key(key, place, key_step, walk)
            if judge is not None:
                judge(values[key], place, key_step, walk)
            if visit is not None:
                visit(values[key], (place, key_step), walk)

    return step


def judge_unique(*, secret: bool) -> Judge:
    """Return what tells the elements of a list that are in it before."""

    def judge(values: Any, path: Path, step: str | int, walk: Walk) -> None:
        if len(set(values)) == len(values):
            return
        seen = set()
        for index, value in enumerate(values):
            if value in seen:
                text = "must not be there twice" + show_value(value, secret)
                walk.tell(((path, step), index), "not-unique", text, "remove it")
            seen.add(value)

    return judge


def both(first: Judge | None, second: Judge | None) -> Judge | None:
    """Return a judge that asks both."""
    if first is None or second is None:
        return first or second

    def judge(value: Any, path: Path, step: str | int, walk: Walk) -> None:
        first(value, path, step, walk)
        second(value, path, step, walk)

    return judge


_NO_HOOKS: Mapping[str, tuple[Hook, ...]] = MappingProxyType({})

# Per field: how many demands its presence meets, and what is done with its value.
_Rows: TypeAlias = "dict[FieldDescriptor, tuple[int, Step | None]]"

_Packed: TypeAlias = "tuple[type[Message], Visit | None]"


class _Mode(NamedTuple):
    """How a message is looked at.

    Attributes:
        is_ruled: its `validate.rules` count. Those in an Any count again, for Envoy validates that by itself.
        is_opened: Envoy reads it; if not, nothing of it can break a rule, nor what is in an Any in it.
        is_secret: its values must not be told.
    """

    is_ruled: bool = True
    is_opened: bool = True
    is_secret: bool = False


class _Walk(Walk):
    """A walk that knows through how many Anys it has come."""

    __slots__ = ("any_depth",)

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit)
        self.any_depth = 0


class FieldRules:
    """Checks messages of a catalogue as Envoy does, and leads hooks and all that is in an Any through the same walk.

    The rules are those of PGV as its C++ code has them, and the ban on fields and values that are disallowed by default.
    """

    def __init__(self, catalogue: Catalogue, hooks: Mapping[str, tuple[Hook, ...]] = _NO_HOOKS) -> None:
        """Take the rules of a catalogue, and hooks by the full name of the message or the field that they look at.

        A hook of a field is called with its value, and only where it is set; what it returns is of no use.

        Raises:
            ApiError: the catalogue states a rule that is not known here.
        """
        self._catalogue = catalogue
        self._hooks = hooks
        self._survey = catalogue.once(RuleSurvey)
        self._secrecy = catalogue.once(Secrecy)
        # The other names are of fields.
        owners = {name.rpartition(".")[0] for name in hooks if not catalogue.knows(name)}
        self._looked_into = self._survey.ruled | owners
        self._worthwhile = self._survey.holders_of(self._looked_into | hooks.keys())
        self._visits: dict[tuple[str, _Mode], Visit] = {}

    def check(self, message: Message) -> Walk:
        """Return what there is to say of a message and all within it. It never raises."""
        walk = _Walk(self._visit)
        with suppress(EnoughError):
            self._visit(message, None, walk)
        return walk

    def _visit(self, message: Message, path: Path, walk: Walk) -> None:
        visit = self._visit_of(descriptor_of(message), _Mode())
        if visit is not None:
            visit(message, path, walk)

    def _visit_of(self, descriptor: Descriptor, mode: _Mode) -> Visit | None:
        if descriptor.full_name not in self._worthwhile:
            return None
        if self._survey.options.is_unruled(descriptor):
            mode = mode._replace(is_ruled=False)
        key = descriptor.full_name, mode
        visit = self._visits.get(key)
        if visit is None:
            # Known before its fields are looked at: a message may hold messages of its own type.
            rows: _Rows = {}
            visit, demand = _walk(rows)
            if descriptor.full_name == ANY:
                visit = self._enter_any(mode._replace(is_ruled=mode.is_opened))
            hooks = self._hooks.get(descriptor.full_name)
            if hooks:
                visit = _with_hooks(visit if self._has_fields_to_visit(descriptor) else None, hooks)
            self._visits[key] = visit
            demand(self._fill(rows, descriptor, mode))
        return visit

    def _has_fields_to_visit(self, descriptor: Descriptor) -> bool:
        return descriptor.full_name in self._looked_into or any(
            field.message_type is not None and field.message_type.full_name in self._worthwhile
            for field in descriptor.fields
        )

    def _fill(self, rows: _Rows, descriptor: Descriptor, mode: _Mode) -> list[Demand]:
        """Find out what is done with each field, and return what must be there."""
        demands: list[Demand] = []
        if mode.is_ruled:
            demands += [choice_demand(oneof) for oneof in descriptor.oneofs if self._survey.options.is_required(oneof)]
        steps: dict[FieldDescriptor, Step | None] = {}
        for field in descriptor.fields:
            step, demand = self._compile(field, mode)
            steps[field] = step_with_hooks(field.name, self._hooks.get(field.full_name, ()), step)
            if demand is not None:
                demands.append(demand)
        for field, step in steps.items():
            met = sum(field.name in demand.fields for demand in demands)
            if met or step is not None:
                rows[field] = met, step
        return demands

    def _compile(self, field: FieldDescriptor, mode: _Mode) -> tuple[Step | None, Demand | None]:
        rules = self._survey.rules.get(field.full_name, {}) if mode.is_ruled else {}
        mode = self._mode_within(field, rules, mode)
        banned = disallowed_checks(field, self._survey) if mode.is_opened else []
        if is_map(field):
            return self._compile_map(field, rules, mode, banned)
        judge_item = judge_of(element_checks(field, _part(rules, "repeated", "items")), secret=mode.is_secret)
        visit = None if field.message_type is None else self._visit_of(field.message_type, mode)
        if field.is_repeated:
            checks = [*banned, *whole_checks(field, rules)]
            judge = judge_of(beyond_presence(field, checks), secret=mode.is_secret)
            if rules.get("repeated", {}).get("unique"):
                judge = both(judge, judge_unique(secret=mode.is_secret))
            return step_for_list(field.name, (judge, judge_item), visit), default_demand(field, checks)
        checks = [*banned, *element_checks(field, rules)]
        demand = presence_demand(field, rules) or default_demand(field, checks)
        judge = judge_of(beyond_presence(field, checks), secret=mode.is_secret)
        return step_for_one(field.name, judge, visit), demand

    def _mode_within(self, field: FieldDescriptor, rules: RuleGroups, mode: _Mode) -> _Mode:
        if field.full_name in UNOPENED:
            mode = mode._replace(is_ruled=False, is_opened=False)
        is_ruled = mode.is_ruled and not is_unvisited(rules)
        return mode._replace(is_ruled=is_ruled, is_secret=mode.is_secret or self._secrecy.covers(field))

    def _compile_map(
        self, field: FieldDescriptor, rules: RuleGroups, mode: _Mode, banned: list[Check]
    ) -> tuple[Step | None, Demand | None]:
        key, value = map_parts(field)
        checks = [*banned, *whole_checks(field, rules)]
        judges = (
            judge_of(beyond_presence(field, checks), secret=mode.is_secret),
            judge_of(element_checks(key, _part(rules, "map", "keys")), secret=mode.is_secret, prefix="its key "),
            judge_of(element_checks(value, _part(rules, "map", "values")), secret=mode.is_secret),
        )
        visit = None if value.message_type is None else self._visit_of(value.message_type, mode)
        return step_for_map(field.name, judges, visit), default_demand(field, checks)

    def _enter_any(self, mode: _Mode) -> Visit:
        packed: dict[str, _Packed] = {}

        def enter(message: Any, path: Path, walk: Any) -> None:
            found = packed.get(message.type_url)
            if found is None:
                found = self._resolve(message.type_url, mode)
                if found is None:
                    return  # told elsewhere
                packed[message.type_url] = found
            message_class, visit = found
            if visit is None:
                return
            try:
                content = message_class.FromString(message.value)
            except DecodeError:
                return  # told elsewhere
            walk.any_depth += 1
            if walk.any_depth < _ANYS_WITHOUT_A_CARE or _is_within_depth(path, walk.any_depth):
                visit(content, path, walk)
            walk.any_depth -= 1

        return enter

    def _resolve(self, type_url: str, mode: _Mode) -> _Packed | None:
        descriptor = self._catalogue.descriptor(type_url.rpartition("/")[2])
        if descriptor is None:
            return None
        if descriptor.full_name in UNVALIDATED:
            mode = mode._replace(is_ruled=False)
        return self._catalogue.message_class(descriptor.full_name), self._visit_of(descriptor, mode)


# A message of bytes has at most 100 levels; real ones are no deeper than a listener, its filter and that one's filter.
_ANYS_WITHOUT_A_CARE = 3


def _is_within_depth(path: Path, any_depth: int) -> bool:
    """Tell whether the stack will hold what comes: each Any may be as deep again.

    What is deeper than `MAX_DEPTH` messages is told elsewhere; here lists count twice, so that nothing less is left out.
    """
    depth = 2 * any_depth
    while path is not None:
        path = path[0]
        depth += 1
    return depth <= 2 * MAX_DEPTH


def _part(rules: RuleGroups, group: str, part: str) -> RuleGroups:
    found: RuleGroups = rules.get(group, {}).get(part, {})
    return found


def _walk(rows: _Rows) -> tuple[Visit, Callable[[Sequence[Demand]], None]]:
    """Return what visits a message, and what tells it the demands on that message, which may come later."""
    row_of = rows.get
    demands: Sequence[Demand] = ()
    demand_count = 0

    def visit(message: Message, path: Path, walk: Walk) -> None:
        met = 0
        for field, value in message.ListFields():
            row = row_of(field)
            if row is not None:
                meets, step = row
                met += meets
                if step is not None:
                    step(value, path, walk)
        if met != demand_count:
            tell_missing(message, path, walk)

    def tell_missing(message: Message, path: Path, walk: Walk) -> None:
        present = {field.name for field, _ in message.ListFields()}
        for one in demands:
            if one.fields.isdisjoint(present):
                place = path if one.step is None else (path, one.step)
                walk.tell(place, one.rule, one.message, one.remedy)

    def demand(found: Sequence[Demand]) -> None:
        nonlocal demands, demand_count
        demands = found
        demand_count = len(found)

    return visit, demand


def _with_hooks(visit: Visit | None, hooks: tuple[Hook, ...]) -> Visit:
    """Return what calls hooks before and after the fields are visited, if there is anything in them to visit."""
    if len(hooks) > 1:
        return _with_many_hooks(visit, hooks)
    (hook,) = hooks

    def visit_with_hook(message: Message, path: Path, walk: Walk) -> None:
        leave = hook(message, path, walk)
        if visit is not None:
            visit(message, path, walk)
        if leave is not None:
            leave()

    return visit_with_hook


def _with_many_hooks(visit: Visit | None, hooks: tuple[Hook, ...]) -> Visit:
    def visit_with_hooks(message: Message, path: Path, walk: Walk) -> None:
        leaving = [hook(message, path, walk) for hook in hooks]
        if visit is not None:
            visit(message, path, walk)
        for leave in leaving:
            if leave is not None:
                leave()

    return visit_with_hooks
