from __future__ import annotations

from hashlib import sha256

import pytest

from fsxds.model.errors import ProtocolError
from fsxds.protocol.messages import Node
from fsxds.runtime.access import SECRET, Access, AccessInUse, Peer
from fsxds.runtime.views import Views
from fsxds.settings.access_rules import AccessRule, Tokens
from fsxds.settings.view_rules import ViewRule
from tests.support.snapshots import type_url

NAMES = {
    "edge-token": "edge",
    "old-edge-token": "edge",
    "batch-token": "batch",
    "plain-token": "",
    "idle-token": "idle",
}
TOKENS = Tokens(tuple((name, sha256(token.encode()).digest()) for token, name in NAMES.items()))
ADMIN = Tokens((("", sha256(b"admin-token").digest()),))
VIEWS = Views((ViewRule("edge", (("id", ("edge-*",)),), ("a",)), ViewRule("rest", (), ("b",))))
EDGE, BATCH = Node("edge-1", "edge"), Node("batch-1", "batch")


def peer(token: str = "", *names: str, is_private: bool = True) -> Peer:
    """Return somebody at this machine."""
    return Peer("127.0.0.1", is_private, names, token)


def answer_of(check: str, access: Access, *arguments: object) -> str:
    """Return `OK`, or the code of the rejection."""
    try:
        getattr(access, check)(*arguments)
    except ProtocolError as error:
        return "OOPS" if any(token in f"{error} {error.subject}" for token in NAMES) else error.code
    return "OK"


def asked(rule: AccessRule, who: Peer, node: Node = EDGE) -> str:
    """Return what becomes of a request where there is one rule."""
    return answer_of("check_node", Access((rule,), TOKENS, views=VIEWS), who, node)


def test_without_rules_and_tokens_everybody_may_ask_for_everything() -> None:
    """As long as it is no decision: the admin address has a token of its own."""
    access = Access(admin_tokens=ADMIN)

    assert access.is_for_everybody
    for check, *arguments in (("check_peer",), ("check_node", EDGE), ("check_all_nodes",), ("check_type", SECRET)):
        assert answer_of(check, access, peer(), *arguments) == "OK"
    assert answer_of("check_admin", access, peer()) == "UNAUTHENTICATED"
    assert answer_of("check_admin", Access(), peer()) == "OK"


@pytest.mark.parametrize("check", ["check_peer", "check_node", "check_all_nodes"])
def test_with_tokens_alone_any_of_them_will_do(check: str) -> None:
    """With a name or without; what is no token, and none at all, is not let in."""
    access, arguments = Access(tokens=TOKENS), (EDGE,) if check == "check_node" else ()

    for token in ("edge-token", "old-edge-token", "plain-token"):
        assert answer_of(check, access, peer(token), *arguments) == "OK"
    for token in ("", "edge", "edge-toke", "admin-token"):
        assert answer_of(check, access, peer(token), *arguments) == "UNAUTHENTICATED"
    assert answer_of(check, access, peer("", "spiffe://acme/edge/1"), *arguments) == "PERMISSION_DENIED"


@pytest.mark.parametrize(
    ("rule", "node", "answer"),
    [
        (AccessRule("edge"), BATCH, "OK"),
        (AccessRule("edge", nodes=("edge-*",)), EDGE, "OK"),
        (AccessRule("edge", nodes=("x", "re:edge-[0-9]")), EDGE, "OK"),
        (AccessRule("edge", nodes=("edge-*",)), BATCH, "PERMISSION_DENIED"),
        (AccessRule("edge", nodes=("*",)), Node("", "edge"), "PERMISSION_DENIED"),
        (AccessRule("edge", nodes=("*",)), Node("x" * 2000, "edge"), "PERMISSION_DENIED"),
        (AccessRule("edge", nodes=("edge-*",)), Node("batch-1\nedge-1"), "PERMISSION_DENIED"),
        (AccessRule("edge", clusters=("edge",)), EDGE, "OK"),
        (AccessRule("edge", clusters=("edge",)), Node("edge-1", "batch"), "PERMISSION_DENIED"),
        (AccessRule("edge", nodes=("edge-*",), clusters=("batch",)), EDGE, "PERMISSION_DENIED"),
        (AccessRule("edge", views=("edge",)), EDGE, "OK"),
        (AccessRule("edge", views=("rest",)), EDGE, "PERMISSION_DENIED"),
        (AccessRule("batch"), EDGE, "PERMISSION_DENIED"),
    ],
)
def test_a_rule_binds_credentials_to_nodes(rule: AccessRule, node: Node, answer: str) -> None:
    """All that it says of a node has to hold."""
    assert asked(rule, peer("edge-token"), node) == answer


@pytest.mark.parametrize(
    ("rule", "names", "answer"),
    [
        (AccessRule(name=("spiffe://acme/edge/*",)), ("spiffe://acme/edge/1",), "OK"),
        (AccessRule(name=("spiffe://acme/edge/*",)), ("other.acme", "spiffe://acme/edge/1"), "OK"),
        (AccessRule(name=("spiffe://acme/edge/*",)), ("spiffe://acme/edges/1",), "PERMISSION_DENIED"),
        (AccessRule(name=("spiffe://acme/edge/*",)), ("spiffe://ACME/edge/1",), "PERMISSION_DENIED"),
        (AccessRule(name=("spiffe://acme/edge/1",)), ("spiffe://acme/edge/11",), "PERMISSION_DENIED"),
        (AccessRule(dns=("*.Edge.acme",)), ("A.edge.ACME",), "OK"),
        (AccessRule(dns=("*",)), ("spiffe://acme/edge/1",), "PERMISSION_DENIED"),
        (AccessRule(name=("re:.*",)), ("a.edge.acme",), "PERMISSION_DENIED"),
        (AccessRule("edge", dns=("a.acme",)), ("a.acme",), "PERMISSION_DENIED"),
        (AccessRule(dns=("a.acme",)), (), "UNAUTHENTICATED"),
    ],
)
def test_names_of_certificates(rule: AccessRule, names: tuple[str, ...], answer: str) -> None:
    """URIs are matched by `name`, DNS names by `dns`; all that a rule demands has to be shown."""
    assert asked(rule, peer("", *names)) == answer


@pytest.mark.parametrize(
    "path",
    [
        *("edge/../batch/1", "edge/./1", "edge/..", "edge/.", "edge/%2e%2E/batch/1", "edge/.%2e"),
        *("edge/..%2fbatch/1", "edge/x%2F1", "edge/x%5c1", "edge/..\\batch", "edge/..?x", "edge/..#x"),
    ],
)
def test_a_uri_that_may_mean_another_path_counts_for_nothing(path: str) -> None:
    """By no pattern, and by itself alone: another name of the certificate counts nevertheless."""
    name = f"spiffe://acme/{path}"
    for pattern in ("spiffe://acme/edge/*", name, "re:.*"):
        rule = AccessRule(name=(pattern,))
        assert asked(rule, peer("", name)) == "PERMISSION_DENIED"
        assert asked(AccessRule(name=("spiffe://acme/edge/*",)), peer("", name, "spiffe://acme/edge/1")) == "OK"
    with pytest.raises(ProtocolError, match="has a dot segment or an encoded slash"):
        Access((rule,)).check_node(peer("", name), EDGE)


@pytest.mark.parametrize("path", ["edge/..x", "edge/x..", "edge/.hidden", "edge/...", "edge/1.2/3", "edge/x%20y"])
def test_dots_within_a_segment_are_a_name(path: str) -> None:
    """They mean no other path."""
    assert asked(AccessRule(name=("spiffe://acme/edge/*",)), peer("", f"spiffe://acme/{path}")) == "OK"


def test_one_rule_of_several_is_enough() -> None:
    """But each rule has to hold as a whole."""
    access = Access((AccessRule("edge", nodes=("edge-*",)), AccessRule("batch", nodes=("batch-*",))), TOKENS)

    assert answer_of("check_node", access, peer("edge-token"), EDGE) == "OK"
    assert answer_of("check_node", access, peer("batch-token"), BATCH) == "OK"
    assert answer_of("check_node", access, peer("edge-token"), BATCH) == "PERMISSION_DENIED"
    assert answer_of("check_peer", access, peer("idle-token")) == "PERMISSION_DENIED"
    assert answer_of("check_peer", access, peer("no-token")) == "UNAUTHENTICATED"


def test_who_may_ask_about_all_nodes() -> None:
    """Those whose rule is for any node, or for the admin address; a rule for some nodes is not enough."""
    rules = AccessRule("edge", nodes=("*",)), AccessRule("batch"), AccessRule("idle", nodes=("x",), admin=True)
    access = Access(rules, TOKENS)

    answers = {
        token: answer_of("check_all_nodes", access, peer(f"{token}-token")) for token in ("edge", "batch", "idle", "no")
    }
    assert answers == {"edge": "PERMISSION_DENIED", "batch": "OK", "idle": "OK", "no": "UNAUTHENTICATED"}


def test_who_may_ask_the_admin_address() -> None:
    """Who has its token, or a rule with `admin`; tokens of clients do not open it."""
    access = Access((AccessRule("edge"), AccessRule("batch", admin=True)), TOKENS, ADMIN)

    assert answer_of("check_admin", access, peer("admin-token")) == "OK"
    assert answer_of("check_admin", access, peer("batch-token")) == "OK"
    assert answer_of("check_admin", access, peer("edge-token")) == "UNAUTHENTICATED"
    assert answer_of("check_admin", access, peer()) == "UNAUTHENTICATED"
    assert answer_of("check_admin", access, peer("", "a.acme")) == "PERMISSION_DENIED"
    assert answer_of("check_node", access, peer("admin-token"), EDGE) == "UNAUTHENTICATED"
    assert answer_of("check_admin", Access(tokens=TOKENS, admin_tokens=ADMIN), peer("edge-token")) == "UNAUTHENTICATED"


def test_secrets_go_over_private_wires_alone() -> None:
    """Unless that is allowed; other types go over all of them."""
    public = peer(is_private=False)

    assert answer_of("check_type", Access(), peer(), SECRET) == "OK"
    assert answer_of("check_type", Access(), public, SECRET) == "PERMISSION_DENIED"
    assert answer_of("check_type", Access(), public, type_url("cds")) == "OK"
    assert answer_of("check_type", Access(has_insecure_secrets=True), public, SECRET) == "OK"


def test_words_name_who_asked_and_not_their_token() -> None:
    """A rejection names the credentials by their names, and the node beside its text."""
    access = Access((AccessRule("edge", nodes=("edge-*",)),), TOKENS)
    with pytest.raises(ProtocolError, match="the token edge, spiffe://acme/1 may ask for") as caught:
        access.check_node(peer("edge-token", "spiffe://acme/1"), BATCH)

    assert caught.value.subject == "node batch-1"
    assert "batch" not in str(caught.value)
    assert "edge-token" not in repr(peer("edge-token"))


def test_names_of_tokens_that_there_are_none_of() -> None:
    """They are known, so that they can be reported."""
    assert Access((AccessRule("edge"), AccessRule("egde")), TOKENS).unknown_tokens == ("egde",)
    assert Access((AccessRule("edge"),)).unknown_tokens == ("edge",)


@pytest.mark.parametrize(
    ("access", "who", "identity"),
    [
        (Access(), peer("edge-token"), "edge-1"),
        (Access(), peer("edge-token", "spiffe://a/web"), "spiffe://a/web"),
        (Access(), peer("", "edge.acme.example"), "edge.acme.example"),
        (Access(tokens=TOKENS), peer("edge-token", "spiffe://a/web"), "spiffe://a/web"),
        (Access(tokens=TOKENS), peer("edge-token"), "edge"),
        (Access(tokens=TOKENS), peer("plain-token"), "edge-1"),
        (Access((AccessRule(name=("spiffe://a/*",)),), TOKENS), peer("edge-token", "spiffe://a/web"), "spiffe://a/web"),
        (Access((AccessRule(),)), peer(), "edge-1"),
    ],
)  # fmt: skip
def test_whose_vote_a_client_has(access: Access, who: Peer, identity: str) -> None:
    """That of its certificate or its token; of its node id where it has none of them, or they have no name."""
    assert access.identity_of(who, EDGE) == identity


def test_what_is_replaced_is_noticed() -> None:
    """Those who listen are called with what holds then."""
    in_use = AccessInUse()
    seen: list[Access] = []
    in_use.listeners["me"] = lambda: seen.append(in_use.current)
    access = Access(tokens=TOKENS)
    in_use.replace(access)

    assert seen == [access]
