"""The pytest plugin: a fixture that makes servers, and ends them with the test.

It is outside of `fsxds.testing`, whose import is that of the server: pytest imports a plugin whether or not it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fsxds.testing.server import Server


@pytest.fixture
def fsxds_server() -> Iterator[Callable[..., Server]]:
    """Make running servers: `fsxds_server(tree)` takes what `fsxds.testing.serve` takes, and returns a running `Server`.

    def test_my_client(fsxds_server):
        server = fsxds_server({"cds.yaml": "[{name: web, connect_timeout: 1s}]"})
        assert my_client(server.http).clusters() == ["web"]
    """
    # pytest loads every plugin when it starts; the server is imported for tests that use it.
    serve: Callable[..., Server] = import_module("fsxds.testing.server").serve
    with ExitStack() as running:
        yield lambda tree, **options: running.enter_context(serve(tree, **options))
