"""The rollout of one channel: from target to target by steps, each of which clients take before the next one.

| rule | source |
| --- | --- |
| A step is done when every client took it that had not, or is gone, or after `step_timeout_s`. | xDS protocol, "ACK and NACK semantics summary" |
| Who lets a step time out is late: nobody waits for it again until it took something. | |
| A target that comes during a step is kept, the newest wins, and is planned from what is served when the step is done. | |
| It follows at once where its first step and this one are of one sort, between which no order counts: a slow client must not hold up the endpoints of all others. Both are then waited for. | |
| When `nack_limit` clients rejected a target before it shrinks, what was good last is served again, by steps of its own. | ENVOY.md E12 |
| What they rejected before, and do again, is no reason to take back what did not change it. | ENVOY.md E12 |
| A target is good when clients took its users; what it removes may go later, or never if the next one comes first. | |
| What was taken back is tainted: it is not served again until the tree asks for something else. | |
| A rollback is not taken back: rejections count as taken. A target that comes meanwhile waits for its end. | |
| What lingers ends `linger_s` after clients took the new listeners, or when nothing drains any more. | ENVOY.md E68, E69 |
| After a restart, what was served is served at once; the next step comes when clients had `step_timeout_s` to return. | ENVOY.md E39 |

It has no clock: callers pass `now_s`, of one clock that only goes forward, and call `receive_timer` at `timer_at_s`. After any
call, `served` is what is to be published. If `step` is another one then, `receive_waiting` is to follow the publication.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from math import inf
from types import MappingProxyType

from fsxds.resources import Snapshot
from fsxds.rollout.guard import removals_to_approve
from fsxds.rollout.lingering import (
    Draining,
    LingeringByKey,
    first_end_s,
    lingering_of,
    shifted,
    with_ends,
    without_drained,
    without_ended,
)
from fsxds.rollout.planning import PlannedStep, Way, changes_between, next_step, whole_step
from fsxds.rollout.restored import Restored
from fsxds.rollout.rollout_events import (
    Completed,
    Held,
    LingeringEnded,
    LingeringStarted,
    RolledBack,
    RolloutEvent,
    StepStarted,
    StepTimedOut,
    Stopped,
    Superseded,
)
from fsxds.rollout.rollout_state import HeldTarget, OnNack, RolloutOptions, RolloutState, RolloutStatus
from fsxds.rollout.step import Client, Rejection, Step, StepKind, snapshot_id

# A rejection of these takes a target back; what shrinks later was agreed to before.
REVERSIBLE = frozenset((StepKind.WHOLE, StepKind.GROW, StepKind.SWITCH))


@dataclass(slots=True)
class _Plan:
    """The way to one target. `is_last`: the step that is served is the target itself, with what lingers.

    `is_switched`: clients took its users, and only what these do not use is to go yet.
    """

    target: Snapshot
    snapshot_id: str
    way: Way = Way.FIRST
    is_last: bool = False
    is_switched: bool = False
    is_complete: bool = False
    is_stopped: bool = False
    rejections: dict[Client, Rejection] = field(default_factory=dict)


class Rollout:
    """What one channel is served, and when.

    Attributes:
        options: how it is run; others count from the next step on.
        served: what is to be served now; None before the first target.
        step: the step that is waited for; None while nothing is to be waited for.
    """

    def __init__(self, options: RolloutOptions, state: RolloutState | None = None) -> None:
        """Begin with nothing, or where another process was."""
        self.options = options
        self.served: Snapshot | None = None
        self.step: Step | None = None
        self._plan: _Plan | None = None
        # The target that was reached last, and what was served then: the same, and what lingered.
        self._good: Snapshot | None = None
        self._good_served: Snapshot | None = None
        # What the tree asks for: as it came, and with what it may lack by mistake.
        self._received: Snapshot | None = None
        self._asked: Snapshot | None = None
        self._asked_id: str | None = None
        # What was last decided on, whether it became the target or not.
        self._decided: Snapshot | None = None
        self._pinned: Snapshot | None = None
        self._held: HeldTarget | None = None
        self._tainted: frozenset[str] = frozenset()
        self._approved: frozenset[str] = frozenset()
        self._draining: Draining = ()
        # What of it the target does not have, as of the last step.
        self._lingering: LingeringByKey = MappingProxyType({})
        self._late: set[Client] = set()
        # None until those who have to take the step are known.
        self._waiting: set[Client] | None = None
        self._step_ends_at_s = inf
        self._now_s: float | None = None
        self._rests_until_s = -inf
        self._events: list[RolloutEvent] = []
        self._restored = Restored()
        if state is not None:
            self._restore(state)

    def _restore(self, state: RolloutState) -> None:
        self.served, self._pinned = state.served, state.pinned
        self._good = self._good_served = state.good
        self._decided = state.pinned
        self._asked_id, self._tainted = state.asked_id, state.tainted
        way = Way.BACK if state.is_back else Way.FIRST
        self._plan = _Plan(state.target, snapshot_id(state.target), way, is_stopped=state.is_stopped)
        self._draining = state.draining
        self._restored = Restored(state.target)

    def split(self) -> Rollout:
        """Return a rollout for clients of this one that are to get something else: it goes on from what they are served.

        What drains is the same for both. What the tree asked for before counts as reached, so that a target which removes
        much of it is held.
        """
        made = Rollout(self.options)
        made.served, made._now_s, made._draining = self.served, self._now_s, self._draining
        made._good, made._good_served = self._good, self._good_served
        if self._plan is not None:
            made._plan = _Plan(self._plan.target, self._plan.snapshot_id, Way.ONWARD, is_complete=True)
        return made

    @property
    def late(self) -> frozenset[Client]:
        """The clients that let a step time out and took nothing since."""
        return frozenset(self._late)

    @property
    def timer_at_s(self) -> float | None:
        """When to call `receive_timer`; None for never."""
        if self.step is not None:
            return self._step_ends_at_s
        if self._plan is None:
            return None
        if self._now_s is None:
            return 0.0
        if self._now_s < self._rests_until_s:
            return self._rests_until_s
        return None if self._plan.is_stopped else first_end_s(self._draining)

    def receive_target(self, target: Snapshot, now_s: float) -> None:
        """Take what the tree asks for. It is decided on at once, or when the step is done that is waited for."""
        self._look_at_clock(now_s)
        self._received, asked = target, self._restored.complete(target)
        asked_id = snapshot_id(asked)
        if asked_id != self._asked_id:
            self._tainted = self._approved = frozenset()
            self._pinned = self._held = None
        self._asked, self._asked_id = asked, asked_id
        if self.step is None or not self.options.is_on:
            self._proceed(now_s)
        else:
            self._overtake(self.step, asked, now_s)

    def receive_waiting(self, clients: AbstractSet[Client], now_s: float) -> None:
        """Take which clients have not taken the step yet, as of now; without any, the next one follows."""
        self._look_at_clock(now_s)
        if self.step is not None:
            self._waiting = set(clients) - self._late
            self._end_step_if_taken(now_s)

    def receive_taken(self, client: Client, now_s: float) -> None:
        """Note that a client has taken the step."""
        self._look_at_clock(now_s)
        self._late.discard(client)
        self._stop_waiting_for(client, now_s)

    def receive_gone(self, client: Client, now_s: float) -> None:
        """Note that a client is gone."""
        self.receive_taken(client, now_s)

    def receive_rejected(self, client: Client, rejection: Rejection, now_s: float) -> None:
        """Note that a client rejected the step."""
        self._look_at_clock(now_s)
        plan, step = self._plan, self.step
        if step is not None and plan is not None and self._counts(rejection, step, plan):
            plan.rejections[client] = rejection
            is_reversible = step.step_kind in REVERSIBLE and self.options.on_nack is not OnNack.CONTINUE
            if is_reversible and len(plan.rejections) >= self.options.nack_limit:
                self._give_up(plan, now_s)
                return
        self.receive_taken(client, now_s)

    def receive_timer(self, now_s: float) -> None:
        """Do what is due at this time."""
        self._look_at_clock(now_s)
        if self.step is None:
            self._proceed(now_s)
        elif now_s >= self._step_ends_at_s:
            late = frozenset(self._waiting or ())
            self._late |= late
            self._events.append(StepTimedOut(self._target_id, self.step, late))
            self._end_step(now_s)

    def receive_drained(self, listeners: Collection[str], now_s: float) -> None:
        """Note that no connection of an old version of these listeners is open any more."""
        self._look_at_clock(now_s)
        self._draining = without_drained(self._draining, listeners)
        self._continue(now_s)

    def approve(self, snapshot_id: str, now_s: float) -> bool:
        """Let a target go on that is held or stopped; return whether that is the one."""
        self._look_at_clock(now_s)
        plan, is_held = self._plan, self._held is not None and self._held.snapshot_id == snapshot_id
        if is_held:
            self._approved |= {snapshot_id}
            self._decided = None
        elif plan is not None and plan.is_stopped and plan.snapshot_id == snapshot_id:
            plan.is_stopped = False
        else:
            return False
        self._continue(now_s)
        return True

    def abort(self, now_s: float) -> bool:
        """Take back the target that is under way, or drop the one that is held; return whether there was one."""
        self._look_at_clock(now_s)
        if self._held is not None:
            self._tainted |= {self._held.snapshot_id}
            self._held = None
            return True
        if self._plan is None or not self._may_return(self._plan):
            return False
        self._go_back(self._plan, now_s)
        return True

    def pin(self, snapshot: Snapshot, now_s: float) -> None:
        """Serve an earlier snapshot until the tree asks for something else, or `resume`; it counts as tainted no more."""
        self._look_at_clock(now_s)
        self._tainted -= {snapshot_id(snapshot)}
        self._pinned, self._held = snapshot, None
        self._continue(now_s)

    def resume(self, now_s: float) -> bool:
        """Serve again what the tree asks for; return whether something else was pinned."""
        self._look_at_clock(now_s)
        if self._pinned is None:
            return False
        self._pinned = None
        if self._asked_id is not None:
            self._approved |= {self._asked_id}
        self._continue(now_s)
        return True

    def has_completed(self, target: Snapshot) -> bool:
        """Whether a target was reached, and no other one is under way."""
        return self._plan is not None and self._plan.is_complete and self._id_of(target) == self._plan.snapshot_id

    def take_events(self) -> tuple[RolloutEvent, ...]:
        """Return what happened since this was asked last."""
        events, self._events = tuple(self._events), []
        return events

    @property
    def status(self) -> RolloutStatus:
        """Where it is."""
        plan = self._plan
        return RolloutStatus(
            None if self.served is None else snapshot_id(self.served),
            None if plan is None else plan.snapshot_id,
            None if self._good is None else snapshot_id(self._good),
            self._asked_id,
            self.step,
            frozenset(self._waiting or ()),
            frozenset(self._late),
            self._is_going_back,
            plan is not None and plan.is_stopped,
            self._pinned is not None,
            self._held,
            self._tainted,
            MappingProxyType(self._lingering_now()),
        )

    @property
    def state(self) -> RolloutState | None:
        """What has to survive a restart, as of the last call; None before the first target."""
        if self.served is None or self._plan is None:
            return None
        return RolloutState(
            self.served,
            self._plan.target,
            self._good,
            self._asked_id,
            self._tainted,
            self._pinned,
            self._is_going_back,
            shifted(self._draining, -(self._now_s or 0.0)),
            self._plan.is_stopped,
        )

    @property
    def _target_id(self) -> str:
        return "" if self._plan is None else self._plan.snapshot_id

    @property
    def _is_going_back(self) -> bool:
        return self._plan is not None and self._plan.way is Way.BACK

    def _id_of(self, target: Snapshot) -> str | None:
        return self._asked_id if target is self._received else snapshot_id(target)

    def _lingering_now(self) -> LingeringByKey:
        if self.served is None or self._plan is None:
            return {}
        return lingering_of(self.served, changes_between(self.served, self._plan.target), self._draining)

    def _look_at_clock(self, now_s: float) -> None:
        if self._now_s is None and self.served is not None:
            self._draining = shifted(self._draining, now_s)
            # Clients come back one by one; until then nobody could say what they have.
            self._rests_until_s = now_s + self.options.step_timeout_s
        self._now_s = now_s

    def _overtake(self, step: Step, asked: Snapshot, now_s: float) -> None:
        """Serve the first step to what is asked for before clients took another step, where no order counts between them."""
        plan = self._plan
        if plan is None or plan.rejections or self._pinned is not None or self._is_going_back:
            return
        if self._asked_id in self._tainted or removals_to_approve(plan.target, asked, self.options.max_removal):
            return
        planned = self._planned(_Plan(asked, snapshot_id(asked)))
        if planned is None or not step.needs_no_order_with(planned.step):
            return
        self.step = self._waiting = None
        self._proceed(now_s, untaken=step)

    def _continue(self, now_s: float) -> None:
        if self.step is None:
            self._proceed(now_s)

    def _proceed(self, now_s: float, untaken: Step | None = None) -> None:
        """Serve the next step, if there is one; the one before is done, or has to be taken together with it."""
        if self.options.is_on and now_s < self._rests_until_s:
            return
        if not self._is_going_back:
            self._decide()
        plan = self._plan
        if plan is None or plan.is_stopped:
            return
        self._draining = without_ended(self._draining, now_s)
        planned = self._planned(plan)
        if planned is not None:
            step = planned.step if untaken is None else untaken.joined_with(planned.step)
            self._serve(plan, replace(planned, step=step), now_s)
        elif not plan.is_complete:
            was_back = self._is_going_back
            self._complete(plan)
            if was_back:
                self._proceed(now_s)

    def _decide(self) -> None:
        """Make what is asked for the target, unless it was tainted, or is held."""
        wanted = self._asked if self._pinned is None else self._pinned
        if wanted is None or wanted is self._decided:
            return
        self._decided = wanted
        wanted_id = snapshot_id(wanted)
        if self._pinned is None and (wanted_id in self._tainted or self._holds(wanted, wanted_id)):
            return
        self._held, before = None, self._plan
        if before is None or before.is_complete:
            self._plan = _Plan(wanted, wanted_id)
        elif before.snapshot_id == wanted_id:
            before.target = wanted
        elif before.is_stopped:
            # Nobody would be asked again about what was rejected and is the same in the new target.
            self._decided = None
            self._plan_back(before)
        else:
            self._events.append(Superseded(before.snapshot_id))
            if before.is_switched:
                self._good, self._good_served = before.target, self.served
            self._plan = _Plan(wanted, wanted_id)

    def _holds(self, wanted: Snapshot, wanted_id: str) -> bool:
        if self._plan is None or wanted_id in self._approved:
            return False
        removals = removals_to_approve(self._plan.target, wanted, self.options.max_removal)
        if removals and (self._held is None or self._held.snapshot_id != wanted_id):
            self._events.append(Held(wanted_id, removals))
        self._held = HeldTarget(wanted_id, removals) if removals else None
        return bool(removals)

    def _planned(self, plan: _Plan) -> PlannedStep | None:
        if self.served is None or not self.options.is_on:
            step = whole_step(self.served, plan.target)
            return None if step is None else PlannedStep(step, is_last=True, draining=(), lingering={})
        lingers = self.options.linger_s > 0
        return next_step(self.served, plan.target, self._draining, plan.way, lingers=lingers)

    def _serve(self, plan: _Plan, planned: PlannedStep, now_s: float) -> None:
        plan.is_last = planned.is_last
        plan.way = Way.ONWARD if plan.way is Way.FIRST else plan.way
        if started := planned.lingering.keys() - self._lingering.keys():
            self._events.append(LingeringStarted(plan.snapshot_id, frozenset(started)))
        rows = planned.step.snapshot.resources
        # A name that came back lingers no more, and does not go either.
        if ended := {key for key in self._lingering.keys() - planned.lingering.keys() if key[1] not in rows(key[0])}:
            self._events.append(LingeringEnded(plan.snapshot_id, frozenset(ended)))
        self.served, self._draining, self._lingering = planned.step.snapshot, planned.draining, planned.lingering
        self._events.append(StepStarted(plan.snapshot_id, planned.step))
        self.step, self._waiting = planned.step, None
        self._step_ends_at_s = now_s + self.options.step_timeout_s
        if not self.options.is_on:
            self._end_step(now_s)

    def _stop_waiting_for(self, client: Client, now_s: float) -> None:
        if self.step is not None and self._waiting is not None:
            self._waiting.discard(client)
            self._end_step_if_taken(now_s)

    def _end_step_if_taken(self, now_s: float) -> None:
        if self._waiting is not None and not self._waiting:
            self._end_step(now_s)

    def _end_step(self, now_s: float) -> None:
        if self._plan is not None and self.step is not None:
            self._plan.is_switched |= self.step.step_kind is StepKind.SWITCH
        self.step = self._waiting = None
        self._draining = with_ends(self._draining, now_s + self.options.linger_s)
        if self._plan is not None and self._plan.is_last:
            self._complete(self._plan)
        self._proceed(now_s)

    def _complete(self, plan: _Plan) -> None:
        if plan.is_complete:
            return
        if plan.way is not Way.FIRST or self._good is None or snapshot_id(self._good) != plan.snapshot_id:
            self._events.append(Completed(plan.snapshot_id))
        # What lingered when it was good is back after a rollback, and goes when its time is over.
        target = plan.target if self._good is None or plan.way is not Way.BACK else self._good
        plan.is_complete, plan.way, plan.target = True, Way.ONWARD, target
        plan.rejections.clear()
        self._good, self._good_served = target, self.served

    def _may_return(self, plan: _Plan) -> bool:
        """Whether there is something good to take a target back to, and it is not reached or taken back yet."""
        is_under_way = not plan.is_complete and plan.way is not Way.BACK
        return is_under_way and self._good is not None and snapshot_id(self._good) != plan.snapshot_id

    def _counts(self, rejection: Rejection, step: Step, plan: _Plan) -> bool:
        rows = step.snapshot.resources(rejection.type_url)
        return self._may_return(plan) and not rejection.is_about_others(rows)

    def _give_up(self, plan: _Plan, now_s: float) -> None:
        """Take a target back that clients rejected, or stay where it is."""
        if self.options.on_nack is OnNack.ROLLBACK:
            self._go_back(plan, now_s)
            return
        plan.is_stopped = True
        self.step = self._waiting = None
        self._events.append(Stopped(plan.snapshot_id, tuple(plan.rejections.items())))
        self._proceed(now_s)

    def _go_back(self, plan: _Plan, now_s: float) -> None:
        if self._pinned is not None and snapshot_id(self._pinned) == plan.snapshot_id:
            self._pinned = None
        self._plan_back(plan)
        self.step = self._waiting = None
        self._proceed(now_s)

    def _plan_back(self, plan: _Plan) -> None:
        """Make what was good the target."""
        if self._good is None or self._good_served is None:
            return
        good_id = snapshot_id(self._good)
        self._tainted |= {plan.snapshot_id}
        self._events.append(RolledBack(plan.snapshot_id, good_id, tuple(plan.rejections.items())))
        self._plan = _Plan(self._good_served, good_id, Way.BACK)
