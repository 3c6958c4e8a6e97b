from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from fsxds.events.process_events import place_of
from fsxds.model.errors import UsageError
from fsxds.model.values import BackOff
from fsxds.runtime.supervisor import Attempts, Supervisor
from tests.support.errors import AT_ONCE, Recorder

SLOW = BackOff(first_s=600.0, longest_s=600.0, well_after_s=0.02)


class Flaky:
    """A component that fails with these errors in turn, and runs well after the last."""

    def __init__(self, *errors: BaseException) -> None:
        self.runs = 0
        self.is_well = asyncio.Event()
        self._errors = errors

    async def work(self) -> None:
        """Fail, or run for ever."""
        self.runs += 1
        if self.runs <= len(self._errors):
            raise self._errors[self.runs - 1]
        self.is_well.set()
        await asyncio.Event().wait()


@asynccontextmanager
async def supervised(work: Callable[..., object], back_off: BackOff = AT_ONCE) -> AsyncIterator[Supervisor]:
    """Run a component of a process that has started, as long as the context lasts."""
    supervisor = Supervisor(Recorder(), back_off)
    supervisor.is_starting = False
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(supervisor.run("mirror", work))  # type: ignore[arg-type]
        yield supervisor
        running.cancel()


def events_of(supervisor: Supervisor) -> Recorder:
    """Return what was reported."""
    assert isinstance(supervisor._observer, Recorder)
    return supervisor._observer


async def test_a_component_that_fails_starts_again() -> None:
    """Each failure is reported and counted, and the pauses double up to the longest."""
    flaky = Flaky(*(ZeroDivisionError(str(number)) for number in range(6)))
    async with supervised(flaky.work) as supervisor:
        await flaky.is_well.wait()

        assert [(where, str(error)) for where, error in events_of(supervisor).errors] == [
            ("mirror", str(number)) for number in range(6)
        ]
        assert [pause_s for *_, pause_s in events_of(supervisor).degraded] == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01]
        assert supervisor.failures == {"mirror": 6}


def test_pauses_are_those_of_the_rule() -> None:
    """1, 2, 4, 8, 16 and then 30 seconds, however many failures there are."""
    assert [BackOff().pause_s(failures) for failures in (1, 2, 3, 4, 5, 6, 7, 5000)] == [1, 2, 4, 8, 16, 30, 30, 30]


async def test_it_is_degraded_until_it_ran_well() -> None:
    """Who asks for readiness sees it from its failure until it has run for a while, and is woken by both."""
    flaky = Flaky(ZeroDivisionError())
    async with supervised(flaky.work) as supervisor:
        await supervisor.degraded.replaced()

        assert list(supervisor.degraded.current) == ["mirror"]
        await supervisor.degraded.replaced()

        assert list(supervisor.degraded.current) == []
        assert events_of(supervisor).recovered == ["mirror"]


async def test_a_component_that_runs_in_vain_is_degraded() -> None:
    """Until what it is for is there again, however often it failed and recovered meanwhile; nobody is woken for nothing."""
    flaky = Flaky(ZeroDivisionError())
    async with supervised(flaky.work) as supervisor:
        supervisor.note("upstream", is_idle=True)
        before = supervisor.degraded.current
        supervisor.note("upstream", is_idle=True)
        assert supervisor.degraded.current is before
        await supervisor.degraded.replaced()
        assert list(supervisor.degraded.current) == ["mirror", "upstream"]
        supervisor.note("mirror", is_idle=True)
        supervisor.note("upstream", is_idle=False)
        await flaky.is_well.wait()

        assert list(supervisor.degraded.current) == ["mirror"]
        supervisor.note("mirror", is_idle=False)
        while supervisor.degraded.current:
            await supervisor.degraded.replaced()


async def test_pauses_begin_anew_after_it_ran_well() -> None:
    """A failure after a long good run is a first one."""
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        await asyncio.sleep(0.0 if runs < 3 else 0.2)
        raise ZeroDivisionError

    async with supervised(work) as supervisor:
        while len(events_of(supervisor).degraded) < 4:
            await supervisor.degraded.replaced()

    assert [pause_s for *_, pause_s in events_of(supervisor).degraded][:4] == [0.001, 0.002, 0.001, 0.001]


async def test_an_error_for_users_ends_the_start_alone() -> None:
    """An address that is taken ends a process that starts; later it is a failure like others, without a traceback."""
    supervisor = Supervisor(Recorder(), AT_ONCE)
    with pytest.raises(UsageError, match="taken"):
        await supervisor.run("REST listener", Flaky(UsageError("is taken")).work)

    later = Flaky(UsageError("is taken"), ExceptionGroup("of tasks", [UsageError("is gone")]))
    async with supervised(later.work) as running:
        await later.is_well.wait()

        assert events_of(running).errors == []
        assert [reason for _, reason, _ in events_of(running).degraded] == ["is taken", "is gone"]


async def test_an_error_for_users_of_a_vital_component_is_raised() -> None:
    """`fsxds dev` without an Envoy that can be started is of no use."""
    supervisor = Supervisor(Recorder(), AT_ONCE)
    supervisor.is_starting = False
    with pytest.raises(UsageError):
        await supervisor.run("Envoy", Flaky(UsageError("no such file")).work, is_vital=True)


async def test_a_stray_cancellation_is_a_failure() -> None:
    """A component that waited for a task that somebody cancelled starts again; it was not meant."""
    flaky = Flaky(asyncio.CancelledError())
    async with supervised(flaky.work):
        await flaky.is_well.wait()

    assert flaky.runs == 2


async def test_a_component_that_waits_to_start_again_can_be_cancelled() -> None:
    """The end of the process does not wait for a back-off."""
    async with supervised(Flaky(ZeroDivisionError()).work, SLOW) as supervisor:
        await supervisor.degraded.replaced()


async def test_a_component_that_is_done_is_not_started_again() -> None:
    """It returns."""

    async def work() -> None:
        pass

    supervisor = Supervisor(Recorder(), AT_ONCE)
    async with asyncio.timeout(60):
        await supervisor.run("ready file", work)

    assert supervisor.components == {"ready file"}


def test_attempts_on_one_input_are_over_after_three_failures() -> None:
    """In a row, and on the same input; another one, or a success, begins anew."""
    set_aside: list[BaseException] = []
    attempts = Attempts(set_aside.append)

    def fail(subject: str) -> None:
        with pytest.raises(ZeroDivisionError), attempts.on(subject):
            raise ZeroDivisionError

    fail("a")
    fail("a")
    fail("b")
    fail("a")
    with attempts.on("a"):
        pass
    fail("a")
    fail("a")
    assert not attempts.are_over("a")
    assert set_aside == []

    fail("a")
    assert attempts.are_over("a")
    assert not attempts.are_over("b")
    assert len(set_aside) == 1


def test_the_place_of_an_error_is_that_of_fsxds() -> None:
    """The innermost one; also within a group, and of foreign code where there is no other."""
    with pytest.raises(KeyError) as caught, Attempts().on([]):
        raise KeyError("a")
    with pytest.raises(TypeError) as of_fsxds:
        BackOff().pause_s("x")  # type: ignore[arg-type]

    assert "test_supervisor.py:" in place_of(caught.value)
    assert place_of(of_fsxds.value).startswith("model/values.py:")
    assert place_of(ExceptionGroup("both", [of_fsxds.value])).endswith(" in pause_s")
