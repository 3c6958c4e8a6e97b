"""GET of a real fsxds: by TLS, with secrets and large resources, and by pages in a real Chromium."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.end_to_end.test_status_page import chromium
from tests.end_to_end.test_tls import Files
from tests.support.server import Server, write_file
from tests.support.settings_files import file_flags

CLUSTER = "/envoy.config.cluster.v3.Cluster"
SECRET = "/envoy.extensions.transport_sockets.tls.v3.Secret"
LARGE = "x" * 3_000_000


def test_get_over_mutual_tls(tmp_path: Path) -> None:
    """URLs are those of https, secrets are sent, a large body is whole, and a wait ends with the change."""
    files = Files(tmp_path)
    write_file(files.tree / "sds.yaml", "[{name: key, generic_secret: {secret: {inline_string: hush}}}]")
    write_file(files.tree / "large.cds.yaml", f"[{{name: large, type: STATIC, alt_stat_name: {LARGE}}}]")
    with files.serving() as server:
        base = f"https://localhost:{server.port}"

        def get(path: str, tag: str = "") -> tuple[Any, str]:
            request = urllib.request.Request(f"{base}{path}", headers={"if-none-match": tag} if tag else {})
            with urllib.request.urlopen(request, timeout=120, context=files.context()) as response:
                return json.load(response), response.headers["etag"]

        server.wait(lambda: len(get(f"{CLUSTER}/")[0]) == 2, "both clusters")
        assert [each["name"] for each in get(f"{SECRET}/")[0]] == [f"{base}{SECRET}/key"]
        assert get(f"{SECRET}/key")[0]["generic_secret"] == {"secret": {"inline_string": "hush"}}
        assert get(f"{CLUSTER}/large")[0]["alt_stat_name"] == LARGE
        content, tag = get(f"{CLUSTER}/a")
        answers: list[tuple[Any, str]] = []
        waiting = threading.Thread(target=lambda: answers.append(get(f"{CLUSTER}/a?wait=60", tag)))
        waiting.start()
        write_file(files.tree / "cds.json", json.dumps([{**content, "connect_timeout": "7s"}]))
        waiting.join(120)

        assert [answer["connect_timeout"] for answer, _ in answers] == ["7s"]
        assert "hush" not in server.log_file.read_text(encoding="utf-8")


class _Page(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving_page(folder: Path) -> Iterator[str]:
    """Serve an empty page, and yield its origin."""
    (folder / "index.html").write_text("<!doctype html><title>page</title>", encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Page, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


READ = """async ([url, tag]) => {
  try {
    const answer = await fetch(url, tag ? {headers: {"if-none-match": tag, prefer: "wait=0"}, cache: "no-store"} : {});
    return [answer.status, answer.headers.get("etag"), answer.status === 200 ? await answer.json() : null];
  } catch (error) { return [0, null, null]; }
}"""


NACK = """async ([url, body]) => {
  for (let count = 0; count < 3; count++)
    await fetch(url, {method: "POST", mode: "no-cors", body: new Blob([JSON.stringify(body)])}).catch(() => null);
}"""


def test_pages_in_a_browser(tmp_path: Path) -> None:
    """A page of a named origin reads resources and their tags, and no secret; another one nothing, and it NACKs nothing."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    tree = tmp_path / "tree"
    write_file(tree / "cds.yaml", "[{name: <i>web</i>, type: STATIC, connect_timeout: 1s}]")
    write_file(tree / "sds.yaml", "[{name: key, generic_secret: {secret: {inline_string: hush}}}]")
    (tmp_path / "page").mkdir()
    with serving_page(tmp_path / "page") as origin, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        with Server(tree, tmp_path, *file_flags(cors_origin=json.dumps(origin))) as server:
            base = f"http://127.0.0.1:{server.port}"
            url = f"{base}{CLUSTER}/%3Ci%3Eweb%3C/i%3E"
            page.goto(origin)
            status, tag, content = page.evaluate(READ, [url, ""])
            assert (status, content["connect_timeout"]) == (200, "1s")
            assert page.evaluate(READ, [url, tag])[:2] == [304, tag]
            assert page.evaluate(READ, [f"{base}{CLUSTER}/nothing", ""])[0] == 404
            assert page.evaluate(READ, [f"{base}{SECRET}/key", ""])[0] == 0
            page.goto(origin.replace("127.0.0.1", "localhost"))
            assert page.evaluate(READ, [url, ""])[0] == 0
            poll = {"node": {"id": "edge"}, "version_info": "1", "error_detail": {"message": "of a page"}}
            page.evaluate(NACK, [f"{base}/v3/discovery:clusters?timeout=0", poll])
            assert not server.log_events("nack_received")

            page.goto(base)
            page.get_by_role("link", name="<i>web</i>").click()
            page.wait_for_url(url)
            assert json.loads(page.inner_text("body"))["name"] == "<i>web</i>"
        browser.close()
