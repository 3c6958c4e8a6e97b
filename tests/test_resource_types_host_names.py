from __future__ import annotations

from fsxds.resource_types import lowered, name_of_domain, route_configuration_of


def test_route_configurations_may_have_slashes() -> None:
    """The name of the table is all before the last slash."""
    assert route_configuration_of("team/web/shop") == "team/web"
    assert route_configuration_of("web") == ""


def test_domains_are_asked_for_in_lower_case() -> None:
    """Letters of ASCII alone have a case, and a port stays."""
    assert lowered("*.ÄRGER.Example:80") == "*.Ärger.example:80"
    assert name_of_domain("team/Web", "Shop.Example") == "team/Web/shop.example"
