"""`mirlo info`: the content of a model, compiled or not."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mirlo.runtime.kinds import Kind
from mirlo.runtime.regions import described_regions
from mirlo.tools.cli.arguments import Arguments
from mirlo.tools.cli.compile_report import arena_lines, precision_lines, region_lines
from mirlo.tools.cli.errors import CompiledAlready
from mirlo.tools.cli.files import is_compiled, require_file
from mirlo.tools.cli.progress import tensor_json
from mirlo.tools.tables import approximation_lines, bytes_text, columns

if TYPE_CHECKING:
    from mirlo.frontends.onnx.graph import GraphDef
    from mirlo.runtime.artifact import Artifact, TensorSpec
    from mirlo.runtime.params import ParameterStore


def execute(arguments: Arguments) -> None:
    """Print the content of a file."""
    require_file(arguments.model)
    if is_compiled(arguments.model):
        if arguments.shape or arguments.dim:
            raise CompiledAlready(f"{arguments.model} is compiled already: --shape and --dim are for ONNX models")
        if arguments.json:
            arguments.result = compiled_json(arguments.model)
        arguments.show(*compiled_lines(arguments.model))
    else:
        arguments.show(*_onnx(arguments))


def compiled_json(path: str) -> dict[str, object]:
    """Return the content of a compiled model for programs."""
    from mirlo.runtime import artifact as artifacts

    artifact, store = artifacts.load(path)
    calls = Counter(kernel.symbol for kernel in artifact.kernels)
    first = {kernel.symbol: kernel for kernel in reversed(artifact.kernels)}
    return {
        "model": path,
        "kind": "compiled",
        "target": artifact.target,
        "threads": artifact.threads,
        "inputs": [tensor_json(spec) for spec in artifact.inputs],
        "outputs": [tensor_json(spec) for spec in artifact.outputs],
        "parameters": {"count": len(store), "bytes": store.nbytes},
        "code_bytes": len(artifact.code),
        "arena_bytes": artifact.arena_bytes,
        "kernels": [
            {"name": symbol, "kind": first[symbol].kind, "calls": count, "computes": first[symbol].source}
            for symbol, count in calls.most_common()
        ],
    }


def compiled_lines(path: str) -> Iterable[str]:
    """Yield the content of a compiled model, without loading its code."""
    from mirlo.runtime import artifact as artifacts

    artifact, store = artifacts.load(path)
    threads = "1 thread" if artifact.threads == 1 else f"{artifact.threads} threads"
    yield f"{path}: compiled for {artifact.target}, {threads}"
    yield from _tensors("inputs", artifact.inputs)
    yield from _tensors("outputs", artifact.outputs)
    yield f"parameters: {len(store)}, {bytes_text(store.nbytes)}"
    yield from arena_lines(artifact)
    yield f"code: {bytes_text(len(artifact.code))}"
    yield _memory_to_run(artifact, store)
    yield from precision_lines(artifact)
    yield from approximation_lines(artifact.metadata.get("approximations", ()))
    yield from region_lines(described_regions(artifact))
    if artifact.loader == "specialized":
        from mirlo.runtime.specialized import read_builds

        for build in read_builds(path, artifact, store)[1:]:
            yield "build for " + ", ".join(map(str, build.inputs))
    for external in artifact.externals:
        functions = f"{len(external.functions)} function{'s' * (len(external.functions) != 1)}"
        size, taken = bytes_text(len(external.data)), f"{len(external.params)} of the parameters"
        yield f"parts for {external.target}: {functions}, {size}, {taken}; loader: {external.format}"
    calls = Counter(kernel.symbol for kernel in artifact.kernels)
    yield f"kernels: {len(calls)}, called {len(artifact.kernels)} times"
    rows = [("", "kind", "calls", "computes")]
    first = {kernel.symbol: kernel for kernel in reversed(artifact.kernels)}
    for symbol, count in calls.most_common():
        rows.append((f"  {symbol}", first[symbol].kind, str(count), _shortened(first[symbol].source)))
    yield from columns(rows, numbers={2}) if calls else ()


def _memory_to_run(artifact: Artifact, store: ParameterStore) -> str:
    """Return the memory that a process needs to run a compiled model, besides Python and libraries."""
    own = len(artifact.code) + artifact.arena_bytes
    call = "" if artifact.arena_bytes or not artifact.metadata.get("sizes") else " and the memory of a call"
    return f"to run it: {bytes_text(own)}{call} of a process's own, and the parameters, pages of the file"


def _onnx(arguments: Arguments) -> Iterable[str]:
    from mirlo.frontends.onnx import model as models
    from mirlo.frontends.onnx.importer import unsupported_nodes
    from mirlo.frontends.onnx.inputs import graph_inputs, input_types
    from mirlo.frontends.onnx.values import tensor_kind
    from mirlo.runtime.artifact import TensorSpec

    loaded = models.load(arguments.model)
    graph = loaded.content.graph
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in loaded.content.opsets.items())
    producer = f" by {loaded.content.producer}" if loaded.content.producer else ""
    yield f"{arguments.model}: ONNX{producer}, operator sets: {opsets}"
    types = input_types(graph_inputs(graph, arguments.shapes), arguments.shapes, loaded.name)
    input_kinds = {
        name: input_type if isinstance(input_type, Kind) else tensor_kind(input_type)
        for name, input_type in types.items()
    }
    tensors = [TensorSpec(name, k.name, k.shape or ()) for name, k in input_kinds.items() if k.is_tensor]
    yield from _tensors("inputs", tensors)
    yield from (f"input '{name}': {kind}" for name, kind in input_kinds.items() if not kind.is_tensor)
    yield f"outputs: {', '.join(value.name for value in graph.outputs)}"
    count, size = _parameters(graph)
    yield f"parameters: {count}, {bytes_text(size)}"
    operators = Counter(node.operator for node in graph.nodes)
    yield f"operators: {len(graph.nodes)} of {len(operators)} kinds"
    yield from columns([(f"  {name}", str(n)) for name, n in operators.most_common()], numbers={1})
    missing = unsupported_nodes(loaded)
    kinds = sorted({item.operator for item in missing})
    yield f"not supported: {', '.join(kinds)}" if kinds else "every operator is supported"
    arguments.result = {
        "model": arguments.model,
        "kind": "onnx",
        "producer": loaded.content.producer or None,
        "operator_sets": {domain or "ai.onnx": version for domain, version in loaded.content.opsets.items()},
        "inputs": [tensor_json(spec) for spec in tensors],
        "outputs": [{"name": value.name} for value in graph.outputs],
        "parameters": {"count": count, "bytes": size},
        "operators": dict(operators.most_common()),
        "unsupported": kinds,
    }


def _parameters(graph: GraphDef) -> tuple[int, int]:
    """Return the number of initializers and their bytes."""
    import onnx

    from mirlo.frontends.onnx.dtypes import onnx_dtype

    size = 0
    for tensor in graph.initializers:
        if tensor.code not in onnx.helper.get_all_tensor_dtypes():
            onnx_dtype(tensor.code, f"tensor '{tensor.name}'")
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.code)
        size += math.prod(tensor.dims) * dtype.itemsize
    return len(graph.initializers), size


def _tensors(title: str, specs: Iterable[TensorSpec]) -> Iterable[str]:
    from mirlo.runtime.artifact import describe

    yield f"{title}:"
    yield from columns([(f"  {spec.name}", describe(spec.dtype, spec.shape)) for spec in specs])


def _shortened(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
