from __future__ import annotations

import json

from fsxds.tools.diff.difference import json_text
from tests.tools.diff.differences import EXAMPLE, compared


def test_all_of_a_difference() -> None:
    """The object has both labels, and per type the resources with versions, places and fields."""
    content = json.loads(json_text(EXAMPLE))
    web, odd = content["types"]["cds"]["changed"]

    assert {"same": False, "before": "main", "after": "HEAD"} == {
        key: content[key] for key in ("same", "before", "after")
    }
    assert ["sds", "cds"] == list(content["types"])
    assert "main:xds/cds.yaml:3" == content["types"]["sds"]["removed"][0]["from"]
    assert ("web", "HEAD:xds/cds.yaml:2", 32) == (web["name"], web["after"]["from"], len(web["after"]["version"]))
    assert web["fields"][0] == {
        "path": "lb_policy",
        "act": "changed",
        "before": "ROUND_ROBIN",
        "after": "LEAST_REQUEST",
    }
    assert {"path": "transport_socket.key", "act": "changed", "hidden": True} == web["fields"][3]
    assert [] == odd["fields"]


def test_no_difference() -> None:
    """Of equals it says so."""
    assert {"same": True, "unread": [], "before": "a", "after": "b", "held": [], "types": {}} == json.loads(
        json_text(compared(before="a", after="b"))
    )
