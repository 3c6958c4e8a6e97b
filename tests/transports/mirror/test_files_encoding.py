"""The bytes of mirrored files."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import pytest

from fsxds.model.errors import UsageError
from fsxds.model.values import Version
from fsxds.transports.mirror.files import FORMS, MirrorEncoding, MirrorFile
from tests.support.this_envoy import this_envoy
from tests.transports.mirroring import by_rds, resource, routes, static, url


def bundle(form: str, short_name: str = "cds") -> MirrorFile:
    values = {"cds": static("a"), "lds": by_rds("l", 1, "r"), "rds": routes("r", "c")}
    path = PurePosixPath(f"{short_name}.{form}")
    return MirrorFile(path, url(short_name), Version("v1"), (resource(short_name, values[short_name]),))


@pytest.mark.parametrize("short_name", ["cds", "lds", "rds"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_written_can_be_read(form: str, short_name: str) -> None:
    """Every form carries version, type and resources, and their bodies come back to the byte."""
    content, file = MirrorEncoding(this_envoy(), form), bundle(form, short_name)

    assert content.decode(content.encode(file), file.path, file.type_url) == file


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_bundle_can_be_read(form: str) -> None:
    """No resources at all is a file with a version and a type, never an empty file."""
    content = MirrorEncoding(this_envoy(), form)
    file = MirrorFile(PurePosixPath(f"lds.{form}"), url("lds"), Version("v1"), ())

    assert content.encode(file)
    assert content.decode(content.encode(file), file.path, file.type_url) == file


def test_other_forms_can_be_read_too() -> None:
    """What was written in another form is still understood."""
    file = bundle("json")
    written = MirrorEncoding(this_envoy(), "json").encode(file)

    assert MirrorEncoding(this_envoy(), "pb").decode(written, file.path, file.type_url) == file


@pytest.mark.parametrize("damaged", [b"", b"\xff\xff", b"{", b'{"resources":[{"@type":"x/no.such"}]}', b"null", b"[]"])
@pytest.mark.parametrize("form", FORMS)
def test_what_is_damaged_is_not_known(form: str, damaged: bytes) -> None:
    """No bytes raise anything, and none are taken for resources."""
    file = MirrorEncoding(this_envoy(), form).decode(damaged, PurePosixPath(f"cds.{form}"), url("cds"))

    assert file is None or file.resources == ()


@pytest.mark.parametrize(("packed", "body"), [("no.such.Type", b""), (url("cds"), b"\xff")])
def test_what_is_packed_is_looked_at(packed: str, body: bytes) -> None:
    """A response that is whole, and holds what is not of a type of ours or is damaged, is not known."""
    response: Any = this_envoy().message_class("envoy.service.discovery.v3.DiscoveryResponse")()
    response.resources.add(type_url=packed, value=body)

    content = MirrorEncoding(this_envoy(), "pb")
    assert content.decode(response.SerializeToString(), PurePosixPath("cds.pb"), url("cds")) is None


def test_a_file_of_no_form_is_not_known() -> None:
    """Nor is one whose name says nothing."""
    assert MirrorEncoding(this_envoy(), "pb").decode(b"x", PurePosixPath("cds.txt"), url("cds")) is None


def test_forms_are_few() -> None:
    """Envoy would read a `.textproto` as JSON (ENVOY.md E22), so there is none."""
    with pytest.raises(UsageError, match="choose one of pb, json, yaml, pb_text"):
        MirrorEncoding(this_envoy(), "textproto")
