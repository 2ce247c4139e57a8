"""The index of a file of IR: its names from the text, its problems and types from the parser and the verifiers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mirlo.extend.inspect import (
    SPLIT_MARKER,
    Chunk,
    Diagnostic,
    Diagnostics,
    SourceFile,
    SourcePosition,
    TypeSizeError,
    find_source_position,
    locations_in,
    require_type_sizes,
)
from mirlo.extend.ops import diagnostics_to, ir, make_context, walk
from mirlo_editor.document import Index, TextProblem, TextSpan
from mirlo_editor.mlir_names import NamedText, names_of

_WORD = re.compile(r"[\w$.%@^#!\"-]+")
Types = dict[tuple[int, int], tuple[list[str], list[str]]]
"""The types of the results of each operation, and of the first arguments of its regions, by line and column."""


def index_of_ir(text: str, name: str) -> Index:
    """Parse and verify IR, each part between lines `// -----` separately; return its index."""
    source = SourceFile(name, text.encode("utf-8"))
    named = names_of(text)
    index = Index(names=named.names, functions=named.functions)
    types: Types = {}
    for chunk in source.chunks(SPLIT_MARKER):
        _read_chunk(chunk, index, types)
    _set_types(named, types)
    index.operations = sorted(types)
    return index


def parse_ir(text: str) -> ir.Module:
    """Parse IR in the current context; locations are positions in the text, whatever the IR declares."""
    try:
        return require_type_sizes(ir.Module.parse(without_locations(text)))
    except ir.MLIRError:
        # Errors are about the text as it is.
        return require_type_sizes(ir.Module.parse(text))


def without_locations(text: str) -> str:
    """Return IR with the same lines and columns, without the locations of operations."""
    if "loc(" not in text:
        return text
    lines = text.split("\n")
    for i, line in enumerate(lines):
        for begin, end in locations_in(line):
            lines[i] = f"{lines[i][:begin]}{' ' * (end - begin)}{lines[i][end:]}"
    return "\n".join(lines)


def _read_chunk(chunk: Chunk, index: Index, types: Types) -> None:
    text = chunk.padded
    assert isinstance(text, str)
    diagnostics = Diagnostics(chunk.source, keep=True)
    context = make_context()
    with context, ir.Location.unknown():
        try:
            with diagnostics_to(context, diagnostics.add_mlir):
                module = parse_ir(text)
                types.update(_types(module))
        except ir.MLIRError as error:
            diagnostics.add_error(error)
        except TypeSizeError as error:
            diagnostics.report("error", error.problem, error.location)
    lines = chunk.source.lines
    index.problems += [_problem(diagnostic, lines) for diagnostic in diagnostics.kept]


def _types(module: ir.Module) -> Types:
    types: Types = {}

    def visit(op: ir.Operation) -> ir.WalkResult:
        place = find_source_position(op.location)
        if place is not None and place.line > 0:
            blocks = [region.blocks[0] for region in op.regions if len(region.blocks)]
            inside = [str(argument.type) for argument in blocks[0].arguments] if blocks else []
            types[place.line, place.column] = [str(result.type) for result in op.results], inside
        return ir.WalkResult.ADVANCE

    walk(module, visit)
    return types


def _set_types(named: NamedText, types: Types) -> None:
    """Set the types of results, and of block arguments, to those of the parsed operations."""
    for span, names in named.results:
        results, _ = types.get((span.line + 1, span.start + 1), ([], []))
        if len(names) == 1 < len(results):
            names[0].type = ", ".join(results)
        for name, kind in zip(names, results if len(names) == len(results) else (), strict=False):
            name.type = kind
    for span, names in named.arguments:
        _, arguments = types.get((span.line + 1, span.start + 1), ([], []))
        for name, kind in zip(names, arguments if len(names) == len(arguments) else (), strict=False):
            name.type = kind
    by_span = {name.span: name for name in named.names}
    for name in named.names:
        if name.type is None and name.definition in by_span:
            name.type = by_span[name.definition].type


def _problem(diagnostic: Diagnostic, lines: list[str]) -> TextProblem:
    notes = tuple((note.message, _span(note.place, lines)) for note in _all_notes(diagnostic))
    return TextProblem(diagnostic.severity, diagnostic.message, _span(diagnostic.place, lines), notes)


def _all_notes(diagnostic: Diagnostic) -> Iterator[Diagnostic]:
    for note in diagnostic.notes:
        yield note
        yield from _all_notes(note)


def _span(place: SourcePosition | None, lines: list[str]) -> TextSpan:
    """Return the span of the word at a position; the first line without a position."""
    if place is None or not 0 < place.line <= len(lines):
        return TextSpan(0, 0, len(lines[0]) if lines else 0)
    line = lines[place.line - 1]
    # The parser counts bytes.
    start = len(line.encode("utf-8")[: max(0, place.column - 1)].decode("utf-8", "ignore"))
    word = _WORD.match(line, start)
    return TextSpan(place.line - 1, start, word.end() if word is not None else min(start + 1, len(line)))
