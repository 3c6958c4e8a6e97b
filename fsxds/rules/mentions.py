"""The words in which resources mention one another."""

from __future__ import annotations

from fsxds.resource_types import BY_SHORT_NAME
from fsxds.values import TypeUrl

CLUSTER = BY_SHORT_NAME["cds"].type_url
ENDPOINTS = BY_SHORT_NAME["eds"].type_url
ROUTES = BY_SHORT_NAME["rds"].type_url
SCOPED_ROUTE = BY_SHORT_NAME["srds"].type_url
SECRET = BY_SHORT_NAME["sds"].type_url
EXTENSION_CONFIG = BY_SHORT_NAME["ecds"].type_url
VIRTUAL_HOST = BY_SHORT_NAME["vhds"].type_url
LB_ENDPOINT = BY_SHORT_NAME["leds"].type_url

ADDRESS = TypeUrl("address")
"""Stands for the type of a mention that is no reference but a claim: no other resource may make the same."""

HOST = TypeUrl("host")
"""Stands for the type of a claim of virtual hosts: their names, and the names by which their domains are asked for."""

HOST_NAME = TypeUrl("host name")
"""Stands for the type of a claim of virtual hosts: what Envoy keeps them by, which is `VirtualHost.name`."""

UNNAMED = TypeUrl("unnamed listener")
"""Stands for the type of a claim of listeners without a name, of which there may be one."""

CLAIMED = frozenset({ADDRESS, HOST, HOST_NAME, UNNAMED})
"""What stands for the type of a claim."""

ANY = "*"
"""Stands for a name: all resources of the type may be meant, and one of them has to be there.

As with all mentions that weigh no more than a NOTE, nothing has to be there: it says what may be in use.
"""

IN_FILE = "file:"
"""Begins the type of a mention whose name is the path of a file where Envoy looks for that type, a line feed and the name."""
