"""The compiler of the provider: `python -m mirlo_onnxruntime_ep.compiler` reads requests and answers in lines.

A request is a line of fields separated by tabs: the kind of request, the folder of the model, threads, target, the file
of the report. The last line of an answer is `end`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import json
import math
import os
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STRING = 8
ELEMENTS = (*range(1, 8), *range(9, 14), 16)
"""The element types of ONNX that parts take: integers of 8 bits or more, floats of 16 or more, booleans."""
VERSION = 1
"""Version of the cache: changes make libraries of earlier versions unused."""
LEAST_NODES, LEAST_CONSTANTS = 2, 1024
"""A part of fewer nodes, which read constants of fewer elements, stays with ONNX Runtime: its call costs as much."""


class CompileError(Exception):
    """A part that Mirlo cannot compile."""


@dataclass(frozen=True)
class Request:
    """A request of the provider."""

    what: str
    folder: Path
    threads: str = ""
    target: str = ""
    report: str = ""

    @property
    def model(self) -> Path:
        return self.folder / "model.onnx"


@dataclass(frozen=True)
class Claim:
    """The assignment of a node: its part, or why it is left to ONNX Runtime."""

    name: str
    operator: str
    part: int
    reason: str = ""


def main() -> None:
    """Answer requests until the provider ends."""
    answers, requests = os.fdopen(os.dup(1), "w", encoding="utf-8"), sys.stdin
    os.dup2(2, 1)  # what is printed elsewhere is no answer
    for line in requests:
        request = _parse(line)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lines = list(answer(request))
            for text in [*lines, *(f"note {each.message}" for each in caught)]:
                print(text.replace("\n", " "), file=answers)
        except Exception as error:  # the provider hands it to its user
            print(f"error {_describe(error)}".replace("\n", " ")[:8000], file=answers)
        finally:
            shutil.rmtree(request.folder, ignore_errors=True)
        print("end", file=answers, flush=True)


def _parse(line: str) -> Request:
    what, folder, *rest = line.rstrip("\n").split("\t")
    return Request(what, Path(folder), *rest)


def _describe(error: Exception) -> str:
    from mirlo import MirloError

    return str(error) if isinstance(error, (MirloError, CompileError)) else f"{type(error).__name__}: {error}"


def answer(request: Request) -> Iterator[str]:
    """Yield the lines of the answer to a request."""
    if request.what == "capability":
        claims = claim(request.model)
        if request.report:
            write_report(Path(request.report), claims)
        yield from (f"group {each.part}" for each in claims)
        for text in summary(claims):
            yield f"note {text}"
    else:
        yield f"library {library(request)}"


def claim(model: Path) -> list[Claim]:
    """Return the assignment of a model's nodes to compiled parts."""
    from mirlo.extend.ops import check_model

    check = check_model(model)
    if check.problem is not None:
        return [Claim(node.name, node.operator, -1, check.problem) for node in check.nodes]
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    kinds = other_kinds(graph)
    # A part has no other form for sizes that do not keep what its import assumed.
    reasons = [(node.assumes or None) if node.is_supported else node.reason or node.state for node in check.nodes]
    for index, node in enumerate(graph.node):
        kind = next((kinds[name] for name in (*reads_of(node), *node.output) if name in kinds), None)
        reasons[index] = reasons[index] or kind and f"it has {kind}"
    parts = parts_of(edges_of(graph), reasons)
    while open_inputs := inputs_without_rank(graph, parts):
        reasons = [reason or open_inputs.get(index) for index, reason in enumerate(reasons)]
        parts = parts_of(edges_of(graph), reasons)
    small = small_parts(graph, parts)
    claims = []
    for node, part, reason in zip(check.nodes, parts, reasons, strict=True):
        if part in small:
            part, reason = -1, "no node around it is compiled, and a part of one node is not worth its call"
        claims.append(Claim(node.name, node.operator, part, reason or ""))
    return claims


def parts_of(edges: Sequence[Sequence[int]], reasons: Sequence[str | None]) -> list[int]:
    """Return the part of each node, -1 for none; `edges` are the nodes that each one reads, in topological order.

    Nodes are in one part if they depend on equally many other nodes, so that no path leaves a part and returns.
    """
    depths: list[int] = []
    for reads, reason in zip(edges, reasons, strict=True):
        is_own = reason is None
        depths.append(max((depths[i] + (is_own and reasons[i] is not None) for i in reads), default=0))
    return [depth if reason is None else -1 for depth, reason in zip(depths, reasons, strict=True)]


def edges_of(graph: Any) -> list[list[int]]:
    """Return the predecessors of each node, including those that its subgraphs read."""
    makers: dict[str, int] = {}
    edges = []
    for index, node in enumerate(graph.node):
        edges.append(sorted({makers[name] for name in reads_of(node) if name in makers}))
        makers.update(dict.fromkeys(node.output, index))
    return edges


def reads_of(node: Any) -> Iterator[str]:
    """Yield the values that a node or its subgraphs read."""
    yield from node.input
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from reads_of(inner)
        yield from (output.name for output in attribute.g.output)


def other_kinds(graph: Any) -> dict[str, str]:
    """Return why values cannot cross the boundary of a compiled part: they are not numeric tensors."""
    kinds: dict[str, str] = {}
    for value in (*graph.input, *graph.output, *graph.value_info):
        if not value.type.HasField("tensor_type"):
            kinds[value.name] = "a sequence, an optional value or a map"
        elif value.type.tensor_type.elem_type not in ELEMENTS:
            kinds[value.name] = "strings" if value.type.tensor_type.elem_type == STRING else "elements of another type"
    kinds |= {tensor.name: "strings" for tensor in graph.initializer if tensor.data_type == STRING}
    for node in graph.node:
        for attribute in node.attribute:
            for kind in other_kinds(attribute.g).values():
                kinds.update(dict.fromkeys(node.output, kind))
    return kinds


def inputs_without_rank(graph: Any, parts: Sequence[int]) -> dict[int, str]:
    """Return the nodes that must leave their parts because an input would have an unknown rank, with the reason."""
    unknown = {
        value.name
        for value in (*graph.input, *graph.value_info)
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")
    }
    part_of = {name: part for node, part in zip(graph.node, parts, strict=True) for name in node.output}
    found: dict[int, str] = {}
    for index, (node, part) in enumerate(zip(graph.node, parts, strict=True)):
        outside = [name for name in reads_of(node) if name in unknown and part_of.get(name) != part]
        if part >= 0 and outside:
            found[index] = f"the rank of '{outside[0]}' is known at run time only"
    return found


def small_parts(graph: Any, parts: Sequence[int]) -> set[int]:
    """Return the parts that are not worth a call."""
    sizes = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    nodes, constants = Counter(part for part in parts if part >= 0), Counter[int]()
    for node, part in zip(graph.node, parts, strict=True):
        constants[part] += sum(sizes.get(name, 0) for name in node.input)
        constants[part] += sum(len(each.floats) + len(each.ints) for each in node.attribute)
    return {part for part in nodes if nodes[part] < LEAST_NODES and constants[part] < LEAST_CONSTANTS}


def summary(claims: Sequence[Claim]) -> list[str]:
    """Return a summary for the log: compiled nodes, and the others with reasons."""
    kept = [each for each in claims if each.part < 0]
    parts = len({each.part for each in claims if each.part >= 0})
    lines = [f"Mirlo compiles {len(claims) - len(kept)} of {len(claims)} nodes, in {parts} parts"]
    return lines + [f"{each.operator} '{each.name}' stays with ONNX Runtime: {each.reason}" for each in kept]


def write_report(path: Path, claims: Sequence[Claim]) -> None:
    """Write the assignment of each node as JSON."""
    nodes = [
        {"name": each.name, "operator": each.operator, "part": each.part if each.part >= 0 else None}
        | ({"reason": each.reason} if each.reason else {})
        for each in claims
    ]
    path.write_text(json.dumps({"nodes": nodes}, indent=1), encoding="utf-8")


def cache_folder() -> Path:
    """Return the folder of compiled libraries."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mirlo-onnxruntime"


def library(request: Request) -> Path:
    """Return the library of a model, compiled if it is not cached."""
    folder = cache_folder() / _key(request)
    path = folder / "libpart.so"
    if path.exists():
        os.utime(path)
        return path
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder.parent / f"{folder.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may compile the same
        if not path.exists():
            _compile(request, folder)
    return path


def _compile(request: Request, folder: Path) -> None:
    from mirlo.extend.command import main as command

    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as name:
        made = Path(name) / "part"
        words = ["compile", request.model, "--emit", "library", "--name", "part", "--weights", "embed", "-o", made]
        words += ["--threads", request.threads] if request.threads else []
        words += ["--target", request.target] if request.target else []
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            try:
                status: object = command(list(map(str, words)))
            except SystemExit as ended:
                status = ended.code
        if status:
            raise CompileError(text.getvalue().strip() or f"mirlo compile ended with {status}")
        kept = Path(name) / "kept"
        kept.mkdir()
        shutil.move(made / "libpart.so", kept / "libpart.so")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(kept, folder)


def _key(request: Request) -> str:
    """Return a hash of everything that a library depends on."""
    from mirlo.extend.runtime import compiler_version
    from mirlo.extend.target import find_target

    name, _, options = (request.target or "llvm").partition("{")
    machine = find_target(name).fingerprint(options.removesuffix("}"))
    facts = VERSION, compiler_version(), machine, request.threads, request.target
    digest = hashlib.sha256(repr(facts).encode())
    for path in (request.model, request.folder / "weights.bin"):
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()[:32]


if __name__ == "__main__":
    main()
