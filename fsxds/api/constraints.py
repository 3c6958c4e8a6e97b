"""Checks a message and everything in it as Envoy does, by functions compiled once per type.

The rules are those of PGV's C++ code (`constraint_options`, `constraint_checks`), and the ban on disallowed fields and
values. The same walk opens every Any and calls the hooks of other checks.

A message type has a `Visit`; a field worth checking a `Step`, which reports faults of its value and visits its messages.
Types that can hold no rule, hook or Any have neither.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, cast

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraint_checks import (
    Demand,
    ValueCheck,
    beyond_presence,
    choice_demand,
    default_demand,
    disallowed_checks,
    element_checks,
    is_unvisited,
    required_demand,
    show_value,
    whole_checks,
)
from fsxds.api.constraint_options import ApiRules, RuleGroups
from fsxds.api.fields import ANY, FieldValue, descriptor_of, is_map, map_parts
from fsxds.api.secrets import Secrecy
from fsxds.api.walk import MAX_DEPTH, Hook, Path, TooManyFaultsError, Visit, Walk
from fsxds.model.memo import Lru

# Exceptions to Envoy 1.40's validation of the API's rules, found by trying each of them.

_UNOPENED = frozenset(
    {
        # Stored unparsed: read on demand, without validation.
        "envoy.config.core.v3.Metadata.typed_filter_metadata",
        # API listeners are ignored when served by xDS.
        "envoy.config.listener.v3.Listener.api_listener",
    }
)
"""Fields in which Envoy does not open Anys."""

_BALANCERS = "envoy.extensions.load_balancing_policies."

_UNVALIDATED = frozenset(
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
"""Messages that Envoy takes from an Any without validation."""

_UNRULED = frozenset({"xds.core.v3.CollectionEntry"})
"""Messages whose own rules Envoy ignores, but not those of the Anys in them (ENVOY.md E79)."""

Step: TypeAlias = Callable[[FieldValue, Path, Walk], None]
"""Takes the value of one field, and the path of the message that holds it."""

Report: TypeAlias = Callable[[FieldValue, Path, str | int, Walk], None]
"""Reports faults of a value; takes the holder's path and one more step, which are joined only for a fault."""


class _OneStep(NamedTuple):
    """A singular field's step, as data: most need no call. Each of `tests` triggers `report`."""

    name: str
    tests: tuple[Callable[[FieldValue], object], ...] = ()
    report: Report | None = None
    visit: Visit | None = None

    def take(self, value: FieldValue, path: Path, walk: Walk) -> None:
        if self.report is not None:
            self.report(value, path, self.name, walk)
        if self.visit is not None:
            self.visit(value, (path, self.name), walk)


# Per field: the number of demands that its presence meets, and the step for its value.
_Rows: TypeAlias = dict[FieldDescriptor, tuple[int, _OneStep, Step | None]]

_NOTHING: Final = _OneStep("")

_NO_HOOKS: Mapping[str, tuple[Hook, ...]] = MappingProxyType({})

# A message of bytes has at most 100 levels; real Anys nest no deeper than a listener, its filter and that one's filter.
_ANYS_OF_ANY_DEPTH: Final = 3

# The number of Any contents remembered per mode, and the largest size in bytes: some megabytes at most.
_MOST_SILENT: Final = 4096
_LARGEST_SILENT: Final = 2000


class _Mode(NamedTuple):
    """How a message is checked.

    Attributes:
        is_ruled: its `validate.rules` count. In an Any they count again: Envoy validates it separately (ENVOY.md E53).
        is_opened: Envoy reads it; if not, nothing in it breaks a rule.
    """

    is_ruled: bool = True
    is_opened: bool = True
    is_secret: bool = False


class _Walk(Walk):
    __slots__ = ("any_depth",)

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit)
        self.any_depth = 0


class FieldRules:
    """Checks messages, and calls hooks on the way."""

    def __init__(self, catalogue: Catalogue, hooks: Mapping[str, tuple[Hook, ...]] = _NO_HOOKS) -> None:
        """Take hooks by full names of messages and fields.

        A field's hook is called with its value, if set; its result is ignored.

        Raises:
            ApiError: the catalogue has an unknown rule.
        """
        self._catalogue = catalogue
        self._hooks = hooks
        self._rules = catalogue.once(ApiRules)
        self._secrecy = catalogue.once(Secrecy)
        # The other names are fields.
        owners = {name.rpartition(".")[0] for name in hooks if not catalogue.knows(name)}
        self._types_to_check = self._rules.ruled | owners
        self._types_to_visit = self._rules.holders_of(self._types_to_check | hooks.keys())
        self._visits: dict[tuple[str, _Mode], Visit | None] = {}

    def check(self, message: Message) -> Walk:
        """Return a message's findings. Never raises."""
        walk = _Walk(self._enter)
        with suppress(TooManyFaultsError):
            self._visit(message, None, walk)
        return walk

    def _enter(self, message: Message, path: Path, walk: Walk) -> None:
        self._visit(message, path, walk, is_ruled=descriptor_of(message).full_name not in _UNVALIDATED)

    def _visit(self, message: Message, path: Path, walk: Walk, *, is_ruled: bool = True) -> None:
        visit = self._visit_of(descriptor_of(message), _Mode(is_ruled=is_ruled))
        if visit is not None:
            visit(message, path, walk)

    def _visit_of(self, descriptor: Descriptor, mode: _Mode) -> Visit | None:
        if descriptor.full_name not in self._types_to_visit:
            return None
        key = descriptor.full_name, mode
        found = self._visits.get(key)
        if found is not None:
            return found
        if self._rules.is_unruled(descriptor) or descriptor.full_name in _UNRULED:
            mode = mode._replace(is_ruled=False)
        rows: _Rows = {}
        demands: list[Demand] = []
        hooks = self._hooks.get(descriptor.full_name, ())
        visit: Visit | None = _fields_visit(rows, demands)
        if descriptor.full_name == ANY:
            visit = self._any_visit(mode._replace(is_ruled=mode.is_opened))
        elif hooks and descriptor.full_name not in self._types_to_check:
            held = (field.message_type for field in descriptor.fields if field.message_type is not None)
            visit = visit if any(one.full_name in self._types_to_visit for one in held) else None
        if hooks:
            visit = _visit_with_hooks(hooks, visit)
        # Registered before its fields: a message may hold messages of its own type.
        self._visits[key] = visit
        self._compile(descriptor, mode, rows, demands)
        return visit

    def _compile(self, descriptor: Descriptor, mode: _Mode, rows: _Rows, demands: list[Demand]) -> None:
        if mode.is_ruled:
            demands += [choice_demand(oneof) for oneof in descriptor.oneofs if self._rules.is_required(oneof)]
        steps: dict[FieldDescriptor, Step | _OneStep | None] = {}
        for field in descriptor.fields:
            step, demand = self._compile_field(field, mode)
            for hook in reversed(self._hooks.get(field.full_name, ())):
                step = _step_after_hook(hook, field.name, step.take if isinstance(step, _OneStep) else step)
            steps[field] = step
            if demand is not None:
                demands.append(demand)
        for field, step in steps.items():
            met = sum(field.name in demand.fields for demand in demands)
            if isinstance(step, _OneStep):
                rows[field] = met, step, None
            elif met or step is not None:
                rows[field] = met, _NOTHING, step

    def _compile_field(self, field: FieldDescriptor, mode: _Mode) -> tuple[Step | _OneStep | None, Demand | None]:
        rules = self._rules.rules_of(field) if mode.is_ruled else {}
        mode = self._mode_within(field, rules, mode)
        banned = disallowed_checks(field, self._rules) if mode.is_opened else []
        if is_map(field):
            return self._compile_map(field, rules, mode, banned)
        visit = None if field.message_type is None else self._visit_of(field.message_type, mode)
        if not field.is_repeated:
            checks = [*banned, *element_checks(field, rules)]
            demand = required_demand(field, rules) or default_demand(field, checks)
            return _step_for_one(field.name, beyond_presence(field, checks), visit, secret=mode.is_secret), demand
        checks = [*banned, *whole_checks(field, rules)]
        wholes = [_report_of(beyond_presence(field, checks), secret=mode.is_secret)]
        if rules.get("repeated", {}).get("unique"):
            wholes.append(_report_of_repeats(secret=mode.is_secret))
        report = _report_of(element_checks(field, _part(rules, "repeated", "items")), secret=mode.is_secret)
        return _step_for_list(field.name, wholes, report, visit), default_demand(field, checks)

    def _compile_map(
        self, field: FieldDescriptor, rules: RuleGroups, mode: _Mode, banned: list[ValueCheck]
    ) -> tuple[Step | None, Demand | None]:
        key, value = map_parts(field)
        checks = [*banned, *whole_checks(field, rules)]
        reports = (
            _report_of(beyond_presence(field, checks), secret=mode.is_secret),
            _report_of(element_checks(key, _part(rules, "map", "keys")), secret=mode.is_secret, prefix="its key "),
            _report_of(element_checks(value, _part(rules, "map", "values")), secret=mode.is_secret),
        )
        visit = None if value.message_type is None else self._visit_of(value.message_type, mode)
        return _step_for_map(field.name, reports, visit), default_demand(field, checks)

    def _mode_within(self, field: FieldDescriptor, rules: RuleGroups, mode: _Mode) -> _Mode:
        is_secret = mode.is_secret or self._secrecy.covers(field)
        if field.full_name in _UNOPENED:
            return _Mode(is_ruled=False, is_opened=False, is_secret=is_secret)
        return mode._replace(is_ruled=mode.is_ruled and not is_unvisited(rules), is_secret=is_secret)

    def _any_visit(self, mode: _Mode) -> Visit:
        packed: dict[str, tuple[type[Message], Visit | None]] = {}
        # Contents without anything to report or note; many are alike, within and across resources.
        silent: Lru[tuple[str, bytes, str | int | None], bool] = Lru(_MOST_SILENT)

        def visit_content(message: Message, path: Path, walk: Walk) -> None:
            holder, walk = cast("AnyMessage", message), cast("_Walk", walk)
            found = packed.get(holder.type_url)
            if found is None:
                descriptor = self._catalogue.descriptor(holder.type_url.rpartition("/")[2])
                if descriptor is None:
                    return
                inner = mode._replace(is_ruled=mode.is_ruled and descriptor.full_name not in _UNVALIDATED)
                found = self._catalogue.message_class(descriptor.full_name), self._visit_of(descriptor, inner)
                packed[holder.type_url] = found
            message_class, visit = found
            if visit is None:
                return
            content = holder.value
            # Checks of the content ignore its surroundings, except for its field, unless they call `depend_on_place`.
            key = holder.type_url, content, path and path[1]
            if silent.get(key):
                return
            noted = walk.noted
            _visit_packed(content, message_class, visit, (path, walk))
            if walk.noted == noted and len(content) <= _LARGEST_SILENT and not mode.is_secret:
                silent.put(key, value=True)

        return visit_content


def _visit_packed(content: bytes, message_class: type[Message], visit: Visit, place: tuple[Path, _Walk]) -> None:
    """The converter reports unreadable Anys."""
    path, walk = place
    try:
        message = message_class.FromString(content)
    except DecodeError:
        return
    walk.any_depth += 1
    if walk.any_depth < _ANYS_OF_ANY_DEPTH or _is_within_depth(path, walk.any_depth):
        visit(message, path, walk)
    else:
        walk.depend_on_place()
    walk.any_depth -= 1


def _is_within_depth(path: Path, any_depth: int) -> bool:
    """Whether the stack suffices: each Any may be as deep again.

    Deeper than `MAX_DEPTH` messages is reported elsewhere; lists count twice, so that nothing less deep is skipped.
    """
    depth = 2 * any_depth
    while path is not None:
        path = path[0]
        depth += 1
    return depth <= 2 * MAX_DEPTH


def _part(rules: RuleGroups, group: str, part: str) -> RuleGroups:
    found: RuleGroups = rules.get(group, {}).get(part, {})
    return found


def _fields_visit(rows: _Rows, demands: Sequence[Demand]) -> Visit:
    """`rows` and `demands` may be filled later."""
    row_of = rows.get

    def visit(message: Message, path: Path, walk: Walk) -> None:
        met = 0
        for field, value in message.ListFields():
            row = row_of(field)
            if row is None:
                continue
            meets, (name, tests, report, visit_inner), step = row
            met += meets
            for is_broken in tests:
                if is_broken(value) and report is not None:
                    report(value, path, name, walk)
                    break
            if visit_inner is not None:
                visit_inner(value, (path, name), walk)
            elif step is not None:
                step(value, path, walk)
        if met != len(demands):
            _report_missing(message, path, walk, demands)

    return visit


def _report_missing(message: Message, path: Path, walk: Walk, demands: Sequence[Demand]) -> None:
    present = {field.name for field, _ in message.ListFields()}
    for one in demands:
        if one.fields.isdisjoint(present):
            place = path if one.step is None else (path, one.step)
            walk.error(place, one.rule, one.message, one.remedy)


def _visit_with_hooks(hooks: Sequence[Hook], visit: Visit | None) -> Visit:
    if len(hooks) == 1:
        return _visit_with_hook(hooks[0], visit)

    def visit_with_hooks(message: Message, path: Path, walk: Walk) -> None:
        leaves: Any = None  # the innermost first, each with those around it
        for hook in hooks:
            leave = hook(message, path, walk)
            if leave is not None:
                leaves = leave, leaves
        if visit is not None:
            visit(message, path, walk)
        while leaves is not None:
            leave, leaves = leaves
            leave()

    return visit_with_hooks


def _visit_with_hook(hook: Hook, visit: Visit | None) -> Visit:
    def visit_with_hook(message: Message, path: Path, walk: Walk) -> None:
        leave = hook(message, path, walk)
        if visit is not None:
            visit(message, path, walk)
        if leave is not None:
            leave()

    return visit_with_hook


def _step_after_hook(hook: Hook, name: str, step: Step | None) -> Step:
    def step_after_hook(value: FieldValue, path: Path, walk: Walk) -> None:
        hook(value, (path, name), walk)
        if step is not None:
            step(value, path, walk)

    return step_after_hook


def _step_for_one(name: str, checks: Sequence[ValueCheck], visit: Visit | None, *, secret: bool) -> _OneStep | None:
    report = _report_of(checks, secret=secret)
    if report is None and visit is None:
        return None
    return _OneStep(name, tuple(check.is_broken for check in checks), report, visit)


def _step_for_list(
    name: str, wholes: Sequence[Report | None], report: Report | None, visit: Visit | None
) -> Step | None:
    list_reports = [whole for whole in wholes if whole is not None]
    if not list_reports and report is None and visit is None:
        return None

    def step(values: Sequence[FieldValue], path: Path, walk: Walk) -> None:
        for report_list in list_reports:
            report_list(values, path, name, walk)
        place = (path, name)
        if report is not None:
            for index, value in enumerate(values):
                report(value, place, index, walk)
        if visit is not None:
            for index, value in enumerate(values):
                visit(value, (place, index), walk)

    return step


def _step_for_map(
    name: str, reports: tuple[Report | None, Report | None, Report | None], visit: Visit | None
) -> Step | None:
    report_map, report_key, report = reports
    if report_map is None and report_key is None and report is None and visit is None:
        return None

    def step(values: Mapping[FieldValue, FieldValue], path: Path, walk: Walk) -> None:
        if report_map is not None:
            report_map(values, path, name, walk)
        place = (path, name)
        # In the order of keys: a map's own order differs between processes.
        for key in sorted(values):
            key_step = key if isinstance(key, str) else str(key).lower()
            if report_key is not None:
                report_key(key, place, key_step, walk)
            if report is not None:
                report(values[key], place, key_step, walk)
            if visit is not None:
                visit(values[key], (place, key_step), walk)

    return step


def _report_of(checks: Sequence[ValueCheck], *, secret: bool, prefix: str = "") -> Report | None:
    if not checks:
        return None
    tests = tuple(check.is_broken for check in checks)

    def report(value: FieldValue, path: Path, step: str | int, walk: Walk) -> None:
        for is_broken in tests:
            if is_broken(value):
                check = checks[tests.index(is_broken)]
                walk.error((path, step), check.rule, prefix + check.message(value, secret=secret), check.remedy)
                return

    return report


def _report_of_repeats(*, secret: bool) -> Report:

    def report(values: Collection[FieldValue], path: Path, step: str | int, walk: Walk) -> None:
        if len(set(values)) == len(values):
            return
        seen = set()
        for index, value in enumerate(values):
            if value in seen:
                text = "is duplicated" + ("" if secret else show_value(value))
                walk.error(((path, step), index), "not-unique", text, "remove it")
            seen.add(value)

    return report
