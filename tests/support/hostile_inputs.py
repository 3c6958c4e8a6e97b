"""Files of any size, each of which makes some reader work as hard as it can."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

TYPES = "type.googleapis.com/envoy"
ROUTES = f'{{"@type":"{TYPES}.config.route.v3.RouteConfiguration","name":"r",'
HOST = f'{ROUTES}"virtual_hosts":[{{"name":"h","domains":["*"],"routes":['
LISTENER = f'{{"@type":"{TYPES}.config.listener.v3.Listener","name":"l",'
ENDPOINTS = f'{{"@type":"{TYPES}.config.endpoint.v3.ClusterLoadAssignment","cluster_name":"c","endpoints":['
SECRET = f'"@type":"{TYPES}.extensions.transport_sockets.tls.v3.Secret","name":"#"'
PEM = "-----BEGIN CERTIFICATE-----\\nMIIB\\n-----END CERTIFICATE-----\\n"
VALUE = f'{ROUTES}"request_headers_to_add":[{{"header":{{"key":"a","value":"'


def repeated(size: int, unit: str | bytes, head: str = "", tail: str = "", share: float = 1.0) -> bytes:
    """Return one unit over and over, between head and tail, as large as a share of `size` bytes."""
    content = unit.encode() if isinstance(unit, str) else unit
    return head.encode() + content * ((int(size * share) - len(head) - len(tail)) // len(content)) + tail.encode()


def counted(size: int, unit: str, separator: str, head: str = "", tail: str = "") -> bytes:
    """Return units that differ, in the number that stands for `#`."""
    length = len(unit) + len(separator) + 4
    units = [unit.replace("#", f"{number:05}") for number in range((size - len(head) - len(tail)) // length)]
    return (head + separator.join(units) + tail).encode()


def _json(size: int) -> Mapping[str, bytes]:
    fill, count = partial(repeated, size), partial(counted, size)
    return {
        "open lists": fill("["),
        "open objects": fill('{"a":'),
        "closed lists": fill("[", share=0.5) + fill("]", share=0.5),
        "one key": fill('"a":1,', "{", '"a":1}'),
        "unknown keys": count('"k#":1', ",", '{"name":"x",', "}"),
        "unknown keys of many": count('{"k#":1}', ",", "[", "]"),
        "bare keys": count("k#:1", ",", '{name:"x",', "}"),
        "no names": fill("{},", "[", "{}]"),
        "nulls": fill("null,", "[", "null]"),
        "numbers": fill("1,", "[", "1]"),
        "long number": fill("1", '{"name":', "}"),
        "long text": fill("a", '{"name":"', '"}'),
        "open text": fill("a", '{"name":"'),
        "escapes": fill("\\u00e9", '{"name":"', '"}'),
        "half pairs": fill("\\ud800", '{"name":"', '"}'),
        "backslashes": fill("\\", '{"name":"'),
        "quotes": fill('"'),
        "single quotes": fill("'"),
        "commas": fill(","),
        "trailing commas": fill("[1,],", "[", "]"),
        "comments": fill("//x\n"),
        "words": fill("a "),
        "blanks": fill(" "),
        "zeros": fill(b"\0"),
        "no text": fill(b"\xff"),
        "bad clusters": count('{"name":"c#","connect_timeout":"-1s","lb_policy":9}', ",", "[", "]"),
        "bad endpoints": count('{"priority":999,"load_balancing_weight":0}', ",", ENDPOINTS, "]}"),
        "bad addresses": count(
            '{"address":{"socket_address":{"address":"x#","port_value":70000}}}',
            ",",
            f'{LISTENER}"additional_addresses":[',
            "]}",
        ),
        "empty hosts": fill("{},", f'{ROUTES}"virtual_hosts":[', "{}]}"),
        "same domains": fill(
            '{"name":"h","domains":["*"]},', f'{ROUTES}"virtual_hosts":[', '{"name":"h","domains":["*"]}]}'
        ),
        "many domains": count('"d#"', ",", f'{ROUTES}"virtual_hosts":[{{"name":"h","domains":[', "]}]}"),
        "bad headers": fill('"a b",', f'{ROUTES}"request_headers_to_remove":[', '"a b"]}'),
        "bad regexes": count('{"match":{"safe_regex":{"regex":"(#"}},"route":{"cluster":"a"}}', ",", HOST, "]}]}"),
        "large regexes": count(
            '{"match":{"safe_regex":{"regex":"#(a{9}){100}"}},"route":{"cluster":"a"}}', ",", HOST, "]}]}"
        ),
        "long regex": fill(
            "(a{999})*", f'{HOST}{{"match":{{"safe_regex":{{"regex":"', '"}},"route":{"cluster":"a"}}]}]}'
        ),
        "chains": fill("{},", f'{LISTENER}"filter_chains":[', "{}]}"),
        "server names": count(
            '"d#.example.com"', ",", f'{LISTENER}"filter_chains":[{{"filter_chain_match":{{"server_names":[', "]}}]}"
        ),
        "unknown types": count(f'{{"@type":"{TYPES}.config.clustr.v3.C#"}}', ",", "[", "]"),
        "unknown enums": count('{"name":"#","lb_policy":"X#"}', ",", "[", "]"),
        "secrets": count(
            f'{{{SECRET},"tls_certificate":{{"private_key":{{"inline_string":"x"}},"certificate_chain":{{"inline_string":"{PEM}"}}}}}}',
            ",",
            "[",
            "]",
        ),
        "certificates": fill(PEM, f'{{{SECRET},"validation_context":{{"trusted_ca":{{"inline_string":"', '"}}}'),
        "format strings": fill("%REQ(", VALUE, '"}}]}'),
        "percents": fill("%", VALUE, '"}}]}'),
        "many formats": count(
            '{"header":{"key":"a","value":"%X#%"}}', ",", f'{ROUTES}"request_headers_to_add":[', "]}"
        ),
        "typed structs": fill(
            f'{{"@type":"{TYPES}.x","value":'.replace(f"{TYPES}.x", "type.googleapis.com/xds.type.v3.TypedStruct"),
            '{"name":"c","cluster_type":{"typed_config":',
            "1",
        ),
    }


def _yaml(size: int) -> Mapping[str, bytes]:
    fill, count = partial(repeated, size), partial(counted, size)
    return {
        "alias bomb": b"a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
        + b"".join(
            b"a%d: &a%d [%s]\n" % (level, level, b",".join([b"*a%d" % (level - 1)] * 10)) for level in range(1, 12)
        ),
        "aliases": fill("- *a\n", "- &a [1,2,3]\n"),
        "alias of a long list": fill("x,", "- &a [", "]\n", 0.5) + fill("- *a\n", share=0.25),
        "anchors": count("- &a# x", "\n"),
        "merges": fill("<<: *a\n", "a: &a {b: c}\n"),
        "itself": b"&a [*a]\n",
        "open flow": fill("["),
        "open maps": fill("{a: "),
        "dashes": fill("- "),
        "question marks": fill("? "),
        "colons": fill("a: "),
        "steps": b"".join(b" " * level + b"a:\n" for level in range(1400)),
        "long line": fill("a "),
        "long key": fill("k", tail=": 1"),
        "tags": fill("- !!str x\n"),
        "unknown tags": count("- !t# x", "\n"),
        "documents": fill("---\na: b\n"),
        "empty documents": fill("---\n"),
        "comments": fill("# x\n"),
        "one key": fill("a: 1\n"),
        "unknown keys": count("k#: 1", "\n", "name: x\n"),
        "unknown keys of many": count("- {k#: 1}", "\n"),
        "block": fill(" x\n", "name: |\n"),
        "backslashes": fill("\\", 'name: "'),
        "directives": fill("%TAG ! x\n", tail="---\na"),
        "keys that are lists": fill("? [a]\n: b\n"),
        "numbers": fill("- 1\n"),
        "floats": fill("- 1.5e3\n"),
        "no values": fill("-\n"),
        "bangs": fill("!"),
        "stars": fill("*a "),
        "zeros": fill(b"\0"),
        "no text": fill(b"\xff"),
        "bad clusters": count('- {name: "c#", connect_timeout: -1s, lb_policy: 9}', "\n"),
    }


def _textproto(size: int) -> Mapping[str, bytes]:
    fill, count = partial(repeated, size), partial(counted, size)
    return {
        "open": fill("a{"),
        "open and known": fill("load_assignment{"),
        "angles": fill("a<"),
        "brackets": fill("["),
        "one line": fill('name:"x" '),
        "lines": fill('name: "x"\n'),
        "unknown fields": count("k#: 1", " "),
        "unknown fields by line": count("k#: 1", "\n"),
        "quotes": fill('"'),
        "texts": fill('"a" ', "name: "),
        "escapes": fill("\\303\\251", 'name:"', '"'),
        "comments": fill("#x\n"),
        "list": fill("1,", "a:[", "1]"),
        "packed": fill("[type.googleapis.com/envoy.config.cluster.v3.Cluster]{"),
        "colons": fill(":"),
        "semicolons": fill(";"),
        "messages": fill("health_checks{} "),
        "resources": fill("resources{}"),
        "words": fill("a "),
        "numbers": fill("1 "),
        "no text": fill(b"\xff"),
    }


def _binary(size: int) -> Mapping[str, bytes]:
    fill = partial(repeated, size)
    return {
        "groups": fill(b"\x0b"),
        "zeros": fill(b"\0"),
        "ones": fill(b"\xff"),
        "empty fields": fill(b"\x0a\x00"),
        "unknown fields": fill(b"\xf8\x7f\x01"),
        "messages": fill(b"\x42\x00"),
        "names that are no text": fill(b"\x0a\x01\xff"),
        "cut": b"\x0a\x80\x80\x40" + b"x" * 1000,
    }


_BY_SUFFIX = {".json": _json, ".yaml": _yaml, ".textproto": _textproto, ".pb": _binary}


def hostile(suffix: str, size: int) -> Mapping[str, bytes]:
    """Return hostile files of about `size` bytes with this suffix, by what each of them is."""
    return _BY_SUFFIX[suffix](size)
