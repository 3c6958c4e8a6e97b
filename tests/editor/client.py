"""An editor: a real client of the language server, talking to a process of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types
from pytest_lsp import LanguageClient, client_capabilities

from tests.support.patience import PATIENCE_S

TOP = Path(__file__).parents[2]


class Editor:
    """A client that checks what it gets against its capabilities, and what it was shown.

    Attributes:
        client: sends requests.
        shown: the problems that were published last, by URI.
        registered: what the server asked to be notified of.
        messages: what the user was shown.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client = LanguageClient()
        self.shown: dict[str, types.PublishDiagnosticsParams] = {}
        self.registered: list[str] = []
        self.messages: list[str] = []
        self._changed = asyncio.Event()
        self._versions: dict[str, int] = {}
        feature = self.client.feature
        feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(self._publish())
        feature(types.CLIENT_REGISTER_CAPABILITY)(self._register())
        feature(types.WINDOW_SHOW_MESSAGE)(self._message())

    def _publish(self) -> Callable[[types.PublishDiagnosticsParams], None]:
        def publish(params: types.PublishDiagnosticsParams) -> None:
            self.shown[params.uri] = params
            self._changed.set()

        return publish

    def _register(self) -> Callable[[types.RegistrationParams], None]:
        def register(params: types.RegistrationParams) -> None:
            self.registered += [one.method for one in params.registrations]

        return register

    def _message(self) -> Callable[[types.ShowMessageParams], None]:
        def show(params: types.ShowMessageParams) -> None:
            self.messages.append(params.message)

        return show

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The server."""
        server = self.client._server
        assert server is not None
        return server

    async def start(
        self, *arguments: str, capabilities: types.ClientCapabilities | None = None
    ) -> types.InitializeResult:
        """Start the server, and introduce the client."""
        command = (sys.executable, "-m", "fsxds", "lsp", *arguments)
        await self.client.start_io(*command, cwd=TOP)
        chosen = capabilities or client_capabilities("visual-studio-code")
        folder = types.WorkspaceFolder(self.directory.as_uri(), "tree")
        return await self.client.initialize_session(
            types.InitializeParams(chosen, root_uri=self.directory.as_uri(), workspace_folders=[folder])
        )

    def uri(self, name: str) -> str:
        """Return the address of a file."""
        return (self.directory / name).as_uri()

    def open(self, name: str, text: str | None = None, uri: str | None = None) -> None:
        """Open a file, with what is on disk or with another text."""
        address = uri or self.uri(name)
        content = (self.directory / name).read_bytes().decode() if text is None else text
        self._versions[address] = 1
        language = "json" if name.endswith("json") else "yaml"
        opened = types.TextDocumentItem(address, language, 1, content)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(opened))

    def change(self, name: str, text: str) -> None:
        """Type: the file has this text now."""
        uri = self.uri(name)
        self._versions[uri] += 1
        document = types.VersionedTextDocumentIdentifier(self._versions[uri], uri)
        whole = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [whole]))

    def close(self, name: str) -> None:
        """Close a file."""
        document = types.TextDocumentIdentifier(self.uri(name))
        self.client.text_document_did_close(types.DidCloseTextDocumentParams(document))

    def at(self, name: str, text: str, words: str, offset: int = 1) -> dict[str, Any]:
        """Return the parameters of a position in a text: behind so many characters of the first place of some words."""
        index = text.index(words) + offset
        before = text[:index].replace("\r\n", "\n").split("\n")
        units = len(before[-1].encode("utf-16-le")) // 2
        position = types.Position(len(before) - 1, units)
        return {"text_document": types.TextDocumentIdentifier(self.uri(name)), "position": position}

    def rules(self, name: str) -> list[str]:
        """Return the rules that a file breaks, as far as was shown."""
        shown = self.shown.get(self.uri(name))
        return [str(one.code) for one in shown.diagnostics] if shown is not None else []

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; it may become so with each publication of problems."""
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    async def until_version(self, name: str, version: int | None = None) -> list[types.Diagnostic]:
        """Wait until the problems of a version of a text are there, by default the newest, and return them."""
        uri = self.uri(name)
        wanted = version or self._versions[uri]
        await self.until(lambda: uri in self.shown and self.shown[uri].version == wanted)
        return list(self.shown[uri].diagnostics)


@asynccontextmanager
async def editing(directory: Path, *arguments: str, **options: Any) -> AsyncIterator[Editor]:
    """Have an editor open a directory, and end the server in the end."""
    editor = Editor(directory)
    await editor.start(*arguments, **options)
    try:
        yield editor
        if editor.process.returncode is None:
            await editor.client.shutdown_session()
            assert editor.process.returncode == 0
    finally:
        if editor.process.returncode is None:
            editor.process.kill()
        await editor.client.stop()
