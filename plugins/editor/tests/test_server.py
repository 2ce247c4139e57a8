"""The language server, called by a client over the standard streams of its process."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

import pytest

pytest.importorskip("pygls", reason="needs pygls: pip install pygls")

from lsprotocol import types as lsp  # noqa: E402
from pygls.lsp.client import LanguageClient  # noqa: E402

from mirlo.testing.commands import ENVIRONMENT  # noqa: E402

T = TypeVar("T")
SECONDS = 60
IR = """\
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  // A comment with letters of several bytes: äß𝄞.
  %0 = "relax.exp"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = "relax.softmax"(%0) {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %2 = func.call @"h𝄞"(%1) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %2 : tensor<4x8xf32>
}
func.func private @"h𝄞"(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = "relax.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %0 : tensor<4x8xf32>
}
"""
SCRIPT = """\
import os

import mirlo
from mirlo import R, T

N = 16
M = int(os.environ.get("M", "4"))


@mirlo.prim_func
def twice(x: T.Buffer[(N, 8), T.f32], y: T.Out[(N, 8), T.f32]):
    for i, j in T.grid(N, 8):
        y[i, j] = x[i, j] * 2.0


@mirlo.script
def model(x: R.Tensor[(N, 8), R.f32]):
    a = R.softmax(x, axis=1)
    return R.call_tir(twice, a)


raise SystemExit("this file must not run")
"""


class Client:
    """A client in a separate thread, for synchronous tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.thread = Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.client = LanguageClient("test", "1")
        self.published: dict[str, list[lsp.PublishDiagnosticsParams]] = {}
        self.shown: list[str] = []
        self.messages: list[str] = []
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(lambda params: self._publish(params))
        self.client.feature(lsp.WINDOW_SHOW_DOCUMENT)(lambda params: self._show(params))
        self.client.feature(lsp.WINDOW_SHOW_MESSAGE)(lambda params: self.messages.append(params.message))
        self.wait(self.client.start_io(sys.executable, "-m", "mirlo_editor.command", env=ENVIRONMENT))
        window = lsp.WindowClientCapabilities(show_document=lsp.ShowDocumentClientCapabilities(support=True))
        self.capabilities = self.wait(
            self.client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities(window=window)))
        ).capabilities
        self.client.initialized(lsp.InitializedParams())
        self.versions: dict[str, int] = {}

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(SECONDS)

    def _publish(self, params: lsp.PublishDiagnosticsParams) -> None:
        self.published.setdefault(params.uri, []).append(params)

    def _show(self, params: lsp.ShowDocumentParams) -> lsp.ShowDocumentResult:
        self.shown.append(params.uri)
        return lsp.ShowDocumentResult(success=True)

    def open(self, name: str, text: str) -> str:
        """Open a document without a file; return its URI."""
        uri = (self.folder / name).as_uri()
        language = "python" if name.endswith(".py") else "mlir"
        self.versions[uri] = 1
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(lsp.TextDocumentItem(uri, language, 1, text)))
        return uri

    def change(self, uri: str, text: str) -> None:
        self.versions[uri] += 1
        self.client.text_document_did_change(
            lsp.DidChangeTextDocumentParams(
                lsp.VersionedTextDocumentIdentifier(self.versions[uri], uri),
                [lsp.TextDocumentContentChangeWholeDocument(text)],
            )
        )

    def problems(self, uri: str) -> list[lsp.Diagnostic]:
        """Return the diagnostics of the newest version once they have arrived."""

        async def newest() -> list[lsp.Diagnostic]:
            while True:
                for params in self.published.get(uri, []):
                    if params.version == self.versions[uri]:
                        return list(params.diagnostics)
                await asyncio.sleep(0.01)

        return self.wait(newest())

    def at(self, uri: str, text: str, word: str, offset: int = 0, nth: int = 0) -> Any:
        """Return the position of a word in a document, in UTF-16 units as the protocol requires."""
        place = -1
        for _ in range(nth + 1):
            place = text.index(word, place + 1)
        before = text[: place + offset]
        column = len(before.rpartition("\n")[2].encode("utf-16-le")) // 2
        return lsp.TextDocumentIdentifier(uri), lsp.Position(before.count("\n"), column)

    def hover(self, uri: str, text: str, word: str, offset: int = 0, nth: int = 0) -> str:
        found = self.wait(
            self.client.text_document_hover_async(lsp.HoverParams(*self.at(uri, text, word, offset, nth)))
        )
        return found.contents.value if found is not None else ""

    def definitions(self, uri: str, text: str, word: str, offset: int = 0, nth: int = 0) -> list[tuple[str, int]]:
        params = lsp.DefinitionParams(*self.at(uri, text, word, offset, nth))
        found = self.wait(self.client.text_document_definition_async(params))
        return [(Path(each.uri).name, each.range.start.line) for each in found]

    def command(self, name: str, *arguments: Any) -> Any:
        params = lsp.ExecuteCommandParams(name, list(arguments))
        return self.wait(self.client.workspace_execute_command_async(params))

    def close(self) -> None:
        self.wait(self.client.shutdown_async(None))
        self.client.exit(None)
        self.wait(self.client.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    client = Client(tmp_path_factory.mktemp("documents"))
    yield client
    client.close()


@pytest.mark.sample(0)
def test_diagnostics_follow_the_text(client: Client) -> None:
    uri = client.open("typed.mlir", IR)
    assert client.problems(uri) == []
    client.change(uri, IR.replace("axis = 1", "axis = 7"))
    (problem,) = client.problems(uri)
    assert "axis 7 is outside a tensor of rank 2" in problem.message
    assert (problem.range.start.line, problem.range.start.character, problem.range.end.character) == (3, 7, 22)
    assert problem.severity == lsp.DiagnosticSeverity.Error
    client.change(uri, IR.replace('"relax.softmax"(%0)', '"relax.softmax"(%nothing)') + "// -----\nfunc.func @")
    first, second = client.problems(uri)
    assert (first.range.start.line, second.range.start.line) == (3, 12)
    assert "undeclared" in first.message
    client.change(uri, IR)
    assert client.problems(uri) == []


@pytest.mark.sample(0)
def test_types_and_definitions_of_operators(client: Client) -> None:
    uri = client.open("hover.mlir", IR)
    assert "exp(x) / sum(exp(x)) along the axis" in client.hover(uri, IR, "relax.softmax", 3)
    assert "axis: Int = -1" in client.hover(uri, IR, "relax.softmax", 3)
    assert "%0: tensor<4x8xf32>" in client.hover(uri, IR, "%0) {axis", 1)
    assert "%1: tensor<4x8xf32>" in client.hover(uri, IR, "(%1)", 2)
    assert "%x: tensor<4x8xf32>" in client.hover(uri, IR, "(%x) :", 1)
    assert client.hover(uri, IR, "A comment") == ""


def test_definitions(client: Client) -> None:
    uri = client.open("definitions.mlir", IR)
    assert client.definitions(uri, IR, '@"h𝄞"(%1)', 3) == [("definitions.mlir", 7)]
    assert client.definitions(uri, IR, "%0) {axis", 1) == [("definitions.mlir", 2)]
    assert client.definitions(uri, IR, '"relax.relu"(%x)', 14) == [("definitions.mlir", 7)]
    assert client.definitions(uri, IR, "relax.softmax", 2)[0][0] == "activation.py"
    params = lsp.ImplementationParams(*client.at(uri, IR, "relax.softmax", 2))
    rules = client.wait(client.client.text_document_implementation_async(params))
    assert [Path(each.uri).name for each in rules] == ["softmax.py"]
    scheduled = "module attributes {tir.schedule = {rows = array<i64: 4>}} {}\n"
    uri = client.open("scheduled.mlir", scheduled)
    assert client.definitions(uri, scheduled, "rows", 1)[0][0] == "rows.py"


@pytest.mark.sample(0)
def test_lenses_explain_and_show_assembly(client: Client) -> None:
    uri = client.open("lenses.mlir", IR)
    params = lsp.CodeLensParams(lsp.TextDocumentIdentifier(uri))
    lenses = client.wait(client.client.text_document_code_lens_async(params))
    assert [(lens.range.start.line, lens.command.title) for lens in lenses] == [
        (0, "explain"), (0, "show assembly"), (7, "explain"), (7, "show assembly")
    ]  # fmt: skip
    explained = client.command(lenses[0].command.command, *lenses[0].command.arguments)
    assert "lenses.mlir:4:8" in explained["text"]
    assert "relax.softmax: softmax [default]" in explained["text"]
    assert client.shown[-1] == explained["uri"]
    assembly = client.command(lenses[1].command.command, *lenses[1].command.arguments)
    assert "kernel.fused_exp_softmax" in assembly["text"]
    assert Path(assembly["uri"]).suffix == ".s"


@pytest.mark.sample(0)
def test_the_schedule_of_the_kernel_at_the_cursor(client: Client) -> None:
    uri = client.open("schedule.mlir", IR)
    at = lsp.Position(3, 10)
    params = lsp.CodeActionParams(lsp.TextDocumentIdentifier(uri), lsp.Range(at, at), lsp.CodeActionContext([]))
    (action,) = client.wait(client.client.text_document_code_action_async(params))
    shown = client.command(action.command, *action.arguments)
    assert "schedule: rows [llvm]" in shown["text"] and "def schedule(s):" in shown["text"]
    assert client.command("mirlo.schedule", uri, 1, 1) is None
    assert "no kernel computes these lines" in client.messages[-1]


def test_scripts_are_read_and_never_run(client: Client) -> None:
    uri = client.open("script.py", SCRIPT)
    assert client.problems(uri) == []
    assert "exp(x) / sum(exp(x))" in client.hover(uri, SCRIPT, "R.softmax", 3)
    assert "a: tensor<16x8xf32>" in client.hover(uri, SCRIPT, "a)\n", 0)
    assert client.definitions(uri, SCRIPT, "(twice", 2) == [("script.py", 10)]
    assert client.definitions(uri, SCRIPT, "(N, 8), R", 1) == [("script.py", 5)]
    shown = client.command("mirlo.schedule", uri, 10, 12)
    assert "def schedule(s):" in shown["text"]
    wrong = (
        SCRIPT.replace("axis=1", "axis=3").replace("x[i, j] * 2.0", "z[i, j] * 2.0").replace("(N, 8), R", "(M, 8), R")
    )
    client.change(uri, wrong)
    messages = {problem.range.start.line: problem for problem in client.problems(uri)}
    assert "unknown name 'z'" in messages[12].message
    assert messages[12].severity == lsp.DiagnosticSeverity.Error
    assert "known only when the file runs" in messages[16].message
    assert messages[16].severity == lsp.DiagnosticSeverity.Information


@pytest.mark.sample(0)
def test_a_document_that_ends_the_parser_ends_no_server(client: Client) -> None:
    deep = "module {" * 30000
    uri = client.open("deep.mlir", deep)
    assert [problem.severity for problem in client.problems(uri)] == [lsp.DiagnosticSeverity.Error]
    again = client.open("after.mlir", IR)
    assert client.problems(again) == []
