"""The manifests: their schemas, and their very command lines, as processes with volumes laid out as Kubernetes does."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.test_compose import wait_until
from tests.support.certificates import Authority
from tests.support.dockerfile import TOP, argument, image_environment
from tests.support.envoy import Envoy
from tests.support.etcd import ETCD, MISSING, running_etcd
from tests.support.fsxds_process import start_fsxds
from tests.support.ports import free_port

KUBERNETES = TOP / "docker/kubernetes"
# 1.29 is the first with side-cars that start before the containers.
RELEASES = ["1.29", "1.34"]
TOKEN = os.urandom(32).hex()


def documents(folder: str) -> dict[str, dict[str, Any]]:
    """Return the manifests of a folder by kind, without what only kustomize or an operator reads."""
    found = {}
    for path in (KUBERNETES / folder).glob("*.yaml"):
        for content in yaml.safe_load_all(path.read_text()):
            if path.name not in {"kustomization.yaml", "envoy.yaml"}:
                found[content["kind"]] = content
    return found


def workload(folder: str) -> dict[str, Any]:
    """Return what runs the Pods: a StatefulSet where each keeps something, else a Deployment."""
    found = documents(folder)
    spec: dict[str, Any] = (found.get("StatefulSet") or found["Deployment"])["spec"]
    return spec


def container(folder: str, name: str = "fsxds") -> dict[str, Any]:
    """Return the container of a Pod by its name."""
    spec = workload(folder)["template"]["spec"]
    every: list[dict[str, Any]] = [*spec.get("initContainers", []), *spec["containers"]]
    (found,) = [one for one in every if one["name"] == name]
    return found


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("folder", ["base", "envoy-sidecar"])
def test_manifests_are_valid_by_the_schemas_of_kubernetes(folder: str, release: str) -> None:
    """No field is unknown, missing or of another type."""
    for content in documents(folder).values():
        kubernetes_validate.validate(content, release, strict=True)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
@pytest.mark.parametrize("overlay", ["base", "git-sync", "envoy-sidecar"])
def test_kustomize_builds_what_is_valid(overlay: str) -> None:
    """What `kubectl apply --kustomize` would send is valid too, and names no image or volume that is not there."""
    done = subprocess.run(
        ["kubectl", "kustomize", str(KUBERNETES / overlay)], check=False, capture_output=True, text=True
    )
    assert 0 == done.returncode, done.stderr
    for content in yaml.safe_load_all(done.stdout):
        kubernetes_validate.validate(content, RELEASES[0], strict=True)
        if content["kind"] in {"Deployment", "StatefulSet"}:
            spec = content["spec"]["template"]["spec"]
            every = [*spec.get("initContainers", []), *spec["containers"]]
            claims = {one["metadata"]["name"] for one in content["spec"].get("volumeClaimTemplates", [])}
            assert claims | {one["name"] for one in spec["volumes"]} == {
                mount["name"] for one in every for mount in one["volumeMounts"]
            }
            assert [] == [one["image"] for one in every if ":" not in one["image"]]


@pytest.mark.parametrize("folder", ["base", "envoy-sidecar"])
def test_pods_are_restricted(folder: str) -> None:
    """Their user is the image's, and no container may become more, or write to its root."""
    spec = workload(folder)["template"]["spec"]
    user, _, group = argument(1, "USER").partition(":")
    pod = spec["securityContext"]

    assert (True, int(user), int(group), "RuntimeDefault") == (
        *(pod[name] for name in ("runAsNonRoot", "runAsUser", "runAsGroup")),
        pod["seccompProfile"]["type"],
    )
    assert spec["automountServiceAccountToken"] is False
    for one in [*spec.get("initContainers", []), *spec["containers"]]:
        expected = {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert expected == one["securityContext"]
        assert {"memory"} == one["resources"]["limits"].keys()


def test_state_outlives_its_container() -> None:
    """It is below a volume: one that outlives the Pod in the base, one that is as old as its Envoy beside an Envoy."""
    (claim,) = workload("base")["volumeClaimTemplates"]
    pod = workload("base")["template"]["spec"]["securityContext"]
    mounts = {one["name"]: one["mountPath"] for one in container("base")["volumeMounts"]}
    beside = {one["name"] for one in workload("envoy-sidecar")["template"]["spec"]["volumes"] if "emptyDir" in one}

    assert "/state" == mounts[claim["metadata"]["name"]]
    # At a mount, the kubelet makes everything writable for the group otherwise, and fsxds rejects such a directory.
    assert "OnRootMismatch" == pod["fsGroupChangePolicy"]
    assert "state" in beside
    for folder in ("base", "envoy-sidecar"):
        assert "--state=/state/fsxds" in container(folder)["args"]


def test_ports_of_the_service_and_the_policy_are_those_of_the_container() -> None:
    """Each name leads to a port at which the command listens."""
    ports = {one["name"]: one["containerPort"] for one in container("base")["ports"]}
    listened = {
        int(found[1]) for word in container("base")["args"] if (found := re.search(r"=0\.0\.0\.0:(\d+)$", word))
    }
    service = [(one["targetPort"], one["port"]) for one in documents("base")["Service"]["spec"]["ports"]]
    rules = documents("base")["NetworkPolicy"]["spec"]["ingress"]
    monitored = documents("monitoring")

    assert set(ports.values()) == listened
    assert [] == [pair for pair in service if ports[pair[0]] != pair[1]]
    assert set(ports) == {port["port"] for rule in rules for port in rule["ports"]}
    assert ports["admin"] == monitored["Service"]["spec"]["ports"][0]["port"]
    assert "admin" == monitored["ServiceMonitor"]["spec"]["endpoints"][0]["port"]


def test_image_is_that_of_the_package_and_of_envoy() -> None:
    """The tags are the releases that this checkout has."""
    from fsxds import __version__

    tags = {
        one["name"]: one["newTag"]
        for folder in ("base", "envoy-sidecar")
        for one in yaml.safe_load((KUBERNETES / folder / "kustomization.yaml").read_text())["images"]
    }

    assert __version__ == tags["fsxds"]
    assert f"envoy-{tags['envoy'].removeprefix('v')}.pb" in image_environment()["FSXDS_DESCRIPTORS"]


class ConfigMap:
    """A ConfigMap as the kubelet mounts it: files are links into a directory that a link names, which is renamed at once."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._folder = folder
        self._number = 0
        folder.mkdir(parents=True)
        self.replace({one.name: one.read_text() for one in source.iterdir()})

    def replace(self, texts: dict[str, str]) -> None:
        """Have the mount show other contents."""
        self._number += 1
        data = self._folder / f"..2026_11_22_{self._number}"
        data.mkdir()
        for name, text in texts.items():
            (data / name).write_text(text)
            if not (self._folder / name).is_symlink():
                (self._folder / name).symlink_to(f"..data/{name}")
        new = self._folder / "..data_tmp"
        new.symlink_to(data.name)
        new.replace(self._folder / "..data")


class Pod:
    """A folder that stands for the file system of a Pod, and ports of this machine for its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ports = {port: free_port() for port in (18000, 18001, 18002)}
        for name in ("tls", "admin", "tmp", "mirror"):
            (root / name).mkdir()
        self.authority = Authority()
        self.authority.write(root / "tls/ca.crt")
        self.authority.issue(*documents("cert-manager")["Certificate"]["spec"]["dnsNames"]).write(root / "tls", "tls")
        # As the kubelet gives a volume to `fsGroup`: the group may write.
        (root / "state").mkdir()
        (root / "state").chmod(0o2775)
        (root / "admin/token").write_text(f"{TOKEN}\n")

    def local(self, word: str) -> str:
        """Return a word of a command with the places of this machine."""
        word = re.sub(r"(0\.0\.0\.0|localhost):(\d+)", lambda found: f"{found[1]}:{self.ports[int(found[2])]}", word)
        return re.sub(r"(?<![\w.])/(config|tls|admin|tmp|mirror|git|state|fleet)\b", rf"{self.root}/\1", word)

    def environment(self, one: dict[str, Any]) -> dict[str, str]:
        """Return the environment of a process in a container."""
        texts = image_environment() | {each["name"]: each["value"] for each in one.get("env", ())}
        # The image's descriptors are of the Envoy that is here.
        return {name: self.local(text) for name, text in texts.items() if name != "FSXDS_DESCRIPTORS"}

    @contextmanager
    def running(self, words: list[str], one: dict[str, Any] | None = None) -> Iterator[None]:
        """Run fsxds with the arguments and the environment of a container, until it is ready."""
        environment = self.environment(one or {})
        if not any(word.startswith("--admin=") for word in words):
            environment["FSXDS_ADMIN"] = "127.0.0.1:0"
        with (self.root / "log").open("wb") as log:
            process = start_fsxds([self.local(word) for word in words], stdout=log, stderr=log, env=environment)
        ready_file = Path(environment["FSXDS_READY_FILE"])
        try:
            wait_until(lambda: ready_file.exists() or process.poll() is not None)
            assert process.poll() is None, self.log()
            yield
            process.terminate()
            assert 0 == process.wait(60)
        finally:
            process.kill()

    def log(self) -> str:
        """Return what the last process logged."""
        return (self.root / "log").read_text()

    def get(self, port: int, path: str, *, host: str, token: str = "") -> int:
        """Ask as the kubelet and Prometheus do, by the Pod's own address; return the status."""
        # Probes do not look at the certificate.
        context = ssl._create_unverified_context()
        headers = {"Host": f"{host}:{port}"} | ({"Authorization": f"Bearer {token}"} if token else {})
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports[port], timeout=30, context=context)
        with closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def clusters(self, folder: Path) -> set[str]:
        """Ask for the clusters by REST with a client's certificate; return their names."""
        context = ssl.create_default_context(cafile=str(self.root / "tls/ca.crt"))
        context.load_cert_chain(*self.authority.issue("edge-1").write(folder, "client"))
        context.check_hostname = False
        connection = http.client.HTTPSConnection("127.0.0.1", self.ports[18001], timeout=30, context=context)
        with closing(connection):
            body, headers = json.dumps({"node": {"id": os.urandom(4).hex()}}), {"content-type": "application/json"}
            connection.request("POST", "/v3/discovery:clusters", body, headers)
            answer = json.loads(connection.getresponse().read())
        return {one["name"] for one in answer["resources"]}


def status_of(port: int, path: str) -> int:
    """Ask a port of this machine, and return the status."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_command_of_the_base_serves_by_tls_and_answers_its_probes(tmp_path: Path) -> None:
    """Clients with a certificate get the tree, probes by the Pod's address are answered, and a new ConfigMap arrives."""
    pod = Pod(tmp_path)
    one = container("base")
    tree = ConfigMap(tmp_path / "config", KUBERNETES / "base/tree")
    with pod.running(one["args"], one):
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = one[name]["httpGet"]
            assert "HTTPS" == probe["scheme"]
            assert 200 == pod.get(18002, probe["path"], host="10.1.2.3"), name
        path = documents("monitoring")["ServiceMonitor"]["spec"]["endpoints"][0]["path"]
        assert (401, 200) == (
            pod.get(18002, path, host="10.1.2.3"),
            pod.get(18002, path, host="10.1.2.3", token=TOKEN),
        )
        for command in (["status"], ["rollout", "status"]):
            # `kubectl exec` runs them.
            done = start_fsxds(command, env=pod.environment(one))
            assert 0 == done.wait(60), command
        assert {"shop"} == pod.clusters(tmp_path)
        with pytest.raises(ssl.SSLError):
            pod.get(18001, "/v3/discovery:clusters", host="fsxds")

        clusters = (KUBERNETES / "base/tree/clusters.yaml").read_text()
        added = "- {name: added, type: STATIC, connect_timeout: 1s}\n"
        listeners = (KUBERNETES / "base/tree/listeners.yaml").read_text()
        tree.replace({"clusters.yaml": clusters + added, "listeners.yaml": listeners})
        wait_until(lambda: pod.clusters(tmp_path) == {"shop", "added"})
    assert '"state_restored"' not in pod.log()

    with pod.running(one["args"], one):
        assert '"state_restored"' in pod.log()
        assert {"shop", "added"} == pod.clusters(tmp_path)


def with_fleet(content: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest of the base with the patches of the component `fleet` for it, which only add to lists."""
    patched: dict[str, Any] = json.loads(json.dumps(content))
    component = yaml.safe_load((KUBERNETES / "fleet/kustomization.yaml").read_text())
    (patch,) = [one["patch"] for one in component["patches"] if one["target"]["kind"] == content["kind"]]
    for change in yaml.safe_load(patch):
        *steps, last = change["path"].strip("/").split("/")
        assert (change["op"], last) == ("add", "-")
        place: Any = patched
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place.append(change["value"])
    return patched


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", ["StatefulSet", "NetworkPolicy"])
def test_manifests_of_a_fleet_are_valid(kind: str, release: str) -> None:
    """What the component adds is known to Kubernetes too."""
    kubernetes_validate.validate(with_fleet(documents("base")[kind]), release, strict=True)


@pytest.mark.skipif(ETCD is None, reason=MISSING)
def test_command_of_a_fleet_publishes_to_etcd(tmp_path: Path) -> None:
    """With the certificates that etcd asks for, and a key to encrypt by."""
    pod = Pod(tmp_path)
    ConfigMap(tmp_path / "config", KUBERNETES / "base/tree")
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet/key").write_text("ab" * 32)
    pod.authority.write(tmp_path / "fleet/ca.crt")
    pod.authority.issue("fsxds").write(tmp_path / "fleet", "tls")
    cert, key = pod.authority.issue("127.0.0.1").write(tmp_path, "etcd")
    trusted = str(tmp_path / "fleet/ca.crt")
    options = ["--cert-file", str(cert), "--key-file", str(key), "--client-cert-auth", "--trusted-ca-file", trusted]
    spec = with_fleet(documents("base")["StatefulSet"])["spec"]["template"]["spec"]
    one = spec["containers"][0]
    mounted = {mount["name"]: mount["mountPath"] for mount in one["volumeMounts"]}
    assert mounted["fleet"] == "/fleet"
    (tmp_path / "members").mkdir()
    with running_etcd(tmp_path / "members", 1, options, "https") as etcd:
        words = [word.replace("YOUR-ETCD-0:2379", etcd.targets[0]) for word in one["args"]]
        words = [re.sub(r",YOUR-ETCD-\d:2379", "", word) for word in words]
        with pod.running(words, one):
            assert {"shop"} == pod.clusters(tmp_path)
    assert '"fleet_publisher_elected"' in pod.log()


def test_command_of_git_sync_follows_a_link_that_is_renamed(tmp_path: Path) -> None:
    """The tree is a folder of a checkout; a new commit is another checkout, to which the link is renamed."""
    pod = Pod(tmp_path)
    patches = yaml.safe_load((KUBERNETES / "git-sync/kustomization.yaml").read_text())["patches"]
    (change,) = yaml.safe_load(
        next(one["patch"] for one in patches if one.get("target", {}).get("kind") == "StatefulSet")
    )
    words = container("base")["args"]
    words[int(change["path"].rpartition("/")[2])] = change["value"]
    (init, side_car) = workload("git-sync")["template"]["spec"]["initContainers"]

    assert change["value"].startswith("/git/current/")
    assert all({"--root=/git", "--link=current"} <= {*each["args"]} for each in (init, side_car))

    def receive(commit: str, name: str) -> None:
        folder = tmp_path / f"git/.worktrees/{commit}/config/xds"
        folder.mkdir(parents=True)
        (folder / "clusters.yaml").write_text(f"- {{name: {name}, type: STATIC, connect_timeout: 1s}}\n")
        new = tmp_path / "git/new"
        new.symlink_to(f".worktrees/{commit}")
        new.replace(tmp_path / "git/current")

    receive("a1", "first")
    with pod.running(words):
        assert {"first"} == pod.clusters(tmp_path)
        receive("b2", "second")
        # What goes away lingers for a moment, and no longer than it takes clients to move on.
        wait_until(lambda: "second" in pod.clusters(tmp_path))


def test_command_of_the_side_car_writes_what_its_envoy_reads(tmp_path: Path) -> None:
    """Once the start-up probe holds, the Envoy of the manifest starts, reads the files, and is ready."""
    pod = Pod(tmp_path)
    one = container("envoy-sidecar")
    ConfigMap(tmp_path / "config", KUBERNETES / "envoy-sidecar/tree")
    text = pod.local((KUBERNETES / "envoy-sidecar/envoy.yaml").read_text())
    probe = container("envoy-sidecar", "envoy")["readinessProbe"]["httpGet"]
    ready, web, page = free_port(), free_port(), free_port()
    for port, free in ((9902, ready), (9901, page)):
        text = text.replace(f"port_value: {port}", f"port_value: {free}")
    tree = tmp_path / "config/listeners.yaml"
    tree.resolve().write_text(tree.read_text().replace("port_value: 10000", f"port_value: {web}"))
    with ExitStack() as stack:
        stack.enter_context(pod.running(one["args"], one))
        command = [pod.local(word) for word in one["startupProbe"]["exec"]["command"]]
        assert 0 == subprocess.run(command, check=False).returncode

        envoy = stack.enter_context(Envoy(yaml.safe_load(text), admin_port=page))
        wait_until(lambda: "web" in envoy.listener_names())
        assert [200, 404] == [status_of(ready, path) for path in (probe["path"], "/config_dump")]
