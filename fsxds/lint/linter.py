"""All rules over messages, put together; adding a module of rules means adding its line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from fsxds.api.catalogue import Catalogue
from fsxds.api.constraints import FieldRules
from fsxds.api.walk import Hook
from fsxds.lint import (
    claims,
    clusters,
    config_sources,
    extensions,
    field_values,
    filters,
    format_strings,
    listeners,
    matchers,
    routes,
    tls,
)
from fsxds.snapshots import references

Hooks = Mapping[str, tuple[Hook, ...]]
"""Rules by the full name of the message that they look at."""

CHAPTERS: tuple[Callable[[Catalogue], Hooks], ...] = (
    field_values.addresses_hooks,
    tls.certificates_hooks,
    clusters.clusters_hooks,
    config_sources.config_sources_hooks,
    field_values.durations_hooks,
    extensions.extensions_hooks,
    listeners.filter_chains_hooks,
    filters.filters_hooks,
    format_strings.formats_hooks,
    routes.headers_hooks,
    clusters.health_checks_hooks,
    filters.http_filters_hooks,
    listeners.listeners_hooks,
    listeners.managers_hooks,
    matchers.matchers_hooks,
    claims.references_hooks,
    field_values.regexes_hooks,
    extensions.route_extensions_hooks,
    routes.routes_hooks,
    tls.tls_hooks,
    references.typed_structs_hooks,
    clusters.upstreams_hooks,
    routes.virtual_hosts_hooks,
)


def make_field_rules(catalogue: Catalogue) -> FieldRules:
    """Compile the field rules of a catalogue, with all rules over messages among them.

    Raises:
        ApiError: the catalogue has a field rule that is not known here.
    """
    hooks: defaultdict[str, tuple[Hook, ...]] = defaultdict(tuple)
    for chapter in CHAPTERS:
        for message_type, own in chapter(catalogue).items():
            hooks[message_type] += own
    return FieldRules(catalogue, hooks)
