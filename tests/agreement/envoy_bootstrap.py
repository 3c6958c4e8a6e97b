"""The Envoy that judges: one subscription by path for every seed, and what the seeds refer to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsxds.model.resource_types import BY_SHORT_NAME
from tests.agreement.seeds import Seed, certificate_and_key

CLUSTERS = ("xds", "backend", "mirror", "a", "b", "c")
"""The static clusters, which the seeds may refer to."""

COUNTERS = ("update_success", "update_rejected", "update_failure")
"""The counters of every subscription, one of which moves with every verdict."""

HTTP = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"
INTERNAL_LISTENERS = "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener"
ROUTER: dict[str, Any] = {
    "name": "envoy.filters.http.router",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
}


@dataclass(frozen=True, slots=True)
class Site:
    """Where a seed's subscription reads, what is there when Envoy starts, and the scope of its counters."""

    path: Path
    scope: str
    at_start: dict[str, Any]


def site_of(seed: Seed, folder: Path, suffix: str) -> Site:
    """Return the place of a seed; all clusters share one, as do listeners and scopes."""
    type_name = seed.type_name
    shared = {
        "cds": "cluster_manager.cds",
        "lds": "listener_manager.lds",
        "srds": "http.srds.scoped_rds.scopes",
    }
    if type_name in shared:
        return Site(folder / f"{type_name}{suffix}", shared[type_name], {"resources": []})
    scope = {
        "eds": f"cluster.{seed.name}",
        "rds": f"http.{seed.name}.rds.{seed.name}",
        "vhds": f"http.{_plain(seed)}.rds.{_plain(seed)}",
        "sds": f"sds.{seed.name}",
        "rtds": "runtime",
        "ecds": f"extension_config_discovery.http_filter.{seed.name}",
    }[type_name]
    return Site(folder / f"{type_name}-{_plain(seed)}{suffix}", scope, document(seed, seed.resource))


def document(seed: Seed, resource: Any) -> dict[str, Any]:
    """Return what a subscription reads; a virtual host, which has no file form, stands in a table of its own."""
    if seed.type_name == "vhds":
        table = {"name": _plain(seed), "virtual_hosts": [resource]}
        return {"resources": [{"@type": BY_SHORT_NAME["rds"].type_url, **table}]}
    type_url = BY_SHORT_NAME[seed.type_name].type_url
    return {"resources": [{"@type": type_url, **resource} if isinstance(resource, dict) else resource]}


def _plain(seed: Seed) -> str:
    return seed.name.replace("/", "-")


def write_fixed_files(folder: Path) -> None:
    """Write what is not judged but referred to."""
    table = {"@type": BY_SHORT_NAME["rds"].type_url, "name": "scope-routes"}
    (folder / "fixed.json").write_text(json.dumps({"resources": [table]}), encoding="utf-8")


def bootstrap(seeds: tuple[Seed, ...], folder: Path, suffix: str) -> dict[str, Any]:
    """Return the bootstrap that subscribes to the place of every seed."""

    def source(seed: Seed) -> dict[str, Any]:
        return _path(site_of(seed, folder, suffix).path)

    def of(*type_names: str) -> list[Seed]:
        return [seed for seed in seeds if seed.type_name in type_names]

    listeners = [
        http_listener(_plain(seed), {"rds": _named_routes(_plain(seed), source(seed))}) for seed in of("rds", "vhds")
    ]
    listeners += [_with_secret(seed, source(seed)) for seed in of("sds")]
    listeners.append(_with_filters([(seed, source(seed)) for seed in of("ecds")]))
    listeners.append(http_listener("srds", {"scoped_routes": _scopes(_path(folder / f"srds{suffix}"), folder)}))
    layers = [
        {"name": seed.name, "rtds_layer": {"name": seed.name, "rtds_config": source(seed)}} for seed in of("rtds")
    ]
    return {
        "static_resources": {
            "clusters": [*map(static_cluster, CLUSTERS), *(_eds_cluster(seed, source(seed)) for seed in of("eds"))],
            "listeners": listeners,
        },
        "dynamic_resources": {
            "cds_config": _path(folder / f"cds{suffix}"),
            "lds_config": _path(folder / f"lds{suffix}"),
        },
        "layered_runtime": {"layers": layers},
        "bootstrap_extensions": [{"name": "internal", "typed_config": {"@type": INTERNAL_LISTENERS}}],
        # Fewer counters are faster to ask for.
        "stats_config": {"stats_matcher": {"inclusion_list": {"patterns": [{"suffix": name} for name in COUNTERS]}}},
    }


def _path(path: Path) -> dict[str, Any]:
    return {"resource_api_version": "V3", "path_config_source": {"path": str(path)}}


def _named_routes(name: str, source: dict[str, Any]) -> dict[str, Any]:
    return {"route_config_name": name, "config_source": source}


def static_cluster(name: str) -> dict[str, Any]:
    """Return a cluster that only has to be there."""
    endpoint = {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}}}}
    assignment = {"cluster_name": name, "endpoints": [{"lb_endpoints": [endpoint]}]}
    return {"name": name, "type": "STATIC", "load_assignment": assignment}


def _eds_cluster(seed: Seed, source: dict[str, Any]) -> dict[str, Any]:
    return {"name": seed.name, "type": "EDS", "eds_cluster_config": {"eds_config": source}}


def _listener(name: str, chain: dict[str, Any]) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 0}}
    return {"name": f"{name}-listener", "address": address, "filter_chains": [chain]}


def http_listener(name: str, routes: dict[str, Any], *filters: dict[str, Any]) -> dict[str, Any]:
    """Return a listener whose connection manager has these routes, and these filters before the router."""
    manager = {"@type": HTTP, "stat_prefix": name, "http_filters": [*filters, ROUTER], **routes}
    return _listener(name, {"filters": [{"name": "http", "typed_config": manager}]})


def _scopes(source: dict[str, Any], folder: Path) -> dict[str, Any]:
    extractor = {"name": "x-scope", "index": 0, "element_separator": ","}
    return {
        "name": "scopes",
        "scope_key_builder": {"fragments": [{"header_value_extractor": extractor}]},
        "rds_config_source": _path(folder / "fixed.json"),
        "scoped_rds": {"scoped_rds_config_source": source},
    }


def _with_filters(sources: list[tuple[Seed, dict[str, Any]]]) -> dict[str, Any]:
    type_urls = sorted({seed.resource["typed_config"]["@type"] for seed, _ in sources})
    filters = [
        {"name": seed.name, "config_discovery": {"config_source": source, "type_urls": type_urls}}
        for seed, source in sources
    ]
    return http_listener("ecds", {"route_config": {"name": "none"}}, *filters)


def _with_secret(seed: Seed, source: dict[str, Any]) -> dict[str, Any]:
    wanted = {"name": seed.name, "sds_config": source}
    if "generic_secret" in seed.resource:
        return http_listener(_plain(seed), {"route_config": {"name": "none"}}, _injector(wanted))
    certificate, key = certificate_and_key(1)
    pair = {"certificate_chain": {"inline_string": certificate}, "private_key": {"inline_string": key}}
    common: dict[str, Any] = {"tls_certificates": [pair]}
    context: dict[str, Any] = {"@type": TLS, "common_tls_context": common}
    if "tls_certificate" in seed.resource:
        context["common_tls_context"] = {"tls_certificate_sds_secret_configs": [wanted]}
    elif "validation_context" in seed.resource:
        # As in a validation that stands beside the secret: some of its fields need an authority.
        common["combined_validation_context"] = {
            "default_validation_context": {"trusted_ca": {"inline_string": certificate}},
            "validation_context_sds_secret_config": wanted,
        }
    else:
        context["session_ticket_keys_sds_secret_config"] = wanted
    chain = http_listener(_plain(seed), {"route_config": {"name": "none"}})["filter_chains"][0]
    return _listener(_plain(seed), {**chain, "transport_socket": {"name": "tls", "typed_config": context}})


def _injector(wanted: dict[str, Any]) -> dict[str, Any]:
    package = "type.googleapis.com/envoy.extensions"
    generic = {"@type": f"{package}.http.injected_credentials.generic.v3.Generic", "credential": wanted}
    injector = {
        "@type": f"{package}.filters.http.credential_injector.v3.CredentialInjector",
        "credential": {"name": "generic", "typed_config": generic},
    }
    return {"name": "envoy.filters.http.credential_injector", "typed_config": injector}
