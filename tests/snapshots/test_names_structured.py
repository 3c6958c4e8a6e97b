"""Structured names in files: one spelling is served, whichever was written, in every format."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.formats import format_of
from fsxds.lint.linter import Linter
from fsxds.model.resource_types import BY_TYPE_URL
from fsxds.model.resources import ParsedFile
from fsxds.model.values import PlainValue, SourceFile, VariedFile
from fsxds.server.parse_worker import ParseRules, ParseWorker
from fsxds.settings.naming_rules import ContextRule, NamingRules
from fsxds.snapshots.encoding import decode
from fsxds.snapshots.parse import FileParser

C = "envoy.config.cluster.v3.Cluster"
CLA = "envoy.config.endpoint.v3.ClusterLoadAssignment"
RC = "envoy.config.route.v3.RouteConfiguration"
SECRET = "envoy.extensions.transport_sockets.tls.v3.Secret"

RULES = NamingRules("own.example", (ContextRule("prod", (("env", "prod"), ("zone", "a b"))),))

Parse = Callable[[str, object], ParsedFile]


@pytest.fixture(scope="module")
def naming_parser(catalogue: Catalogue) -> FileParser:
    """A parser for a tree with an authority, and with a folder that gives parameters."""
    parser = FileParser(catalogue, check=Linter(), chunked_from_bytes=0)
    parser.name_by(RULES)
    return parser


@pytest.fixture
def parse(naming_parser: FileParser) -> Parse:
    """Parse what a file holds: a text, or what is written as JSON, which is YAML too."""

    def parsed(path: str, content: object) -> ParsedFile:
        text = content if isinstance(content, str) else json.dumps(content)
        return naming_parser.parse(SourceFile.of(PurePosixPath(path), text.encode()))

    return parsed


def cluster(name: str, **fields: PlainValue) -> dict[str, PlainValue]:
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", **fields}


def eds_cluster(name: str, service_name: str) -> dict[str, PlainValue]:
    eds: PlainValue = {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": service_name}
    return cluster(name, type="EDS", eds_cluster_config=eds)


def names(parsed: ParsedFile) -> list[str]:
    return [resource.name for resource in parsed.resources]


def told(parsed: ParsedFile) -> list[tuple[str, str]]:
    return [(problem.rule, problem.pointer) for problem in parsed.problems]


def body(catalogue: Catalogue, parsed: ParsedFile) -> dict[str, PlainValue]:
    (resource,) = parsed.resources
    message_type = BY_TYPE_URL[resource.type_url].message_type
    return Printer(catalogue).to_plain(catalogue.message_class(message_type).FromString(resource.body))


@pytest.mark.parametrize(
    ("written", "served"),
    [
        (f"xdstp:///{C}/web", f"xdstp://own.example/{C}/web"),
        (f"udpa://other/{C}/w%65b", f"xdstp://other/{C}/web"),
        (f"xdstp:///{C}/a b?z=1&a=2", f"xdstp://own.example/{C}/a%20b?a=2&z=1"),
        ("web", "web"),
        ("https://example.com/web", "https://example.com/web"),
    ],
)
def test_names_are_canonical(parse: Parse, catalogue: Catalogue, written: str, served: str) -> None:
    """The name of a resource and that within its body are one canonical text, with the authority of the tree."""
    parsed = parse("cds.json", cluster(written))

    assert [served] == names(parsed)
    assert body(catalogue, parsed)["name"] == served
    assert [] == told(parsed)


def test_names_around_resources_are_canonical(parse: Parse) -> None:
    """The `Resource` around one may spell its name, and aliases, otherwise than the resource itself."""
    wrapped = {
        "name": f"udpa:///{C}/web",
        "aliases": [f"xdstp:///{C}/%61lias", "plain"],
        "resource": {"@type": f"type.googleapis.com/{C}", **cluster(f"xdstp:///{C}/w%65b")},
    }
    (resource,) = parse("a.json", wrapped).resources

    assert resource.name == f"xdstp://own.example/{C}/web"
    assert resource.aliases == (f"xdstp://own.example/{C}/alias", "plain")


def test_resources_without_a_name_field(parse: Parse) -> None:
    """Endpoints of LEDS have only the name around them."""
    lb_endpoint = "envoy.config.endpoint.v3.LbEndpoint"
    wrapped = {
        "name": f"udpa:///{lb_endpoint}/foo/a?b=1&a=2",
        "resource": {"@type": f"type.googleapis.com/{lb_endpoint}", "endpoint_name": "x"},
    }

    assert [f"xdstp://own.example/{lb_endpoint}/foo/a?a=2&b=1"] == names(parse("a.json", wrapped))


SPELLED = eds_cluster(f"udpa:///{C}/web", f"xdstp:///{CLA}/w%65b?b=1&a=2")


@pytest.mark.parametrize("suffix", ["yaml", "json", "textproto", "pb"])
def test_formats_agree(naming_parser: FileParser, catalogue: Catalogue, converter: Converter, suffix: str) -> None:
    """In every format, the names of a resource and of what it refers to come to the same bytes."""
    message = converter.convert(SPELLED, C).message
    assert message is not None
    path = PurePosixPath(f"cds.{suffix}")
    file_format = format_of(path)
    assert file_format is not None
    if suffix == "pb":
        packed = catalogue.message_class("envoy.service.discovery.v3.DiscoveryResponse")()
        packed.resources.add().Pack(message)  # type: ignore[attr-defined]
        content = packed.SerializeToString()
    elif suffix == "textproto":
        content = f'name: "udpa:///{C}/web" type: EDS connect_timeout {{ seconds: 1 }} eds_cluster_config {{ '.encode()
        content += b"eds_config { ads {} resource_api_version: V3 } "
        content += f'service_name: "xdstp:///{CLA}/w%65b?b=1&a=2" }}'.encode()
    else:
        content = json.dumps(SPELLED).encode()
    parsed = naming_parser.parse(SourceFile.of(path, content))

    (resource,) = parsed.resources
    assert resource.name == f"xdstp://own.example/{C}/web"
    eds = body(catalogue, parsed)["eds_cluster_config"]
    assert isinstance(eds, dict)
    assert eds["service_name"] == f"xdstp://own.example/{CLA}/web?a=2&b=1"
    assert [one.name for one in resource.references] == [f"xdstp://own.example/{CLA}/web?a=2&b=1"]


def test_references_within_extensions_are_canonical(parse: Parse, catalogue: Catalogue) -> None:
    """What an Any, a Struct or a map holds is rewritten as well; directives stay at references."""
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "rds": {"route_config_name": f"udpa:///{RC}/r", "config_source": {"ads": {}, "resource_api_version": "V3"}},
        "http_filters": [{"name": "router", "typed_config": router}],
    }
    tcp_proxy = {
        "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
        "type_url": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "value": {"stat_prefix": "x", "cluster": f"udpa:///{C}/a#alt=udpa:///{C}/b"},
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
        "metadata": {"filter_metadata": {"x": {"target": f"udpa:///{C}/m", "password": f"udpa:///{C}/p"}}},
        "filter_chains": [
            {"filter_chain_match": {"server_names": ["a"]}, "filters": [{"name": "h", "typed_config": manager}]},
            {"filters": [{"name": "t", "typed_config": tcp_proxy}]},
        ],
    }
    parsed = parse("lds.json", listener)

    (resource,) = parsed.resources
    referred = {one.name for one in resource.references if one.type_url in BY_TYPE_URL}
    assert {
        f"xdstp://own.example/{RC}/r",
        f"xdstp://own.example/{C}/a#alt=xdstp://own.example/{C}/b",
    } == referred
    metadata = json.dumps(body(catalogue, parsed)["metadata"])
    assert f"xdstp://own.example/{C}/m" in metadata
    assert f"udpa:///{C}/p" in metadata


def test_secrets_stay_as_they_are(parse: Parse, catalogue: Catalogue) -> None:
    """A secret that looks like a name is not changed; the name of a secret is."""
    secret = {
        "name": f"xdstp:///{SECRET}/s",
        "generic_secret": {"secret": {"inline_string": f"udpa:///{SECRET}/w%65b"}},
    }
    parsed = parse("sds.json", secret)

    assert [f"xdstp://own.example/{SECRET}/s"] == names(parsed)
    assert body(catalogue, parsed)["generic_secret"] == secret["generic_secret"]


def test_names_of_secrets_within_credentials_are_rewritten(parse: Parse) -> None:
    """A field of credentials that names a secret holds a name."""
    oauth = {
        "@type": "type.googleapis.com/envoy.extensions.http.injected_credentials.generic.v3.Generic",
        "credential": {"name": f"udpa:///{SECRET}/s", "sds_config": {"ads": {}, "resource_api_version": "V3"}},
    }
    injector = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.credential_injector.v3.CredentialInjector",
        "credential": {"name": "envoy.http.injected_credentials.generic", "typed_config": oauth},
    }
    parsed = parse("ecds.json", {"name": "inject", "typed_config": injector})

    (resource,) = parsed.resources
    assert [f"xdstp://own.example/{SECRET}/s"] == [one.name for one in resource.references]


def test_virtual_hosts_are_found_by_their_route_configuration(parse: Parse) -> None:
    """Envoy asks for `<route configuration>/<host>`: that part of the name is canonical, and so are the aliases."""
    host = {"name": f"udpa:///{RC}/r?b=1&a=2/one", "domains": ["x.example"], "routes": []}
    (resource,) = parse("vhds.json", host).resources

    assert resource.name == f"xdstp://own.example/{RC}/r?a=2&b=1/one"
    assert resource.aliases == (f"xdstp://own.example/{RC}/r?a=2&b=1/x.example",)


def test_folders_give_parameters(parse: Parse) -> None:
    """Names of resources get what their folder gives, below what they write themselves; what they refer to does not."""
    parsed = parse("prod/cds.json", eds_cluster(f"xdstp:///{C}/web?env=own&b=c", f"xdstp:///{CLA}/web"))

    (resource,) = parsed.resources
    assert resource.name == f"xdstp://own.example/{C}/web?b=c&env=own&zone=a%20b"
    assert [one.name for one in resource.references] == [f"xdstp://own.example/{CLA}/web"]
    assert ["web"] == names(parse("prod/cds.json", cluster("web")))


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("xdstp:web", "malformed-name"),
        ("xdstp://", "malformed-name"),
        ("udpa:///web", "malformed-name"),
        (f"xdstp:///{C}/", "malformed-name"),
        (f"xdstp:///{C}/%zz", "malformed-name"),
        (f"xdstp:///{C}/%ff", "malformed-name"),
        (f"xdstp:///{C}/a%00b", "malformed-name"),
        (f"xdstp:///{C}/a/../b", "malformed-name"),
        (f"xdstp:///{C}/a?x=1&x=2", "malformed-name"),
        (f"xdstp:///{C}/a#entry=b", "malformed-name"),
        (f"xdstp:///{C}/a/*", "malformed-name"),
        (f"xdstp:///{CLA}/a", "name-of-other-type"),
    ],
)
def test_wrong_names_are_told_at_their_place(parse: Parse, name: str, rule: str) -> None:
    """A name that is none, or that of another type, is an error where it is written, and the resource is not read."""
    parsed = parse("cds.json", [cluster(name), cluster("good")])

    assert [(rule, "[0].name")] == told(parsed)
    assert ["good"] == names(parsed)
    wrapped = {"name": name, "resource": {"@type": f"type.googleapis.com/{C}", **cluster("x")}}
    assert [(rule, "name")] == told(parse("cds.json", wrapped))
    aliased = {"aliases": ["a", name], "resource": {"@type": f"type.googleapis.com/{C}", **cluster("x")}}
    assert [(rule, "aliases[1]")] == told(parse("cds.json", aliased))


@pytest.mark.parametrize(
    ("name", "rule"), [(f"xdstp:///{CLA}/%zz", "malformed-name"), (f"xdstp:///{C}/web", "name-of-other-type")]
)
def test_wrong_references_are_told_at_their_place(parse: Parse, name: str, rule: str) -> None:
    """A reference that is no name, or that of another type, is an error where it is written."""
    parsed = parse("cds.json", eds_cluster("web", name))

    assert [(rule, "eds_cluster_config.service_name")] == told(parsed)


def test_endpoints_by_the_name_of_their_cluster(parse: Parse) -> None:
    """A cluster with a structured name needs a `service_name`: its own name is no name of endpoints."""
    parsed = parse("cds.json", eds_cluster(f"xdstp:///{C}/web", ""))

    assert [("name-of-other-type", "name")] == told(parsed)


def test_names_of_variables_are_not_repeated(catalogue: Catalogue) -> None:
    """What was put for a variable may be a secret: it is not in a message about a name."""
    text = f"# fsxds: variables\n- {{name: 'xdstp:///{C}/x#${{TOKEN}}', type: STATIC}}\n"
    file = VariedFile(SourceFile.of(PurePosixPath("cds.yaml"), text.encode()), {"TOKEN": "hu'sh\"\\"}, {})
    parsed = FileParser(catalogue, check=Linter()).parse(file)

    assert [("malformed-name", "[0].name")] == told(parsed)
    assert "sh" not in parsed.problems[0].message


def test_spellings_of_one_name_are_duplicates(parse: Parse) -> None:
    """A name is defined once, however it is written."""
    parsed = parse("cds.json", [cluster(f"xdstp:///{C}/web"), cluster(f"udpa://own.example/{C}/w%65b")])

    assert [("duplicate-name", "")] == told(parsed)


def test_items_parsed_alone_are_named_alike(naming_parser: FileParser) -> None:
    """A list of which one item changes has the names that it has when it is parsed as a whole."""
    path = PurePosixPath("prod/cds.yaml")

    def text(last: str) -> bytes:
        rows = [f"- {{name: 'udpa:///{C}/{name}', type: STATIC, connect_timeout: 1s}}\n" for name in ("a", "b", last)]
        return "".join(rows).encode()

    naming_parser.parse(SourceFile.of(path, text("c")))
    edited = naming_parser.parse_edit(SourceFile.of(path, text("d%65")), 1000)

    assert edited is not None
    assert [f"xdstp://own.example/{C}/{name}?env=prod&zone=a%20b" for name in ("a", "b", "de")] == names(edited)


def test_hostile_names_end(parse: Parse) -> None:
    """Names of any length and depth are read or refused, and do not take the process with them."""
    deep = f"xdstp:///{C}/" + "a/" * 20_000 + "b"
    nested = f"xdstp:///{C}/a" + "#alt=xdstp:%2F%2F%2F" * 500
    many = f"xdstp:///{C}/a?" + "&".join(f"k{n}=v" for n in range(5_000))

    assert [f"xdstp://own.example{deep.removeprefix('xdstp://')}"] == names(parse("cds.json", cluster(deep)))
    assert [("malformed-name", "name")] == told(parse("cds.json", cluster(nested)))
    assert len(names(parse("cds.json", cluster(many)))) == 1


PIECES = (
    "/",
    C,
    CLA,
    "web",
    "a b",
    "%20",
    "%",
    "%zz",
    "%00",
    "%ff",
    "é",
    "\n",
    "?",
    "#",
    "&",
    "=",
    "alt=",
    "*",
    "..",
    "+",
    "x" * 99,
)


@given(
    st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(["xdstp://", "xdstp:///", "udpa://own.example/", ""])
)
def test_names_stay_as_they_are_served(naming_parser: FileParser, pieces: list[str], start: str) -> None:
    """Whatever is written, it is served as it is read again, or told with a remedy; nothing else happens."""

    def parsed(name: str) -> ParsedFile:
        content = json.dumps(cluster(name)).encode()
        return naming_parser.parse(SourceFile.of(PurePosixPath("prod/cds.json"), content))

    once = parsed(f"{start}{C if start else ''}/{''.join(pieces)}")
    for problem in once.problems:
        assert problem.rule in {"malformed-name", "name-of-other-type"}
        assert problem.remedy
    for resource in once.resources:
        again = parsed(resource.name)
        assert [(resource.name, resource.body)] == [(one.name, one.body) for one in again.resources]


def test_broken_resources_keep_their_names(parse: Parse) -> None:
    """What has a mistake elsewhere counts as defined, by its canonical name."""
    parsed = parse("cds.json", cluster(f"udpa:///{C}/web", nonsense=1))

    assert [f"xdstp://own.example/{C}/web"] == [one.name for one in parsed.unread]


def test_workers_name_alike(naming_parser: FileParser, catalogue: Catalogue) -> None:
    """A process that parses gives names the same authority and parameters."""
    content = json.dumps(cluster(f"xdstp:///{C}/web")).encode()
    files = tuple(SourceFile.of(PurePosixPath(path), content) for path in ("cds.json", "prod/cds.json"))
    worker = ParseWorker.start(ParseRules(catalogue, naming=RULES))
    try:
        encoded = worker.parse(files, 60.0, ())
    finally:
        worker.end()

    parsed = [decode(file.path, file.digest, each) for file, each in zip(files, encoded, strict=True)]
    assert [names(one) for one in parsed] == [names(naming_parser.parse(file)) for file in files]
    assert len({name for one in parsed for name in names(one)}) == len(files)
