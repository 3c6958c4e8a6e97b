"""Converts results to the Language Server Protocol 3.17."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import PurePosixPath

from lsprotocol import types

from fsxds.editor.diagnostics import Diagnostic, Remedy
from fsxds.editor.navigation import Symbol, TextPlace, TreeSymbol
from fsxds.editor.suggestions import Suggestion, Suggestions, SuggestionSort
from fsxds.editor.text_positions import EditorPosition, Span, TextPositions
from fsxds.model.values import Severity

SOURCE = "fsxds"

Address = Callable[[PurePosixPath], str]
"""Returns the URI of a file of the tree."""

_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_SUGGESTIONS = {
    SuggestionSort.FIELD: types.CompletionItemKind.Field,
    SuggestionSort.VALUE: types.CompletionItemKind.EnumMember,
    SuggestionSort.TYPE: types.CompletionItemKind.Class,
    SuggestionSort.NAME: types.CompletionItemKind.Reference,
}


def position_of(position: types.Position) -> EditorPosition:
    """Convert a position."""
    return EditorPosition(position.line, position.character)


def range_of(positions: TextPositions, span: Span) -> types.Range:
    """Convert a span."""
    start, end = positions.position(span[0]), positions.position(span[1])
    return types.Range(types.Position(start.line, start.character), types.Position(end.line, end.character))


def diagnostic(found: Diagnostic, positions: TextPositions, address: Address) -> types.Diagnostic:
    """Convert a problem, with links."""
    tags = []
    if found.is_unused:
        tags.append(types.DiagnosticTag.Unnecessary)
    if found.is_deprecated:
        tags.append(types.DiagnosticTag.Deprecated)
    related = [
        types.DiagnosticRelatedInformation(
            types.Location(
                address(one.path), types.Range(types.Position(one.line - 1, 0), types.Position(one.line - 1, 0))
            ),
            "here",
        )
        for one in found.related
    ]
    return types.Diagnostic(
        range_of(positions, found.span),
        found.message,
        severity=_SEVERITIES[found.severity],
        code=found.rule,
        code_description=types.CodeDescription(found.page) if found.page else None,
        source=SOURCE,
        tags=tags or None,
        related_information=related or None,
    )


def completion_list(suggestions: Suggestions, positions: TextPositions, *, has_snippets: bool) -> types.CompletionList:
    """Convert suggestions, with placeholders if the client supports them."""
    place = range_of(positions, suggestions.span)
    return types.CompletionList(
        is_incomplete=False, items=[_completion(one, place, has_snippets=has_snippets) for one in suggestions.found]
    )


def _completion(one: Suggestion, place: types.Range, *, has_snippets: bool) -> types.CompletionItem:
    is_snippet = bool(one.snippet) and has_snippets
    proposed = types.CompletionItem(
        one.label,
        detail=one.detail or None,
        tags=[types.CompletionItemTag.Deprecated] if one.is_deprecated else None,
        sort_text=f"{one.rank:04}{one.label}",
        text_edit=types.TextEdit(place, one.snippet if is_snippet else one.text),
        insert_text_format=types.InsertTextFormat.Snippet if is_snippet else types.InsertTextFormat.PlainText,
        # The lines of a snippet are indented already.
        insert_text_mode=types.InsertTextMode.AsIs,
        data=one.field.full_name if one.field is not None else None,
    )
    # A word that our own names avoid.
    setattr(proposed, "kind", _SUGGESTIONS[one.sort])  # noqa: B010
    return proposed


def markup(markdown: str) -> types.MarkupContent:
    """Convert Markdown."""
    return types.MarkupContent(types.MarkupKind.Markdown, markdown)


def location(place: TextPlace, positions: TextPositions, address: Address) -> types.Location:
    """Convert a place."""
    return types.Location(address(place.path), range_of(positions, place.span))


def document_symbol(symbol: Symbol, positions: TextPositions) -> types.DocumentSymbol:
    """Convert a file's resource, with parts."""
    whole, name = range_of(positions, symbol.span), range_of(positions, symbol.name_span)
    children = [document_symbol(part, positions) for part in symbol.parts]
    return types.DocumentSymbol(
        printable(symbol.name), types.SymbolKind.Object, whole, name, detail=symbol.noun, children=children
    )


def workspace_symbol(symbol: TreeSymbol, positions: TextPositions, address: Address) -> types.WorkspaceSymbol:
    """Convert a tree's resource."""
    place = types.Location(address(symbol.path), range_of(positions, symbol.span))
    return types.WorkspaceSymbol(place, printable(symbol.name), types.SymbolKind.Object, container_name=symbol.noun)


def code_action(
    remedy: Remedy, positions: TextPositions, uri: str, shown: Iterable[types.Diagnostic]
) -> types.CodeAction:
    """Convert a remedy; `shown` are the request's problems."""
    edit = types.TextEdit(range_of(positions, remedy.span), remedy.text)
    solved = [one for one in shown if one.code == remedy.problem.rule]
    action = types.CodeAction(
        printable(remedy.title), diagnostics=solved or None, edit=types.WorkspaceEdit(changes={uri: [edit]})
    )
    setattr(action, "kind", types.CodeActionKind.QuickFix)  # noqa: B010 - a word that names of ours do not use
    return action


def printable(text: str) -> str:
    """Return one line without control characters."""
    return re.sub(r"[^\S ]|[\x00-\x1f\x7f]", "?", text)
