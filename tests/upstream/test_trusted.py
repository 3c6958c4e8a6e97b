from __future__ import annotations

import json
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType

import pytest

from fsxds.model.resources import Origin, Resource, Rows, version_of_body
from fsxds.model.tree_trust import SeenInProcess
from fsxds.model.values import OfferedManifest, TypeUrl
from fsxds.signing.signatures import Signer
from fsxds.signing.tree_manifest import ManifestError, TreeManifest, write_manifest
from fsxds.transports.manifests import MOST_OFFERED, write_offers
from fsxds.upstream.holdings import ReadResponse
from fsxds.upstream.trusted import MOST_WAITING, NO_MANIFEST, TrustedContent, read_offers
from tests.support.signing import NOW_S, anchors, authority, key_of, signer
from tests.support.snapshots import type_url

CDS, EDS = type_url("CDS"), type_url("EDS")
ELSEWHERE = Origin(PurePosixPath("upstream"), 0)


def resource(name: str, body: bytes = b"1", of_type: TypeUrl = CDS, ttl_s: float | None = None) -> Resource:
    return Resource(of_type, name, body, version_of_body(of_type, body), ELSEWHERE, ttl_s=ttl_s)


def response(*resources: Resource, removed: tuple[str, ...] = (), is_full: bool = False) -> ReadResponse:
    found = {one.name: one for one in resources}
    return ReadResponse(CDS, found, dict.fromkeys(found, "v"), frozenset(removed), is_full=is_full)


def rows(*resources: Resource) -> Rows:
    return Rows(CDS, {one.name: one for one in resources})


def offered(serial: int, *resources: Resource, by: Signer | None = None) -> OfferedManifest:
    content = write_manifest(TreeManifest.of(serial, "", (), resources))
    return OfferedManifest(content, (by or signer().signer()).sign(content))


def content_of(*offers: OfferedManifest) -> TrustedContent:
    """Return what decides, by manifests that it was offered."""
    trusted_content = TrustedContent("up")
    trusted_content.trust(anchors(), NOW_S)
    offer(trusted_content, *offers)
    return trusted_content


def offer(trusted_content: TrustedContent, *offers: OfferedManifest) -> None:
    trusted_content.take(trusted_content.examine(write_offers(offers), NOW_S))


def other_signer() -> Signer:
    """Return another one of the same CA."""
    return authority().issue("second", key_of("secp256r1", 60)).signer()


def test_what_is_listed_is_taken() -> None:
    """By type, name and content; the rest is bad, and waits until it is listed."""
    a, b, other = resource("a"), resource("b"), resource("a", b"2")
    trusted_content = content_of(offered(1, a))
    admitted = trusted_content.admitted(response(a, b), rows())

    assert (dict(admitted.resources), dict(admitted.bad)) == ({"a": a}, {"b": "is not what a manifest lists"})
    assert dict(trusted_content.admitted(response(other), rows(a)).resources) == {}
    assert list(trusted_content.late()) == []
    offer(trusted_content, offered(2, other, b))
    (late,) = trusted_content.late()
    assert (dict(late.resources), late.removed, late.is_full) == ({"a": other, "b": b}, frozenset(), False)
    assert list(trusted_content.late()) == []


def test_what_is_listed_is_not_removed() -> None:
    """Neither by a removal nor by its absence from a full state; when a manifest does not list it any more, it goes."""
    a, b = resource("a"), resource("b")
    for gone in (response(removed=("a", "b")), response(is_full=True)):
        trusted_content = content_of(offered(1, a))
        admitted = trusted_content.admitted(gone, rows(a, b))
        assert (admitted.removed, dict(admitted.bad)) == (
            gone.removed - {"a"},
            {"a": "is removed, and a manifest lists it still"},
        )
        offer(trusted_content, offered(2, b))
        assert [(one.removed, one.is_full) for one in trusted_content.late()] == [(frozenset("a"), False)]


def test_a_removal_that_was_taken_back() -> None:
    """What came again since is not removed by a manifest that comes later."""
    a = resource("a")
    trusted_content = content_of(offered(1, a))
    trusted_content.admitted(response(removed=("a",)), rows(a))
    trusted_content.admitted(response(a), rows(a))
    offer(trusted_content, offered(2))

    assert list(trusted_content.late()) == []


def test_without_a_manifest_nothing_changes() -> None:
    """Nothing is taken and nothing removed, and it is told why."""
    a, trusted_content = resource("a"), content_of()
    admitted = trusted_content.admitted(response(resource("b"), removed=("a",)), rows(a))

    assert (dict(admitted.resources), admitted.removed) == ({}, frozenset())
    assert set(admitted.bad) == {"a", "b"}
    assert all(NO_MANIFEST in words for words in admitted.bad.values())


def test_who_is_asked_for_no_signature() -> None:
    """Everything is taken, and what is offered is passed on as it came."""
    changes: list[object] = []
    trusted_content = TrustedContent("up", on_changed=lambda: changes.append(1))
    one = OfferedManifest(b"any", b"thing")
    offer(trusted_content, one)
    came = response(resource("a"), removed=("b",))

    assert trusted_content.admitted(came, rows()) is came
    assert not trusted_content.is_waiting(came, rows())
    assert (trusted_content.offered, changes) == ((one,), [1])


def test_bad_manifests_change_nothing() -> None:
    """Of a stranger, older, broken, or none at all: the last one counts on, and it is told what is wrong."""
    a = resource("a")
    good = offered(5, a)
    stranger = authority("other CA").issue("mallory", key_of("secp256r1", 61)).signer()
    cases = {
        "has no certificate of a CA that is trusted": write_offers((offered(9, by=stranger),)),
        "the serial 4 is older than 5": write_offers((offered(4, resource("b")),)),
        "the serial 5 is that of another manifest": write_offers((offered(5, resource("b")),)),
        "the signature does not match the manifest": write_offers(
            (OfferedManifest(good.manifest + b" ", good.signature),)
        ),
        "the signature cannot be read": write_offers((OfferedManifest(good.manifest, b"x"),)),
        "cannot be read: it is no JSON": b"\xff",
        "with up to 20 manifests": b"{}",
        NO_MANIFEST: write_offers(()),
    }
    for words, content in cases.items():
        trusted_content = content_of(good)
        trusted_content.take(trusted_content.examine(content, NOW_S))
        assert words in trusted_content.fault, words
        assert trusted_content.offered == (good,)
        assert dict(trusted_content.admitted(response(a, resource("b")), rows()).resources) == {"a": a}
        assert words in trusted_content.admitted(response(resource("b")), rows()).bad["b"]


def test_a_replay_after_a_restart() -> None:
    """The newest manifest of each signer is remembered beyond the process."""
    seen = SeenInProcess()
    for serial, fault in ((5, ""), (4, "the serial 4 is older than 5, which was seen before"), (5, "")):
        trusted_content = TrustedContent("up", seen)
        trusted_content.trust(anchors(), NOW_S)
        offer(trusted_content, offered(serial))
        assert trusted_content.fault == fault


def test_several_manifests() -> None:
    """Those of several signers count together; each is replaced by one of its own signer alone."""
    a, b = resource("a"), resource("b")
    trusted_content = content_of(offered(7, a), offered(3, b, by=other_signer()))

    assert set(trusted_content.admitted(response(a, b), rows()).resources) == {"a", "b"}
    offer(trusted_content, offered(4, by=other_signer()))
    assert set(trusted_content.admitted(response(a, b), rows()).resources) == {"a"}


def test_others_are_trusted() -> None:
    """After a change of the CA, what was offered is judged again; what is held stays."""
    a = resource("a")
    trusted_content = content_of(offered(1, a))
    trusted_content.trust(anchors(authority("other CA")), NOW_S)

    assert trusted_content.offered == ()
    assert set(trusted_content.admitted(response(a, removed=("b",)), rows(resource("b"))).bad) == {"a", "b"}
    trusted_content.trust(anchors(), NOW_S)
    assert [dict(one.resources) for one in trusted_content.late()] == [{"a": a}]


def test_what_is_worth_waiting_for() -> None:
    """A response that may have come before its manifest, once; what was waited for in vain is rejected at once."""
    a, b = resource("a"), resource("b")
    trusted_content = content_of(offered(1, a))
    for came, held in ((response(b), rows()), (response(removed=("a",)), rows(a))):
        assert trusted_content.is_waiting(came, held)
        trusted_content.admitted(came, held)
        assert not trusted_content.is_waiting(came, held)
    assert not trusted_content.is_waiting(response(a), rows())
    assert trusted_content.is_waiting(response(resource("b", b"2")), rows())


def test_times_to_live_do_not_count() -> None:
    """Somebody between could let end what is listed."""
    came = resource("a", ttl_s=1.0)
    trusted_content = content_of(offered(1, came))

    assert trusted_content.admitted(response(came), rows()).resources["a"] == replace(came, ttl_s=None)


def test_redirects_are_not_vouched_for() -> None:
    """A manifest lists contents; where a name leads is none."""
    came = replace(resource("a", b""), redirect="xdstp://x/y")

    assert set(content_of(offered(1, came)).admitted(response(came), rows()).bad) == {"a"}


def test_what_is_held_needs_no_manifest() -> None:
    """A full state that repeats it is no news."""
    a = resource("a")

    assert dict(content_of(offered(1)).admitted(response(a), rows(a)).resources) == {"a": a}


def test_what_waits_is_bounded() -> None:
    """A server that sends other names without end takes no more memory."""
    trusted_content = content_of(offered(1))
    trusted_content.admitted(response(*(resource(str(number)) for number in range(MOST_WAITING + 5))), rows())

    assert len(trusted_content._waiting) == MOST_WAITING


def test_offers_are_read_as_they_were_written() -> None:
    """Each once, and no more than are read."""
    one, two = OfferedManifest(b"\x00", b"\xff"), OfferedManifest(b"", b"")

    assert read_offers(write_offers((one, two, one))) == (one, two)
    assert len(read_offers(write_offers(OfferedManifest(b"%d" % each, b"") for each in range(50)))) == MOST_OFFERED


@pytest.mark.parametrize(
    "manifests", [None, {}, [1], [{"manifest": "*", "signature": ""}], [{}] * (MOST_OFFERED + 1), [{"manifest": ""}, 2]]
)
def test_what_is_no_offer(manifests: object) -> None:
    """It is rejected in words."""
    with pytest.raises(ManifestError):
        read_offers(json.dumps({"form": "fsxds-manifests-1", "manifests": manifests}).encode())


def test_types_are_apart() -> None:
    """A content that is listed as one of another type is not this one."""
    trusted_content = content_of(offered(1, resource("a", of_type=EDS)))

    assert set(trusted_content.admitted(response(resource("a")), rows()).bad) == {"a"}
    assert trusted_content.admitted(replace(response(), resources=MappingProxyType({})), rows()).words == ()
