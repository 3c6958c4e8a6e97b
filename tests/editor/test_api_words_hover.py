"""What there is to say about places."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from fsxds.api.catalogue import Catalogue
from fsxds.editor.api_words import ApiWords, hover
from tests.editor.trees import FILES, workbench

SECRETS = """\
- "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: hush
  tls_certificate:
    private_key: {inline_string: hunter2}
    password: {inline_string: hunter3}
"""
BROKEN = "- name: a\n  lb_policy: ROUND_ROBIN\n  conect_timeout: 1s\n"


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        ("routes.yaml", "cluster: web", ["**cluster**: `string`", "excludes `cluster_header`", "must not be empty"]),
        ("routes.yaml", "web\n", ["**`web`** (clusters): defined in `clusters.yaml`; mentioned 1 times"]),
        ("routes.yaml", "domains", ["repeated string", "required"]),
        ("clusters.yaml", "type: STATIC", ["One of `STATIC`, `STRICT_DNS`", "Cluster.type"]),
        ("clusters.yaml", "STATIC", ["**STATIC** of `envoy.config.cluster.v3.Cluster.DiscoveryType`"]),
        ("clusters.yaml", "connect_timeout", ["google.protobuf.Duration"]),
        ("broken.cds.yaml", "lb_policy", ["default `ROUND_ROBIN`"]),
        ("broken.cds.yaml", "conect", ["**unknown-field**", "To fix it"]),
        ("secrets.yaml", "envoy.ext", ["**Secret**"]),
        ("secrets.yaml", "hush", ["defined in `secrets.yaml`"]),
    ],
)
def test_words(tmp_path: Path, catalogue: Catalogue, name: str, words: str, expected: list[str]) -> None:
    """Fields, values, types, names and broken rules are explained."""
    bench = workbench(tmp_path, catalogue, {**FILES, "secrets.yaml": SECRETS, "broken.cds.yaml": BROKEN})
    found = hover(bench.navigator, *bench.at(name, words))

    assert found is not None
    assert [part for part in expected if part not in found.markdown] == []


def test_nothing_to_say(tmp_path: Path, catalogue: Catalogue) -> None:
    """A place without anything has no words."""
    bench = workbench(tmp_path, catalogue, {"cds.yaml": "# comment\n\n- name: a\n"})

    assert hover(bench.navigator, PurePosixPath("cds.yaml"), 3) is None


def test_secrets_are_not_shown(tmp_path: Path, catalogue: Catalogue) -> None:
    """No place of a file of secrets has words with a secret in them."""
    bench = workbench(tmp_path, catalogue, {"secrets.yaml": SECRETS + "  nonsense: hunter4\n"})
    found = [hover(bench.navigator, PurePosixPath("secrets.yaml"), index) for index in range(len(SECRETS) + 20)]

    assert not any("hunter" in one.markdown for one in found if one is not None)
    assert sum(one is not None for one in found) > len(SECRETS) / 2


def test_comments(catalogue: Catalogue) -> None:
    """Where descriptors have comments, these are the words of the API."""
    files = FileDescriptorSet.FromString(catalogue.serialized)
    (cluster,) = [file for file in files.file if file.name == "envoy/config/cluster/v3/cluster.proto"]
    names = [message.name for message in cluster.message_type]
    fields = [field.name for field in cluster.message_type[names.index("Cluster")].field]
    path = [4, names.index("Cluster"), 2, fields.index("name")]
    cluster.source_code_info.location.add(path=path, leading_comments=" Supplies the name.\n It must be unique.\n")
    commented = Catalogue.of(files.SerializeToString(), "with comments")
    field = commented.pool.FindFieldByName("envoy.config.cluster.v3.Cluster.name")

    assert "Supplies the name. It must be unique." in commented.once(ApiWords).field(field)
