"""Checks requests' credentials and connections. Pure.

A denied request changes nothing for its client: Envoy keeps its configuration, and asks again after its back-off
(ENVOY.md E71).

Rules: who may ask for which nodes, who gets secrets, and whose vote a client has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from fsxds.model.errors import ProtocolError
from fsxds.model.resource_types import BY_SHORT_NAME
from fsxds.model.values import TypeUrl
from fsxds.protocol.messages import Node
from fsxds.runtime.views import LONGEST_VALUE, Views, any_of
from fsxds.settings.access_rules import AccessRule, Tokens, is_ambiguous
from fsxds.settings.view_rules import REGEX

SECRET = BY_SHORT_NAME["sds"].type_url

_OTHER_NODE = "is none that {who} may ask for; ask as a node of its rule, or add the node to a rule of `access`"
_CLEARTEXT = (
    "secrets are not sent in clear over the network; serve with --tls-cert and --tls-key, on a loopback address or on a unix "
    "socket, or allow it with --insecure-secrets"
)


@dataclass(frozen=True, slots=True)
class Peer:
    """A request's sender, by its connection and credentials.

    Attributes:
        address: empty for a Unix socket.
        is_private: others cannot read the connection: TLS, a Unix socket, or loopback.
        names: in the verified client certificate: URIs such as `spiffe://...`, and DNS names.
        token: never shown.
    """

    address: str
    is_private: bool
    names: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """The access settings. The `check_...` methods raise ProtocolError if a request is denied.

    Its code is `UNAUTHENTICATED` without known credentials, else `PERMISSION_DENIED`.

    Attributes:
        rules: None for all clients with a valid token, or all if there are no tokens.
        tokens: clients'.
        admin_tokens: operators'.
        has_insecure_secrets: secrets are also sent in clear over the network.
    """

    rules: tuple[AccessRule, ...] | None = None
    tokens: Tokens | None = None
    admin_tokens: Tokens | None = None
    views: Views = field(default_factory=lambda: Views(None))
    has_insecure_secrets: bool = False

    @property
    def is_for_everybody(self) -> bool:
        """Whether clients need no credentials."""
        return self.rules is None and self.tokens is None

    @property
    def guards_admin(self) -> bool:
        """Whether operators need credentials."""
        return self.admin_tokens is not None or any(rule.admin for rule in self.rules or ())

    @property
    def unknown_tokens(self) -> tuple[str, ...]:
        """Rules' token names that no token has."""
        names = self.tokens.names if self.tokens else frozenset[str]()
        return tuple(sorted({rule.token for rule in self.rules or () if rule.token} - names))

    def check_peer(self, peer: Peer) -> None:
        """Check access to anything."""
        if not self.is_for_everybody and not any(self._rules_of(peer)):
            raise self._unknown(peer)

    def check_node(self, peer: Peer, node: Node) -> None:
        """Check access to a node's resources."""
        if self.is_for_everybody:
            return
        is_known = False
        for rule in self._rules_of(peer):
            if self._is_for(rule, node):
                return
            is_known = True
        if not is_known:
            raise self._unknown(peer)
        fact = "this node " + _OTHER_NODE.format(who=self._title(peer))
        raise ProtocolError(fact, "PERMISSION_DENIED", subject=f"node {node.id}")

    def check_type(self, peer: Peer, type_url: TypeUrl) -> None:
        """Check that the connection may carry a type."""
        if type_url == SECRET and not (peer.is_private or self.has_insecure_secrets):
            raise ProtocolError(_CLEARTEXT, "PERMISSION_DENIED")

    def check_request(self, peer: Peer, node: Node, type_url: TypeUrl) -> None:
        """Check type and node."""
        self.check_type(peer, type_url)
        self.check_node(peer, node)

    def check_all_nodes(self, peer: Peer) -> None:
        """Check access to all nodes: by a rule for any node, or the admin address."""
        if self.is_for_everybody:
            return
        rules = tuple(self._rules_of(peer))
        if any(rule.is_for_all_nodes or rule.admin for rule in rules):
            return
        if not rules:
            raise self._unknown(peer)
        fact = f"{self._title(peer)} may not ask about all nodes; that takes a rule of `access` without nodes, clusters and views"
        raise ProtocolError(fact, "PERMISSION_DENIED")

    def check_admin(self, peer: Peer) -> None:
        """Check an operator's access."""
        if not self.guards_admin or (self.rules and any(rule.admin for rule in self._rules_of(peer))):
            return
        if self.admin_tokens and peer.token and self.admin_tokens.name_of(peer.token) is not None:
            return
        if peer.token or peer.names:
            fact = "these credentials do not open the admin address; send the token of --admin-token, or add `admin: true` to a rule"
            raise ProtocolError(fact, "UNAUTHENTICATED" if peer.token else "PERMISSION_DENIED")
        raise ProtocolError(
            "the admin address wants a token; give --admin-token FILE, or send `authorization: Bearer TOKEN`",
            "UNAUTHENTICATED",
        )

    def identity_of(self, peer: Peer, node: Node) -> str:
        """Return a client's vote: its certificate's or token's name, else its node id.

        Certificates count without rules, too: fsxds asks for them only to verify them.
        """
        token_name = self.tokens.name_of(peer.token) if self.tokens and peer.token else None
        return next(iter(peer.names), "") or token_name or node.id

    def _rules_of(self, peer: Peer) -> Iterator[AccessRule]:
        """Every rule has a condition."""
        token_name = self.tokens.name_of(peer.token) if self.tokens and peer.token else None
        if self.rules is None:
            if token_name is not None:
                yield AccessRule(token=token_name)
            return
        uris = tuple(name for name in peer.names if is_uri(name) and not is_ambiguous(name))
        dns_names = tuple(name.lower() for name in peer.names if not is_uri(name))
        for rule in self.rules:
            if (
                (not rule.token or rule.token == token_name)
                and (not rule.name or _is_any_matched(rule.name, uris))
                and (not rule.dns or _is_any_matched(map(_lower, rule.dns), dns_names))
            ):
                yield rule

    def _is_for(self, rule: AccessRule, node: Node) -> bool:
        for patterns, value in ((rule.nodes, node.id), (rule.clusters, node.cluster)):
            if patterns and not _is_any_matched(patterns, (value,)):
                return False
        if rule.views:
            # The name of a view does not depend on which layers exist.
            view = self.views.layers_of(node, ())
            return view is not None and view.name in rule.views
        return True

    def _unknown(self, peer: Peer) -> ProtocolError:
        if peer.token and (self.tokens is None or self.tokens.name_of(peer.token) is None):
            return ProtocolError("the bearer token is not known; send one of the server's --tokens", "UNAUTHENTICATED")
        if not peer.token and any(map(is_ambiguous, filter(is_uri, peer.names))):
            fact = f"{self._title(peer)} has a dot segment or an encoded slash, and is ignored; issue a certificate without"
            raise ProtocolError(fact, "PERMISSION_DENIED")
        if peer.token or peer.names:
            fact = f"{self._title(peer)} has no access; add a rule for it to `access` in the server's settings"
            return ProtocolError(fact, "PERMISSION_DENIED")
        fact = (
            "no credentials came; send `authorization: Bearer TOKEN`" if self.tokens else "no client certificate came"
        )
        return ProtocolError(f"{fact}, as the server's settings `access` and `tokens` demand", "UNAUTHENTICATED")

    def _title(self, peer: Peer) -> str:
        token_name = self.tokens.name_of(peer.token) if self.tokens and peer.token else None
        shown = () if token_name is None else (f"the token {token_name or 'without a name'}",)
        return ", ".join((*shown, *(name[:200] for name in peer.names[:3]))) or "this client"


def is_uri(name: str) -> bool:
    """Whether a certificate's name is a URI, no DNS name."""
    return "://" in name


def _lower(pattern: str) -> str:
    return pattern if pattern.startswith(REGEX) else pattern.lower()


def _is_any_matched(patterns: Iterable[str], values: Iterable[str]) -> bool:
    """Empty and very long values match none."""
    test: Callable[[str], bool] = any_of(tuple(patterns))
    return any(test(value) for value in values if 0 < len(value) <= LONGEST_VALUE)


class AccessInUse:
    """The current access settings, on the event loop only.

    `listeners`, by owner, are called after replacements.
    """

    def __init__(self, access: Access | None = None) -> None:
        self.current = access or Access()
        self.listeners: dict[object, Callable[[], object]] = {}

    def replace(self, access: Access) -> None:
        """Applies to requests being answered, too."""
        self.current = access
        for listener in tuple(self.listeners.values()):
            listener()
