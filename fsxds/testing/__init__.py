"""A running fsxds for tests of other projects.

    >>> from fsxds.testing import serve
    >>> cluster = "- {name: web, type: STATIC, connect_timeout: 1s}"
    >>> with serve({"cds.yaml": cluster}) as server:
    ...     server.names("cds")
    ...     server.write("cds.yaml", cluster.replace("web", "api"))
    ...     server.names("cds")
    ('web',)
    ('api',)

With pytest, the fixture `fsxds_server` creates such servers and stops them after the test.
"""

from __future__ import annotations

from fsxds.testing.server import Server, serve

__all__ = ["Server", "serve"]
