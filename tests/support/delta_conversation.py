"""Play a written dialogue of files, one client's Delta stream and the server.

It is as in `tests/support/stream_conversation.py`, but for what the client and the server say:

    client   EDS +a,b -c N=1         names that are subscribed to (+* for everything) and given up; the nonce, if any
             held=a=1,b=2            what the client brings from another stream, by its content
             detail=text             a rejection in the client's words
             features=ttl-delta      what the client announces, with the first request
             agent=envoy             the client is an Envoy
             refused=a,b             which of the names were refused when the request was read
             written=b>a             names of the request with their canonical forms, where these are others

    server   EDS R=a V=2 N=3         a response; R= is left out where there are no resources
             removed=b,c             names that are reported as removed
             unknown=r/x             hosts that are reported as unknown
             aliases=r/a:r/x|r/y     with which aliases resources are sent, where they are others than their own
             ttl=a:5 heartbeats=a:5 errors=a,b  as with state-of-the-world streams
"""

from __future__ import annotations

from collections.abc import Iterable

from fsxds.model.values import Nonce, Version
from fsxds.protocol.delta import DeltaStream
from fsxds.protocol.messages import DeltaRequest, DeltaResponse, Node, Reaction
from tests.support import dialogue
from tests.support.dialogue import Played
from tests.support.snapshots import resource, type_url
from tests.support.stream_conversation import FEATURES, StreamConversation, _written_ttl, written_errors


class DeltaConversation(StreamConversation):
    """Both ends of a dialogue over a Delta stream."""

    make_stream = DeltaStream  # type: ignore[assignment]

    def ask(self, words: list[str]) -> Reaction[DeltaResponse]:  # type: ignore[override]
        """Let the client send a request."""
        short_name, *rest = words
        subscribe, unsubscribe = _names_after("+", rest), _names_after("-", rest)
        options = {name: value for name, _, value in (word.partition("=") for word in rest if word[0] not in "+-")}
        node = Node(
            "n1", features=frozenset(FEATURES.get(options.get("features", ""), ())), agent=options.get("agent", "")
        )
        request = DeltaRequest(
            type_url(short_name),
            subscribe,
            unsubscribe,
            dict(_held(short_name, options["held"])) if "held" in options else {},
            Nonce(self.nonces.meaning(options["N"])) if "N" in options else None,
            options.get("detail"),
            node,
            canonical=dict(each.split(">", 1) for each in options.get("written", "").split(",") if each),
            rejected_names=dict.fromkeys(options["refused"].split(","), "no") if "refused" in options else {},
        )
        return self.stream.receive_request(request, self.snapshot, self.now_s)  # type: ignore[arg-type,return-value]

    def write(self, response: DeltaResponse) -> Iterable[str]:  # type: ignore[override]
        """Write the words of a response that stand between its type and its version."""
        names = [resource.name for resource in response.resources]
        assert len({*names, *response.removed, *response.unpopulated}) == len(
            [*names, *response.removed, *response.unpopulated]
        ), "no name stands twice in a response"
        if names:
            yield "R=" + ",".join(self.written_resource(each) for each in response.resources)
        if response.removed:
            yield "removed=" + ",".join(response.removed)
        if response.unpopulated:
            yield "unknown=" + ",".join(response.unpopulated)
        aliases = [f"{name}:{'|'.join(others)}" for name, others in response.aliases.items() if others]
        if aliases:
            yield "aliases=" + ",".join(aliases)
        if response.with_ttl:
            yield from _written_ttl("ttl", response.resources)
        yield from _written_ttl("heartbeats", response.heartbeats)
        yield from written_errors(response)


def _names_after(sign: str, words: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for word in words if word.startswith(sign) for name in word[1:].split(","))


def _held(short_name: str, written: str) -> Iterable[tuple[str, Version]]:
    for each in written.split(","):
        name, _, content = each.rpartition("=")
        yield name, resource(short_name, name, content).version


def play(script: str) -> Played:
    """Play a script to its end, whatever differs on the way."""
    return dialogue.play(script, DeltaConversation())
