from __future__ import annotations

import pytest

from fsxds.api.catalogue import Catalogue
from tests.lint.envoy_answers import (
    HTTP_OPTIONS,
    NETWORK,
    ROUTER,
    TCP_CHAIN,
    TYPE,
    Case,
    assert_accepted,
    assert_rejected,
    cluster,
    http_filter,
    listener,
    manager,
    read,
    route,
)

HTTP = TYPE + "envoy.extensions.filters.http."
TCP = TCP_CHAIN["filters"][0]
ECHO = {"name": "echo", "typed_config": {"@type": TYPE + NETWORK + "echo.v3.Echo"}}
RBAC = {"name": "rbac", "typed_config": {"@type": TYPE + NETWORK + "rbac.v3.RBAC", "stat_prefix": "s"}}
CORS = {"name": "cors", "typed_config": {"@type": HTTP + "cors.v3.Cors"}}
CODEC = {"name": "codec", "typed_config": {"@type": HTTP + "upstream_codec.v3.UpstreamCodec"}}
BUFFER = {"name": "buffer", "typed_config": {"@type": HTTP + "buffer.v3.Buffer", "max_request_bytes": 5}}


# Its path is missing.
FILE_LOG = {"name": "log", "typed_config": {"@type": TYPE + "envoy.extensions.access_loggers.file.v3.FileAccessLog"}}


def delegated(one: object) -> dict[str, object]:
    """A filter that a matcher may skip."""
    delegate = {"@type": TYPE + "envoy.extensions.common.matching.v3.ExtensionWithMatcher", "extension_config": one}
    return {"name": "delegate", "typed_config": delegate}


def network(*filters: object) -> Case:
    """A filter chain of these filters."""
    return listener({"filter_chains": [{"filters": list(filters)}]})


def http(*filters: object) -> Case:
    """A connection manager with these filters."""
    return manager({"http_filters": list(filters)})


def upstream(*filters: object) -> Case:
    """A cluster with these filters."""
    config = {
        "@type": TYPE + HTTP_OPTIONS,
        "explicit_http_config": {"http_protocol_options": {}},
        "http_filters": list(filters),
    }
    return cluster({"typed_extension_protocol_options": {HTTP_OPTIONS: config}})


def test_orders_that_envoy_accepts(catalogue: Catalogue) -> None:
    """The filter that answers stands last; there may be no filter at all."""
    assert_accepted(
        catalogue,
        network(),
        network(RBAC, TCP),
        network(ECHO),
        http(CORS, CORS, ROUTER),
        # Optional, and no HTTP filter: Envoy skips it.
        http({**ECHO, "is_optional": True}, ROUTER),
        http({**FILE_LOG, "is_optional": True}, ROUTER),
        http(),
        upstream(BUFFER, CODEC),
    )


@pytest.mark.parametrize(
    "case",
    [
        network(TCP, TCP),
        network(TCP, ECHO),
        network(TCP, RBAC),
        network(RBAC),
        http(ROUTER, ROUTER),
        http(ROUTER, CORS),
        http(CORS),
        http(delegated(BUFFER)),
        http(delegated(ROUTER)),
        http({**ROUTER, "disabled": True}),
        manager({"upgrade_configs": [{"upgrade_type": "x", "filters": [CORS]}]}),
        upstream(BUFFER),
        upstream(CODEC, BUFFER),
        upstream(CODEC, CODEC),
        upstream({**CODEC, "disabled": True}),
        http({"name": "r", "typed_config": {"@type": HTTP + "router.v3.Router", "upstream_http_filters": [BUFFER]}}),
    ],
)
def test_orders_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Nothing follows the filter that answers, and no other is the last."""
    assert_rejected(catalogue, "filter-order", case)


KEYS = '{local_jwks: {inline_string: \'{"keys": [{"kty": "oct", "k": "YWJj", "alg": "HS256"}]}\'}}'


def limit(interval: str, more: str = "") -> Case:
    """A local rate limit."""
    bucket = f"{{max_tokens: 1, fill_interval: {interval}}}"
    return http_filter("local_ratelimit.v3.LocalRateLimit", f"{{stat_prefix: s, token_bucket: {bucket}{more}}}")


def described(interval: str) -> str:
    """A descriptor of a local rate limit."""
    return f"{{entries: [{{key: a, value: b}}], token_bucket: {{max_tokens: 1, fill_interval: {interval}}}}}"


def jwt(text: str) -> Case:
    """A filter for tokens."""
    return http_filter("jwt_authn.v3.JwtAuthentication", text)


def rule(text: str) -> Case:
    """A filter that makes metadata of headers by a rule."""
    return http_filter("header_to_metadata.v3.Config", f"{{request_rules: [{text}]}}")


def ports(start: int, end: int) -> Case:
    """A permission for a range of ports."""
    permission = f"{{destination_port_range: {{start: {start}, end: {end}}}}}"
    policy = f"{{permissions: [{permission}], principals: [{{any: true}}]}}"
    return http_filter("rbac.v3.RBAC", f"{{rules: {{policies: {{a: {policy}}}}}}}")


def key_server(uri: str) -> Case:
    """A filter for tokens whose keys are at a URL."""
    server = f"{{http_uri: {{uri: '{uri}', cluster: xds, timeout: 1s}}}}"
    return jwt(f"{{providers: {{p: {{remote_jwks: {server}}}}}}}")


def success(text: str) -> Case:
    """A filter that rejects requests while too few of them succeed."""
    return http_filter("admission_control.v3.AdmissionControl", f"{{success_criteria: {text}}}")


def signing(text: str) -> Case:
    """A filter that signs requests for AWS."""
    return http_filter("aws_request_signing.v3.AwsRequestSigning", f"{{service_name: s, {text}}}")


def traced(daemon: str) -> Case:
    """A connection manager that sends traces to X-Ray."""
    config = {"@type": TYPE + "envoy.config.trace.v3.XRayConfig", "segment_name": "s", "daemon_endpoint": read(daemon)}
    return manager({"tracing": {"provider": {"name": "x", "typed_config": config}}})


def thrift(weighted: str) -> Case:
    """A Thrift proxy with a route to weighted clusters."""
    router = {"name": "r", "typed_config": {"@type": TYPE + NETWORK + "thrift_proxy.router.v3.Router"}}
    routes = [{"match": {"method_name": ""}, "route": {"weighted_clusters": {"clusters": [read(weighted)]}}}]
    fields = {"stat_prefix": "s", "route_config": {"name": "r", "routes": routes}, "thrift_filters": [router]}
    return network({"name": "t", "typed_config": {"@type": TYPE + NETWORK + "thrift_proxy.v3.ThriftProxy", **fields}})


def redis(*prefixes: str) -> Case:
    """A Redis proxy with routes for these prefixes."""
    routes = [{"prefix": prefix, "cluster": "xds"} for prefix in prefixes]
    fields = {"stat_prefix": "s", "settings": {"op_timeout": "1s"}, "prefix_routes": {"routes": routes}}
    return network({"name": "r", "typed_config": {"@type": TYPE + NETWORK + "redis_proxy.v3.RedisProxy", **fields}})


def matched(script: str) -> Case:
    """A route that is chosen by a Lua script."""
    config = {"@type": TYPE + "envoy.extensions.string_matcher.lua.v3.Lua", "source_code": {"inline_string": script}}
    header = {"name": "x", "string_match": {"custom": {"name": "lua", "typed_config": config}}}
    return route({"match": {"prefix": "/", "headers": [header]}})


EXTRACTION = "proto_message_extraction.v3.ProtoMessageExtractionConfig"
PROVIDERS = f"providers: {{p: {KEYS}}}"
SERVICE = "{envoy_grpc: {cluster_name: xds}}"
URI = "{uri: http://x, cluster: xds, timeout: 1s}"


SORRY = {"inline_string": "sorry"}
SCRIPTS = (
    *(
        "a = 1",
        "string.b = 1",
        "string['b'] = 1",
        "print'x'",
        'print"x"',
        "print{1}",
        "print [[x]]",
        "a, b = 1, 2",
        "_VERSION:len()",
        "string . len 'x'",
    ),
    *(
        "(f or print)(1)",
        "  -- x\n--[[ a\n]] --[==[ ]] ]==] x = 1",
        "--[x\ny=1",
        "a --[[ b ]] = 1",
        "a -- b\n = 1",
        "",
        " \n",
        "-- x",
    ),
    *("#!/usr/bin/lua\na = 1", "local function f() end", "return", "do end", "::a:: x = 1", "é = 1"),
)
NO_SCRIPTS = (
    *("sorry", "a\nb", "a.ba.ba", "[%START_TIME%]", "%LOCAL_REPLY_BODY%", "1", "'a'", "- a", "--[[ a", "end", "{}"),
    "-----BEGIN CERTIFICATE-----\nMIIB+/x\n-----END CERTIFICATE-----\n",
)


def script(code: str) -> Case:
    """A filter with a script."""
    return http_filter("lua.v3.Lua", {"default_source_code": {"inline_string": code}})


POLICY = "{permissions: [%s], principals: [{any: true}]}"


def access(permission: str) -> Case:
    """A filter of connections that allows this."""
    config = {
        "@type": TYPE + NETWORK + "rbac.v3.RBAC",
        "stat_prefix": "s",
        **read(f"{{rules: {{policies: {{p: {POLICY % permission}}}}}}}"),
    }
    return network({"name": "rbac", "typed_config": config}, TCP)


def state(value: str) -> Case:
    """A filter that sets a value of the state."""
    return http_filter("set_filter_state.v3.Config", f"{{on_request_headers: [{value}]}}")


def authorizing(**credentials: object) -> dict[str, object]:
    """The settings of OAuth 2."""
    secret = {"name": "s", "sds_config": {"path_config_source": {"path": "/dev/null"}}}
    config = {
        "token_endpoint": read(URI),
        "authorization_endpoint": "http://x/y",
        "redirect_uri": "x",
        "redirect_path_matcher": {"path": {"exact": "/x"}},
        "signout_path": {"path": {"exact": "/y"}},
        "credentials": {"client_id": "x", "hmac_secret": secret, **credentials},
    }
    return {"config": config}


def test_filters_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Settings that fit one another."""
    assert_accepted(
        catalogue,
        limit("0.05s", f", descriptors: [{described('1s')}]"),
        jwt(f"{{{PROVIDERS}, rules: [{{match: {{prefix: /}}, requires: {{provider_name: p}}}}]}}"),
        jwt("{rules: [{match: {prefix: /}}]}"),
        http_filter("health_check.v3.HealthCheck", "{pass_through_mode: true, cache_time: 1s}"),
        rule("{header: a, on_header_present: {key: k}}"),
        http_filter("lua.v3.Lua", "{}"),
        *(script(one) for one in SCRIPTS),
        http_filter("ext_authz.v3.ExtAuthz", f"{{http_service: {{path_prefix: /x, server_uri: {URI}}}}}"),
        http_filter("ext_proc.v3.ExternalProcessor", f"{{grpc_service: {SERVICE}}}"),
        http_filter(
            "ip_tagging.v3.IPTagging",
            "{request_type: BOTH, ip_tags: [{ip_tag_name: a, ip_list: [{address_prefix: 1.2.3.4, prefix_len: 32}]}]}",
        ),
        ports(80, 81),
        key_server("https://example.com:443/keys?a=b"),
        success("{http_criteria: {http_success_status: [{start: 100, end: 600}, {start: 200, end: 200}]}}"),
        success("{grpc_criteria: {grpc_success_status: [0, 16]}}"),
        signing("region: us-east-1"),
        signing('region: "us-*", signing_algorithm: AWS_SIGV4A'),
        http_filter("aws_lambda.v3.Config", '{arn: "arn:aws:lambda:us-west-2:1:function:f"}'),
        http_filter(EXTRACTION, '{data_source: {inline_bytes: ""}}'),
        traced("{protocol: UDP, address: 127.0.0.1, port_value: 2000}"),
        thrift("{name: xds, weight: 1}"),
        redis("a", "b"),
        state("{object_key: x, factory_key: envoy.string, format_string: {text_format_source: {inline_string: a}}}"),
        state("{object_key: envoy.string, format_string: {text_format_source: {inline_string: a}}}"),
        access("{url_path: {path: {exact: /a}}}"),
        http_filter(
            "rbac.v3.RBAC", f"{{rules: {{policies: {{p: {POLICY % '{header: {name: x, present_match: true}}'}}}}}}}"
        ),
        matched("function envoy_match(value) return true end"),
        route("{direct_response: {status: 200}}"),
    )


@pytest.mark.parametrize(
    "case",
    [
        limit("0.049s"),
        limit("1s", f", descriptors: [{described('0.01s')}]"),
        limit("1s", f", descriptors: [{described('1s')}, {described('1s')}]"),
        jwt(f"{{{PROVIDERS}, rules: [{{match: {{prefix: /}}, requires: {{provider_name: q}}}}]}}"),
        jwt("{rules: [{match: {prefix: /}, requirement_name: q}]}"),
        jwt("{requirement_map: {a: {provider_and_audiences: {provider_name: z}}}}"),
        jwt("{filter_state_rules: {name: x, requires: {a: {provider_name: z}}}}"),
        jwt(
            f"{{{PROVIDERS}, rules: [{{match: {{prefix: /}}, requires: {{requires_any: "
            "{requirements: [{provider_name: p}, {provider_name: z}]}}}]}"
        ),
        jwt("{providers: {p: {local_jwks: {inline_string: '{'}}}}"),
        jwt("{providers: {p: {local_jwks: {inline_string: '{\"keys\": []}'}}}}"),
        http_filter("health_check.v3.HealthCheck", "{pass_through_mode: false, cache_time: 1s}"),
        rule("{}"),
        rule("{header: a}"),
        rule("{header: a, cookie: b, on_header_present: {key: k}}"),
        rule("{cookie: a, remove: true, on_header_present: {key: k}}"),
        rule("{header: a, on_header_missing: {key: k}}"),
        rule(
            "{header: a, on_header_present: "
            "{key: k, value: x, regex_value_rewrite: {pattern: {regex: a}, substitution: b}}}"
        ),
        *(script(one) for one in NO_SCRIPTS),
        http_filter("lua.v3.Lua", {"inline_code": "sorry"}),
        http_filter("lua.v3.Lua", {"source_codes": {"a": {"inline_string": "sorry"}}}),
        route({"typed_per_filter_config": {"lua": {"@type": HTTP + "lua.v3.LuaPerRoute", "source_code": SORRY}}}),
        http_filter("lua.v3.Lua", "{inline_code: x=1, default_source_code: {inline_string: x=1}}"),
        http_filter("ext_authz.v3.ExtAuthz", f"{{http_service: {{path_prefix: x, server_uri: {URI}}}}}"),
        http_filter("ext_proc.v3.ExternalProcessor", "{}"),
        http_filter("ip_tagging.v3.IPTagging", "{request_type: BOTH}"),
        key_server("example.com/keys"),
        key_server("https://"),
        success("{http_criteria: {http_success_status: [{start: 99, end: 200}]}}"),
        success("{http_criteria: {http_success_status: [{start: 100, end: 601}]}}"),
        success("{grpc_criteria: {grpc_success_status: [17]}}"),
        http_filter("oauth2.v3.OAuth2", authorizing()),
        signing('region: "us-*"'),
        http_filter("aws_lambda.v3.Config", '{arn: "arn:aws:lambda:us-west-2:1"}'),
        http_filter(EXTRACTION, "{data_source: {inline_string: x}}"),
        traced("{protocol: UDP, address: foo, port_value: 2000}"),
        traced("{address: 127.0.0.1, port_value: 2000}"),
        traced("{protocol: UDP, address: 127.0.0.1, named_port: x}"),
        thrift("{name: xds}"),
        redis("a", "a"),
        state("{object_key: my.key, format_string: {text_format_source: {inline_string: a}}}"),
        state("{object_key: x, factory_key: y, format_string: {text_format_source: {inline_string: a}}}"),
        access("{header: {name: x, present_match: true}}"),
        access("{not_rule: {header: {name: x, present_match: true}}}"),
        http_filter("ext_proc.v3.ExternalProcessor", f"{{grpc_service: {SERVICE}, request_attributes: ['']}}"),
        http_filter("ext_proc.v3.ExternalProcessor", f"{{grpc_service: {SERVICE}, response_attributes: [a, ' ']}}"),
        matched("x = 1"),
        http_filter("header_mutation.v3.HeaderMutation", "{mutations: {query_parameter_mutations: [{append: {}}]}}"),
        http_filter(
            "header_mutation.v3.HeaderMutation",
            "{mutations: {query_parameter_mutations: [{append: {record: {key: a, value: 5}}}]}}",
        ),
        ports(5, 3),
        ports(5, 70000),
    ],
)
def test_filters_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Providers that do not exist, intervals that are too short, and what excludes itself."""
    assert_rejected(catalogue, "wrong-filter", case)


HTPASSWD = "user:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw="


def users(*lines: str) -> Case:
    """A filter with a file of users."""
    return http_filter("basic_auth.v3.BasicAuth", {"users": {"inline_string": "\n".join(lines)}})


def api_keys(*keys: str) -> Case:
    """A filter with clients that have these keys."""
    credentials = [{"key": key, "client": f"client-{index}"} for index, key in enumerate(keys)]
    return http_filter("api_key_auth.v3.ApiKeyAuth", {"credentials": credentials, "key_sources": [{"header": "a"}]})


def test_credentials_that_envoy_accepts(catalogue: Catalogue) -> None:
    """Users as htpasswd writes them, and a key for each client."""
    assert_accepted(
        catalogue,
        users("# comment", "", HTPASSWD, HTPASSWD.replace("user", " other"), ""),
        api_keys("a", "b"),
    )


@pytest.mark.parametrize(
    "case",
    [
        http_filter(
            "local_ratelimit.v3.LocalRateLimit",
            {
                "stat_prefix": "s",
                "token_bucket": {"max_tokens": 1, "fill_interval": "1s"},
                "rate_limits": [{"actions": [{"remote_address": {}}], "stage": 1}],
            },
        ),
        users("user"),
        users("user:"),
        users(HTPASSWD.removeprefix("user")),
        users("user:$apr1$x"),
        users(HTPASSWD + "\r"),
        users(HTPASSWD, HTPASSWD),
        api_keys("a", "b", "a"),
    ],
)
def test_credentials_that_envoy_rejects(catalogue: Catalogue, case: Case) -> None:
    """Users without a password in SHA-1, the same user and the same key twice, and what only routes have."""
    assert_rejected(catalogue, "wrong-filter", case)
