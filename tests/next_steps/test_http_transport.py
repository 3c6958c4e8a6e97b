"""xRFC TP1, "HTTP transport"."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
import yaml
from envoy.config.listener.v3.listener_pb2 import Listener

from tests.next_steps.served_trees import AUTHORITY, Answer, get, served
from tests.next_steps.test_collections import FOO, LISTENERS, collection, inlined, listener, located, named
from tests.support.follower import Follower
from tests.support.structured_names import TYPES

SETTINGS = f"authority: {AUTHORITY}\n"
BAR = f"/{TYPES['Listener']}/bar"
LIST = f"/{TYPES['ListenerCollection']}/foo"


def test_the_url_of_a_name(tmp_path: Path) -> None:
    """Replacing the scheme and the authority: the contents as JSON or YAML, without type and name around them."""
    tree = {"lds.yaml": listener(named("bar"), 1001) + listener(named("bar?some=thing"), 1002)}
    with served(tree, tmp_path, SETTINGS) as server:
        answer = get(server, BAR)
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, "application/json")
        assert answer.json["name"] == named("bar")
        assert "@type" not in answer.json
        variant = get(server, f"{BAR}?some=thing")
        assert variant.json["address"]["socket_address"]["port_value"] == 1002
        as_yaml = get(server, BAR, accept="application/yaml")

        assert "yaml" in as_yaml.headers["content-type"]
        assert yaml.safe_load(as_yaml.body) == answer.json


def test_versions_are_entity_tags(tmp_path: Path) -> None:
    """`If-None-Match` of the current version is answered with 304; another version has another tag."""
    with served({"lds.yaml": listener(named("bar"), 1001)}, tmp_path, SETTINGS) as server:
        first = get(server, BAR)
        assert get(server, BAR, if_none_match=first.headers["etag"]).status == 304
        server.write("lds.yaml", listener(named("bar"), 1002))
        second = get(server, BAR, if_none_match=first.headers["etag"])

        assert second.status == 200
        assert second.headers["etag"] != first.headers["etag"]
        assert not second.headers["etag"].startswith("W/")


def test_one_version_on_every_path(tmp_path: Path) -> None:
    """A resource at a given version has the same contents, no matter which path it is retrieved by."""
    bar = named("bar")
    with (
        served({"lds.yaml": listener(bar, 1001)}, tmp_path, SETTINGS) as server,
        Follower(server.grpc) as by_name,
        Follower(server.grpc) as by_glob,
    ):
        by_name.ask(LISTENERS, bar).until_held(bar)
        by_glob.ask(LISTENERS, named("*")).until_held(bar)
        binary = get(server, BAR, accept="application/x-protobuf")

        assert by_name.held[bar] == by_glob.held[bar]
        assert get(server, BAR).headers["etag"] == f'"{by_name.held[bar].version}"'
        assert Listener.FromString(binary.body) == by_name.message(bar, Listener)


@pytest.mark.parametrize(("path", "prefer"), [(BAR, "wait=60"), (f"{BAR}?wait=60", "")], ids=["prefer", "parameter"])
def test_long_poll(path: str, prefer: str, tmp_path: Path) -> None:
    """Long poll until an update is available."""
    with served({"lds.yaml": listener(named("bar"), 1001)}, tmp_path, SETTINGS) as server:
        answers: list[Answer] = []
        tag = get(server, BAR).headers["etag"]
        poll = threading.Thread(target=lambda: answers.append(get(server, path, if_none_match=tag, prefer=prefer)))
        poll.start()
        server.write("lds.yaml", listener(named("bar"), 1002))
        poll.join(60)

        assert [(answer.status, answer.json["address"]["socket_address"]["port_value"]) for answer in answers] == [
            (200, 1002)
        ]


def test_time_to_live_is_max_age(tmp_path: Path) -> None:
    """A TTL is `cache-control: max-age`."""
    content = yaml.safe_load(listener(named("bar"), 1001))
    resource = "type.googleapis.com/envoy.service.discovery.v3.Resource"
    wrapped = [{"@type": resource, "name": named("bar"), "ttl": "7200s", "resource": content[0]}]
    with served({"lds.yaml": yaml.safe_dump(wrapped)}, tmp_path, SETTINGS) as server:
        assert "max-age=7200" in get(server, BAR).headers["cache-control"]


def test_a_list_collection(tmp_path: Path) -> None:
    """A list has URLs and inlined values, and a tag; it changes with an inlined entry, and not with one by reference."""
    entries = located("bar"), inlined(1002, name="blurp")
    tree = {"lds.yaml": listener(named("bar"), 1001), "lists.yaml": collection(FOO, *entries)}
    with served(tree, tmp_path, SETTINGS) as server:
        first = get(server, LIST)
        by_reference, by_value = first.json
        assert by_reference["name"] == f"{server.http}{BAR}"
        assert (by_value["value"]["name"], "contents" in by_value["value"]) == ("blurp", True)
        server.write("lds.yaml", listener(named("bar"), 1004))
        assert get(server, BAR).json["address"]["socket_address"]["port_value"] == 1004
        assert get(server, LIST, if_none_match=first.headers["etag"]).status == 304
        server.write("lists.yaml", collection(FOO, located("bar"), inlined(1003, name="blurp")))
        second = get(server, LIST, if_none_match=first.headers["etag"])

        assert second.status == 200
        assert second.json[1]["value"]["contents"]["address"]["socket_address"]["port_value"] == 1003


def test_the_sequence_of_a_client(tmp_path: Path) -> None:
    """The document's example: the list, then each listener by its URL."""
    tree = {"lds.yaml": listener(named("bar"), 1001) + listener(named("baz"), 1002)}
    tree["lists.yaml"] = collection(FOO, located("bar"), located("baz"))
    with served(tree, tmp_path, SETTINGS) as server:
        urls = [entry["name"].removeprefix(server.http) for entry in get(server, LIST).json]
        contents = [get(server, url) for url in urls]

        assert [answer.json["name"] for answer in contents] == [named("bar"), named("baz")]


def test_globs_are_listed_over_http(tmp_path: Path) -> None:
    """The document has lists only over HTTP; a glob is answered as a list of its members."""
    tree = {"lds.yaml": listener(named("x/bar"), 1001) + listener(named("x/baz"), 1002) + listener(named("y"), 1003)}
    with served(tree, tmp_path, SETTINGS) as server:
        entries = get(server, f"/{TYPES['Listener']}/x/*").json

        assert [entry["name"] for entry in entries] == [
            f"{server.http}/{TYPES['Listener']}/x/{n}" for n in ("bar", "baz")
        ]


@pytest.mark.parametrize("path", ["/x", f"/{TYPES['Listener']}/nobody", f"/{TYPES['Listener']}/a%zz", "/no.Type/x"])
def test_what_is_not_there(path: str, tmp_path: Path) -> None:
    """A status with a reason."""
    with served({"lds.yaml": listener(named("bar"), 1001)}, tmp_path, SETTINGS) as server:
        answer = get(server, path)

        assert answer.status in {400, 404}
        assert answer.json["message"]


def test_there_is_no_ack_and_no_nack(tmp_path: Path) -> None:
    """Whoever reads by GET is no client of the server: what it sends back is no ACK, and it can reject nothing."""
    with served({"lds.yaml": listener(named("bar"), 1001)}, tmp_path, SETTINGS) as server:
        first = get(server, BAR)
        assert get(server, BAR, if_none_match=first.headers["etag"]).status == 304
        assert get(server, BAR, if_none_match='"of another version"').status == 200
        nack = {"version_info": "0", "response_nonce": "1", "error_detail": {"code": 13, "message": "no"}}
        assert get(server, BAR, "POST", json.dumps(nack).encode()).status == 405
        server.write("lds.yaml", listener(named("bar"), 1002))

        assert not [line for line in server.log if "ACK" in line]
        assert get(server, BAR).json["address"]["socket_address"]["port_value"] == 1002
