"""The language server as editors meet it: a real client, a real process, and stdin and stdout between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcRequestCancelled
from pytest_lsp import client_capabilities

from tests.editor.client import Editor, editing
from tests.editor.test_navigation import ALL
from tests.editor.trees import CLUSTERS, FILES, ROUTES, write

BIG = "".join(f"- name: big{number}\n  type: STATIC\n  connect_timeout: 1s\n" for number in range(20_000))

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def editor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Editor]:
    """An editor with the routes of a tree open."""
    directory = tmp_path_factory.mktemp("tree")
    write(directory, ALL)
    async with editing(directory) as started:
        started.open("routes.yaml")
        yield started


async def restored(editor: Editor) -> None:
    """Bring the routes back to what they were."""
    editor.change("routes.yaml", ROUTES)
    assert await editor.until_version("routes.yaml") == []


async def test_problems_while_typing(editor: Editor) -> None:
    """A mistake is shown with its rule, page, severity and place as soon as it is typed, and gone when it is."""
    text = ROUTES.replace("cluster: web", "cluster: wep")
    editor.change("routes.yaml", text)
    (found,) = await editor.until_version("routes.yaml")
    await restored(editor)

    assert (found.code, found.source, found.severity) == ("no-cluster", "fsxds", types.DiagnosticSeverity.Error)
    remedy = 'did you mean "web"? Else define it, or list it in `static_clusters` if the bootstrap defines it'
    assert found.message == f'there is no cluster "wep"; requests for it fail; {remedy}'
    assert found.code_description is not None
    assert found.code_description.href.endswith("/lint/pages/references.md#no-cluster")
    line = text.splitlines()[found.range.start.line]
    assert line[found.range.start.character : found.range.end.character] == "cluster"


async def test_problems_in_other_files(editor: Editor) -> None:
    """What an edit breaks elsewhere is shown there, in a file that is not open."""
    editor.open("clusters.yaml")
    editor.change("clusters.yaml", CLUSTERS.replace("name: api", "name: apis"))
    await editor.until(lambda: editor.rules("routes.yaml") == ["no-cluster"])
    editor.close("clusters.yaml")
    await editor.until(lambda: editor.rules("routes.yaml") == [])


async def test_completion(editor: Editor) -> None:
    """Names, fields and values are suggested in a text that does not parse, with words about each."""
    text = ROUTES.replace("cluster: web", "cluster: w")
    editor.change("routes.yaml", text)
    found = await editor.client.text_document_completion_async(
        types.CompletionParams(**editor.at("routes.yaml", text, "cluster: w", 10))
    )
    assert isinstance(found, types.CompletionList)
    assert [one.label for one in found.items] == ["api", "pool", "web"]
    text = ROUTES + "        t\n      x: [\n"
    editor.change("routes.yaml", text)
    found = await editor.client.text_document_completion_async(
        types.CompletionParams(**editor.at("routes.yaml", text, "        t\n", 9))
    )
    assert isinstance(found, types.CompletionList)
    (timeout,) = [one for one in found.items if one.label == "timeout"]
    assert timeout.text_edit is not None
    assert timeout.text_edit.new_text == "timeout: "
    described = await editor.client.completion_item_resolve_async(timeout)
    assert isinstance(described.documentation, types.MarkupContent)
    assert "google.protobuf.Duration" in described.documentation.value
    await restored(editor)


async def test_hover(editor: Editor) -> None:
    """A field is explained."""
    found = await editor.client.text_document_hover_async(
        types.HoverParams(**editor.at("routes.yaml", ROUTES, "prefix: /api"))
    )

    assert found is not None
    assert isinstance(found.contents, types.MarkupContent)
    assert "**prefix**: `string`" in found.contents.value


async def test_navigation(editor: Editor) -> None:
    """A name leads to its definition, and that to its mentions."""
    place = editor.at("routes.yaml", ROUTES, "cluster: web", 10)
    defined = await editor.client.text_document_definition_async(types.DefinitionParams(**place))
    assert isinstance(defined, list | tuple)
    assert [(one.uri, one.range.start.line) for one in defined if isinstance(one, types.Location)] == [
        (editor.uri("clusters.yaml"), 0)
    ]
    context = types.ReferenceContext(include_declaration=True)
    found = await editor.client.text_document_references_async(types.ReferenceParams(context, **place))
    assert found is not None
    assert {one.uri for one in found} == {editor.uri("clusters.yaml"), editor.uri("routes.yaml")}


async def test_symbols(editor: Editor) -> None:
    """The resources of a file and of the tree are symbols."""
    document = types.TextDocumentIdentifier(editor.uri("routes.yaml"))
    own = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
    assert own is not None
    assert [one.name for one in own] == ["main"]
    everywhere = await editor.client.workspace_symbol_async(types.WorkspaceSymbolParams("po"))
    assert everywhere is not None
    assert [(one.name, one.container_name) for one in everywhere] == [("pool", "clusters"), ("pool", "endpoints")]


async def test_rename(editor: Editor) -> None:
    """A cluster is renamed in all files, with what is typed and not saved."""
    text = "# 😀\n" + ROUTES
    editor.change("routes.yaml", text)
    place = editor.at("routes.yaml", text, "cluster: web", 10)
    prepared = await editor.client.text_document_prepare_rename_async(types.PrepareRenameParams(**place))
    assert isinstance(prepared, types.PrepareRenamePlaceholder)
    assert prepared.placeholder == "web"
    found = await editor.client.text_document_rename_async(types.RenameParams(new_name="site", **place))
    assert found is not None
    assert found.changes is not None
    assert {uri: [one.new_text for one in edits] for uri, edits in found.changes.items()} == {
        editor.uri("clusters.yaml"): ["site"],
        editor.uri("routes.yaml"): ["site"],
    }
    await restored(editor)


async def test_a_refused_rename(editor: Editor) -> None:
    """The reason why a rename is refused is the error that the user sees."""
    place = editor.at("routes.yaml", ROUTES, "cluster: web", 10)

    with pytest.raises(JsonRpcException, match="the name is taken already"):
        await editor.client.text_document_rename_async(types.RenameParams(new_name="api", **place))


async def test_quick_fixes(editor: Editor) -> None:
    """A remedy that names the right word is an edit."""
    text = ROUTES.replace("cluster: web", "cluster: wep")
    editor.change("routes.yaml", text)
    (problem,) = await editor.until_version("routes.yaml")
    params = types.CodeActionParams(
        types.TextDocumentIdentifier(editor.uri("routes.yaml")), problem.range, types.CodeActionContext([problem])
    )
    (action,) = await editor.client.text_document_code_action_async(params) or ()
    await restored(editor)

    assert isinstance(action, types.CodeAction)
    assert action.title == 'Write "web"'
    assert action.edit is not None
    assert action.edit.changes is not None
    (edit,) = action.edit.changes[editor.uri("routes.yaml")]
    line = text.splitlines()[edit.range.start.line]
    assert line[: edit.range.start.character] + edit.new_text == "        cluster: web"


async def test_changes_on_disk(editor: Editor) -> None:
    """Files that others change, add and delete are noticed where the client watches them."""
    assert types.WORKSPACE_DID_CHANGE_WATCHED_FILES in editor.registered
    path = editor.directory / "new.cds.yaml"
    path.write_text("- name: web\n  type: STATIC\n", encoding="utf-8")
    event = types.FileEvent(path.as_uri(), types.FileChangeType.Created)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await editor.until(lambda: editor.rules("new.cds.yaml") == ["duplicate-name"])
    path.unlink()
    event = types.FileEvent(path.as_uri(), types.FileChangeType.Deleted)
    editor.client.workspace_did_change_watched_files(types.DidChangeWatchedFilesParams([event]))
    await editor.until(lambda: editor.rules("new.cds.yaml") == [])


async def test_units_and_line_ends(editor: Editor) -> None:
    """Columns count UTF-16, and lines end with CRLF too."""
    text = "- name: main2\r\n  virtual_hosts:\r\n  - {name: '😀', nonsense: 1, domains: [x]}\r\n"
    editor.open("more.rds.yaml", text)
    found = [one for one in await editor.until_version("more.rds.yaml") if one.code == "unknown-field"]
    editor.close("more.rds.yaml")

    (problem,) = found
    units = text.split("\r\n")[2].encode("utf-16-le")
    start, end = problem.range.start, problem.range.end
    assert start.line == 2
    assert units[start.character * 2 : end.character * 2].decode("utf-16-le") == "nonsense"


@pytest.mark.parametrize(
    "uri",
    [
        "untitled:Untitled-1",
        "git:/x/routes.yaml",
        "file:///etc/hostname",
        "file:///%00",
        "nonsense",
        "file://host/a.yaml",
    ],
)
async def test_documents_that_are_no_files_of_the_tree(editor: Editor, uri: str) -> None:
    """Other documents have nothing, and do no harm."""
    editor.open("x.yaml", "a: [", uri=uri)
    document, position = types.TextDocumentIdentifier(uri), types.Position(0, 0)
    found = await editor.client.text_document_hover_async(types.HoverParams(document, position))
    symbols = await editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
    editor.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    assert (found, symbols) == (None, None)
    assert uri not in editor.shown


async def test_errors_from_within(editor: Editor) -> None:
    """A request on which fsxds fails is answered with an error, without data; the next one is answered as usual."""
    wrong = types.CompletionItem("x", data="no.such.field")
    with pytest.raises(JsonRpcException, match="its log on stderr has more") as raised:
        await editor.client.completion_item_resolve_async(wrong)

    assert raised.value.data is None
    await test_hover(editor)


async def test_cancelled_requests(editor: Editor) -> None:
    """Requests that are cancelled end with an error, or were answered before; one that takes long beside them, as usual."""
    editor.open("big.cds.yaml", BIG)
    document = types.TextDocumentIdentifier(editor.uri("big.cds.yaml"))
    symbols = editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
    long = asyncio.ensure_future(symbols)
    await asyncio.sleep(0)
    hover = types.HoverParams(**editor.at("routes.yaml", ROUTES, "cluster: web", 10))
    names = [f"hover-{number}" for number in range(20)]
    requests = [editor.client.protocol.send_request(types.TEXT_DOCUMENT_HOVER, hover, msg_id=name) for name in names]
    for name in names:
        editor.client.cancel_request(types.CancelParams(name))
    outcomes = await asyncio.gather(*map(asyncio.wrap_future, requests), return_exceptions=True)
    found = await long
    editor.close("big.cds.yaml")

    assert found is not None
    assert len(found) == 20_000
    assert {type(one) for one in outcomes} <= {JsonRpcRequestCancelled, types.Hover}


async def test_a_document_that_is_closed_while_it_is_asked_about(editor: Editor) -> None:
    """Closing and deleting a file while questions about it wait ends none of them with an error."""
    write(editor.directory, {"short.cds.yaml": "- name: short\n  type: STATIC\n"})
    editor.open("short.cds.yaml")
    document = types.TextDocumentIdentifier(editor.uri("short.cds.yaml"))
    asked = [editor.client.text_document_document_symbol_async(types.DocumentSymbolParams(document)) for _ in range(3)]
    waiting = asyncio.gather(*asked)
    editor.close("short.cds.yaml")
    (editor.directory / "short.cds.yaml").unlink()

    assert len(await waiting) == 3
    await editor.until(lambda: not editor.rules("short.cds.yaml"))


async def test_a_large_file(editor: Editor) -> None:
    """A file of a megabyte is checked, and others are answered about meanwhile."""
    editor.open("big.cds.yaml", BIG)
    await test_hover(editor)
    assert {one.code for one in await editor.until_version("big.cds.yaml")} == {"unused-cluster"}
    editor.close("big.cds.yaml")
    await editor.until(lambda: not editor.rules("big.cds.yaml"))


async def test_textproto(editor: Editor) -> None:
    """Text format has its problems, and nothing else."""
    text = 'name: "a" nonsense: 1'
    editor.open("a.cds.textproto", text)
    found = await editor.until_version("a.cds.textproto")
    hover = await editor.client.text_document_hover_async(
        types.HoverParams(**editor.at("a.cds.textproto", text, "name"))
    )
    editor.close("a.cds.textproto")

    assert "unknown-field" in {one.code for one in found}
    assert hover is None


async def test_the_newest_text_wins(editor: Editor) -> None:
    """Of many changes in a row, the problems of the last are what stays."""
    for number in range(50):
        editor.change("routes.yaml", f"{ROUTES}# {number}\n" if number % 2 else "a: [")
    assert await editor.until_version("routes.yaml") == []
    await restored(editor)


async def test_other_encodings(tmp_path: Path) -> None:
    """A client that counts in UTF-8 gets what it asked for; one without snippets gets plain text."""
    write(tmp_path, FILES)
    capabilities = client_capabilities("visual-studio-code")
    capabilities.general = types.GeneralClientCapabilities(position_encodings=[types.PositionEncodingKind.Utf8])
    assert capabilities.text_document is not None
    capabilities.text_document.completion = types.CompletionClientCapabilities()
    async with editing(tmp_path, capabilities=capabilities) as editor:
        text = "- {name: '😀', nonsense: 1}\n"
        editor.open("more.cds.yaml", text)
        (found,) = [one for one in await editor.until_version("more.cds.yaml") if one.code == "unknown-field"]
        suggested = await editor.client.text_document_completion_async(
            types.CompletionParams(types.TextDocumentIdentifier(editor.uri("more.cds.yaml")), types.Position(0, 3))
        )

    assert found.range.start.character == len(text[: text.index("nonsense")].encode())
    assert isinstance(suggested, types.CompletionList)
    assert {one.insert_text_format for one in suggested.items} == {types.InsertTextFormat.PlainText}
