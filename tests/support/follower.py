"""A client of Delta or SotW streams that holds what it was sent, as the specification has it, and ACKs everything."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

import grpc
from envoy.service.discovery.v3 import discovery_pb2

from tests.support.patience import PATIENCE_S

METHODS = "/envoy.service.discovery.v3.AggregatedDiscoveryService/"


class Follower:
    """One aggregated stream; a context manager.

    Attributes:
        held: what it holds, by name: of Delta streams resources, of SotW streams the packed messages of the last response.
        removed: the names that Delta responses removed, in order.
        sent: the names of the resources in each Delta response.
        versions: the version of each response.
        refused: the reasons of `resource_errors`, by name.
    """

    def __init__(self, address: str, *, delta: bool = True, node: Mapping[str, Any] | None = None) -> None:
        self.held: dict[str, discovery_pb2.Resource] = {}
        self.bodies: list[Any] = []
        self.removed: list[str] = []
        self.sent: list[set[str]] = []
        self.versions: list[str] = []
        self.refused: dict[str, str] = {}
        self.error: grpc.RpcError | None = None
        self._delta = delta
        self._node = dict(node or {"id": "n1", "cluster": "c1"})
        self._address = address
        # In SotW each request repeats them.
        self._names: dict[str, tuple[str, ...]] = {}
        self._requests: queue.Queue[Any] = queue.Queue()
        self._changed = threading.Condition()

    def __enter__(self) -> Self:
        words = (
            ("DeltaDiscovery", "DeltaAggregatedResources")
            if self._delta
            else ("Discovery", "StreamAggregatedResources")
        )
        self._request = getattr(discovery_pb2, f"{words[0]}Request")
        response = getattr(discovery_pb2, f"{words[0]}Response")
        self._channel = grpc.insecure_channel(self._address)
        call = self._channel.stream_stream(METHODS + words[1], self._request.SerializeToString, response.FromString)
        self._call = call(iter(self._requests.get, None))
        threading.Thread(target=self._read, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._call.cancel()
        self._channel.close()

    def ask(self, type_url: str, *names: str, **fields: Any) -> Self:
        """Subscribe to names."""
        self._names[type_url] = names
        named = {"resource_names_subscribe" if self._delta else "resource_names": names} if names else {}
        self._requests.put(self._request(node=self._node, type_url=type_url, **named, **fields))
        return self

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until `holds`, or fail."""
        with self._changed:
            self._changed.wait_for(lambda: self.error is not None or holds(), PATIENCE_S)
            assert holds(), f"waited in vain for {what}; held: {sorted(self.held)}; {self.error}"

    def until_held(self, *names: str) -> None:
        """Wait until it holds exactly these."""
        self.until(lambda: set(self.held) == set(names), f"{names}")

    def message(self, name: str, made: type[Any]) -> Any:
        """Return what it holds under a name."""
        unpacked = made()
        assert self.held[name].resource.Unpack(unpacked), self.held[name].resource.type_url
        return unpacked

    def _read(self) -> None:
        try:
            for response in self._call:
                with self._changed:
                    self._take(response)
                    self._changed.notify_all()
        except grpc.RpcError as error:
            with self._changed:
                self.error = error
                self._changed.notify_all()

    def _take(self, response: Any) -> None:
        acknowledged = {"type_url": response.type_url, "response_nonce": response.nonce}
        self.refused |= {each.resource_name.name: each.error_detail.message for each in response.resource_errors}
        if self._delta:
            self.sent.append({resource.name for resource in response.resources})
            self.held |= {resource.name: resource for resource in response.resources}
            self.removed += response.removed_resources
            for name in response.removed_resources:
                self.held.pop(name, None)
            self.versions.append(response.system_version_info)
        else:
            self.bodies = list(response.resources)
            self.versions.append(response.version_info)
            acknowledged |= {"version_info": response.version_info, "resource_names": self._names[response.type_url]}
        self._requests.put(self._request(**acknowledged))
