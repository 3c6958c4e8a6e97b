"""Play a written dialogue of files, clients and the server against the rules of polling, and tell where it differs.

One statement a line; `#` begins a comment. What is put in:

    files    EDS a=1 b=1             all resources of a type, with their content; none of its files is broken
    better   EDS a=2 b=1             the same, and what is broken stays broken
    gone     EDS                     the last file of a type is removed
    broken   CDS                     a file that was never good may define this type
    authored EDS 7                   the author's version of a type is served
    nothing                          no tree was loaded yet
    elsewhere EDS a,b                another server may have these names of a type (* for everything), and has not answered;
                                     of others it has none
    restart                          the server forgets what it sent to its clients
    clock    1.5                     so many seconds pass; held polls are looked at again when they asked for it
    poll     EDS R=a,b V=1           a client asks; R=* for everything, V=- for no version
             node=n2 from=192.0.2.7  another client; node=- for one that does not name itself
             envoy                   the request bears Envoy's own deadline
             nonce=2 detail=text     what the client says of an answer
    lost     CDS R=*                 the answer to this poll did not arrive, and the server saw it
    deadline                         every held poll ends with nothing new (304)

What must come out, in this order, and nothing else:

    ack      V=2                     the poll shows that the client accepted the response before it
    nack     V=2 detail=…            or that it NACKed it, with an error or without
    server   EDS R=a V=2             an answer: the names in it (R=- for none), its version
    server   holds                   the poll stays open
    server   unavailable             503

Versions are symbols, bound when the server first says them; a version that the server never said (`V=old`) is foreign.
Every line of the server stands for one poll; a line for a client that is not the unnamed `n1` ends with its `node=`.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import Acknowledgement, Node
from fsxds.protocol.poll import Decision, PollMemory, PollRequest, Send, Unavailable, Wait, nonce_of
from fsxds.protocol.subscription import Subscription
from tests.support import dialogue
from tests.support.dialogue import Played
from tests.support.snapshots import type_url
from tests.support.written_files import WrittenFiles


@dataclass(slots=True)
class _OpenPoll:
    request: PollRequest
    until_s: float | None = None
    awaits_answers: bool = False


class Conversation:
    """Both ends of a dialogue: makes of each statement what the server says to it."""

    def __init__(self) -> None:
        self._files = WrittenFiles()
        self._snapshot: Snapshot | None = None
        self._elsewhere: dict[TypeUrl, frozenset[str]] = {}
        self._memory = PollMemory(unanswered=self._unanswered)
        self._now_s = 1000.0
        self._open: list[_OpenPoll] = []
        self._versions: dict[str, Version] = {}
        self._unbound = ""

    def expect(self, lines: list[str]) -> None:
        """Tell what is expected next, so that a new version gets the symbol that stands there."""
        symbols = [word[2:] for line in lines for word in line.split() if word.startswith("V=")]
        self._unbound = next((symbol for symbol in symbols if symbol not in self._versions), "?")

    def say(self, line: str) -> list[str]:
        """Play one statement; return what the server says and concludes."""
        verb, *words = line.split()
        match verb:
            case "poll":
                return self._poll(words)
            case "clock":
                self._now_s += float(words[0])
                due = [poll for poll in self._open if poll.until_s is not None and poll.until_s <= self._now_s]
                return self._look_again(due)
            case "lost":
                self._memory.receive_lost(self._request(words))
            case "deadline":
                for poll in self._open:
                    self._memory.receive_deadline(poll.request, self._now_s)
                self._open = []
            case "restart":
                self._memory, self._open = PollMemory(unanswered=self._unanswered), []
                self._files.start_again()
                if self._snapshot is not None:
                    self._publish()
            case "elsewhere":
                self._elsewhere[type_url(words[0])] = frozenset("".join(words[1:]).split(","))
                return self._look_again([poll for poll in self._open if poll.awaits_answers])
            case "nothing":
                self._snapshot = None
                return self._look_again(self._open)
            case _:
                self._edit(verb, words)
                self._publish()
                return self._look_again(self._open)
        return []

    def _unanswered(self, of_type: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        return frozenset(names & self._elsewhere.get(of_type, frozenset()))

    def _edit(self, verb: str, words: list[str]) -> None:
        short_name, *rest = words
        self._files.say(verb, short_name, rest)
        if verb == "authored":
            self._versions[rest[0]] = Version(rest[0])

    def _publish(self) -> None:
        self._snapshot = self._files.snapshot()

    def _poll(self, words: list[str]) -> list[str]:
        request = self._request(words)
        decision, acknowledgement = self._memory.receive_request(request, self._snapshot, self._now_s)
        said = [self._written_ack(acknowledgement, request)] if acknowledgement else []
        return [*said, *self._conclude(_OpenPoll(request), decision)]

    def _request(self, words: list[str]) -> PollRequest:
        options = {name: value for name, _, value in (word.partition("=") for word in words[1:])}
        names = () if options["R"] == "*" else options["R"].split(",")
        node = options.get("node", "n1")
        version = options.get("V", "-")
        return PollRequest(
            Node("" if node == "-" else node, "cluster", options.get("from", "")),
            Subscription.for_request(type_url(words[0]), names),
            None if version == "-" else self._version(version),
            response_nonce=nonce_of(self._version(options["nonce"])) if "nonce" in options else None,
            error_detail=options.get("detail"),
            from_envoy="envoy" in options,
        )

    def _version(self, symbol: str) -> Version:
        return self._versions.setdefault(symbol, Version(f"foreign {symbol}"))

    def _look_again(self, polls: list[_OpenPoll]) -> list[str]:
        said = []
        for poll in self._open.copy():
            if any(poll is due for due in polls):
                decision = self._memory.receive_snapshot(poll.request, self._snapshot, self._now_s)
                self._open.remove(poll)
                said += self._conclude(poll, decision)
            else:
                said.append("server holds" + _who(poll.request))
        return said

    def _conclude(self, poll: _OpenPoll, decision: Decision) -> list[str]:
        match decision:
            case Send():
                return [self._answer(poll.request, decision)]
            case Wait(until_s, awaits_answers):
                poll.until_s, poll.awaits_answers = until_s, awaits_answers
                self._open.append(poll)
                return ["server holds" + _who(poll.request)]
            case Unavailable():
                return ["server unavailable" + _who(poll.request)]

    def _answer(self, request: PollRequest, send: Send) -> str:
        selection = send.selection
        short_name = BY_TYPE_URL[selection.type_url].short_name.upper()
        for resource in selection.resources:
            content = self._files.contents[short_name][resource.name]
            if resource.body != f"{resource.name}={content}".encode():
                return f"server says {resource.body!r}, and the files say {content}"
        names = ",".join(resource.name for resource in selection.resources) or "-"
        return f"server {short_name} R={names} V={self._symbol(selection.version)}{_who(request)}"

    def _written_ack(self, received: Acknowledgement, request: PollRequest) -> str:
        word = "ack" if received.accepted else "nack"
        detail = f" detail={received.reason}" if received.reason is not None else ""
        return f"{word} V={self._symbol(received.version)}{detail}{_who(request)}"

    def _symbol(self, version: Version | Nonce) -> str:
        for symbol, bound in self._versions.items():
            if bound == version:
                return symbol
        if self._unbound != "?":
            self._versions[self._unbound] = Version(version)
        return self._unbound


def _who(request: PollRequest) -> str:
    return "" if request.node.id == "n1" else f" node={request.node.id or '-'}"


def play(script: str) -> Played:
    """Play a script to its end, whatever differs on the way."""
    return dialogue.play(script, Conversation())
