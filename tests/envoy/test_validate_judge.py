"""A real Envoy asked about resources: what it takes is taken, what it refuses is told at its place."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path
from string import Template

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fsxds.api.catalogue import Catalogue
from fsxds.envoy.envoy_bootstrap import BootstrapRequest, mirror_bootstrap
from fsxds.envoy.validate import ValidationOptions, accepted_of, rejections_of, validate_resources
from fsxds.model.errors import UsageError
from fsxds.model.resource_types import BY_SHORT_NAME, RESOURCE_TYPES
from fsxds.model.resources import Resource, Rows, Snapshot
from fsxds.model.values import Severity
from fsxds.server import loading_rules
from fsxds.settings.options import Settings
from fsxds.snapshots.proposals import NoCheck
from fsxds.transports.mirror.writer import Mirror, MirrorOptions, write_once
from tests.envoy.judged import judged, read_in, resources_of
from tests.support.envoy import Envoy, find_envoy
from tests.support.ports import free_port

TAKEN = Path("tests/data/taken_by_envoy")
CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"

ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def cluster(name: str, address: str = "127.0.0.1") -> str:
    """Return a list item: a cluster of one endpoint, whose address is on its eighth line."""
    return f"""\
- name: {name}
  type: STATIC
  load_assignment:
    cluster_name: {name}
    endpoints:
    - lb_endpoints:
      - endpoint: {{address: {{socket_address: {{address: {address}, port_value: 80}}}}}}
"""


def listener(name: str, port: int, manager: str = "") -> str:
    """Return a list item: an HTTP listener; `manager` are the lines of more fields, the first on its ninth line."""
    return f"""\
- name: {name}
  address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
  filter_chains:
  - filters:
    - name: http
      typed_config:
        "@type": type.googleapis.com/{CONNECTION_MANAGER}
        stat_prefix: a
{manager or "        route_config: {name: r}"}
"""


def resources(*written: str) -> str:
    """Return list items as a file."""
    return "resources:\n" + "".join(written)


def pair_of_2001() -> tuple[str, str]:
    """Make a certificate that expired in 2002, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a")])
    built = x509.CertificateBuilder(name, name, key.public_key(), 5)
    built = built.not_valid_before(dt.datetime(2001, 1, 1, tzinfo=dt.UTC))
    built = built.not_valid_after(dt.datetime(2002, 1, 1, tzinfo=dt.UTC))
    authority = x509.BasicConstraints(ca=True, path_length=None)
    certificate = built.add_extension(authority, critical=True).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    written = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain).decode()
    return certificate.public_bytes(pem).decode(), written


def taken_by_envoy(catalogue: Catalogue, files: Path) -> tuple[Resource, ...]:
    """Read the tree of what Envoy takes, with paths into a folder."""
    certificate, key = pair_of_2001()
    values = {"FILES": files, "PORT": free_port(), "OTHER_PORT": free_port()}
    values |= {"CERTIFICATE": json.dumps(certificate), "KEY": json.dumps(key)}
    if files.exists():
        write_files(files, certificate, key)
    return tuple(
        resource
        for path in sorted(TAKEN.glob("*.yaml"))
        for resource in resources_of(path.stem, Template(path.read_text()).substitute(values), catalogue)
    )


def write_files(folder: Path, certificate: str, key: str) -> None:
    """Write what the tree of what Envoy takes names."""
    contents = {
        "certificate": certificate,
        "key": key,
        "script": "-- nothing",
        "text": "text",
        "users": "user:{SHA}tESsBmE/yNY3lb6a0L6vVQEZNqw=",
        "ticket-key": "k" * 80,
    }
    for name, content in contents.items():
        Path(folder, name).write_text(content)


def snapshot_of(resources: tuple[Resource, ...]) -> Snapshot:
    """Make a snapshot of resources."""
    by_type: dict[str, dict[str, Resource]] = {row.type_url: {} for row in RESOURCE_TYPES}
    for resource in resources:
        by_type[resource.type_url][resource.name] = resource
    return Snapshot(1, {row.type_url: Rows(row.type_url, by_type[row.type_url]) for row in RESOURCE_TYPES})


class Counter:
    """Counts questions, as progress tells them."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int]] = []

    def __call__(self, done: int, expected: int) -> None:
        """Take note."""
        self.told.append((done, expected))

    @property
    def questions(self) -> int:
        """How many were answered."""
        return self.told[-1][0]


def test_the_sample_tree_is_taken_at_once(catalogue: Catalogue) -> None:
    """The sample tree needs one question."""
    counter = Counter()
    directory = Path("config/xds")
    snapshot = loading_rules.load_once(directory, Settings(), catalogue, NoCheck()).snapshot
    everything = [resource for row in snapshot.by_type.values() for resource in row.values()]

    options = ValidationOptions(Path(find_envoy()), catalogue, counter)
    assert validate_resources(everything, read_in(directory), options) == ()
    assert counter.told == [(0, 1), (1, 1)]


def test_what_a_running_envoy_takes_is_taken(catalogue: Catalogue, tmp_path: Path) -> None:
    """An Envoy that is served the tree of odd, but right resources refuses nothing of it."""
    files = Path(tmp_path, "files")
    files.mkdir()
    snapshot, out = snapshot_of(taken_by_envoy(catalogue, files)), Path(tmp_path, "out")
    write_once(snapshot, Mirror(out, catalogue, MirrorOptions(form="json", rewrite_config_sources=True, durable=False)))
    bootstrap = mirror_bootstrap(
        lambda short_name, name: Path(out, short_name, f"{name}.json") if name else Path(out, f"{short_name}.json"),
        BootstrapRequest.by(snapshot),
        xds="127.0.0.1:1",
    )
    with Envoy(bootstrap) as envoy:
        nacked = envoy.stats(r".*update_rejected$")
        expected = {"everything", "tcp", "udp", "scopes"}

        assert {name: number for name, number in nacked.items() if number} == {}
        assert expected == set(envoy.listener_names())


def test_files_of_another_machine_do_not_matter(catalogue: Catalogue, tmp_path: Path) -> None:
    """The same tree is taken where the files that it names do not exist, nor any cluster or secret of a bootstrap."""
    rejections = rejections_of(
        taken_by_envoy(catalogue, Path(tmp_path, "nowhere")), ValidationOptions(Path(find_envoy()), catalogue)
    )

    assert rejections == ()


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"cds": resources(cluster("good"), cluster("bad", "foo.bar"))},
            ("cds.yaml:15:47: resources[1].load_assignment.endpoints[0].lb_endpoints[0].endpoint.address.socket_address"
            ".address: malformed IP address: foo.bar"),
        ),
        (
            {"cds": "resources:\n- name: a\n  connectTimeout: 0s\n"},
            "cds.yaml:3:3: resources[0].connectTimeout: value must be greater than 0s",
        ),
        (
            {"cds": "resources:\n- name: a\n- name: b\n  type: EDS\n"},
            "cds.yaml:4:3: resources[1].type: cannot create an EDS cluster without an EDS config",
        ),
        (
            {"eds": "resources:\n- cluster_name: a\n  endpoints:\n  - priority: 200\n"},
            "eds.yaml:4:5: resources[0].endpoints[0].priority: value must be less than or equal to 128",
        ),
        (
            {"leds": "resources:\n- endpoint: {address: {socket_address: {address: foo.bar, port_value: 1}}}\n"},
            "leds.yaml:2:41: resources[0].endpoint.address.socket_address.address: malformed IP address: foo.bar",
        ),
        (
            {"rds": "resources:\n- name: r\n  virtual_hosts:\n  - {name: a, domains: [x.y]}\n  - {name: b, domains: [x.y]}"},
            ("rds.yaml:5:25: resources[0].virtual_hosts[1].domains[0]: Only unique values for domains are permitted. "
            "Duplicate entry of domain x.y in route r"),
        ),
        (
            {"lds": resources(listener("l", 1, "        route_config: {name: r}\n        server_header_transformation: 9"))},
            ("lds.yaml:11:9: resources[0].filter_chains[0].filters[0].typed_config.server_header_transformation: "
            "value must be one of the defined enum values"),
        ),
        (
            {"lds": resources(listener("l", 1, "        http_filters: [{name: nope, typed_config: {'@type': a/google.protobuf.Empty}}]\n        route_config: {}"))},
            ("lds.yaml:10:25: resources[0].filter_chains[0].filters[0].typed_config.http_filters[0].name: Didn't find a "
            "registered implementation for 'nope' with type URL: 'google.protobuf.Empty'"),
        ),
        (
            {"sds": "resources:\n- name: s\n  tls_certificate:\n    certificate_chain: {inline_string: hunter2}\n"
             "    private_key: {inline_string: hunter2}\n"},
            "sds.yaml:4:5: resources[0].tls_certificate.certificate_chain: Failed to load certificate chain from <inline>",
        ),
        (
            {"sds": "resources:\n- name: s\n  validation_context: {trusted_ca: {inline_string: hunter2}}\n"},
            "sds.yaml:3:24: resources[0].validation_context.trusted_ca: Failed to load trusted CA certificates from <inline>",
        ),
        (
            {"sds": "resources:\n- name: s\n  session_ticket_keys:\n    keys: [{inline_string: hunter2}]\n"},
            "sds.yaml:3:3: resources[0].session_ticket_keys: Incorrect TLS session ticket key length.",
        ),
        (
            {"srds": "resources:\n- {name: s, route_configuration_name: r}\n"},
            "srds.yaml:2:3: resources[0].key: value is required",
        ),
        (
            {"rtds": "resources:\n- name: layer\n  layer: {a: null}\n"},
            "rtds.yaml:2:3: resources[0]: Invalid runtime entry value for a",
        ),
        (
            {"ecds": "resources:\n- name: e\n  typed_config:\n    '@type': a/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy\n    cluster: a\n"},
            "ecds.yaml:3:3: resources[0].typed_config.stat_prefix: value length must be at least 1 characters",
        ),
        ({"ecds": "resources:\n- name: e\n"}, "ecds.yaml:2:3: resources[0].typed_config: value is required"),
        (
            {"vhds": "resources:\n- name: r/a\n  domains: ['*.*']\n  routes: [{match: {safe_regex: {regex: '(a'}}, direct_response: {status: 200}}]\n"},
            "vhds.yaml:4:34: resources[0].routes[0].match.safe_regex.regex: missing ): (a",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_their_place(
    files: Mapping[str, str], expected: str, catalogue: Catalogue, tmp_path: Path
) -> None:
    """Each sort of resource is looked into, and what is wrong is told at the line of the field, with a remedy."""
    (problem,) = judged(files, catalogue, tmp_path)
    told = f"{problem.path}:{problem.line}:{problem.column}: {problem.pointer}: {problem.message}"

    assert expected == told[: len(expected)]
    assert problem.remedy
    assert (problem.rule, problem.severity) == ("envoy-rejects", Severity.ERROR)
    assert "hunter2" not in str(problem)


def test_two_that_cannot_be_together(catalogue: Catalogue, tmp_path: Path) -> None:
    """Of two listeners on one address the later is told, and the other is named."""
    written = [listener(f"l{number}", number) for number in range(1, 9)]
    (problem,) = judged({"lds": resources(*written, listener("late", 5))}, catalogue, tmp_path)

    assert (problem.path.name, problem.line) == ("lds.yaml", 75)
    assert problem.message.startswith("'late' has duplicate address '127.0.0.1:5' as existing listener")
    assert problem.message.endswith(', beside "l5" at lds.yaml:38')


def test_scoped_routes_of_one_key(catalogue: Catalogue, tmp_path: Path) -> None:
    """Scopes of one key are told, as a server's are rejected, though a validating Envoy takes them."""
    scope = "- {name: %s, route_configuration_name: r, key: {fragments: [{string_key: a}]}}\n"
    (problem,) = judged({"srds": resources(scope % "s", scope % "t")}, catalogue, tmp_path)

    assert problem.line == 3
    assert problem.message.startswith("scope key conflict found, first scope is 's', second scope is 't'")


def test_a_secret_is_judged_where_it_is_used(catalogue: Catalogue, tmp_path: Path) -> None:
    """A listener whose names can only be checked with a trusted CA is rejected with a secret that has none."""
    secret = "resources:\n- name: s\n  validation_context: {verify_certificate_spki: []}\n"
    chain = """\
  - transport_socket:
      name: tls
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
        common_tls_context:
          tls_certificates: [{certificate_chain: {filename: /nowhere/a}, private_key: {filename: /nowhere/b}}]
          combined_validation_context:
            default_validation_context: {match_typed_subject_alt_names: [{san_type: DNS, matcher: {exact: a}}]}
            validation_context_sds_secret_config: {name: s, sds_config: {ads: {}}}
    filters:
"""
    written = listener("l", 1).replace("  - filters:\n", chain)
    (problem,) = judged({"lds": resources(written), "sds": secret}, catalogue, tmp_path)

    assert problem.path.name == "lds.yaml"
    assert problem.message.endswith(', beside "s" at sds.yaml:2')


def test_three_of_two_hundred_in_few_questions(catalogue: Catalogue, tmp_path: Path) -> None:
    """Three bad ones of 200 resources take no more than ten questions."""
    counter = Counter()
    clusters = [cluster(f"c{number}", "nope" if number in {17, 60} else "127.0.0.1") for number in range(100)]
    bad = "        route_config: {name: r, virtual_hosts: [{name: a, domains: ['*']}, {name: b, domains: ['*']}]}"
    listeners = [listener(f"l{number}", number + 1, bad if number == 99 else "") for number in range(100)]
    problems = judged({"cds": resources(*clusters), "lds": resources(*listeners)}, catalogue, tmp_path, counter)

    assert [problem.pointer.partition(".")[0] for problem in problems] == [f"resources[{n}]" for n in (17, 60, 99)]
    assert counter.questions <= 10


def test_a_crash_is_a_refusal(catalogue: Catalogue, tmp_path: Path) -> None:
    """What crashes Envoy is told as a problem of the resource that does."""
    source = "{api_type: REST, transport_api_version: V3, cluster_names: [xds], refresh_delay: 0.0001s}"
    written = f"""\
- name: bad
  transport_socket:
    name: tls
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
      common_tls_context:
        tls_certificate_sds_secret_configs: [{{name: s, sds_config: {{api_config_source: {source}}}}}]
"""
    (problem,) = judged({"cds": resources(cluster("good"), written, cluster("other"))}, catalogue, tmp_path)

    assert (9, "Envoy crashes of it (SIGFPE)") == (problem.line, problem.message)


def test_a_choice_of_filters_is_looked_into(catalogue: Catalogue, tmp_path: Path) -> None:
    """A filter behind a matcher is judged, though its type does not say that it is a filter."""
    written = """\
resources:
- name: e
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.common.matching.v3.ExtensionWithMatcher
    extension_config: {name: no.such.filter, typed_config: {"@type": type.googleapis.com/google.protobuf.Empty}}
    xds_matcher: {}
"""
    (problem,) = judged({"ecds": written}, catalogue, tmp_path)

    assert "no.such.filter" in problem.message


def test_nothing_is_asked_for_nothing(catalogue: Catalogue, tmp_path: Path) -> None:
    """A tree without resources is taken without a question."""
    counter = Counter()

    assert judged({}, catalogue, tmp_path, counter) == ()
    assert counter.told == []


def test_what_is_beyond_reach_is_not_decided(catalogue: Catalogue, tmp_path: Path) -> None:
    """A NACK of what loads code of the target machine is a note, not an error."""
    filters = """\
        route_config: {name: r}
        http_filters:
        - name: module
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
            dynamic_module_config: {name: nowhere}
            filter_name: a
        - {name: r, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}"""
    (problem,) = judged({"lds": resources(listener("l", 1, filters))}, catalogue, tmp_path)

    assert (problem.rule, problem.severity) == ("envoy-undecided", Severity.NOTE)


def test_what_is_no_envoy(catalogue: Catalogue, tmp_path: Path) -> None:
    """A missing executable, one that is none, and one that is no Envoy are each told in one line."""
    script, text = Path(tmp_path, "script"), Path(tmp_path, "text")
    script.write_text("#!/bin/sh\necho hello\n")
    text.write_text("hello")
    script.chmod(0o755)
    named = resources_of("cds", "resources: [{name: a}]", catalogue)
    for path, why in ((tmp_path, "no executable"), (text, "no executable"), (script, "does not answer as Envoy")):
        with pytest.raises(UsageError, match=why) as raised:
            rejections_of(named, ValidationOptions(path, catalogue))
        assert "\n" not in str(raised.value)
    assert BY_SHORT_NAME["cds"].type_url == named[0].type_url


def test_an_envoy_that_ends_without_a_reason_is_asked_again(catalogue: Catalogue, tmp_path: Path) -> None:
    """That happens on a machine under load, and is no answer; one that never says why rejects."""
    named = resources_of("cds", resources(cluster("good")), catalogue)
    script, ended = tmp_path / "script", tmp_path / "ended"
    envoy = find_envoy()
    script.write_text(f'#!/bin/sh\n[ -e {ended} ] && exec {envoy} "$@"\ntouch {ended}\necho info main begins\nexit 1\n')
    script.chmod(0o755)
    assert () == rejections_of(named, ValidationOptions(script, catalogue))
    assert ended.exists()

    script.write_text("#!/bin/sh\necho info main begins\nexit 1\n")
    (rejection,) = rejections_of(named, ValidationOptions(script, catalogue))
    assert rejection.reason == "Envoy ends, and does not say why"


def test_what_envoy_is_not_shown_is_not_accepted(catalogue: Catalogue) -> None:
    """Envoy accepts what it is shown, each resource alone; it is not shown the listener of an application."""
    listeners = resources_of("lds", "resources:\n- name: api\n  api_listener: {api_listener: {}}\n", catalogue)
    clusters = resources_of("cds", resources(cluster("good"), cluster("bad", "foo.bar")), catalogue)

    accepted = accepted_of((*listeners, *clusters), ValidationOptions(Path(find_envoy()), catalogue))

    assert [one.name for one in accepted] == ["good"]


def test_lua_is_compiled_and_not_run(catalogue: Catalogue, tmp_path: Path) -> None:
    """A script may need modules of its machine and runs nothing on this one; where it does not compile, its line is told."""
    ran = tmp_path / "ran"
    lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"

    def with_script(name: str, port: int, script: str) -> str:
        config = {"name": "lua", "typed_config": {"@type": lua, "default_source_code": {"inline_string": script}}}
        router = {"name": "router", "typed_config": {"@type": ROUTER}}
        fields = {"route_config": {"name": "r"}, "http_filters": [config, router]}
        return listener(name, port, "".join(f"        {key}: {json.dumps(value)}\n" for key, value in fields.items()))

    needs = 'local json = require("dkjson")\nfunction envoy_on_request(h) end\nreturn json'
    files = {
        "lds": resources(
            with_script("needs", 1, needs),
            with_script("runs", 2, f'os.execute("touch {ran}")'),
            with_script("wrong", 3, "-- a\nlocal = 5"),
        )
    }

    (problem,) = judged(files, catalogue, tmp_path)

    assert "line 2: " in problem.message
    assert "resources[2]" in f"{problem.pointer}"
    assert not ran.exists()
