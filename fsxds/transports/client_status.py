"""Client status (CSDS): what each client was sent and made of it, as one answer in bytes or in JSON.

Source: envoy/service/status/v3/csds.proto.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

from envoy.service.status.v3 import csds_pb2
from google.protobuf import json_format
from google.protobuf.message import DecodeError

from fsxds.api.catalogue import Catalogue
from fsxds.clients import Clients, ClientStatus
from fsxds.errors import ProtocolError
from fsxds.transports.client_status_contents import Contents
from fsxds.transports.client_status_matchers import node_filter
from fsxds.transports.client_status_nodes import node_message
from fsxds.transports.client_status_resources import ClientStand, ResourceStatus, resource_statuses
from fsxds.values import PlainValue

# A thousand clients with ten thousand resources each make gigabytes; an answer holds what somebody can look at.
MOST_ANSWER_BYTES = 64 * 1024 * 1024
# The event loop is lent to asking clients for so long at a time.
ASKING_SLICE_S = 0.005

_NO_REQUEST = "the body is no ClientStatusRequest in JSON; send `{}` at least"


class ClientReports:
    """Answers requests for the status of clients.

    Answers are made one after another, in a thread: they may be large, and no client is to wait for them.
    """

    def __init__(self, clients: Clients, catalogue: Catalogue) -> None:
        self.clients = clients
        self._contents = Contents(catalogue)
        self._one_at_a_time = asyncio.Lock()

    async def answer(self, request: bytes) -> bytes:
        """Answer a serialized ClientStatusRequest with a serialized ClientStatusResponse.

        Raises:
            ProtocolError: the request cannot be read, or the answer would be too large: then with the code `RESOURCE_EXHAUSTED`.
        """
        try:
            asked = csds_pb2.ClientStatusRequest.FromString(request)
        except DecodeError as error:
            raise ProtocolError("the message is no ClientStatusRequest; send one in protobuf's wire format") from error
        return b"".join(await self._encode(asked, self._wire))

    async def answer_json(self, request: bytes) -> bytes:
        """Answer a ClientStatusRequest in proto JSON with a ClientStatusResponse in proto JSON with snake_case names.

        Raises:
            ProtocolError: as `answer` does.
        """
        clients = await self._encode(_parse_json(request), self._json)
        return b'{"config":[%b]}' % b",".join(clients)

    async def _encode(self, asked: Any, encode: Callable[[ClientStatus, bool], bytes]) -> list[bytes]:
        """Return each of the clients that are asked for as `encode` writes it."""
        wants = node_filter(asked.node_matchers)
        with_contents = not asked.exclude_resource_contents
        clock = asyncio.get_running_loop().time
        encoded: list[bytes] = []
        size = 0
        async with self._one_at_a_time:
            self._contents.turn()
            slice_end_s = clock() + ASKING_SLICE_S
            for status in self.clients.statuses(clock()):
                if wants(status.node):
                    encoded.append(await asyncio.to_thread(encode, status, with_contents))
                    size += len(encoded[-1])
                elif clock() >= slice_end_s:
                    await asyncio.sleep(0)
                    slice_end_s = clock() + ASKING_SLICE_S
                if size > MOST_ANSWER_BYTES:
                    raise _too_much()
        return encoded

    def _wire(self, status: ClientStatus, with_contents: bool) -> bytes:  # noqa: FBT001  # called by position alone
        """Write a client as a response with it alone: such responses make one with all of them when they are joined."""
        response = csds_pb2.ClientStatusResponse()
        config = response.config.add(node=node_message(status.node), client_scope=status.service)
        for each in resource_statuses(status):
            told = config.generic_xds_configs.add(
                type_url=each.type_url,
                name=each.name,
                version_info=each.version,
                config_status=each.config_status,
                client_status=each.stand,
            )
            if each.stand is ClientStand.NACKED:
                told.error_state.details = each.reason or ""
                told.error_state.version_info = each.refused or ""
            body = self._contents.body_of(each.resource) if with_contents and each.resource is not None else None
            if body is not None:
                told.xds_config.type_url = each.type_url
                told.xds_config.value = body
        return cast("bytes", response.SerializeToString())

    def _json(self, status: ClientStatus, with_contents: bool) -> bytes:  # noqa: FBT001  # called by position alone
        """Write a client as a ClientConfig."""
        told: list[PlainValue] = [self._plain(each, with_contents=with_contents) for each in resource_statuses(status)]
        plain: dict[str, PlainValue] = {
            "node": self._contents.plain_node(node_message(status.node)),
            "generic_xds_configs": told,
            "client_scope": status.service,
        }
        return json.dumps(_without_empty(plain), ensure_ascii=False, separators=(",", ":")).encode()

    def _plain(self, status: ResourceStatus, *, with_contents: bool) -> dict[str, PlainValue]:
        """Return what is told of a resource as the JSON of a GenericXdsConfig."""
        shown = self._contents.plain_of(status.resource) if with_contents and status.resource is not None else None
        plain: dict[str, PlainValue] = {
            "type_url": status.type_url,
            "name": status.name,
            "version_info": status.version,
            "xds_config": shown,
            "config_status": status.config_status.name,
            "client_status": status.stand.name if status.stand else None,
        }
        if status.stand is ClientStand.NACKED:
            plain["error_state"] = _without_empty({"details": status.reason, "version_info": status.refused})
        return _without_empty(plain)


def _without_empty(plain: dict[str, PlainValue]) -> dict[str, PlainValue]:
    # What is empty is not written in proto JSON, but for messages.
    return {name: value for name, value in plain.items() if value not in (None, "", [])}


def _parse_json(request: bytes) -> Any:
    try:
        plain = json.loads(request)
        if not isinstance(plain, dict):
            # Protobuf takes an empty list for an empty message.
            raise ProtocolError(_NO_REQUEST)
        return json_format.ParseDict(plain, csds_pb2.ClientStatusRequest(), ignore_unknown_fields=True)
    except (ValueError, RecursionError, json_format.ParseError) as error:
        raise ProtocolError(f"{_NO_REQUEST}: {error}") from error


def _too_much() -> ProtocolError:
    message = (
        f"the answer would be over {MOST_ANSWER_BYTES} bytes; "
        "ask for fewer clients with node_matchers, or set exclude_resource_contents"
    )
    return ProtocolError(message, "RESOURCE_EXHAUSTED")
