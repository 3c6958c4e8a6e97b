"""Asks an Envoy executable for its features, without ports or calls, for a second.

It reads listeners that each probe one feature; its admin page, on a private socket, shows rejections (ENVOY.md E65).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import mmap
import re
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from fsxds.api.catalogue import Command, Extensions, Features
from fsxds.envoy.stub_files import STUB_CERTIFICATE, STUB_PRIVATE_KEY
from fsxds.model.errors import ApiError

PATIENCE_S = 20.0

_TYPE = "type.googleapis.com/envoy.extensions."
_NETWORK = f"{_TYPE}filters.network."
# Names of commands, curves and ciphers stand in the executable, except some short ones.
_TEXT = re.compile(rb"\x00([A-Za-z][A-Za-z0-9_-]{2,60})(?=\x00)")
_NAME = re.compile(r"[A-Z][A-Z0-9_]+")
_MORE_NAMES = {"CEL", "XFCC_VALUE", "REQ", "RESP"}
_GROUP = re.compile(r"[PKB]-\d{3}|prime\d{3}v1|secp\d{3}[rk]1|[xX]\d{3,5}(?:MLKEM\d+|Kyber\w+)?|MLKEM\d+")
_MORE_GROUPS = {"P-256", "P-384", "P-521", "secp256r1", "X25519", "x25519", "MLKEM1024"}
_CIPHER = re.compile(r"(?:PSK-|DES-|AES\d|ECDHE-)[A-Z0-9-]{6,40}|TLS_(?:RSA|PSK|ECDHE)_[A-Z0-9_]{6,50}")

Probe: TypeAlias = dict[str, Any]
"""A listener that probes one feature, without its name and address."""


def read_features(executable: Path) -> Features:
    """Return the features of an Envoy.

    Raises:
        ApiError: it cannot be run, or does not answer as Envoy does.
        OSError: it cannot be read.
    """
    with executable.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        texts = {text.decode() for text in _TEXT.findall(content)}
        digest = hashlib.sha256(content).hexdigest()
    names = _MORE_NAMES.union(filter(_NAME.fullmatch, texts))
    groups = _MORE_GROUPS.union(filter(_GROUP.fullmatch, texts))
    ciphers = set(filter(_CIPHER.fullmatch, texts))
    commands = {f"%{name}%": _logged(f"%{name}%") for name in names}
    curves = {group: _encrypted({"ecdh_curves": [group]}) for group in groups}
    suites = {cipher: _encrypted({"cipher_suites": [cipher]}) for cipher in ciphers}
    version, extensions, answers = _run_probes(executable, commands | curves | suites)
    known = [name for name in names if "Not supported field" not in answers[f"%{name}%"]]
    accepted = sorted(group for group in groups if not answers[group])
    pairs = {f"{one}:{other}": _encrypted({"ecdh_curves": [one, other]}) for one, other in combinations(accepted, 2)}
    answers |= _run_probes(executable, pairs | {text: _logged(text) for name in known for text in _written(name)})[2]
    return Features(
        version,
        extensions,
        {name: _command(name, answers) for name in known},
        _same_groups(accepted, answers),
        frozenset(cipher for cipher in ciphers if not answers[cipher]),
        _terminal(executable, extensions),
        digest,
    )


def _written(name: str) -> tuple[str, str, str]:
    return f"%{name}(x)%", f"%{name}:5%", f"%{name}(x):5%"


def _command(name: str, answers: Mapping[str, str]) -> Command:
    plain, (with_parameters, with_length, with_both) = f"%{name}%", _written(name)
    needs = re.search("requires param|cannot be empty|not supported type|subcommand|EOF", answers[plain])
    rejected = re.search("does not (?:take any|allow)", answers[with_length] + answers[with_both])
    return Command(needs is not None, "does not take any" not in answers[with_parameters], rejected is None)


def _same_groups(curves: Sequence[str], answers: Mapping[str, str]) -> dict[str, str]:
    group_of: dict[str, str] = {}
    for curve in curves:
        group_of[curve] = next((group_of[other] for other in group_of if answers[f"{other}:{curve}"]), curve)
    return group_of


def _terminal(executable: Path, extensions: Extensions) -> dict[str, bool]:
    probes = {one: _http([_plain(one)]) for one in _types(extensions, "envoy.filters.http")}
    network = _types(extensions, "envoy.filters.network")
    # Envoy crashes of these without settings.
    probes |= {one: _listener([_plain(one)]) for one in network if not one.endswith("HttpConnectionManager")}
    answers = _run_probes_in_parts(executable, probes)
    return {one: not answer for one, answer in answers.items() if not answer or "terminal" in answer}


def _run_probes_in_parts(executable: Path, probes: Mapping[str, Probe]) -> dict[str, str]:
    try:
        return _run_probes(executable, probes)[2]
    except ApiError:
        keys = sorted(probes)
        if len(keys) == 1:
            return {}
        parts = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        halves = (_run_probes_in_parts(executable, {key: probes[key] for key in part}) for part in parts)
        return {key: answer for half in halves for key, answer in half.items()}


def _plain(message_type: str) -> dict[str, Any]:
    return {"name": "x", "typed_config": {"@type": f"type.googleapis.com/{message_type}"}}


def _types(extensions: Extensions, category: str) -> set[str]:
    return {one for types in extensions.get(category, {}).values() for one in types}


def _listener(filters: list[Any], **more: Any) -> Probe:
    return {"filter_chains": [{"filters": filters, **more}]}


def _echo() -> dict[str, Any]:
    return {"name": "echo", "typed_config": {"@type": f"{_NETWORK}echo.v3.Echo"}}


def _logged(text: str) -> Probe:
    log_format = {"text_format_source": {"inline_string": text}}
    config = {"@type": f"{_TYPE}access_loggers.stream.v3.StdoutAccessLog", "log_format": log_format}
    return {"access_log": [{"name": "log", "typed_config": config}], **_listener([_echo()])}


def _encrypted(parameters: dict[str, Any]) -> Probe:
    pair = {
        "certificate_chain": {"inline_string": STUB_CERTIFICATE},
        "private_key": {"inline_string": STUB_PRIVATE_KEY},
    }
    context = {
        "@type": f"{_TYPE}transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {"tls_params": parameters, "tls_certificates": [pair]},
    }
    return _listener([_echo()], transport_socket={"name": "tls", "typed_config": context})


def _http(filters: list[Any]) -> Probe:
    manager = {
        "@type": f"{_NETWORK}http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "route_config": {"name": "x"},
        "http_filters": filters,
    }
    return _listener([{"name": "http", "typed_config": manager}])


def _run_probes(executable: Path, probes: Mapping[str, Probe]) -> tuple[str, Extensions, dict[str, str]]:
    with TemporaryDirectory(prefix="fsxds-ask-") as name:
        folder = Path(name)
        keys = list(probes)
        listeners = [
            {
                "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
                "name": str(number),
                "address": {"pipe": {"path": f"@{folder.name}/{number}"}},
                "bind_to_port": False,
                **probes[key],
            }
            for number, key in enumerate(keys)
        ]
        (folder / "lds.json").write_text(json.dumps({"resources": listeners}))
        source = {"resource_api_version": "V3", "path_config_source": {"path": str(folder / "lds.json")}}
        (folder / "bootstrap.json").write_text(
            json.dumps(
                {
                    "node": {"id": "fsxds", "cluster": "fsxds"},
                    "admin": {"address": {"pipe": {"path": str(folder / "admin")}}},
                    "dynamic_resources": {"lds_config": source},
                }
            )
        )
        path = folder / "admin"
        with _running(executable, folder) as process, closing(_wait_for_admin(process, path)) as admin:
            info = _get(admin, "/server_info")
            dump = _get(admin, "/config_dump?resource=dynamic_listeners")
    rejected = {
        int(one["error_state"]["failed_configuration"]["name"]): one["error_state"]["details"]
        for one in dump.get("configs", ())
        if "error_state" in one
    }
    answers = {key: rejected.get(number, "") for number, key in enumerate(keys)}
    found: defaultdict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for one in info.get("node", {}).get("extensions", ()):
        if not one.get("disabled"):
            found[one["category"]][one["name"]] = tuple(one.get("type_urls", ()))
    return info["version"].split("/")[1], dict(found), answers


@contextmanager
def _running(executable: Path, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    arguments = ["-c", str(folder / "bootstrap.json"), "--disable-hot-restart", "--concurrency", "1", "-l", "off"]
    try:
        process = subprocess.Popen(  # noqa: S603 - no shell
            [str(executable.absolute()), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=folder,
        )
    except OSError as error:
        raise ApiError(f"{executable}: cannot be run: {error.strerror}") from error
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def _wait_for_admin(process: subprocess.Popen[bytes], path: Path) -> _Connection:
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        admin = _Connection(path)
        with suppress(OSError, http.client.HTTPException):
            admin.request("GET", "/ready")
            response = admin.getresponse()
            response.read()
            if response.status == http.client.OK:
                return admin
        admin.close()
        time.sleep(0.02)
    raise ApiError("does not answer as Envoy does")


def _get(admin: _Connection, path: str) -> Any:
    try:
        admin.request("GET", path)
        return json.loads(admin.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ApiError("does not answer as Envoy does") from error


if __name__ == "__main__":
    sys.stdout.write(read_features(Path(sys.argv[1])).to_json())
