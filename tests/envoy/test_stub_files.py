"""What stands in for files; that Envoy takes it is shown in test_judge.py."""

from __future__ import annotations

from typing import Any

import pytest

from fsxds.api.catalogue import Catalogue
from fsxds.api.converter import Converter
from fsxds.api.printing import Printer
from fsxds.envoy.stub_files import STAND_IN, STUB_CERTIFICATE, STUB_PRIVATE_KEY, FileStubs, Reshaper
from fsxds.model.values import PlainValue

TLS = "envoy.extensions.transport_sockets.tls.v3."
PAIR: PlainValue = {
    "certificate_chain": {"inline_string": STUB_CERTIFICATE},
    "private_key": {"inline_string": STUB_PRIVATE_KEY},
}
SERVED: PlainValue = {
    "api_config_source": {
        "api_type": "GRPC",
        "transport_api_version": "V3",
        "grpc_services": [{"envoy_grpc": {"cluster_name": STAND_IN}}],
    }
}
HERE: PlainValue = {"inline_string": "here"}
ELSEWHERE: PlainValue = {"filename": "/nowhere"}


def stubbed(message_type: str, value: PlainValue, catalogue: Catalogue) -> tuple[PlainValue, bool]:
    """Replace what a message names, and tell whether everything could be."""
    message: Any = Converter(catalogue).convert(value, message_type).message
    stubs = FileStubs("/folder")
    Reshaper(catalogue).reshape(message, stubs.changes(), stubs.change_sources)
    return Printer(catalogue).to_plain(message), stubs.is_complete


@pytest.mark.parametrize(
    ("message_type", "value", "expected"),
    [
        (f"{TLS}TlsCertificate", {"certificate_chain": HERE, "private_key": ELSEWHERE}, PAIR),
        (f"{TLS}TlsCertificate", {"pkcs12": {"environment_variable": "A"}, "password": HERE}, PAIR),
        (
            f"{TLS}TlsCertificate",
            {"certificate_chain": HERE, "private_key": HERE, "ocsp_staple": ELSEWHERE, "watched_directory": {"path": "/a"}},
            {"certificate_chain": HERE, "private_key": HERE},
        ),
        (
            f"{TLS}CertificateValidationContext",
            {"trusted_ca": ELSEWHERE, "crl": ELSEWHERE, "watched_directory": {"path": "/a"}},
            {"trusted_ca": {"inline_string": STUB_CERTIFICATE}},
        ),
        (f"{TLS}CertificateValidationContext", {"trusted_ca": HERE, "crl": HERE}, {"trusted_ca": HERE, "crl": HERE}),
        ("envoy.config.route.v3.DirectResponseAction", {"body": ELSEWHERE}, {"body": {"inline_string": "stub"}}),
        ("envoy.extensions.access_loggers.file.v3.FileAccessLog", {"path": "/var/log/a"}, {"path": "/folder/stub"}),
        ("envoy.config.core.v3.ConfigSource", {"path_config_source": {"path": "/a"}}, SERVED),
        ("envoy.config.core.v3.ConfigSource", {"path": "/a"}, SERVED),
        ("envoy.config.core.v3.ConfigSource", {"ads": {}}, SERVED),
        ("envoy.config.core.v3.ConfigSource", {"path_config_source": {}}, {"path_config_source": {}}),
        (
            "envoy.extensions.filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder",
            {"proto_descriptor": "/a", "services": ["a.B"]},
            {"proto_descriptor_bin": ""},
        ),
    ],
)  # fmt: skip
def test_what_is_elsewhere_is_replaced(
    message_type: str, value: PlainValue, expected: PlainValue, catalogue: Catalogue
) -> None:
    """Files, folders and variables are replaced, certificates with their keys; what is inline stays."""
    assert stubbed(message_type, value, catalogue) == (expected, True)


def test_nobody_is_called(catalogue: Catalogue) -> None:
    """A subscription by Google's gRPC, which a validating Envoy starts, leads nowhere."""
    source: PlainValue = {"api_type": "GRPC", "grpc_services": [{"google_grpc": {"target_uri": "xds.example:443"}}]}
    replaced, _ = stubbed("envoy.config.core.v3.ApiConfigSource", source, catalogue)

    assert "xds.example" not in str(replaced)


def test_unknown_content(catalogue: Catalogue) -> None:
    """Where the content of a file has a form of its own, what stands in for it may be nacked, which is remembered."""
    wasm = "envoy.extensions.wasm.v3.VmConfig"

    assert not stubbed(wasm, {"code": {"local": ELSEWHERE}}, catalogue)[1]


def test_every_field_exists(catalogue: Catalogue) -> None:
    """Everything that is replaced by its name is there in this Envoy's API, but for what builds with contrib extensions have."""
    for full_name in FileStubs("/folder").changes():
        assert catalogue.knows(full_name) or ".golang." in full_name
