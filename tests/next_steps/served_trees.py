"""A tree with settings, served in this process, and what HTTP answers of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from fsxds.testing import serve
from fsxds.testing.server import Server
from tests.support.patience import PATIENCE_S
from tests.support.settings_files import read_file

AUTHORITY = "some-authority"


def served(tree: Mapping[str, str] | Path, folder: Path | None = None, settings: str = "") -> Server:
    """Return a server of a tree, with the settings of a file of this text, which is written into the folder."""
    if folder is None:
        return serve(tree)
    return serve(tree, settings=replace(read_file(folder, settings), settle_s=0.005))


def wrapper(name: str, message_type: str, /, **fields: Any) -> str:
    """Return a `Resource` around a message, as a list item."""
    resource = {"@type": f"type.googleapis.com/{message_type}", **fields}
    wrapped = {"@type": "type.googleapis.com/envoy.service.discovery.v3.Resource", "name": name, "resource": resource}
    return yaml.safe_dump([wrapped], sort_keys=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What HTTP answered; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)


def get(server: Server, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Ask for a path, and follow no redirect; `if_none_match="…"` is a header."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    try:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        response = connection.getresponse()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, answered, response.read())
    finally:
        connection.close()


def post(server: Server, noun: str, request: Mapping[str, Any]) -> Answer:
    """Poll for resources, such as `clusters`."""
    path, body = f"/v3/discovery:{noun}", json.dumps(request).encode()
    return get(server, path, "POST", body, content_type="application/json")
