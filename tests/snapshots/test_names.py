from __future__ import annotations

from dataclasses import dataclass

import pytest

from fsxds.model.resources import HOST, HOST_NAME
from fsxds.model.values import Severity
from fsxds.snapshots.names import aliases_of, claims_of, lasting_fault, table_fault


@dataclass(frozen=True)
class Host:
    """What a virtual host says of itself."""

    name: str
    domains: tuple[str, ...]


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("web/shop", None),
        ("team/web/shop", None),
        ("shop", 'name it "<route configuration>/shop"'),
        ("/shop", 'name it "<route configuration>/shop"'),
        ("web/", 'name it "<route configuration>/web"'),
    ],
)
def test_names_without_a_table(name: str, remedy: str | None) -> None:
    """A virtual host says of which route configuration it is; the remedy keeps what is there."""
    fault = table_fault(name, ("name",))

    assert remedy == (fault and fault.remedy)
    assert fault is None or (fault.rule, fault.severity) == ("virtual-host-name", Severity.ERROR)


def test_two_names_of_one_virtual_host() -> None:
    """A virtual host that has two names is warned of; one without its own is told by others."""
    fault = lasting_fault("web/shop", "shop", ("resource",))

    assert fault is not None
    assert (fault.rule, fault.severity, fault.field_path) == (
        "lasting-virtual-host",
        Severity.WARNING,
        ("resource", "name"),
    )
    assert lasting_fault("web/shop", "web/shop", ()) is None
    assert lasting_fault("web/shop", "", ()) is None


def test_aliases_are_domains_as_envoy_asks_for_them() -> None:
    """Domains come with the table before them, in lower case, as far as ASCII goes; wildcards too; an author's come last."""
    host = Host("web/shop", ("A.com:80", "*.B.com", "c.*", "*", "Ä.com", "a.com:80"))

    assert aliases_of("web/shop", host, ("web/x", "web/*")) == (
        "web/a.com:80",
        "web/*.b.com",
        "web/c.*",
        "web/*",
        "web/Ä.com",
        "web/x",
    )


def test_claims_are_all_names_that_may_be_asked_for() -> None:
    """Domains, the own name and the author's aliases are claimed once each, and the name by which Envoy keeps it."""
    claims = [
        (claim.type_url, claim.name, claim.field_path)
        for claim in claims_of("web/shop", Host("all", ("Shop", "b.com")), ("web/b.com", "web/c.com"))
    ]

    assert claims == [
        (HOST, "web/shop", ("domains", 0)),
        (HOST, "web/b.com", ("domains", 1)),
        (HOST, "web/c.com", ()),
        (HOST_NAME, "web\nall", ("name",)),
    ]
