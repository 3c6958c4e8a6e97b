from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.transports.grpc_streams.discovery import SERVICES
from fsxds.transports.grpc_streams.stream_requests import METHODS
from tests.support.grpc_clients import GrpcServer, serving_grpc


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    """A server that has nothing yet."""
    async with serving_grpc() as server:
        yield server


async def reflect(server: GrpcServer, **fields: str) -> reflection_pb2.ServerReflectionResponse:
    """Ask one question, as grpcurl does."""
    call = reflection_pb2_grpc.ServerReflectionStub(server.channel).ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(**fields))
    response = await call.read()
    await call.done_writing()
    return response


async def test_services(server: GrpcServer) -> None:
    """All of them are listed, health and reflection too."""
    response = await reflect(server, list_services="")
    listed = {service.name for service in response.list_services_response.service}

    assert listed == {*(method.service for method in METHODS), "grpc.health.v1.Health", *SERVICES}


SYMBOLS = sorted({*(method.service for method in METHODS), *(row.message_type for row in RESOURCE_TYPES)})


@pytest.mark.parametrize("symbol", [*SYMBOLS, "grpc.health.v1.Health"])
async def test_what_is_served_is_described(server: GrpcServer, symbol: str) -> None:
    """The file of each service, and of each type that goes in an Any, with all that it imports."""
    response = await reflect(server, file_containing_symbol=symbol)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(content)
        for content in response.file_descriptor_response.file_descriptor_proto
    ]
    declared = {f"{file.package}.{each.name}" for file in files for each in file.service}
    declared |= {f"{file.package}.{each.name}" for file in files for each in file.message_type}

    assert symbol in declared
    assert {path for file in files for path in file.dependency} <= {file.name for file in files}


async def test_the_newer_name_of_reflection(server: GrpcServer) -> None:
    """Newer clients ask `v1` first; its messages are the same."""
    call = server.channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services="").SerializeToString())

    assert len((await call.read()).list_services_response.service) > len(SERVICES)


async def test_bytes_that_are_no_message(server: GrpcServer, caplog: pytest.LogCaptureFixture) -> None:
    """They are their sender's mistake, and nothing to log."""
    call = server.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")()
    await call.write(b"\xff\xff")
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert [] == [record for record in caplog.records if record.levelname == "ERROR"]


def test_descriptors_are_not_imported_at_the_start() -> None:
    """They take a tenth of a second and ten megabytes, which most servers never need."""
    code = (
        "import sys; import fsxds.transports.grpc_streams.discovery; "
        "print([name for name in sys.modules if name.startswith(('envoy.config.cluster', 'grpc_reflection.v1alpha'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
