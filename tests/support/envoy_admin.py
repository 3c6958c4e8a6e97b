"""Look at a running Envoy through its admin port."""

from __future__ import annotations

import http.client
import json
import re
import urllib.parse
from typing import Any


class EnvoyError(RuntimeError):
    """Envoy did not start, did not converge, or exited."""


class EnvoyAdmin:
    """What an Envoy says on its admin port, host and number, asked anew at each call."""

    def __init__(self, admin: tuple[str, int] | None = None) -> None:
        self._admin = admin

    @property
    def admin(self) -> tuple[str, int]:
        """Host and port of the admin listener."""
        if self._admin is None:
            raise EnvoyError("the admin port is not known yet")
        return self._admin

    def request(self, method: str, path: str, ok: int | None = 200) -> tuple[int, str]:
        """Ask the admin port; return status and body.

        Raises:
            EnvoyError: the status is not `ok` (None allows any).
        """
        connection = http.client.HTTPConnection(*self.admin, timeout=60)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            body = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        if ok is not None and response.status != ok:
            raise EnvoyError(f"{method} {path}: {response.status} {body[:200]}")
        return response.status, body

    def get(self, path: str, ok: int | None = 200) -> tuple[int, str]:
        """GET from the admin port; see `request`."""
        return self.request("GET", path, ok)

    def get_json(self, path: str) -> Any:
        """GET JSON from the admin port."""
        return json.loads(self.get(path)[1])

    def server_info(self) -> dict[str, Any]:
        """`/server_info`: state, version, command line."""
        info: dict[str, Any] = self.get_json("/server_info")
        return info

    def stats(self, regex: str = "", *, used_only: bool = False) -> dict[str, int | str]:
        """All counters, gauges and text readouts whose name matches `regex`."""
        path = "/stats?" + urllib.parse.urlencode({"filter": regex} if regex else {}) + ("&usedonly" * used_only)
        result: dict[str, int | str] = {}
        for line in self.get(path)[1].splitlines():
            name, _, value = line.partition(": ")
            if value.startswith('"'):
                result[name] = json.loads(value)
            elif re.fullmatch(r"-?\d+", value):
                result[name] = int(value)
        return result

    def stat(self, name: str) -> int:
        """One counter or gauge, 0 where it does not exist."""
        return int(self.stats(f"^{re.escape(name)}$").get(name, 0))

    def version_texts(self) -> dict[str, str]:
        """The version_text of every subscription that Envoy has, by stat scope."""
        suffix = ".version_text"
        return {name.removesuffix(suffix): str(value) for name, value in self.stats(r"\.version_text$").items()}

    def subscription(self, scope: str) -> dict[str, int | str]:
        """One subscription's stats: update_attempt, update_success, update_rejected, update_failure, version_text, ..."""
        prefix = scope + "."
        kinds = "update_|version|init_fetch_timeout|config_reload|control_plane"
        found = self.stats(f"^{re.escape(prefix)}({kinds})")
        return {name.removeprefix(prefix): value for name, value in found.items()}

    def config_dump(self, *, resource: str | None = None, mask: str | None = None, eds: bool = False) -> dict[str, Any]:
        """`/config_dump`, whole or in part."""
        query = {"resource": resource, "mask": mask}
        given = urllib.parse.urlencode({key: value for key, value in query.items() if value})
        dump: dict[str, Any] = self.get_json("/config_dump?" + given + ("&include_eds" if eds else ""))
        return dump

    def config_section(self, suffix: str, *, eds: bool = False) -> dict[str, Any]:
        """One section of the dump by the end of its `@type`, such as `ClustersConfigDump`; empty where it is not."""
        sections: list[dict[str, Any]] = self.config_dump(eds=eds)["configs"]
        return next((section for section in sections if section["@type"].endswith("." + suffix)), {})

    def cluster_names(self, *, dynamic_only: bool = False) -> set[str]:
        """Names of the active (warmed) clusters."""
        dump = self.config_section("ClustersConfigDump")
        clusters = dump.get("dynamic_active_clusters", []) + ([] if dynamic_only else dump.get("static_clusters", []))
        return {cluster["cluster"].get("name", "") for cluster in clusters}

    def warming_cluster_names(self) -> set[str]:
        """Names of the clusters that still wait for something."""
        dump = self.config_section("ClustersConfigDump")
        return {cluster["cluster"].get("name", "") for cluster in dump.get("dynamic_warming_clusters", [])}

    def listener_names(self, *, dynamic_only: bool = False) -> set[str]:
        """Names of the active listeners."""
        dump = self.config_section("ListenersConfigDump")
        names = {one.get("name", "") for one in dump.get("dynamic_listeners", []) if "active_state" in one}
        if not dynamic_only:
            names |= {one["listener"].get("name", "") for one in dump.get("static_listeners", [])}
        return names

    def listener_ports(self) -> dict[str, int]:
        """The port on which each listener with an IP address really listens, by listener name."""
        statuses = self.get_json("/listeners?format=json").get("listener_statuses", [])
        return {
            one["name"]: one["local_address"]["socket_address"]["port_value"]
            for one in statuses
            if "socket_address" in one["local_address"]
        }

    def route_names(self) -> set[str]:
        """Names of the route configurations that came by RDS."""
        dump = self.config_section("RoutesConfigDump")
        return {route["route_config"].get("name", "") for route in dump.get("dynamic_route_configs", [])}

    def endpoints(self, cluster: str) -> set[str]:
        """`ip:port` of every host of a cluster."""
        hosts: set[str] = set()
        for status in self.get_json("/clusters?format=json").get("cluster_statuses", []):
            for host in status.get("host_statuses", []) if status.get("name", "") == cluster else ():
                address = host["address"].get("socket_address")
                hosts.add(f"{address['address']}:{address['port_value']}" if address else json.dumps(host["address"]))
        return hosts

    def last_errors(self) -> dict[str, str]:
        """Why the last update of a resource was rejected, by resource name (Envoy keeps it for listeners only)."""
        errors: dict[str, str] = {}
        for section in self.config_dump(eds=True)["configs"]:
            for key, values in section.items():
                for value in values if isinstance(values, list) else ():
                    if isinstance(value, dict) and (state := value.get("error_state")):
                        name = value.get("name") or state.get("failed_configuration", {}).get("name", key)
                        errors[name] = state.get("details", "")
        return errors
