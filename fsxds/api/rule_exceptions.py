"""Where Envoy 1.40 does not hold messages to the rules of the API, as trying each out has shown."""

from __future__ import annotations

UNOPENED = frozenset(
    {
        # Kept as they are: whoever needs one reads it later, and nobody validates it.
        "envoy.config.core.v3.Metadata.typed_filter_metadata",
        # Listeners that are an API are passed over where they are served.
        "envoy.config.listener.v3.Listener.api_listener",
    }
)
"""Fields of which Envoy does not look into the Anys."""

_BALANCERS = "envoy.extensions.load_balancing_policies."

UNVALIDATED = frozenset(
    {
        "envoy.extensions.health_checkers.udp.v3.UdpHealthCheck",
        "envoy.extensions.internal_redirect.filter_state.v3.FilterStateConfig",
        "envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "envoy.extensions.retry.priority.previous_priorities.v3.PreviousPrioritiesConfig",
        "envoy.extensions.upstreams.http.dynamic_modules.v3.Config",
        f"{_BALANCERS}client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        f"{_BALANCERS}least_request.v3.LeastRequest",
        f"{_BALANCERS}maglev.v3.Maglev",
        f"{_BALANCERS}random.v3.Random",
        f"{_BALANCERS}ring_hash.v3.RingHash",
        f"{_BALANCERS}round_robin.v3.RoundRobin",
        f"{_BALANCERS}wrr_locality.v3.WrrLocality",
    }
)
"""Messages that Envoy takes from an Any as they are."""
