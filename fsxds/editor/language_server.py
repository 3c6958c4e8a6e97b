"""Answers an editor's requests; the only user of pygls.

pygls' logs are off, because they contain messages; errors are logged here without data.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from threading import Event
from typing import Any, BinaryIO, TypeVar

from lsprotocol import types
from pygls.exceptions import FeatureRequestError, JsonRpcException, JsonRpcInternalError
from pygls.io_ import StdoutWriter, run_async
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path, uri_scheme

from fsxds import __version__
from fsxds.api.catalogue import Catalogue
from fsxds.editor import protocol_values as values
from fsxds.editor.api_words import ApiWords, hover
from fsxds.editor.diagnostics import remedy_of
from fsxds.editor.edited_tree import EditedTree
from fsxds.editor.navigation import NameAt, Navigator, TextPlace
from fsxds.editor.renaming import UncertainRenameError, rename, renameable
from fsxds.editor.session import OpenDocument, Session, ShownFile
from fsxds.editor.suggestions import Completion
from fsxds.editor.text_positions import Span, TextPositions
from fsxds.events.event import Observer
from fsxds.events.process_events import InternalError
from fsxds.lint.linter import Linter
from fsxds.model.resource_types import RESOURCE_TYPES
from fsxds.model.values import Problem
from fsxds.settings.options import Settings

Answer = TypeVar("Answer")
Handler = Callable[[Any], Awaitable[Any]]

MOST_MESSAGE_BYTES = 256 * 1024 * 1024
"""A longer message ends the server; readable files are smaller."""

_LONGEST_HEADER = 64 * 1024
_OUTLINED = (".yaml", ".yml", ".json")
_REQUEST_FAILED = -32803
_WATCH_ID = "fsxds-files"
_TRIGGERS = ['"', "@", " ", "/", "."]


@dataclass(frozen=True, slots=True)
class ServerSetup:
    """The server's dependencies; `directory` is None for the editor's folder."""

    directory: Path | None
    settings: Settings
    catalogue: Catalogue
    linter: Linter
    observer: Observer


class QuietServer(LanguageServer):
    """Reports errors to an observer, not the user."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        super().__init__("fsxds", __version__, text_document_sync_kind=types.TextDocumentSyncKind.Full)

    def report_server_error(self, error: Exception, source: object) -> None:
        """Log an error unless its request was answered."""
        if source is not FeatureRequestError:
            self._observer(InternalError("message of the editor", error))


class TreeServer:
    """Answers one editor."""

    def __init__(self, setup: ServerSetup) -> None:
        self._setup = setup
        self._server = QuietServer(setup.observer)
        self._session: Session | None = None
        self._started = asyncio.Event()
        self._completion = Completion(setup.catalogue)
        self._register()

    async def serve(self, reader: BinaryIO, writer: BinaryIO) -> None:
        """Serve until the end of input, or the exit, which raises SystemExit."""
        logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
        self._server.protocol.set_writer(StdoutWriter(writer))
        async with asyncio.TaskGroup() as tasks:
            current = tasks.create_task(self._keep_current())
            await run_async(
                stop_event=Event(),
                reader=_BoundedReader(reader),
                protocol=self._server.protocol,
                logger=logging.getLogger("pygls"),
                error_handler=self._server.report_server_error,
            )
            current.cancel()

    async def _keep_current(self) -> None:
        await self._started.wait()
        if self._session is not None:
            # When the editor exits, our input is closed as well.
            with suppress(BrokenPipeError):
                await self._session.keep_current()

    def _register(self) -> None:
        add = self._server.feature
        for name, note in (
            (types.INITIALIZE, self._initialize),
            (types.INITIALIZED, self._initialized),
            (types.TEXT_DOCUMENT_DID_OPEN, self._did_open),
            (types.TEXT_DOCUMENT_DID_CHANGE, self._did_change),
            (types.TEXT_DOCUMENT_DID_CLOSE, self._did_close),
            (types.TEXT_DOCUMENT_DID_SAVE, self._did_save),
            (types.WORKSPACE_DID_CHANGE_WATCHED_FILES, self._did_change_files),
        ):
            add(name)(_as_function(note))
        options = types.CompletionOptions(trigger_characters=_TRIGGERS, resolve_provider=True)
        actions = types.CodeActionOptions([types.CodeActionKind.QuickFix])
        renames = types.RenameOptions(prepare_provider=True)
        for name, work, chosen in (
            (types.TEXT_DOCUMENT_COMPLETION, self._complete, options),
            (types.COMPLETION_ITEM_RESOLVE, self._resolve, None),
            (types.TEXT_DOCUMENT_HOVER, self._hover, None),
            (types.TEXT_DOCUMENT_DEFINITION, self._define, None),
            (types.TEXT_DOCUMENT_REFERENCES, self._refer, None),
            (types.TEXT_DOCUMENT_DOCUMENT_SYMBOL, self._symbols, None),
            (types.WORKSPACE_SYMBOL, self._tree_symbols, None),
            (types.TEXT_DOCUMENT_CODE_ACTION, self._actions, actions),
            (types.TEXT_DOCUMENT_PREPARE_RENAME, self._prepare_rename, None),
            (types.TEXT_DOCUMENT_RENAME, self._rename, renames),
        ):
            add(name, chosen)(self._guarded(name, work))

    def _guarded(self, name: str, work: Handler) -> Handler:
        """Every error becomes an error response."""

        async def handle(params: Any) -> Any:
            try:
                return await work(params)
            except UncertainRenameError as error:
                raise JsonRpcException(str(error), _REQUEST_FAILED) from None
            # One request failed: it is answered, and others go on.
            except Exception as error:  # noqa: BLE001
                self._setup.observer(InternalError(name, error))
                raise JsonRpcInternalError("fsxds failed by an error of its own; its log on stderr has more") from None

        return handle

    # Life cycle of the server, and of documents

    def _initialize(self, params: types.InitializeParams) -> None:
        directory = self._setup.directory or _folder_of(params)
        if directory is not None:
            setup = self._setup
            tree = EditedTree(directory, setup.settings, setup.catalogue, setup.linter)
            self._session = Session(tree, setup.catalogue, self._show, setup.observer)

    def _initialized(self, _: types.InitializedParams) -> None:
        if self._session is None:
            text = "fsxds: no folder is open; name the tree: `fsxds lsp DIR`"
            self._server.window_show_message(types.ShowMessageParams(types.MessageType.Warning, text))
        else:
            self._session.look_again(is_disk_read=True)
            self._watch()
        self._started.set()

    def _watch(self) -> None:
        workspace = self._server.client_capabilities.workspace
        watched = workspace.did_change_watched_files if workspace is not None else None
        if watched is not None and watched.dynamic_registration:
            options = types.DidChangeWatchedFilesRegistrationOptions([types.FileSystemWatcher("**/*")])
            one = types.Registration(_WATCH_ID, types.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            self._server.client_register_capability(types.RegistrationParams([one]))

    def _did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        opened = params.text_document
        self._note(opened.uri, opened.version, opened.text)

    def _did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        changed = params.text_document
        text = self._server.workspace.get_text_document(changed.uri).source
        self._note(changed.uri, changed.version, text)

    def _note(self, uri: str, version: int, text: str) -> None:
        path = self._path(uri)
        if self._session is not None and path is not None:
            self._session.open(path, OpenDocument(uri, version, text))

    def _did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        path = self._path(params.text_document.uri)
        if self._session is not None and path is not None:
            self._session.close(path)

    def _did_save(self, _: types.DidSaveTextDocumentParams) -> None:
        if self._session is not None:
            self._session.look_again(is_disk_read=True)

    def _did_change_files(self, _: types.DidChangeWatchedFilesParams) -> None:
        if self._session is not None:
            self._session.look_again(is_disk_read=True)

    def _path(self, uri: str) -> PurePosixPath | None:
        if self._session is None or uri_scheme(uri) != "file":
            return None
        path = to_fs_path(uri)
        try:
            return self._session.path_of(Path(path)) if path and "\0" not in path else None
        except (OSError, ValueError):
            return None  # no file can have the name

    def _show(self, file: ShownFile) -> None:
        if self._session is None:
            return
        positions, address = self._positions(file.text), self._session.uri_of
        found = [values.diagnostic(one, positions, address) for one in file.diagnostics]
        uri = file.document.uri if file.document is not None else (self._session.root / file.path).as_uri()
        version = file.document.version if file.document is not None else None
        self._server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, version))

    def _positions(self, text: str) -> TextPositions:
        encoding = self._server.workspace.position_encoding
        return TextPositions(text, str(getattr(encoding, "value", encoding) or "utf-16"))

    # Requests

    async def _at(
        self, params: Any, work: Callable[[Navigator, PurePosixPath, int, TextPositions], Answer]
    ) -> Answer | None:
        path = self._path(params.text_document.uri)
        if self._session is None or path is None or path.suffix.lower() not in _OUTLINED:
            return None

        def answer(navigator: Navigator) -> Answer:
            positions = self._positions(navigator.text(path))
            index = positions.index(values.position_of(params.position))
            return work(navigator, path, index, positions)

        return await self._session.ask(answer)

    async def _complete(self, params: types.CompletionParams) -> types.CompletionList | None:
        capabilities = self._server.client_capabilities.text_document
        completion = capabilities.completion if capabilities is not None else None
        known = completion.completion_item if completion is not None else None
        has_snippets = bool(known is not None and known.snippet_support)

        def work(
            navigator: Navigator, path: PurePosixPath, index: int, positions: TextPositions
        ) -> types.CompletionList:
            names = {row.type_url: navigator.names_of(row.type_url) for row in RESOURCE_TYPES}
            found = self._completion.suggest(navigator.text(path), index, path, names)
            return values.completion_list(found, positions, has_snippets=has_snippets)

        return await self._at(params, work)

    async def _resolve(self, proposed: types.CompletionItem) -> types.CompletionItem:
        catalogue = self._setup.catalogue
        if isinstance(proposed.data, str):
            field = catalogue.pool.FindFieldByName(proposed.data)
            proposed.documentation = values.markup(catalogue.once(ApiWords).field(field))
        return proposed

    async def _hover(self, params: types.HoverParams) -> types.Hover | None:
        def work(navigator: Navigator, path: PurePosixPath, index: int, positions: TextPositions) -> types.Hover | None:
            found = hover(navigator, path, index)
            if found is None:
                return None
            return types.Hover(values.markup(found.markdown), values.range_of(positions, found.span))

        return await self._at(params, work)

    async def _define(self, params: types.DefinitionParams) -> list[types.Location] | None:
        def work(navigator: Navigator, path: PurePosixPath, index: int, _: TextPositions) -> list[types.Location]:
            found = navigator.name_at(path, index)
            places = [place for key in found.keys for place in navigator.definitions(key)] if found else []
            return self._locations(navigator, places)

        return await self._at(params, work)

    async def _refer(self, params: types.ReferenceParams) -> list[types.Location] | None:
        def work(navigator: Navigator, path: PurePosixPath, index: int, _: TextPositions) -> list[types.Location]:
            found = navigator.name_at(path, index)
            keys = found.keys if found is not None else ()
            places = [place for key in keys for place in navigator.mentions(key)]
            if params.context.include_declaration:
                places += [place for key in keys for place in navigator.definitions(key)]
            return self._locations(navigator, list(dict.fromkeys(places)))

        return await self._at(params, work)

    def _locations(self, navigator: Navigator, places: list[TextPlace]) -> list[types.Location]:
        positions = {path: self._positions(navigator.text(path)) for path in {place.path for place in places}}
        return [values.location(place, positions[place.path], self._address) for place in places]

    def _address(self, path: PurePosixPath) -> str:
        return self._session.uri_of(path) if self._session is not None else ""

    async def _symbols(self, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | None:
        path = self._path(params.text_document.uri)
        if self._session is None or path is None or path.suffix.lower() not in _OUTLINED:
            return None

        def answer(navigator: Navigator) -> list[types.DocumentSymbol]:
            positions = self._positions(navigator.text(path))
            return [values.document_symbol(symbol, positions) for symbol in navigator.symbols(path)]

        return await self._session.ask(answer)

    async def _tree_symbols(self, params: types.WorkspaceSymbolParams) -> list[types.WorkspaceSymbol] | None:
        def answer(navigator: Navigator) -> list[types.WorkspaceSymbol]:
            found = navigator.tree_symbols(params.query)
            positions = {path: self._positions(navigator.text(path)) for path in {one.path for one in found}}
            return [values.workspace_symbol(one, positions[one.path], self._address) for one in found]

        return await self._session.ask(answer) if self._session is not None else None

    async def _actions(self, params: types.CodeActionParams) -> list[types.CodeAction] | None:
        path = self._path(params.text_document.uri)
        if self._session is None or path is None or path.suffix.lower() not in _OUTLINED:
            return None

        def answer(navigator: Navigator) -> list[types.CodeAction]:
            text = navigator.text(path)
            positions, outline = self._positions(text), navigator.outline(path)
            start = positions.index(values.position_of(params.range.start))
            end = positions.index(values.position_of(params.range.end))
            remedies = [
                remedy
                for problem in navigator.problems_between(path, start, end)
                if (remedy := remedy_of(problem, text, outline)) is not None
            ]
            uri, shown = params.text_document.uri, params.context.diagnostics
            return [values.code_action(remedy, positions, uri, shown) for remedy in remedies]

        return await self._session.ask(answer)

    async def _prepare_rename(self, params: types.PrepareRenameParams) -> types.PrepareRenamePlaceholder | None:
        def work(
            navigator: Navigator, path: PurePosixPath, index: int, positions: TextPositions
        ) -> types.PrepareRenamePlaceholder:
            found = renameable(navigator, path, index)
            return types.PrepareRenamePlaceholder(values.range_of(positions, found.span), found.keys[0][1])

        return await self._at(params, work)

    async def _rename(self, params: types.RenameParams) -> types.WorkspaceEdit | None:
        path = self._path(params.text_document.uri)
        session = self._session
        if session is None or path is None or path.suffix.lower() not in _OUTLINED:
            return None
        opened = session.texts()

        def answer(navigator: Navigator, tree: EditedTree) -> types.WorkspaceEdit:
            index = self._positions(navigator.text(path)).index(values.position_of(params.position))
            found: NameAt = renameable(navigator, path, index)

            def attempt(texts: Any) -> tuple[Problem, ...]:
                return tree.problems_with({**opened, **texts})

            def in_file(path: PurePosixPath, spans: dict[Span, str]) -> list[types.TextEdit]:
                positions = self._positions(navigator.text(path))
                return [types.TextEdit(values.range_of(positions, span), new) for span, new in spans.items()]

            return types.WorkspaceEdit(
                changes={
                    self._address(path): in_file(path, dict(spans))
                    for path, spans in rename(navigator, found, params.new_name, attempt).items()
                }
            )

        return await session.ask_with_trial(answer)


def _as_function(note: Callable[[Any], None]) -> Callable[[Any], None]:
    """Pygls sets attributes, which a method does not allow."""

    def call(params: Any) -> None:
        note(params)

    return call


def _folder_of(params: types.InitializeParams) -> Path | None:
    folders = [folder.uri for folder in params.workspace_folders or ()]
    uri = next(iter(folders), params.root_uri)
    path = to_fs_path(uri) if uri else params.root_path
    return Path(path) if path else None


class _BoundedReader:
    """Reads in a thread; errors and oversized messages are the end of input."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    async def readline(self) -> bytes:
        return await self._read(self._source.readline, _LONGEST_HEADER)

    async def readexactly(self, size: int) -> bytes:
        if size > MOST_MESSAGE_BYTES:
            return b""
        return await self._read(self._source.read, size)

    async def _read(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            return await asyncio.to_thread(read, size)
        except OSError:
            return b""
