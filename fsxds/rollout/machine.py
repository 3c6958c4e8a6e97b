"""One channel's rollout: each step is taken before the next.

| rule | source |
| --- | --- |
| A step is done when every client that lacked it took it or left, or after `step_timeout_s`. | xDS protocol, "ACK and NACK semantics summary" |
| Of targets that come during a step, the newest is planned from the served snapshot when it is done. | |
| It follows at once if its first step and this one need no order: a slow client must not hold up all endpoints. Both are then waited for. | |
| Not once a step that others follow has lasted half of `step_timeout_s`; and the switch to a target comes before one with other endpoints alone: frequent endpoints must not put off routes for ever. | |
| A client that has taken none of the steps joined so far has the time of the first: it, too, would put off the rest. | |
| From any other target, endpoints that the step's clusters wait for follow at once. | ENVOY.md E70 |
| A target is good when clients took its users; its removals may follow later, or never before the next target. | |
| Lingering ends `linger_s` after clients took the new listeners, or when no connection drains any more. | ENVOY.md E68, E69 |
| A restart serves the previous snapshot at once; the next step follows when clients had `step_timeout_s` to return, and returned ones have taken it. | ENVOY.md E39 |

`now_s` is of one clock that only goes forward; call `receive_timer` at `timer_at_s`. After any call, `served` is the
snapshot to publish; if `step` changed, call `receive_waiting` after the publication. `target` decides the target.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

from fsxds.model.resources import Key, Resource, Snapshot, snapshot_id
from fsxds.model.values import TypeUrl
from fsxds.rollout.pending import ResourceVersion
from fsxds.rollout.planning import (
    ENDPOINTS,
    Draining,
    LingeringByKey,
    PlannedStep,
    changes_between,
    first_end_s,
    lingering_of,
    next_step,
    shifted,
    supplied_step,
    whole_step,
    with_ends,
    without_drained,
    without_ended,
)
from fsxds.rollout.step import (
    Client,
    Completed,
    LingeringEnded,
    LingeringStarted,
    RolloutEvent,
    Step,
    StepKind,
    StepStarted,
    StepTimedOut,
    Superseded,
)
from fsxds.rollout.target import Pin


class Rollout:
    """One channel's rollout; `served`, `target` and `good` are None before the first target.

    `options` take effect from the next step on; `good` is the last target reached; `step` is to be taken by clients, or
    None; `waiting` have not taken it, with the end of their time; None until they are known. `is_complete`: all these
    have the target.
    """

    def __init__(self, options: RolloutOptions, state: RolloutState | None = None) -> None:
        self.options = options
        self.served: Snapshot | None = None if state is None else state.served
        self.target: Snapshot | None = None if state is None else state.target
        self.good: Snapshot | None = None if state is None else state.good
        # After a restart it is not known which client took which step since the last target was reached.
        self.step: Step | None = None if state is None or state.good is None else whole_step(state.good, state.served)
        self.waiting: dict[Client, float] | None = None
        self.is_complete = False
        # Progress to the target: no step was served yet; the served step is the last; clients took the target's users.
        self._is_first, self._is_last, self._is_switched = True, False, False
        # A newer target, which follows when the step is done.
        self._next: Snapshot | None = None
        self._draining: Draining = () if state is None else state.draining
        # The lingering resources as of the last step.
        self._lingering: LingeringByKey = MappingProxyType({})
        # The end of the time of the clients that wait longest; and of all that had not taken a step joined to this.
        self._step_ends_at_s = inf
        self._waited_until_s: Mapping[Client, float] = {}
        # Until then, targets may join the step if others are to follow it.
        self._joinable_until_s = inf
        self._now_s: float | None = None
        # Clients may return until then before a step follows; None once that is over.
        self._rests_until_s: float | None = None
        self._events: list[RolloutEvent] = []

    def split(self, options: RolloutOptions, now_s: float) -> Rollout:
        """Return some clients' rollout, at the same step, with other options."""
        made = Rollout(options)
        vars(made).update(vars(self) | {"options": options, "waiting": None, "_waited_until_s": {}, "_events": []})
        made._step_ends_at_s = now_s + options.step_timeout_s
        return made

    def replace_rejected(self, replaced: Callable[[Snapshot], Snapshot]) -> None:
        """Map the served snapshot and targets."""
        served, target, later = self.served, self.target, self._next
        self.served = None if served is None else replaced(served)
        self.target = None if target is None else replaced(target)
        self._next = None if later is None else replaced(later)

    def is_near(self, other: Rollout) -> bool:
        """Whether another's clients may be served this snapshot at once.

        Not if that takes several steps, or it lacks resources of their draining listeners.
        """
        if self.served is None or other.served is None:
            return False
        planned = next_step(other.served, self.served, other._draining, is_first=True)
        if planned is None:
            # Only lingering resources differ, and would be removed.
            return not lingering_of(other.served, changes_between(other.served, self.served), other._draining)
        return planned.is_last and not planned.lingering.keys() - self._lingering.keys()

    def serves_the_same(self, other: Rollout) -> bool:
        """Whether both serve the same content."""
        if self.served is None or other.served is None:
            return False
        return self.served is other.served or snapshot_id(self.served) == snapshot_id(other.served)

    def receive_clients_of(self, other: Rollout, now_s: float) -> None:
        """Take over draining listeners of clients that now follow this."""
        self._look_at_clock(now_s)
        self._draining = (*self._draining, *(one for one in other._draining if one not in self._draining))
        if self.step is None:
            # No step ends that would set their end.
            self._draining = with_ends(self._draining, now_s + self.options.linger_s)

    @property
    def target_id(self) -> str:
        """The target's id; empty before the first."""
        return "" if self.target is None else snapshot_id(self.target)

    @property
    def timer_at_s(self) -> float | None:
        """When to call `receive_timer`; None for never."""
        if self.target is None:
            return None
        if self._now_s is None:
            return 0.0
        if self._rests_until_s is not None:
            return self._rests_until_s
        return first_end_s(self._draining) if self.step is None else self._step_ends_at_s

    @property
    def is_resting(self) -> bool:
        """Whether the next step waits for returning clients."""
        return self._rests_until_s is not None or (self._now_s is None and self.target is not None)

    def rest(self, now_s: float) -> None:
        """Let clients return before a step follows."""
        self._now_s = now_s
        if self._rests_until_s is None or self._rests_until_s < now_s:
            self._rests_until_s = now_s + self.options.step_timeout_s
        self._step_ends_at_s = self._rests_until_s + self.options.step_timeout_s

    def end_rest(self, now_s: float, in_s: float = 0.0) -> None:
        """Let steps follow soon, at `timer_at_s`: the clients have returned."""
        self._look_at_clock(now_s)
        self._rests_until_s = None if self._rests_until_s is None else now_s + in_s

    def receive_target(self, target: Snapshot, now_s: float) -> None:
        """Take the next target, at once or after this step."""
        self._look_at_clock(now_s)
        if target is (self._next or self.target):
            return
        self._next = target
        if self.step is None or not self.options.is_on:
            self._proceed(now_s)
        else:
            self._supersede(self.step, now_s)

    def receive_waiting(self, clients: AbstractSet[Client], now_s: float) -> None:
        """Take the clients to wait for; without any, go on."""
        self._look_at_clock(now_s)
        if self.step is not None:
            until_s = now_s + self.options.step_timeout_s
            self.waiting = {client: self._waited_until_s.get(client, until_s) for client in clients}
            if self._waited_until_s:
                self._step_ends_at_s = min(self.waiting.values(), default=until_s)
            self._end_step_if_taken(now_s)

    def receive_late(self, client: Client, now_s: float) -> None:
        """Wait also for a new client."""
        self._look_at_clock(now_s)
        if self.step is not None:
            self.waiting = self.waiting or {}
            self.waiting.setdefault(client, self._step_ends_at_s)

    def late(self, now_s: float) -> set[Client]:
        """Return clients that have taken neither this step in time, nor one joined to it."""
        return {client for client, until_s in (self.waiting or {}).items() if until_s <= now_s}

    def receive_taken(self, client: Client, now_s: float) -> None:
        """Record that a client took the step, or left."""
        self._look_at_clock(now_s)
        if self.step is not None and self.waiting is not None:
            self.waiting.pop(client, None)
            self._end_step_if_taken(now_s)

    def receive_timer(self, now_s: float) -> None:
        """Take the actions that are due."""
        self._look_at_clock(now_s)
        if self._rests_until_s is not None and now_s >= self._rests_until_s:
            self._rests_until_s, self.waiting = None, self.waiting or {}
            self._end_step_if_taken(now_s)
        if self.step is None:
            self._proceed(now_s)
        elif now_s >= self._step_ends_at_s:
            late, waiting = self.late(now_s), self.waiting or {}
            if late or not waiting:
                self._events.append(StepTimedOut(self.target_id, self.step, frozenset(late)))
            self.waiting = {client: until_s for client, until_s in waiting.items() if client not in late}
            if self.waiting:
                self._step_ends_at_s = min(self.waiting.values())
            else:
                self._end_step(now_s)

    def end_step_now(self, now_s: float) -> None:
        """Stop waiting for the step's clients."""
        self._look_at_clock(now_s)
        self._set_deadline(now_s)

    def prolong(self, now_s: float) -> None:
        """Restart the step's time limit."""
        self._look_at_clock(now_s)
        self._set_deadline(now_s + self.options.step_timeout_s)

    def _set_deadline(self, at_s: float) -> None:
        self._step_ends_at_s = at_s
        if self.waiting:
            self.waiting = dict.fromkeys(self.waiting, at_s)

    def receive_drained(self, listeners: Collection[str], now_s: float) -> None:
        """Record that old versions have no open connection."""
        self._look_at_clock(now_s)
        self._draining = without_drained(self._draining, listeners)
        if self.step is None:
            self._proceed(now_s)

    def has_reached(self, target: Snapshot) -> bool:
        """Whether a target was reached, with none under way."""
        return self.is_complete and self._next is None and target is self.target

    @property
    def taken(self) -> Snapshot | None:
        """The snapshot whose references clients have: the target once they took its users, else `good`.

        An empty `good`, as before an upstream answers, does not count: clients' new resources would be lost.
        """
        is_empty = self.good is None or not any(self.good.by_type.values())
        return self.target if self._is_switched or is_empty else self.good

    @property
    def begun(self) -> Mapping[TypeUrl, Sequence[Resource]]:
        """New served resources whose users clients may not have taken."""
        taken, served, target = self.taken, self.served, self.target
        if taken is None or served is None or target is None or taken is target:
            return {}
        found = {}
        for type_url, rows in served.by_type.items():
            before, wanted = taken.resources(type_url), target.resources(type_url)
            names = rows.changes_since(before).fresh
            found[type_url] = [rows[name] for name in names if name not in before and name in wanted]
        return found

    def take_events(self) -> tuple[RolloutEvent, ...]:
        """Return the events since the last call."""
        events, self._events = tuple(self._events), []
        return events

    @property
    def lingering(self) -> LingeringByKey:
        """Resources that stay without the target."""
        if self.served is None or self.target is None:
            return {}
        return lingering_of(self.served, changes_between(self.served, self.target), self._draining)

    @property
    def state(self) -> RolloutState | None:
        """The state to survive a restart; None before the first target."""
        if self.served is None or self.target is None:
            return None
        return RolloutState(self.served, self.target, self.good, shifted(self._draining, -(self._now_s or 0.0)))

    def _look_at_clock(self, now_s: float) -> None:
        if self._now_s is None and self.served is not None:
            self._draining = shifted(self._draining, now_s)
            # Clients come back one by one; until then it is not known which versions they have.
            self.rest(now_s)
        self._now_s = now_s

    def _supersede(self, step: Step, now_s: float) -> None:
        """Serve the next target's first step early, if no order counts."""
        if self._next is None or self.served is None or self.is_resting:
            return
        if (supplied := supplied_step(step, self.served, self._next)) is not None:
            self._add_endpoints(supplied, now_s)
            return
        planned = self._planned(self._next, is_first=True)
        was_last, until_s, waiting = self._is_last, self._joinable_until_s, self.waiting or {}
        if planned is not None and (was_last or now_s < until_s) and step.needs_no_order_with(planned.step):
            self.step = self.waiting = None
            self._proceed(now_s, untaken=step)
            self._waited_until_s = waiting
            if not was_last:
                self._joinable_until_s = until_s

    def _add_endpoints(self, step: Step, now_s: float) -> None:
        """Serve endpoints that a step's clusters wait for, without a new time limit."""
        ends_at_s, until_s, waiting = self._step_ends_at_s, self._joinable_until_s, self.waiting or {}
        self._serve(PlannedStep(step, self._is_last, self._draining, self._lingering), now_s)
        self._step_ends_at_s, self._joinable_until_s, self._waited_until_s = ends_at_s, until_s, waiting

    def _proceed(self, now_s: float, untaken: Step | None = None, *, adopts: bool = True) -> None:
        """Serve the next step; an `untaken` one is to be taken together with it."""
        if self._rests_until_s is not None and self.options.is_on and now_s < self._rests_until_s:
            return
        self._rests_until_s = None
        if not self.options.is_on:
            self.step = self.waiting = None
        if adopts:
            self._adopt()
        if self.target is None:
            return
        self._draining = without_ended(self._draining, now_s)
        planned = self._planned(self.target, is_first=self._is_first)
        if planned is not None:
            step = planned.step if untaken is None else untaken.joined_with(planned.step)
            self._serve(replace(planned, step=step), now_s)
        else:
            self._complete()
            if self._next is not None:
                self._proceed(now_s)

    def _adopt(self) -> None:
        target, self._next = self._next, None
        if target is None:
            return
        if self.target is not None and not self.is_complete:
            if snapshot_id(target) == self.target_id:
                self.target = target
                return
            self._events.append(Superseded(self.target_id))
            if self._is_switched:
                self.good = self.target
        self.target, self.is_complete = target, False
        self._is_first, self._is_last, self._is_switched = True, False, False

    def _planned(self, target: Snapshot, *, is_first: bool) -> PlannedStep | None:
        if self.served is None or not self.options.is_on:
            step = whole_step(self.served, target)
            return None if step is None else PlannedStep(step, is_last=True, draining=(), lingering={})
        lingers = self.options.linger_s > 0
        return next_step(self.served, target, self._draining, is_first=is_first, lingers=lingers)

    def _serve(self, planned: PlannedStep, now_s: float) -> None:
        self._is_last, self._is_first = planned.is_last, False
        if started := planned.lingering.keys() - self._lingering.keys():
            self._events.append(LingeringStarted(self.target_id, frozenset(started)))
        rows = planned.step.snapshot.resources
        # A name that came back neither lingers nor is removed.
        if ended := {key for key in self._lingering.keys() - planned.lingering.keys() if key[1] not in rows(key[0])}:
            self._events.append(LingeringEnded(self.target_id, frozenset(ended)))
        self.served, self._draining, self._lingering = planned.step.snapshot, planned.draining, planned.lingering
        self._events.append(StepStarted(self.target_id, planned.step))
        self.step, self.waiting, self._waited_until_s = planned.step, None, {}
        self._step_ends_at_s = now_s + self.options.step_timeout_s
        self._joinable_until_s = now_s + self.options.step_timeout_s / 2
        if not self.options.is_on:
            self._end_step(now_s)

    def _end_step_if_taken(self, now_s: float) -> None:
        if self.step is not None and self.waiting is not None and not self.waiting and not self.is_resting:
            self._end_step(now_s)

    def _end_step(self, now_s: float) -> None:
        if self.step is not None:
            self._is_switched |= self.step.step_kind is StepKind.SWITCH
        self.step = self.waiting = None
        self._draining = with_ends(self._draining, now_s + self.options.linger_s)
        if self._is_last:
            self._complete()
        self._proceed(now_s, adopts=not self._changes_endpoints_alone)

    @property
    def _changes_endpoints_alone(self) -> bool:
        """Whether the next target leaves all that the present one has yet to switch, and that this uses."""
        if self._next is None or self.target is None or self.is_complete or self._is_switched:
            return False
        changes = changes_between(self.target, self._next)
        return not any(change for type_url, change in changes.items() if type_url != ENDPOINTS)

    def _complete(self) -> None:
        if self.is_complete or self.target is None:
            return
        if not self._is_first or self.good is None or snapshot_id(self.good) != self.target_id:
            self._events.append(Completed(self.target_id))
        self.is_complete, self._is_first = True, False
        self.good = self.target


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """A rollout's options.

    Without `is_on`, every target is served at once, without lingering. Until `unknown_until_s`, by the clients' clock,
    draining listeners may use unserved resources: the previous process left no state.
    """

    is_on: bool = True
    linger_s: float = 600.0
    step_timeout_s: float = 5.0
    unknown_until_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RolloutState:
    """The state to survive a restart.

    `good` is the last target reached; `draining` has seconds left; `pinned_at_s` counts since 1970, None without pins.
    `before` has the snapshot before versions that nodes reject; `nodes` are some of the channel's, behind the rest.
    `pinned` is to roll back to, until a tree shows the resources to pin; `held_for_s` is how long each resource has
    been held.
    """

    served: Snapshot
    target: Snapshot
    good: Snapshot | None = None
    draining: Draining = ()
    pins: Mapping[Key, Pin] = field(default_factory=dict)
    pinned_at_s: float | None = None
    before: Mapping[ResourceVersion, Snapshot] = field(default_factory=dict)
    nodes: frozenset[tuple[str, str]] = frozenset()
    pinned: Snapshot | None = None
    held_for_s: Mapping[Key, float] = field(default_factory=dict)
