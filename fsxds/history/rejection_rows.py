"""Stores rejections: after a restart versions are still held back, and offered no sooner.

Times are stored as elapsed or remaining seconds, with the time of day to adjust them.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

from fsxds.api.secrets import mask_reason
from fsxds.history.rollout_rows import read_version
from fsxds.model.values import PlainValue
from fsxds.rollout.pending import BACK_OFF, ResourceVersion
from fsxds.rollout.rejections import HeldVersion, RejectingNode, Rejections
from fsxds.snapshots.encoding import decoding

SCHEMA = "CREATE TABLE IF NOT EXISTS rejections (number INTEGER PRIMARY KEY, facts TEXT NOT NULL)"


def encode_rejections(rejections: Rejections, clock_s: float, now_s: float) -> str:
    """Encode the rejections of nodes with a node id; `clock_s` is by their clock, `now_s` since 1970."""
    nodes: list[PlainValue] = [
        {
            "node": [*map(str, key)],
            "name": node.name,
            "identity": node.identity,
            "reasons": [
                [*_plain(version), None if words is None else mask_reason(words), clock_s - since_s]
                for version, (words, since_s) in sorted(node.reasons.items())
            ],
            "pending": [
                # A node that had not answered when the process ended may be offered the versions again after the pause
                # for its NACKs.
                [
                    [_plain(version) for version in sorted(versions)],
                    nacks,
                    BACK_OFF.pause_s(max(nacks, 1)) if retry_at_s is None else max(retry_at_s - clock_s, 0.0),
                ]
                for versions, nacks, retry_at_s in node.pending.batches
            ],
        }
        for key, node in rejections.nodes.items()
        if isinstance(key, tuple)
    ]
    held: list[PlainValue] = [
        [*_plain(version), clock_s - one.since_s, dict(one.accepting)]
        for version, one in sorted(rejections.held.items())
    ]
    return json.dumps({"saved_s": now_s, "nodes": nodes, "held": held})


def restore_rejections(rejections: Rejections, text: bytes, clock_s: float, now_s: float) -> None:
    """Restore encoded rejections; all nodes count as gone until seen again. Raises DamagedBytesError."""
    with decoding("the table of rejections"):
        facts = json.loads(text)
        passed_s = max(now_s - float(facts["saved_s"]), 0.0)
        for row in facts["nodes"]:
            node = RejectingNode(str(row["name"]), str(row["identity"]), gone_at_s=clock_s)
            for *version, words, age_s in row["reasons"]:
                node.reasons[read_version(version)] = words, clock_s - passed_s - float(age_s)
            batches = (
                (frozenset(map(read_version, versions)), nacks, left_s) for versions, nacks, left_s in row["pending"]
            )
            node.pending.restore(
                [(each, int(nacks), clock_s + max(left_s - passed_s, 0.0)) for each, nacks, left_s in batches]
            )
            if node.pending.names == node.reasons.keys():
                rejections.nodes[tuple(map(str, row["node"]))] = node
        rejections.held = {
            read_version(version): HeldVersion(clock_s - passed_s - float(age_s), dict(accepting))
            for *version, age_s, accepting in facts["held"]
        }


def write_rejections(connection: sqlite3.Connection, text: str) -> None:
    """Replace the stored rejections."""
    connection.execute("INSERT OR REPLACE INTO rejections (number, facts) VALUES (1, ?)", (text,))


def read_rejections(connection: sqlite3.Connection) -> Iterator[bytes]:
    """Yield the stored rejections, if any."""
    return (text for (text,) in connection.execute("SELECT facts FROM rejections"))


def _plain(version: ResourceVersion) -> list[PlainValue]:
    (type_url, name), digest = version
    return [type_url, name, digest]
