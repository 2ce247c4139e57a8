"""The language server, which answers from the indices of documents that a worker builds."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from mirlo.extend.runtime import file_name, write_regular
from mirlo_editor.document import Function, Index, Name, TextProblem, TextSpan
from mirlo_editor.process import Worker, WorkerError

QUIET_SECONDS = 0.15
"""Pause in typing after which a document is parsed."""
PARSE_SECONDS = 60.0
COMPILE_SECONDS = 600.0


def index_from(fields: dict[str, Any]) -> Index:
    """Return an index from the worker's JSON."""

    def span(value: dict[str, int] | None) -> TextSpan | None:
        return TextSpan(**value) if value is not None else None

    def some(value: dict[str, int]) -> TextSpan:
        return TextSpan(**value)

    problems = [
        TextProblem(p["severity"], p["message"], some(p["span"]), tuple((text, some(at)) for text, at in p["notes"]))
        for p in fields["problems"]
    ]
    names = [Name(some(n["span"]), n["kind"], n["text"], span(n["definition"]), n["type"]) for n in fields["names"]]
    functions = [Function(f["name"], some(f["span"]), f["last_line"]) for f in fields["functions"]]
    return Index(problems, names, functions, [(line, column) for line, column in fields["operations"]])


def write_report(what: str, uri: str, text: str, folder: Path) -> Path:
    """Write the report of a command to a file that editors open."""
    suffix = ".s" if what == "assembly" else ".txt"
    path = folder / f"{file_name(Path(uri).stem)}-{what}{suffix}"
    write_regular(path, text)
    return path


class MirloServer(LanguageServer):  # type: ignore[misc]
    """A server with the indices of the open documents."""

    def __init__(self) -> None:
        super().__init__("mirlo-lsp", version("mirlo"))
        self.parser = Worker(PARSE_SECONDS)
        self.compiler = Worker(COMPILE_SECONDS)
        self.indices: dict[str, tuple[int | None, Index]] = {}
        self.pending: dict[str, asyncio.Task[None]] = {}
        self.target = "llvm"
        self.folder = Path(tempfile.mkdtemp(prefix="mirlo-lsp-"))

    def document(self, uri: str) -> TextDocument:
        return self.workspace.get_text_document(uri)

    def schedule(self, uri: str, delay: float) -> None:
        """Parse a document once typing pauses."""
        previous = self.pending.pop(uri, None)
        if previous is not None:
            previous.cancel()
        self.pending[uri] = asyncio.create_task(self._later(uri, delay))

    async def _later(self, uri: str, delay: float) -> None:
        await asyncio.sleep(delay)
        await asyncio.shield(self.index(uri, publish=True))

    async def index(self, uri: str, publish: bool = False) -> Index:
        """Return the index of the present version of a document."""
        document = self.document(uri)
        known = self.indices.get(uri)
        if known is not None and known[0] == document.version and not publish:
            return known[1]
        number, text = document.version, document.source
        try:
            index = index_from(await self.parser.ask("index", text=text, path=document.path))
        except WorkerError as error:
            index = Index(problems=[TextProblem("error", str(error), TextSpan(0, 0, 1))])
        if uri not in self.workspace.text_documents or self.document(uri).version != number:
            return index  # it is out of date
        self.indices[uri] = number, index
        if publish or known is None or known[0] != number:
            diagnostics = [_diagnostic(problem, document) for problem in index.problems]
            self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, diagnostics, number))
        return index

    async def name_at(self, uri: str, position: lsp.Position) -> Name | None:
        """Return the name at a position of the client."""
        document = self.document(uri)
        at = document.position_codec.position_from_client_units(document.lines, position)
        return (await self.index(uri)).name_at(at.line, at.character)

    async def report(self, what: str, uri: str, first: int, last: int) -> dict[str, str]:
        """Compile a document, open the report on its lines in the editor, and return it."""
        document = self.document(uri)
        text = await self.compiler.ask(
            "report", what=what, text=document.source, path=document.path, target=self.target, first=first, last=last
        )
        path = write_report(what, uri, text, self.folder)
        window = self.client_capabilities.window
        if window is not None and window.show_document is not None and window.show_document.support:
            self.window_show_document(lsp.ShowDocumentParams(path.as_uri(), take_focus=True), callback=None)
        return {"uri": path.as_uri(), "text": text}


def _range(span: TextSpan, document: TextDocument) -> lsp.Range:
    inside = lsp.Range(lsp.Position(span.line, span.start), lsp.Position(span.line, span.end))
    return document.position_codec.range_to_client_units(document.lines, inside)


SEVERITIES = {
    "error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning,
    "remark": lsp.DiagnosticSeverity.Hint, "information": lsp.DiagnosticSeverity.Information,
}  # fmt: skip


def _diagnostic(problem: TextProblem, document: TextDocument) -> lsp.Diagnostic:
    related = [
        lsp.DiagnosticRelatedInformation(lsp.Location(document.uri, _range(span, document)), text)
        for text, span in problem.notes
    ]
    return lsp.Diagnostic(
        _range(problem.span, document), problem.message, SEVERITIES.get(problem.severity),
        source="mirlo", related_information=related or None,
    )  # fmt: skip


def initialize(ls: MirloServer, params: lsp.InitializeParams) -> None:
    options = params.initialization_options
    if isinstance(options, dict) and isinstance(options.get("target"), str):
        ls.target = options["target"]


async def shutdown(ls: MirloServer, params: None) -> None:
    del params
    await ls.parser.close()
    await ls.compiler.close()


async def did_open(ls: MirloServer, params: lsp.DidOpenTextDocumentParams) -> None:
    ls.schedule(params.text_document.uri, 0.0)


async def did_change(ls: MirloServer, params: lsp.DidChangeTextDocumentParams) -> None:
    ls.schedule(params.text_document.uri, QUIET_SECONDS)


async def did_close(ls: MirloServer, params: lsp.DidCloseTextDocumentParams) -> None:
    uri = params.text_document.uri
    ls.indices.pop(uri, None)
    ls.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


async def hover(ls: MirloServer, params: lsp.HoverParams) -> lsp.Hover | None:
    uri = params.text_document.uri
    name = await ls.name_at(uri, params.position)
    if name is None:
        return None
    text = f"```mlir\n{name.text}: {name.type}\n```" if name.type else None
    if text is None and name.kind in ("operation", "script"):
        text = await ls.parser.ask("hover", kind=name.kind, text=name.text)
    if text is None:
        return None
    content = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
    return lsp.Hover(content, _range(name.span, ls.document(uri)))


async def _places(ls: MirloServer, name: Name, rules: bool) -> list[lsp.Location]:
    places = await ls.parser.ask("places", kind=name.kind, text=name.text, target=ls.target, rules=rules)
    locations = []
    for place in places:
        at = lsp.Position(place["line"], 0)
        locations.append(lsp.Location(Path(place["file"]).resolve().as_uri(), lsp.Range(at, at)))
    return locations


async def definition(ls: MirloServer, params: lsp.DefinitionParams) -> list[lsp.Location]:
    uri = params.text_document.uri
    name = await ls.name_at(uri, params.position)
    if name is None:
        return []
    if name.definition is not None:
        return [lsp.Location(uri, _range(name.definition, ls.document(uri)))]
    return await _places(ls, name, rules=False)


async def implementation(ls: MirloServer, params: lsp.ImplementationParams) -> list[lsp.Location]:
    name = await ls.name_at(params.text_document.uri, params.position)
    return [] if name is None else await _places(ls, name, rules=True)


async def references(ls: MirloServer, params: lsp.ReferenceParams) -> list[lsp.Location]:
    uri = params.text_document.uri
    name = await ls.name_at(uri, params.position)
    if name is None or name.definition is None:
        return []
    same = [each for each in (await ls.index(uri)).names if each.definition == name.definition]
    return [lsp.Location(uri, _range(each.span, ls.document(uri))) for each in same]


async def symbols(ls: MirloServer, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
    uri = params.text_document.uri
    document = ls.document(uri)
    entries = []
    for each in (await ls.index(uri)).functions:
        whole = lsp.Range(lsp.Position(each.span.line, 0), lsp.Position(each.last_line + 1, 0))
        entries.append(lsp.DocumentSymbol(each.name, lsp.SymbolKind.Function, whole, _range(each.span, document)))
    return entries


async def lenses(ls: MirloServer, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    uri = params.text_document.uri
    index = await ls.index(uri)
    if any(problem.severity == "error" for problem in index.problems):
        return []  # there is nothing to compile
    code_lenses = []
    for each in index.functions:
        at = _range(each.span, ls.document(uri))
        for title, name in (("explain", "mirlo.explain"), ("show assembly", "mirlo.assembly")):
            arguments: list[Any] = [uri, each.span.line, each.last_line]
            code_lenses.append(lsp.CodeLens(at, lsp.Command(title, name, arguments=arguments)))
    return code_lenses


async def actions(ls: MirloServer, params: lsp.CodeActionParams) -> list[lsp.Command]:
    uri = params.text_document.uri
    index = await ls.index(uri)
    line = params.range.start.line
    if any(problem.severity == "error" for problem in index.problems) or index.function_at(line) is None:
        return []
    title = "Show the schedule of the kernel that computes this line"
    return [lsp.Command(title, "mirlo.schedule", arguments=[uri, line, max(line, params.range.end.line)])]


def _report(what: str) -> Callable[[MirloServer, str, int, int], Awaitable[dict[str, str] | None]]:
    """Return the handler of a command that shows the report on lines of a document."""

    async def handler(ls: MirloServer, uri: str, first: int, last: int) -> dict[str, str] | None:
        try:
            return await ls.report(what, uri, first, last)
        except WorkerError as error:
            ls.window_show_message(lsp.ShowMessageParams(lsp.MessageType.Error, str(error)))
            return None

    return handler


FEATURES: dict[str, Callable[..., Any]] = {
    lsp.INITIALIZE: initialize,
    lsp.SHUTDOWN: shutdown,
    lsp.TEXT_DOCUMENT_DID_OPEN: did_open,
    lsp.TEXT_DOCUMENT_DID_CHANGE: did_change,
    lsp.TEXT_DOCUMENT_DID_CLOSE: did_close,
    lsp.TEXT_DOCUMENT_HOVER: hover,
    lsp.TEXT_DOCUMENT_DEFINITION: definition,
    lsp.TEXT_DOCUMENT_IMPLEMENTATION: implementation,
    lsp.TEXT_DOCUMENT_REFERENCES: references,
    lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL: symbols,
    lsp.TEXT_DOCUMENT_CODE_LENS: lenses,
    lsp.TEXT_DOCUMENT_CODE_ACTION: actions,
}
COMMANDS = ("explain", "assembly", "schedule")


def make_server() -> MirloServer:
    """Return the server with all of its features."""
    server = MirloServer()
    for name, handler in FEATURES.items():
        server.feature(name)(handler)
    for what in COMMANDS:
        server.command(f"mirlo.{what}")(_report(what))
    return server
