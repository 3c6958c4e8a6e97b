"""The proof that nothing is lost: what is read back must be what the bootstrap has."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.tools.importing.pieces import ImportLossError, PieceWriter, StaticResource

VALUE = {"name": "a", "connect_timeout": "2s"}
PATH = PurePosixPath("clusters/a")


def cluster(catalogue: Catalogue, **fields: str) -> StaticResource:
    """Return the cluster `a`, whose message has other fields than what its author wrote if these are given."""
    message = Converter(catalogue).convert({**VALUE, **fields}, "envoy.config.cluster.v3.Cluster").message
    assert message is not None
    return StaticResource("clusters", 0, "a", {**VALUE}, message)


@pytest.mark.parametrize(
    "wrong",
    [
        b"name: a\n",
        b"name: b\nconnect_timeout: 2s\n",
        b"name: a\nconnect_timeout: 3s\n",
        b"- {name: a, connect_timeout: 2s}\n- {name: c}\n",
        b"name: [\n",
        b"",
        None,
    ],
)
def test_a_text_that_means_something_else_is_not_written(wrong: bytes | None, catalogue: Catalogue) -> None:
    """Then the values are written, and it is said that comments are lost."""
    file = PieceWriter(catalogue, lambda _: wrong, ".yaml").write(cluster(catalogue), PATH)

    assert (b"name: a\nconnect_timeout: 2s\n", "comments are not kept") == (file.content, file.note)


def test_a_text_that_means_the_same_is_written(catalogue: Catalogue) -> None:
    """However it is spelled."""
    text = b"# A.\nconnectTimeout: 2.0s\nname: 'a'\n"
    file = PieceWriter(catalogue, lambda _: text, ".yaml").write(cluster(catalogue), PATH)

    assert (text, "", PurePosixPath("clusters/a.yaml")) == (file.content, file.note, file.path)


def test_a_value_that_is_not_its_message_is_an_error(catalogue: Catalogue) -> None:
    """If what the author wrote means something else alone than in the bootstrap, nothing may be written."""
    with pytest.raises(ImportLossError, match="a has another meaning in a file of its own"):
        PieceWriter(catalogue, lambda _: None, ".yaml").write(cluster(catalogue, connect_timeout="3s"), PATH)
