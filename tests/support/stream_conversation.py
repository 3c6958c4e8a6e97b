"""Play a written dialogue of files, one client's stream and the server, and tell where it differs.

The statements about files are those of `tests/support/conversation.py`; contents are those of `WrittenFiles`. A stream
bears all types that are asked for on it, as ADS does. What else is put in:

    client   EDS R=a,b N=1 V=1       a state-of-the-world request: its names (R=- for none), the nonce and the version that
             detail=text             it bears (none where they are left out); a rejection in the client's words
             features=ttl            what the client announces, with the first request
             agent=envoy             what it is
             refused=a,b             which of the names were refused when the request was read
    single                           the next stream bears one type: it is not an aggregated one
    spec                             the next stream is served with `ttl: spec`
    nothing                          no tree was loaded yet
    clock    1.5                     so many seconds pass; the server looks at its stream when it asked for it
    late     1.5                     so many seconds pass, and the server has not looked yet
    elsewhere EDS a,b                another server may have these names of a type (* for everything), and has not answered;
                                     of others it has none
    hold                             the server gets no snapshot, until there is a request or `release`
    release                          it gets the last one
    reconnect                        the stream breaks; the next request is the first of a new one
    restart                          the same, with a server that forgot everything
    restart  state                   the same, with a server that kept its state on disk

What must come out, in this order, and nothing else:

    ack      V=2                     what a request ACKs or NACKs, as in `tests/support/conversation.py`
    server   EDS R=a,b V=2 N=3       a response; V= and N= may be left out
             R=a(gone)               a resource that no file has any more
             ttl=a:5                 the time to live in it, in seconds
             heartbeats=a:5          what is renewed without its content
             errors=a,b              of which names it says why they are refused
    server   silent                  nothing

Versions and nonces are symbols, bound when the server first says them; others are foreign.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import ClassVar

from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import Resource, Snapshot
from fsxds.model.values import Nonce, TypeUrl, Version
from fsxds.protocol.messages import Acknowledgement, DeltaResponse, Node, Reaction, SotwRequest, SotwResponse
from fsxds.protocol.sotw import SotwStream
from fsxds.protocol.subscription import SharedMemory
from fsxds.protocol.ttl import SOTW_TTL_FEATURE, TTL_FEATURE, TtlMode
from tests.support import dialogue
from tests.support.dialogue import Played
from tests.support.snapshots import type_url
from tests.support.written_files import WrittenFiles, body_of

FEATURES = {"ttl": {TTL_FEATURE, SOTW_TTL_FEATURE}, "ttl-delta": {TTL_FEATURE}}


def node_of(options: Mapping[str, str]) -> Node:
    """Return what a client says of itself."""
    features = frozenset(FEATURES.get(options.get("features", ""), ()))
    return Node("n1", features=features, agent=options.get("agent", ""))


class Symbols:
    """Names that a script gives to what the server says."""

    def __init__(self, foreign: str) -> None:
        self._said: dict[str, str] = {}
        self._foreign = foreign

    def meaning(self, symbol: str) -> str:
        """Return what a symbol stands for; a symbol that was never bound stands for something foreign."""
        return self._said.get(symbol, f"{self._foreign} {symbol}")

    def symbol(self, said: str, expected: str | None) -> str:
        """Return the symbol of what was said; what is new gets the expected one, unless that stands for something else."""
        for symbol, meaning in reversed(self._said.items()):
            if meaning == said:
                return symbol
        if expected is None or expected in self._said:
            return "?"
        self._said[expected] = said
        return expected

    def bind(self, symbol: str, said: str) -> None:
        """Give a symbol to what is known before it is said."""
        self._said[symbol] = said

    def start_again(self) -> None:
        """Keep what was said, as what it was, but take what is said from now on for something new."""
        self._said = {symbol: f"before: {said}" for symbol, said in self._said.items()}


class StreamConversation:
    """Both ends of a dialogue: makes of each statement what the server says to it."""

    make_stream: ClassVar[type[SotwStream]] = SotwStream

    def __init__(self) -> None:
        self.files = WrittenFiles()
        self.versions, self.nonces = Symbols("foreign version"), Symbols("foreign nonce")
        self.snapshot: Snapshot | None = None
        self.now_s = 1000.0
        self._is_released = True
        self._expected: list[str] = []
        self._elsewhere: dict[TypeUrl, frozenset[str]] = {}
        self._memory = SharedMemory(self._unanswered)
        self._is_aggregated, self._ttl_mode = True, TtlMode.ENVOY
        self.stream = self._open()

    def expect(self, lines: list[str]) -> None:
        """Take what is expected next, so that what is new gets the symbols that stand there."""
        self._expected = lines.copy()

    def say(self, line: str) -> list[str]:
        """Play one statement; return what the server says and concludes."""
        verb, *words = line.split()
        match verb:
            case "client":
                reaction = self.ask(words)
                said = [self._written_ack(reaction.acknowledgement)] if reaction.acknowledgement else []
                return said + self._written(reaction.responses)
            case "clock":
                return self._pass_time(float(words[0]))
            case "late":
                self.now_s += float(words[0])
            case "single" | "spec":
                self._is_aggregated = self._is_aggregated and verb != "single"
                self._ttl_mode = TtlMode.SPECIFICATION if verb == "spec" else self._ttl_mode
                self.stream = self._open()
            case "reconnect" | "restart":
                self._start_again(verb, keeps_state=words == ["state"])
            case "nothing":
                self.snapshot = None
            case "elsewhere":
                self._elsewhere[type_url(words[0])] = frozenset("".join(words[1:]).split(","))
                return self._release_files() if self.snapshot is not None else []
            case "hold":
                self._is_released = False
            case "release":
                self._is_released = True
                return self._release_files()
            case _:
                return self._edit(verb, *words)
        return []

    def ask(self, words: list[str]) -> Reaction[SotwResponse]:
        """Let the client send a request."""
        options = {name: value for name, _, value in (word.partition("=") for word in words[1:])}
        request = SotwRequest(
            type_url(words[0]),
            () if options["R"] == "-" else tuple(options["R"].split(",")),
            Version(self.versions.meaning(options["V"])) if "V" in options else None,
            Nonce(self.nonces.meaning(options["N"])) if "N" in options else None,
            options.get("detail"),
            node_of(options),
            rejected_names=dict.fromkeys(options["refused"].split(","), "no") if "refused" in options else {},
        )
        return self.stream.receive_request(request, self.snapshot, self.now_s)

    def write(self, response: SotwResponse) -> Iterable[str]:
        """Write the words of a response that stand between its type and its version."""
        yield "R=" + (",".join(self.written_resource(resource) for resource in response.resources) or "-")
        if response.with_ttl:
            yield from _written_ttl("ttl", response.resources)
        yield from _written_ttl("heartbeats", response.heartbeats)
        yield from written_errors(response)

    def written_resource(self, resource: Resource) -> str:
        """Write the name of a resource, and what is the matter with it when it is not what the files say."""
        content = self.files.contents.get(_short_name(resource.type_url), {}).get(resource.name)
        if content is None:
            return f"{resource.name}(gone)"
        is_current = resource.body == f"{resource.name}={body_of(content)}".encode()
        return resource.name if is_current else f"{resource.name}(old)"

    def _edit(self, verb: str, short_name: str, *words: str) -> list[str]:
        self.files.say(verb, short_name, list(words))
        if verb == "authored":
            self.versions.bind(words[0], words[0])
        self.snapshot = self.files.snapshot()
        return self._release_files() if self._is_released else []

    def _release_files(self) -> list[str]:
        assert self.snapshot is not None
        return self._written(self.stream.receive_snapshot(self.snapshot, self.now_s))

    def _pass_time(self, seconds: float) -> list[str]:
        self.now_s += seconds
        at_s = self.stream.timer_at_s
        if at_s is None or at_s > self.now_s:
            return []
        said = self._written(self.stream.receive_timer(self.now_s))
        at_s = self.stream.timer_at_s
        assert at_s is None or at_s > self.now_s, "a stream that did what it planned does not plan it again"
        return said

    def _start_again(self, verb: str, *, keeps_state: bool) -> None:
        if verb == "restart":
            self._memory = SharedMemory(self._unanswered)
            self.files.start_again(keeps_state=keeps_state)
            self.snapshot = self.snapshot and self.files.snapshot()
        self.nonces.start_again()
        self.stream = self._open()

    def _unanswered(self, of_type: TypeUrl, names: AbstractSet[str]) -> frozenset[str]:
        return frozenset(names & self._elsewhere.get(of_type, frozenset()))

    def _open(self) -> SotwStream:
        return self.make_stream(self._memory, self._ttl_mode, is_aggregated=self._is_aggregated)

    def _written(self, responses: Iterable[SotwResponse]) -> list[str]:
        return [self._written_response(response) for response in responses]

    def _written_response(self, response: SotwResponse) -> str:
        expected = self._next_expected("server")
        words = ["server", _short_name(response.type_url), *self.write(response)]
        for key, symbols, said in (("V", self.versions, response.version), ("N", self.nonces, response.nonce)):
            symbol = symbols.symbol(said, expected.get(key))
            if key in expected:
                words.append(f"{key}={symbol}")
        return " ".join(words)

    def _written_ack(self, received: Acknowledgement) -> str:
        word = "ack" if received.accepted else "nack"
        detail = f" detail={received.reason}" if received.reason is not None else ""
        self._next_expected(word)
        return f"{word} V={self.versions.symbol(received.version, None)}{detail}"

    def _next_expected(self, verb: str) -> dict[str, str]:
        """Return the options of the next line that is expected, where it begins with `verb`."""
        if not self._expected or not self._expected[0].startswith(verb):
            return {}
        words = self._expected.pop(0).split()[1:]
        return {key: value for key, _, value in (word.partition("=") for word in words)}


def _short_name(url: TypeUrl) -> str:
    return BY_TYPE_URL[url].short_name.upper()


def _written_ttl(word: str, resources: Iterable[Resource]) -> Iterable[str]:
    timed = ",".join(f"{resource.name}:{resource.ttl_s:g}" for resource in resources if resource.ttl_s is not None)
    return (f"{word}={timed}",) if timed else ()


def written_errors(response: SotwResponse | DeltaResponse) -> Iterable[str]:
    """Write of which names a response says why they are refused."""
    return ("errors=" + ",".join(sorted(response.errors)),) if response.errors else ()


def play(script: str) -> Played:
    """Play a script to its end, whatever differs on the way."""
    return dialogue.play(script, StreamConversation())
