"""The files of a written dialogue: its statements about them, and the snapshots that come of these."""

from __future__ import annotations

from dataclasses import replace

from fsxds.model.resources import Reference, Resource, Rows, Snapshot
from fsxds.model.values import Severity
from fsxds.protocol.absence import NO_TOMBSTONES, Tombstones, after_change
from tests.support.snapshots import snapshot, type_url

VERBS = ("files", "better", "gone", "broken", "authored")


class WrittenFiles:
    """What stands in the files, and what was said of them.

    A content may end with `>x,y`: the endpoints that a cluster refers to (or the virtual hosts of a route configuration,
    the collections of endpoints), with `@x,y`: its aliases, and with `~5`: its time to live in seconds.
    """

    def __init__(self) -> None:
        self.contents: dict[str, dict[str, str]] = {}
        self._gone: set[str] = set()
        self._broken: set[str] = set()
        self._authored: dict[str, str] = {}
        self._generation = 0
        self._last: Snapshot | None = None
        self._tombstones: Tombstones = NO_TOMBSTONES

    def say(self, verb: str, short_name: str, words: list[str]) -> None:
        """Play one statement about files."""
        match verb:
            case "files" | "better":
                self.contents[short_name] = dict(word.split("=", 1) for word in words)
                self._broken -= {short_name} if verb == "files" else set()
            case "gone":
                del self.contents[short_name]
                self._gone.add(short_name)
            case "broken":
                self._broken.add(short_name)
            case "authored":
                self._authored[short_name] = words[0]
            case _:
                raise ValueError(f"no such statement: {verb}")

    def start_again(self, *, keeps_state: bool = False) -> None:
        """Forget what only a running server knows: which types had files once, and what else it does not keep on disk."""
        self._gone = set()
        if not keeps_state:
            self._last, self._tombstones = None, NO_TOMBSTONES

    def snapshot(self) -> Snapshot:
        """Return what a server makes of the files now."""
        self._generation += 1
        contents = {
            short_name: {name: body_of(content) for name, content in written.items()}
            for short_name, written in self.contents.items()
        }
        plain = snapshot(
            contents,
            generation=self._generation,
            declared=self._gone,
            incomplete=self._broken,
            authored=self._authored,
        )
        by_type = dict(plain.by_type)
        for short_name, written in self.contents.items():
            rows = by_type[type_url(short_name)]
            by_type[type_url(short_name)] = Rows(
                rows.type_url, {name: _as_written(short_name, row, written[name]) for name, row in rows.items()}
            )
        made = replace(plain, by_type=by_type)
        self._tombstones = after_change(self._tombstones, self._last, made)
        self._last = replace(made, tombstones=self._tombstones)
        return self._last


def body_of(content: str) -> str:
    """Return what of a content goes into the body of its resource."""
    return content.partition("~")[0].partition("@")[0].partition(">")[0]


# What a resource of one type refers to.
_REFERRED = {"CDS": "EDS", "EDS": "LEDS", "RDS": "VHDS"}


def _as_written(short_name: str, resource: Resource, content: str) -> Resource:
    content, _, ttl = content.partition("~")
    content, _, aliases = content.partition("@")
    _, _, names = content.partition(">")
    references = tuple(
        Reference(type_url(_REFERRED[short_name]), name, ("place",), Severity.ERROR)
        for name in names.split(",")
        if name
    )
    return replace(
        resource,
        references=references,
        aliases=tuple(aliases.split(",")) if aliases else (),
        ttl_s=float(ttl) if ttl else None,
    )
