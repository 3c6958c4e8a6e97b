"""The status page in a real Chromium, of a real `fsxds serve`. What a page logs, breaks of its policy, or asks elsewhere fails."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from tests.support.server import Server, write_file

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Locator, Page

PATIENCE_MS = 60_000
TABS = ("overview", "graph", "clients", "files", "rollouts", "history")
# A name that shows what a page makes of it: of HTML, of marks of direction and of control characters.
HOSTILE = "<img src=x onerror=alert(1)></script>\u202egnp.exe\u2066"
HOSTILE_FILE = "<img src=x onerror=alert(1)>\u202e.yaml"
SHOWN = "<img src=x onerror=alert(1)></script>\\u{202e}gnp.exe\\u{2066}"

ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
LISTENER = f"""\
- name: front
  address: {{socket_address: {{address: 127.0.0.1, port_value: 18080}}}}
  filter_chains:
  - filters:
    - name: envoy.filters.network.http_connection_manager
      typed_config:
        "@type": {HCM}
        stat_prefix: front
        rds: {{route_config_name: routes, config_source: {{ads: {{}}}}}}
        http_filters: [{{name: envoy.filters.http.router, typed_config: {{"@type": {ROUTER}}}}}]
"""
ROUTES = """\
- name: routes
  virtual_hosts:
  - name: all
    domains: ["*"]
    routes:
    - {match: {prefix: /gone}, route: {cluster: gone}}
    - {match: {prefix: /}, route: {cluster: web}}
"""
CLUSTER = "- {name: %s, type: EDS, connect_timeout: 1s, eds_cluster_config: {eds_config: {ads: {}}}}\n"
PLAIN = "- {name: %s, connect_timeout: 1s}\n"
FILES = {
    "lds.yaml": LISTENER,
    "rds.yaml": ROUTES,
    "cds.yaml": CLUSTER % "web",
    "eds.yaml": "- {cluster_name: web}\n",
}


def chromium() -> str:
    """Return where Chromium is; skip the test where it is not installed."""
    pytest.importorskip("playwright", reason="pip install playwright")
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no Chromium; apt-get install chromium")
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run one browser for all tests."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serve a tree of which one name is missing."""
    tree, workdir = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("work")
    for name, text in FILES.items():
        write_file(tree / name, text)
    (workdir / "state").mkdir(mode=0o700)
    with Server(tree, workdir, "--state", str(workdir / "state"), "--step-timeout", "0.5s") as server:
        server.tree = tree  # type: ignore[attr-defined]
        yield server


@dataclass
class Watched:
    """A page, and what went wrong in it.

    Attributes:
        page: the page.
        address: where it came from.
        wrong: what it logged, what broke its policy, what it asked of others, and dialogs that opened.
    """

    page: Page
    address: str
    wrong: list[str] = field(default_factory=list)
    expected: tuple[str, ...] = ()

    def watch(self) -> None:
        """Note from now on what goes wrong."""
        self.page.on("console", lambda message: self.wrong.append(f"console: {message.text} {message.location}"))
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self._see(request.url))
        self.page.expose_function("noteViolation", lambda text: self.wrong.append(f"policy: {text}"))
        self.page.add_init_script(
            "document.addEventListener('securitypolicyviolation', (e) => noteViolation(e.violatedDirective + e.blockedURI))"
        )

    def _dismiss(self, dialog: Dialog) -> None:
        self.wrong.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _see(self, url: str) -> None:
        if urlsplit(url).netloc != self.address and not url.startswith("data:"):
            self.wrong.append(f"asks {url}")

    def open(self, tab: str = "") -> Page:
        """Open a tab of the page, and wait until it shows something and listens."""
        self.page.goto(f"http://{self.address}/{tab and '#' + tab}")
        self.page.wait_for_selector("body[data-ready][data-live=live]")
        self.page.wait_for_selector(f"#{tab or 'overview'}:not([hidden]) .body")
        return self.page


@contextmanager
def watched(browser: Browser, address: str, *expected: str, **options: Any) -> Iterator[Watched]:
    """Open a page, and fail in the end where something went wrong in it that was not expected."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE_MS)
    seen = Watched(context.new_page(), address)
    try:
        seen.watch()
        yield seen
        assert [] == [each for each in seen.wrong if not any(part in each for part in expected)]
    finally:
        context.close()


def change(server: Server, name: str, text: str | None) -> None:
    """Write a file of the tree, or remove it."""
    path: Path = server.tree / name  # type: ignore[attr-defined]
    if text is None:
        path.unlink()
    else:
        write_file(path, text)


def poll(server: Server, node: str, **fields: object) -> dict[str, Any]:
    """Poll for clusters, and return the answer; empty where there is nothing new."""
    content = json.dumps({"node": {"id": node, "cluster": "c"}, **fields}).encode()
    url = f"http://127.0.0.1:{server.port}/v3/discovery:clusters?timeout=0"
    request = urllib.request.Request(url, content, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.loads(response.read())
            return answer
    except urllib.error.HTTPError as error:
        if error.code != 304:
            raise
        return {}


def nack(server: Server, node: str, reason: str) -> None:
    """Have a node take what is served, and reject what comes next."""
    first = poll(server, node)
    change(server, "nacked.cds.yaml", PLAIN % f"nacked-{len(node)}")
    server.wait(lambda: poll(server, node, version_info=first["version_info"]), "another version")
    poll(server, node, version_info=first["version_info"], error_detail={"code": 13, "message": reason})


def test_a_broken_file_turns_up(browser: Browser, server: Server) -> None:
    """With its error, the remedy and the line, which is marked; what is said aloud names it; and it goes when it is repaired."""
    with watched(browser, server.admin) as seen:
        page = seen.open()
        change(server, "broken.cds.yaml", "- name: x\n  connect_timeout: 1s\n  conect_timeout: 2s\n")
        problem = page.locator(".problem", has_text="conect_timeout")
        problem.wait_for()
        assert problem.locator(".place").inner_text().startswith("broken.cds.yaml:3")
        assert problem.locator(".badge").inner_text().split() == ["✕", "error"]
        assert "connect_timeout" in problem.locator(".remedy").inner_text()
        # Of the words of a file, those of the API alone are shown, and those that the problem quotes.
        assert [line.split() for line in problem.locator(".line").all_inner_texts()][1:3] == [
            ["2", "connect_timeout:", "1s"],
            ["▶", "3", "conect_timeout:", "…"],
        ]
        assert problem.locator(".marked mark").count() == 1
        page.wait_for_function("document.querySelector('#announcer').textContent.includes('1 file broken')")
        assert page.locator(".verdict h2").inner_text().startswith("1 file broken")
        page.get_by_role("tab", name="Files").click()
        assert "broken" in page.locator("tr", has_text="broken.cds.yaml").inner_text()
        change(server, "broken.cds.yaml", None)
        page.locator("tr", has_text="broken.cds.yaml").wait_for(state="detached")


def test_a_nack_names_its_node(browser: Browser, server: Server) -> None:
    """And its reason; its detail has each type."""
    with watched(browser, server.admin) as seen:
        page = seen.open("clients")
        nack(server, "edge-7", "the port is taken")
        row = page.locator("tr", has_text="edge-7")
        row.get_by_text("the port is taken").wait_for()
        assert "NACK" in row.locator(".badge").first.inner_text()
        page.get_by_role("searchbox").fill("nobody")
        page.get_by_text("No client is found with this.").wait_for()
        page.get_by_role("searchbox").fill("edge-7")
        row.get_by_role("button", name="edge-7").click()
        detail = page.get_by_role("region", name="edge-7")
        detail.locator("tr", has_text="cds").wait_for()
        assert page.evaluate("document.activeElement.id") == "client-heading"


def test_the_graph_shows_what_uses_what(browser: Browser, server: Server) -> None:
    """A new cluster turns up, a name that is missing is marked, and keys lead from one to the next."""
    with watched(browser, server.admin) as seen:
        page = seen.open("graph")
        gone = page.get_by_role("button", name="cds gone, missing")
        gone.wait_for()
        assert "✕" in (gone.text_content() or "")
        assert page.locator("path.edge.missing").count() == 1
        page.get_by_role("button", name="lds front, served").focus()
        change(server, "new.cds.yaml", PLAIN % "new" + "# not used yet\n")
        new = page.get_by_role("button", name="cds new, served, new.cds.yaml:1")
        new.wait_for()
        # It stays where it was while the page changes.
        assert "lds front" in str(focused(page).get_attribute("aria-label"))
        page.keyboard.press("ArrowRight")
        assert "rds routes" in str(focused(page).get_attribute("aria-label"))
        page.keyboard.press("Enter")
        panel = page.get_by_role("region", name="rds routes")
        assert "rds.yaml:1" in panel.inner_text()
        assert sorted(panel.get_by_role("button", name="/").all_inner_texts()) == ["cds/gone", "cds/web", "lds/front"]
        panel.get_by_role("button", name="Show only").click()
        new.wait_for(state="detached")
        page.get_by_role("searchbox").fill("GON")
        page.get_by_text("1 name with").wait_for()
        page.get_by_label("Show as").select_option("list")
        item = page.locator(".graph-list li.missing", has_text="gone")
        assert "missing" in item.inner_text()
        change(server, "new.cds.yaml", None)


def test_texts_stay_texts(browser: Browser, server: Server) -> None:
    """Whatever is in names of nodes and files, in errors and reasons, nothing of it runs, and marks of direction are seen."""
    long = "n" * 10_000
    with watched(browser, server.admin) as seen:
        page = seen.open()
        change(server, HOSTILE_FILE, f"name: {HOSTILE}\n")
        nack(server, HOSTILE, f"{HOSTILE} {long}")
        page.locator(".problem .place", has_text="onerror=alert").first.wait_for()
        page.get_by_role("tab", name="Clients").click()
        page.get_by_role("button", name=SHOWN).wait_for()
        page.locator(".reason", has_text=SHOWN).wait_for()
        # What is in the same rollout as something that a client rejected is taken back with it.
        change(server, "hostile.cds.yaml", PLAIN % json.dumps(HOSTILE) + PLAIN % long)
        page.get_by_role("tab", name="Graph").click()
        page.locator("g.node", has_text="<img").first.wait_for()
        page.get_by_role("button", name=f"cds {SHOWN}").first.press("Enter")
        page.locator(".panel h3", has_text=SHOWN).wait_for()
        page.get_by_role("searchbox").fill("nnnnnnnnn")
        page.get_by_text("1 name with").wait_for()
        assert page.locator("img, script:not([src^='/assets/'])").count() == 0
        assert overflow(page) == 0
        for name in (HOSTILE_FILE, "hostile.cds.yaml"):
            change(server, name, None)


def test_the_history_has_differences(browser: Browser, server: Server) -> None:
    """What a snapshot changed is shown line by line, with the command that serves it again; rollouts say what is served."""
    with watched(browser, server.admin) as seen:
        page = seen.open("history")
        change(server, "timed.cds.yaml", "- {name: timed, connect_timeout: 1s}\n")
        page.locator(".card", has_text="timed").first.wait_for()
        change(server, "timed.cds.yaml", "- {name: timed, connect_timeout: 3s}\n")
        newest = page.locator(".card", has_text="1 changed: timed").first
        newest.get_by_role("button", name="What it changed since").click()
        newest.locator(".plus", has_text="+connect_timeout: 3s").wait_for()
        newest.locator(".minus", has_text="-connect_timeout: 1s").wait_for()
        assert "fsxds rollback @" in newest.inner_text()
        page.get_by_role("tab", name="Rollouts").click()
        whole_tree(page).get_by_text("Serves").wait_for()
        change(server, "timed.cds.yaml", None)


def test_a_rollback_has_a_banner(browser: Browser, server: Server) -> None:
    """As long as it is in force, with what it holds and the command that ends it; it is no secret on a phone either."""
    with watched(browser, server.admin, viewport={"width": 360, "height": 740}) as seen:
        page = seen.open()
        change(server, "pinned.cds.yaml", "- {name: pinned, connect_timeout: 1s}\n")
        before = server.wait(lambda: number_of_change(server, "added"), "the first version")
        change(server, "pinned.cds.yaml", "- {name: pinned, connect_timeout: 3s}\n")
        server.wait(lambda: number_of_change(server, "changed"), "the second version")
        assert page.locator(".banner").count() == 0
        ask(server, "/api/rollback", number=before)
        page.locator(".banner", has_text="cds pinned").wait_for()
        assert page.locator(".banner .command").inner_text() == "fsxds rollout resume"
        assert (page.evaluate(FAINT_TEXTS), page.evaluate(NAMELESS), overflow(page)) == ([], [], 0)
        page.get_by_role("tab", name="Rollouts").click()
        whole_tree(page).get_by_text("rolled back, each until it changes in the tree").wait_for()
        ask(server, "/api/resume")
        page.locator(".banner").wait_for(state="detached")
        change(server, "pinned.cds.yaml", None)


def test_what_is_held_back_is_named(browser: Browser, server: Server) -> None:
    """Each resource with the reason, its place, who rejects it and for how long, and the remedy."""
    with watched(browser, server.admin) as seen:
        page = seen.open("rollouts")
        change(server, "held.cds.yaml", CLUSTER % "held")
        held = whole_tree(page).locator("li", has_text="cds held")
        held.wait_for()
        assert "names an undefined resource for" in held.inner_text()
        assert "held.cds.yaml:1 cluster held would name endpoints held, which is not defined" in held.inner_text()
        assert held.locator(".remedy").inner_text().endswith("define endpoints held")
        change(server, "held.cds.yaml", None)
        held.wait_for(state="detached")
        nack(server, "edge-88", "the port is taken")
        held = whole_tree(page).locator("li", has_text="cds nacked-7")
        held.wait_for()
        assert "rejected by edge-88 for" in held.inner_text()
        assert "the port is taken" in held.inner_text()
        assert "1 resource held back or rejected" in page.locator("#summary").inner_text()
        page.get_by_role("tab", name="Overview").click()
        problem = page.locator(".problem", has_text="rejected-by-client")
        assert problem.locator(".place").inner_text().startswith("nacked.cds.yaml:1")
        assert "the port is taken" in problem.locator(".message").inner_text()


def test_all_problems_are_counted_by_severity(browser: Browser, tmp_path: Path) -> None:
    """Also those that are not sent to the page."""
    for name, text in (FILES | {"many.cds.yaml": "".join(PLAIN % f"many-{number}" for number in range(1250))}).items():
        write_file(tmp_path / "tree" / name, text)
    with Server(tmp_path / "tree", tmp_path) as server, watched(browser, server.admin) as seen:
        tile = seen.open().locator(".tile", has_text="Problems").inner_text().split()
        counts = [int(word.replace(",", "")) for word in tile if word[0].isdigit()]
        assert counts[0] == sum(counts[1:]) >= 1250, tile


def test_the_address_has_what_is_chosen(browser: Browser, server: Server) -> None:
    """Search, client and resource: another browser shows the same for it, and Back leads to what was shown before."""
    poll(server, "edge-of-url")
    with watched(browser, server.admin) as seen, watched(browser, server.admin) as other:
        page = seen.open("clients")
        page.get_by_role("searchbox").fill("of-url")
        page.wait_for_url("**/#clients?search=of-url")
        page.get_by_role("button", name="edge-of-url").click()
        page.locator("#client-heading").wait_for()
        assert urlsplit(page.url).fragment == "clients?search=of-url&client=edge-of-url"

        other.page.goto(page.url)
        other.page.get_by_role("region", name="edge-of-url").locator("tr", has_text="cds").wait_for()
        assert other.page.get_by_role("searchbox").input_value() == "of-url"
        page.go_back()
        page.locator("#client-heading").wait_for(state="detached")
        assert page.get_by_role("searchbox").input_value() == "of-url"

        other.page.goto(f"http://{server.admin}/#graph?search=web&as=list&selected=cds%2Fweb")
        other.page.get_by_role("region", name="cds web").wait_for()
        assert other.page.get_by_label("Show as").input_value() == "list"


def test_a_resource_has_its_content(browser: Browser, server: Server) -> None:
    """As it is served, and how its file differs while that is held back."""
    with watched(browser, server.admin) as seen:
        page = seen.open("graph")
        change(server, "shown.cds.yaml", PLAIN % "shown")
        page.get_by_role("button", name="cds shown, served").press("Enter")
        panel = page.get_by_role("region", name="cds shown")
        panel.get_by_role("button", name="Show its content").click()
        panel.get_by_text("Its file has the same.").wait_for()
        assert "connect_timeout: 1s" in panel.locator("pre").inner_text()
        change(server, "shown.cds.yaml", CLUSTER % "shown")
        panel.locator(".plus", has_text="+type: EDS").wait_for()
        assert "type: EDS" not in panel.locator("pre").last.inner_text()
        assert (page.evaluate(FAINT_TEXTS), page.evaluate(NAMELESS), overflow(page)) == ([], [], 0)
        change(server, "shown.cds.yaml", None)


def test_there_is_no_history_without_a_state(browser: Browser, tmp_path: Path) -> None:
    """The page says so, and does not ask for it: a browser logs each 409."""
    write_file(tmp_path / "tree" / "cds.yaml", PLAIN % "web")
    with Server(tmp_path / "tree", tmp_path) as server, watched(browser, server.admin) as seen:
        seen.open("history").get_by_text("start fsxds with --state DIR").wait_for()


def ask(server: Server, path: str, **words: object) -> dict[str, Any]:
    """Ask the admin address: by GET for what there is, by POST to decide."""
    is_question = path in ("/api/history", "/api/status")
    request = urllib.request.Request(f"http://{server.admin}{path}", headers={"content-type": "application/json"})
    if not is_question:
        request.data = json.dumps(words).encode()
    with urllib.request.urlopen(request, timeout=60) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def number_of_change(server: Server, what: str) -> int | None:
    """Return the number of the newest snapshot, if that is what was done in it to the cluster `pinned`."""
    newest = ask(server, "/api/history")["snapshots"][0]
    clusters = newest["changes"].get("cds")
    return newest["number"] if clusters and clusters[what]["names"] == ["pinned"] else None


def whole_tree(page: Page) -> Locator:
    """Return the card of the nodes that reject nothing."""
    return page.locator(".card", has=page.get_by_role("heading", name="whole tree", exact=True))


def focused(page: Page) -> Locator:
    """Return the element that has the focus."""
    return page.locator(":focus")


def overflow(page: Page) -> int:
    """Return by how much the page is wider than the window."""
    width: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return width


# The contrast of each text with what is behind it, where that is below 4.5 (WCAG 2.2, 1.4.3). What is disabled is left out.
FAINT_TEXTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4)
    .reduce((sum, each, at) => sum + each * [0.2126, 0.7152, 0.0722][at], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parse(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest("svg, :disabled, noscript, .unseen")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${walker.currentNode.data.slice(0, 40)}`);
  }
  return faint;
}"""

# What a screen reader has no name for, and ids that are there twice.
NAMELESS = """() => {
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  const double = ids.filter((each, at) => ids.indexOf(each) !== at);
  const dangling = [...document.querySelectorAll("[aria-labelledby], [aria-controls], [aria-describedby]")].flatMap((each) =>
    ["aria-labelledby", "aria-controls", "aria-describedby"].flatMap((name) => (each.getAttribute(name) ?? "").split(" ").filter(Boolean)))
    .filter((each) => !ids.includes(each));
  const nameless = [...document.querySelectorAll("a, button, input, select, [role=button]")].filter((each) =>
    !(each.getAttribute("aria-label") ?? "") && !each.textContent.trim() && !each.labels?.length).map((each) => each.outerHTML);
  const levels = [...document.querySelectorAll("h1, h2, h3, h4")].filter((each) => each.checkVisibility()).map((each) => Number(each.localName[1]));
  const leaps = levels.filter((each, at) => at && each > levels[at - 1] + 1);
  return [...double, ...dangling, ...nameless, ...leaps];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere(browser: Browser, server: Server, scheme: str) -> None:
    """Nothing is wider than a window of 320 pixels or more, texts have contrast, all has names, whatever the colours."""
    with watched(browser, server.admin, color_scheme=scheme) as seen:
        change(server, "unreadable.cds.yaml", "- name: x\n  conect_timeout: 2s\n")
        for tab in TABS:
            page = seen.open(tab)
            for width in (1280, 701, 360, 320):
                page.set_viewport_size({"width": width, "height": 800})
                assert overflow(page) == 0, (tab, width)
            assert page.evaluate(FAINT_TEXTS) == [], tab
            assert page.evaluate(NAMELESS) == [], tab
        change(server, "unreadable.cds.yaml", None)


def test_it_is_used_by_keys(browser: Browser, server: Server) -> None:
    """The first key leads past the top, arrows move between tabs, and what has the focus is seen."""
    with watched(browser, server.admin, reduced_motion="reduce") as seen:
        page = seen.open()
        page.keyboard.press("Tab")
        assert focused(page).inner_text() == "Skip to content"
        page.keyboard.press("Enter")
        assert focused(page).get_attribute("id") == "main"
        while focused(page).get_attribute("role") != "tab":
            page.keyboard.press("Tab")
        for key, tab in (
            ("ArrowRight", "graph"),
            ("End", "history"),
            ("ArrowRight", "overview"),
            ("ArrowLeft", "history"),
        ):
            page.keyboard.press(key)
            assert focused(page).get_attribute("id") == f"tab-{tab}"
            page.wait_for_selector(f"#{tab}:not([hidden])")
            assert page.locator("[role=tab][aria-selected=true]").count() == 1
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        assert page.evaluate("[...document.getAnimations()].length") == 0


def test_a_token_is_asked_for(browser: Browser, tmp_path: Path) -> None:
    """Nothing is shown without it. With it, the page says when its server is gone, and is live again by itself when it is back."""
    write_file(tmp_path / "tree" / "cds.yaml", "- {name: web, connect_timeout: 1s}\n")
    (tmp_path / "token").write_text("a-token-of-operators\n")
    (tmp_path / "token").chmod(0o600)
    options = ("--admin-token", str(tmp_path / "token"))
    with (
        Server(tmp_path / "tree", tmp_path, *options) as server,
        watched(browser, server.admin, "console: Failed to load") as seen,
    ):
        page, address = seen.page, server.admin
        page.goto(f"http://{address}/")
        entry = page.get_by_label("Admin token")
        entry.fill("another-token")
        entry.press("Enter")
        page.get_by_text("This token is not known here.").wait_for()
        assert not page.locator("#content").is_visible()
        entry.fill("a-token-of-operators")
        page.get_by_role("button", name="Show the status").click()
        page.wait_for_selector("body[data-ready][data-live=live]")
        assert page.locator(".verdict h2").inner_text() == "All good: 1 file, and no client yet"

        server.stop()
        page.get_by_text("Not live: what you see may be old").wait_for()
        with Server(tmp_path / "tree", tmp_path, *options, "--admin", address):
            page.wait_for_selector("body[data-live=live]")
        assert "a-token" not in page.content() + server.log_file.read_text()
