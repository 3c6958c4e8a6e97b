from __future__ import annotations

from dataclasses import replace

from fsxds.fleet.pointers import ViewKey
from fsxds.fleet.reports import MOST_CANARIES, MOST_NAMED, ClientsReporter
from fsxds.settings.rollout_forms import Canary
from tests.support.publishing import CDS, RULES, publishing, version_of_content, virtually
from tests.support.rollouts import Tree

OLD: Tree = {"CDS": {"c": "1"}}
NEW: Tree = {"CDS": {"c": "bad"}}
WHOLE = ViewKey()


@virtually
async def test_nodes_that_reject_the_same_are_one_group() -> None:
    """Some of them are named; all nodes of the view are counted."""
    async with publishing(replace(RULES, nack_limit=None)) as run:
        run.save(OLD)
        clients = [await run.join(f"edge-{number}", is_quick=True) for number in range(20)]
        for client in clients[:15]:
            client.rejects.add("bad")
        run.save(NEW)
        await run.settled()
        reports = ClientsReporter(run.publisher)
        assert run.store.current is not None
        found = reports.by_view({WHOLE: run.store.current})[WHOLE]

        assert found.count == 20
        (group,) = found.rejecting
        assert (group.count, len(group.named)) == (15, MOST_NAMED)
        assert set(group.named) <= {(client.name, "") for client in clients[:15]}
        version = (CDS, "c"), version_of_content("c", "bad")
        assert "no such thing" in group.reasons[version]


@virtually
async def test_what_was_rejected_is_reported_until_it_is_taken() -> None:
    """Also while it is held back from all, and is in no tree of this server any more; a node that left is forgotten."""
    async with publishing(replace(RULES, nack_limit=None)) as run:
        run.save(OLD)
        first, second = [await run.join(f"edge-{number}", is_quick=True) for number in range(2)]
        first.rejects.add("bad")
        second.rejects.add("bad")
        new = run.save(NEW)
        await run.settled()
        reports = ClientsReporter(run.publisher)
        (group,) = reports.by_view({WHOLE: new})[WHOLE].rejecting
        assert group.count == 2

        old = run.save(OLD)
        await run.passed(5.0)
        assert not run.publisher.verdicts.rejections.nodes
        (group,) = reports.by_view({WHOLE: old})[WHOLE].rejecting
        assert group.count == 2
        second.leave()
        (group,) = reports.by_view({WHOLE: old})[WHOLE].rejecting
        assert group.named == (("edge-0", ""),)
        assert len(reports._rejected) == 1

        first.rejects.clear()
        run.save(NEW)
        await run.settled()
        assert not reports.by_view({WHOLE: new})[WHOLE].rejecting


@virtually
async def test_each_canary_is_named() -> None:
    """With whether it has taken all that it is served; of very many, the first."""
    async with publishing(replace(RULES, canary=Canary(share=0.9))) as run:
        run.save(OLD)
        clients = [await run.join(f"edge-{number}", is_quick=True) for number in range(100)]
        canaries = [client for client in clients if client.channel.key.is_canary]
        slow = min(canaries, key=lambda client: client.name)
        slow.is_quick = False
        run.save(NEW)
        await run.settled()
        found = ClientsReporter(run.publisher).by_view({})[ViewKey(is_canary=True)]

        assert len(found.canaries) == MOST_CANARIES < len(canaries)
        assert [name for name, has_taken in found.canaries.items() if not has_taken] == [(slow.name, "")]
        assert found.count == len(canaries)
