"""The printer against protobuf's own json_format."""

import json
import random
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pytest
from google.protobuf import json_format

from fsxds.api import printing
from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.model.errors import ApiError
from fsxds.model.values import TypeUrl
from tests.api.samples import CLUSTER, PREFIX, SAMPLES, WELL_KNOWN


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample["@type"].rpartition(".")[2])
def test_prints_as_json_format_does(sample: Any, catalogue: Catalogue, converter: Converter, printer: Printer) -> None:
    """A resource is printed as `MessageToDict` prints it, and read back it is the same message."""
    message = converter.convert_any(sample).message
    assert message is not None
    expected = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=catalogue.pool)

    actual = printer.any_json(sample["@type"], message.SerializeToString())

    content = json.loads(actual)
    assert content.pop("@type") == sample["@type"]
    assert content == (expected if isinstance(expected, dict) and "value" not in content else {"value": expected})
    assert converter.convert_any(json.loads(actual)).message == message
    assert printer.to_plain(message) == (expected if isinstance(expected, dict) else {"value": expected})


@pytest.mark.parametrize("seed", range(3))
def test_floats_are_the_shortest(seed: int, catalogue: Catalogue, printer: Printer) -> None:
    """A number of 32 bits is printed as json_format prints it: by the fewest digits that give it back."""
    chance = random.Random(seed)
    kind = catalogue.message_class("google.protobuf.FloatValue")
    values = [0.1, 3.4028234663852886e38, 1e-45, float("inf"), float("-inf"), float("nan"), 16777217.0]
    for value in values + [chance.uniform(-1, 1) * 10 ** chance.randint(-38, 38) for _ in range(300)]:
        expected = json_format.MessageToDict(kind(value=value))

        assert {"value": expected} == printer.to_plain(kind(value=value))


def test_threads_may_use_one_from_the_first_time(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that another thread is still learning is not used half-learned."""
    field, has_begun, may_go_on = Printer._field, threading.Event(), threading.Event()

    def slow_field(*arguments: Any) -> Any:
        has_begun.set()
        assert may_go_on.wait(60)
        return field(*arguments)

    monkeypatch.setattr(Printer, "_field", slow_field)
    printer = Printer(catalogue)
    message = catalogue.message_class(CLUSTER)(name="web")
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(printer.to_plain, message)
        assert has_begun.wait(60)
        second = threads.submit(printer.to_plain, message)
        # Nothing tells that the other is at work; one that uses what is half-learned has failed by now.
        wait([second], 0.2)
        may_go_on.set()

    assert first.result() == second.result() == {"name": "web"}


def test_maps_are_sorted(catalogue: Catalogue, printer: Printer) -> None:
    """Keys of maps and Structs are sorted: equal messages are printed alike."""
    keys = [f"k{number}" for number in range(30)]
    metadata = {
        "filter_metadata": {key: {"fields": {name: {"number_value": 1} for name in keys}} for key in reversed(keys)}
    }

    plain: Any = printer.to_plain(catalogue.message_class(CLUSTER)(metadata=metadata))

    assert keys.sort() is None
    assert sorted(keys) == list(plain["metadata"]["filter_metadata"])
    assert sorted(keys) == list(plain["metadata"]["filter_metadata"]["k0"])


def test_empty_any_and_numbers_beyond_json(catalogue: Catalogue, printer: Printer) -> None:
    """An empty Any is an empty object, an unset Value null, and NaN within a Struct is text."""
    value = catalogue.message_class("google.protobuf.Value")
    cluster = catalogue.message_class(CLUSTER)

    assert printer.to_plain(cluster(transport_socket={"typed_config": {}})) == {
        "transport_socket": {"typed_config": {}}
    }
    assert printer.to_plain(value()) == {"value": None}
    assert printer.to_plain(value(number_value=float("nan"))) == {"value": "NaN"}
    assert printer.to_plain(cluster(lb_policy=77)) == {"lb_policy": 77}


@pytest.mark.parametrize(
    ("type_url", "body"),
    [
        (PREFIX + "no.such.Type", b""),
        ("", b"x"),
        (PREFIX + CLUSTER, b"\xff"),
        (WELL_KNOWN + "Duration", b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
        (WELL_KNOWN + "Timestamp", b"\x10\xff\xff\xff\xff\x07"),
    ],
)
def test_what_has_no_json(type_url: str, body: bytes, catalogue: Catalogue, printer: Printer) -> None:
    """An unknown type, broken bytes and a time out of bounds are ApiErrors, at the top and within an Any."""
    outer = catalogue.message_class("google.protobuf.Any")(type_url=type_url, value=body)

    with pytest.raises(ApiError):
        printer.any_json(TypeUrl(type_url), body)
    with pytest.raises(ApiError):
        printer.to_plain(outer)


def test_without_orjson(converter: Converter, printer: Printer) -> None:
    """The standard library's JSON is the same JSON, compact and in UTF-8."""
    message = converter.convert({"name": "ü", "connect_timeout": "1s"}, CLUSTER).message
    assert message is not None

    plain = printer.to_plain(message)

    assert printing.dump_plainly(plain) == '{"name":"ü","connect_timeout":"1s"}'.encode()
