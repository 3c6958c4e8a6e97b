"""What a watched server tells, as people read it."""

from __future__ import annotations

from dataclasses import replace

from fsxds.client.updates import Update
from fsxds.model.resources import Resource
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.tools.diff.compare import Comparer
from fsxds.tools.watch_output import Holdings, update_lines
from tests.support.polls import envoy_catalogue, named
from tests.support.snapshots import type_url

CDS = type_url("CDS")
DIGEST = "0123456789abcdef0123456789abcdef"


def update_of(*resources: Resource, version: str = "1", url: TypeUrl = CDS, is_full: bool = False) -> Update:
    """Return an update of a type."""
    return Update(
        url, Version(version), Nonce("1"), {resource.name: resource for resource in resources}, is_full=is_full
    )


def told(*updates: Update, wanted: tuple[str, ...] = ()) -> list[str]:
    """Return the lines of the last of some updates."""
    holdings = Holdings()
    steps = [holdings.take(update) for update in updates]
    difference = Comparer(envoy_catalogue()).compare(*steps[-1].snapshots)
    return [line.plain for line in update_lines(steps[-1], difference, wanted)]


def test_the_first_update_is_a_list() -> None:
    """Names in order, with what stands around them; a digest is cut short."""
    first = replace(named("cds", "a"), ttl_s=5.0, aliases=("x", "y"))

    assert ["clusters: 2  version 0123456789ab", "  a  ttl 5s  aliases x, y", "  b"] == told(
        update_of(named("cds", "b"), first, version=DIGEST)
    )


def test_a_long_list_is_cut() -> None:
    """Twenty names are listed, the others counted."""
    lines = told(update_of(*(named("cds", f"c{number:03}") for number in range(25))))

    assert ("clusters: 25  version 1", "  c019", "  … and 5 more", 22) == (lines[0], lines[-2], lines[-1], len(lines))


def test_nothing_at_first() -> None:
    """An answer without resources is told as such; no version is no version."""
    assert ["clusters: none"] == told(update_of(version=""))


def test_changes() -> None:
    """Later updates are told as what they change, field by field; removed and new names have their signs."""
    before = update_of(named("cds", "a", alt_stat_name="x"), named("cds", "gone"), is_full=True)
    after = update_of(named("cds", "a", alt_stat_name="y"), named("cds", "new"), version="2", is_full=True)

    assert [
        "clusters: 1 added, 1 changed, 1 removed  version 2",
        "  + new",
        "  - gone",
        "  ~ a",
        "      ~ alt_stat_name: x → y",
    ] == told(before, after)


def test_names_that_do_not_exist() -> None:
    """They are told at first, where the answer has everything, and whenever the server says so."""
    full = update_of(named("cds", "a"), is_full=True)
    partial = update_of(named("cds", "a"))
    said = replace(partial, removed=("c",))

    assert ["  a", "  - b  does not exist"] == told(full, wanted=("a", "b"))[1:]
    assert ["  a"] == told(partial, wanted=("a", "b"))[1:]
    assert ["  a", "  - c  does not exist"] == told(said, wanted=("a", "c"))[1:]
    assert ["clusters: 1 sent again, nothing changed  version 1", "  - c  does not exist"] == told(partial, said)


def test_the_end_of_a_wait_is_no_name() -> None:
    """What is said to an Envoy that waits for virtual hosts is not told, unless it was asked for."""
    said = replace(update_of(), removed=("r/*",))

    assert ["clusters: none  version 1"] == told(said)
    assert ["clusters: none  version 1", "  - r/*  does not exist"] == told(said, wanted=("r/*",))


def test_nothing_new() -> None:
    """What changes nothing says why it was told."""
    first = update_of(named("cds", "a"))

    assert ["clusters: 1 sent again, nothing changed  version 1"] == told(first, first)
    assert ["clusters: 1 kept alive  version 1"] == told(first, replace(update_of(), heartbeats=("a",)))
    assert ["clusters: nothing changed  version 1"] == told(first, update_of())


def test_foreign_text_cannot_forge_lines() -> None:
    """Names and versions of a server are escaped, and long versions are cut."""
    (heading, line) = told(update_of(named("cds", "a\n\x1b[31m"), version="v\n" + "x" * 100))

    assert ("clusters: 1  version v\\n", "  a\\n\\x1b[31m") == (heading[:24], line)
    assert len(heading) < 90


def test_secrets_are_hidden() -> None:
    """That a secret changed is told, and not what it is."""
    first, second = (
        named("sds", "s", generic_secret={"secret": {"inline_string": text}}) for text in ("S3CR3T", "S3CR3T2")
    )
    lines = told(update_of(first, url=type_url("SDS")), update_of(second, url=type_url("SDS")))

    assert "      ~ generic_secret.secret.inline_string: a secret, changed" == lines[-1]
    assert "S3CR3T" not in "".join(lines)
