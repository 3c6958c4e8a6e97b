"""All rules over messages, put together; adding a module of rules means adding its line."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

from fsxds.api.catalogue import Catalogue
from fsxds.api.field_rules import FieldRules
from fsxds.api.walk import Hook
from fsxds.rules import (
    addresses,
    certificates,
    clusters,
    config_sources,
    durations,
    extensions,
    filter_chains,
    filters,
    formats,
    headers,
    health_checks,
    http_filters,
    listeners,
    managers,
    matchers,
    references,
    regexes,
    route_extensions,
    routes,
    tls,
    typed_structs,
    upstreams,
    virtual_hosts,
)

Hooks = Mapping[str, tuple[Hook, ...]]
"""Rules by the full name of the message that they look at."""

CHAPTERS: tuple[Callable[[Catalogue], Hooks], ...] = (
    addresses.hooks,
    certificates.hooks,
    clusters.hooks,
    config_sources.hooks,
    durations.hooks,
    extensions.hooks,
    filter_chains.hooks,
    filters.hooks,
    formats.hooks,
    headers.hooks,
    health_checks.hooks,
    http_filters.hooks,
    listeners.hooks,
    managers.hooks,
    matchers.hooks,
    references.hooks,
    regexes.hooks,
    route_extensions.hooks,
    routes.hooks,
    tls.hooks,
    typed_structs.hooks,
    upstreams.hooks,
    virtual_hosts.hooks,
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
