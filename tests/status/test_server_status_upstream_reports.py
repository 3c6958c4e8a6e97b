"""What is shown of an upstream: ages, counts, and nothing secret."""

from __future__ import annotations

from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.runtime.row_source import UpstreamStatus
from fsxds.status.server_status import MOST_REJECTED, upstream_report
from fsxds.transports.admin.admin_reports import HeldType

CDS, EDS = (BY_SHORT_NAME[name].type_url for name in ("cds", "eds"))
STATUS = UpstreamStatus(
    "eu", ("a:1", "b:1"), server="a:1", wire="Delta ADS", state="connected", since_s=90.0, last_update_s=40.0,
    resources={EDS: 4, CDS: 3}, pending=(EDS,),
)  # fmt: skip


def test_times_become_ages() -> None:
    """Clocks of two processes differ, and a clock may be set back: no age is below zero."""
    report = upstream_report(STATUS, 100.0)

    assert (report.since_s, report.age_s) == (10.0, 60.0)
    assert upstream_report(STATUS, 10.0).age_s == 0.0
    untried = upstream_report(UpstreamStatus("eu", ("a:1",)), 100.0)
    assert (untried.since_s, untried.age_s) == (0.0, None)


def test_types_have_their_short_names() -> None:
    """In the push order."""
    report = upstream_report(STATUS, 100.0)

    assert report.resources == (HeldType("cds", 3), HeldType("eds", 4))
    assert report.pending == ("eds",)


def test_words_of_others_are_masked_and_bounded() -> None:
    """A server may send any words, and an address may have a password in it."""
    status = UpstreamStatus(
        "https://me:hunter2@a", ("https://me:hunter2@a",), "https://me:hunter2@a", trouble="Bearer hunter2hunter2",
        rejected=tuple(f'{number}: "hunter2 is it" {1000 * "x"}' for number in range(1000)),
    )  # fmt: skip
    report = upstream_report(status, 0.0)

    assert "hunter2" not in str(report)
    assert len(report.rejected) == MOST_REJECTED
    assert max(map(len, report.rejected)) < 1000
