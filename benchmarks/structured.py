"""Five kernels by MLIR's structured path beside Mirlo's schedules, on one core: `python -m benchmarks.structured`.

Each kernel is a `linalg` operation on tensors, which a transform script tiles, vectorizes, bufferizes and lowers, as
upstream's tutorials do it, with tiles of the size that Mirlo's rules choose for AVX-512. The passes are those of the
wheel, and its execution engine compiles for the host. Mirlo compiles the same operation as a model of one node.

Seconds of compilation are processor time, the median of several; runs are taken in turns, and the least time of each is
compared, which other load on the machine hardly moves.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import numpy as np

import mirlo
from mirlo.dialects.bindings import PACKAGE, ir, passmanager
from mirlo.dialects.context import make_context
from mirlo.runtime.params import ParameterStore

ANY = "!transform.any_op"
PASSES = (
    "transform-interpreter,canonicalize,cse,func.func(convert-vector-to-scf),func.func(convert-linalg-to-loops),"
    "expand-strided-metadata,lower-affine,convert-scf-to-cf,convert-vector-to-llvm{enable-x86=true},"
    "finalize-memref-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,"
    "convert-func-to-llvm,convert-cf-to-llvm,canonicalize,cse,reconcile-unrealized-casts"
)
LOWERINGS = (
    (
        'vector.lower_contraction lowering_strategy = "outerproduct"',
        "vector.transfer_permutation_patterns",
        'vector.reorder_multi_reduction_dims lowering_strategy = "innerparallel"',
        'vector.multi_reduction_unrolling lowering_strategy = "innerparallel"',
    ),
    ("vector.lower_outerproduct", "vector.lower_masked_transfers"),
    ("vector.transfer_to_scf max_transfer_rank = 1 full_unroll = true",),
    ("vector.lower_transfer max_transfer_rank = 1", "vector.lower_shape_cast", "vector.lower_broadcast"),
    ('vector.lower_transpose lowering_strategy = "shuffle_16x16"',),
    ("canonicalization",),
)
"""Patterns that lower vectors, group by group: the order matters."""


@dataclass(frozen=True)
class Kernel:
    """An operation in both forms."""

    name: str
    inputs: Sequence[tuple[int, ...]]
    output: tuple[int, ...]
    body: str
    """Of a function of `%a`, `%b` and `%out`, whose types are `$A`, `$B` and `$O`; the result is `%r`."""
    schedule: str
    """The part of the transform script that tiles, after which all kernels are vectorized and lowered alike."""
    relax: str
    """The operation of relax on `%a` and the weight `%b`."""
    relax_weight: tuple[int, ...] = ()
    """The shape of the weight there, if it differs."""


def tensor_type(shape: Sequence[int]) -> str:
    return f"tensor<{'x'.join(map(str, shape))}xf32>"


def tiled(operation: str, *sizes: str, then: str = "") -> str:
    """Return a script that tiles operations of a name, by one list of sizes after the other."""
    prefix = operation.replace(".", "_")
    lines = [f'%{prefix}_0 = transform.structured.match ops{{["{operation}"]}} in %root : ({ANY}) -> {ANY}']
    for i, text in enumerate(sizes):
        loops = sum(size.strip() != "0" for size in text.split(","))
        results = ", ".join([ANY] * (loops + 1))
        lines.append(
            f"%{prefix}_{i + 1}, %{prefix}_loops_{i}:{loops} = transform.structured.tile_using_for %{prefix}_{i} "
            f"tile_sizes [{text}] : ({ANY}) -> ({results})"
        )
    if then:
        lines.append(f"%{prefix}_then = transform.structured.{then} %{prefix}_{len(sizes)} : ({ANY}) -> {ANY}")
    return "\n".join(lines)


FILL = "%zero = arith.constant 0.0 : f32\n%i = linalg.fill ins(%zero : f32) outs(%out : $O) -> $O\n"
STRIDES = "{dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}"
SOFTMAX = (
    tiled("linalg.softmax", "1")
    + f'\n%rows = transform.structured.match ops{{["linalg.softmax"]}} in %root : ({ANY}) -> {ANY}'
    + f"\n%parts = transform.structured.decompose_interface %rows : ({ANY}) -> {ANY}"
)
KERNELS = (
    Kernel(
        "matmul", [(512, 512), (512, 512)], (512, 512),
        FILL + "%r = linalg.matmul ins(%a, %b : $A, $B) outs(%i : $O) -> $O",
        tiled("linalg.matmul", "8, 32", "0, 0, 4") + "\n" + tiled("linalg.fill", "1, 64"),
        '"relax.matmul"(%a, %b)',
    ),
    Kernel(
        "convolution 3x3", [(1, 58, 58, 64), (3, 3, 64, 64)], (1, 56, 56, 64),
        FILL + f"%r = linalg.conv_2d_nhwc_hwcf {STRIDES} ins(%a, %b : $A, $B) outs(%i : $O) -> $O",
        tiled("linalg.conv_2d_nhwc_hwcf", "0, 1, 8, 32", "0, 0, 0, 0, 1, 1, 4", then="decompose")
        + "\n" + tiled("linalg.fill", "0, 1, 1, 64"),
        '"relax.conv"(%a, %b) {data_layout = "N*C", kernel_layout = "*IO"}',
    ),
    Kernel(
        "depthwise convolution 3x3", [(1, 58, 58, 96), (3, 3, 96)], (1, 56, 56, 96),
        FILL + f"%r = linalg.depthwise_conv_2d_nhwc_hwc {STRIDES} ins(%a, %b : $A, $B) outs(%i : $O) -> $O",
        tiled("linalg.depthwise_conv_2d_nhwc_hwc", "0, 1, 8, 32", "0, 0, 0, 0, 1, 3", then="decompose")
        + "\n" + tiled("linalg.fill", "0, 1, 1, 96"),
        '"relax.conv"(%a, %b) {data_layout = "N*C", kernel_layout = "*IO", groups = 96 : i64}', (3, 3, 1, 96),
    ),
    Kernel(
        "softmax", [(512, 1024)], (512, 1024),
        "%r = linalg.softmax dimension(1) ins(%a : $A) outs(%out : $O) -> $O", SOFTMAX,
        '"relax.softmax"(%a) {axis = 1 : i64}',
    ),
    Kernel(
        "transpose", [(1024, 768)], (768, 1024),
        "%r = linalg.transpose ins(%a : $A) outs(%out : $O) permutation = [1, 0]",
        tiled("linalg.transpose", "16, 16"),
        '"relax.permute"(%a) {axes = array<i64: 1, 0>}',
    ),
)  # fmt: skip


def structured_module(kernel: Kernel) -> str:
    """Return the function and its transform script."""
    out = tensor_type(kernel.output)
    body = Template(kernel.body).substitute(A=tensor_type(kernel.inputs[0]), B=tensor_type(kernel.inputs[-1]), O=out)
    arguments = ", ".join(f"%{name}: {tensor_type(s)}" for name, s in zip("ab", kernel.inputs, strict=False))
    lowered = "\n".join(
        f"transform.apply_patterns to %lowered {{\n{chr(10).join('transform.apply_patterns.' + p for p in group)}\n}}"
        f" : {ANY}"
        for group in LOWERINGS
    )
    return f"""module attributes {{transform.with_named_sequence}} {{
func.func @main({arguments}, %out: {out} {{bufferization.writable = true}}) -> {out}
    attributes {{llvm.emit_c_interface}} {{
{body}
return %r : {out}
}}
transform.named_sequence @__transform_main(%root: {ANY} {{transform.consumed}}) {{
{kernel.schedule}
%func = transform.structured.match ops{{["func.func"]}} in %root : ({ANY}) -> {ANY}
%vectors = transform.structured.vectorize_children_and_apply_patterns %func : ({ANY}) -> {ANY}
%loops = transform.structured.match ops{{["scf.for"]}} in %vectors : ({ANY}) -> {ANY}
transform.apply_licm to %loops : {ANY}
transform.loop.hoist_loop_invariant_subsets %loops : {ANY}
transform.apply_patterns to %vectors {{
transform.apply_patterns.canonicalization
transform.apply_patterns.tensor.fold_tensor_subset_ops_into_vector_transfers
}} : {ANY}
transform.apply_cse to %vectors : {ANY}
%buffers = transform.bufferization.one_shot_bufferize layout{{IdentityLayoutMap}} %root
  {{bufferize_function_boundaries = true, allow_return_allocs_from_loops = true}} : ({ANY}) -> {ANY}
%lowered = transform.structured.match ops{{["func.func"]}} in %buffers : ({ANY}) -> {ANY}
transform.apply_patterns to %lowered {{ transform.apply_patterns.memref.fold_memref_alias_ops }} : {ANY}
{lowered}
transform.yield
}}
}}"""


def compile_structured(kernel: Kernel) -> tuple[Any, float, float]:
    """Return the execution engine, and the seconds of MLIR's passes and of LLVM."""
    engine = importlib.import_module(f"{PACKAGE}.execution_engine").ExecutionEngine
    with ir.Context():
        start = time.process_time()
        module = ir.Module.parse(structured_module(kernel))
        passmanager.PassManager.parse(f"builtin.module({PASSES})").run(module.operation)
        for operation in list(module.body.operations):
            if operation.operation.name.startswith("transform."):
                operation.operation.erase()
        lowered = time.process_time()
        compiled = engine(module, opt_level=3)
        compiled.raw_lookup("_mlir_ciface_main")
        return compiled, lowered - start, time.process_time() - lowered


def descriptor(array: np.ndarray) -> ctypes.Structure:
    """Return the memref of an array."""
    sizes = ctypes.c_int64 * array.ndim

    class Memref(ctypes.Structure):
        _fields_ = (
            ("allocated", ctypes.c_void_p), ("aligned", ctypes.c_void_p), ("offset", ctypes.c_int64),
            ("sizes", sizes), ("strides", sizes),
        )  # fmt: skip

    strides = [stride // array.itemsize for stride in array.strides]
    return Memref(array.ctypes.data, array.ctypes.data, 0, sizes(*array.shape), sizes(*strides))


def structured_call(engine: Any, arrays: Sequence[np.ndarray]) -> Callable[[], object]:
    """Return a call that computes the last array from the others."""
    memrefs = [descriptor(array) for array in (arrays[-1], *arrays)]  # the result is the output's own memory
    pointers = [ctypes.c_void_p(ctypes.addressof(memref)) for memref in memrefs]
    packed = (ctypes.c_void_p * len(pointers))(*map(ctypes.addressof, pointers))
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("_mlir_ciface_main"))
    kept = memrefs, pointers, arrays, engine

    def call() -> object:
        function(ctypes.addressof(packed))
        return kept

    return call


def relax_module(kernel: Kernel) -> str:
    """Return the operation as a model, whose second operand is a constant, as weights are."""
    x, *weights = map(tensor_type, kernel.inputs)
    output, types, constant = tensor_type(kernel.output), x, ""
    if weights:
        weight = tensor_type(kernel.relax_weight) if kernel.relax_weight else weights[0]
        constant = f'%b = "relax.constant"() {{param = "b"}} : () -> {weight}\n'
        types = f"{x}, {weight}"
    body = f"%0 = {kernel.relax} : ({types}) -> {output}\nreturn %0 : {output}"
    return f"func.func @main(%a: {x}) -> {output} {{\n{constant}{body}\n}}"


@dataclass(frozen=True)
class Row:
    """What was measured of a kernel."""

    name: str
    passes: float
    llvm: float
    ours_compile: float
    theirs: float
    ours: float


def measure(kernel: Kernel, builds: int, rounds: int) -> Row:
    """Compile a kernel on both paths, compare the results, and time them in turns."""
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in kernel.inputs]
    built = [compile_structured(kernel) for _ in range(builds)]
    call = structured_call(built[-1][0], [*arrays, result := np.zeros(kernel.output, np.float32)])
    store = ParameterStore()
    for weight in arrays[1:]:
        store.add("b", weight.reshape(kernel.relax_weight or weight.shape))
    seconds = []
    for _ in range(builds):
        start = time.process_time()
        with make_context():
            module = ir.Module.parse(relax_module(kernel))
            model = mirlo.compile(module, threads=1, cache=False, jobs=1, params=store)
        seconds.append(time.process_time() - start)
    out = np.empty(kernel.output, np.float32)
    feed, into = {model.inputs[0].name: arrays[0]}, {model.outputs[0].name: out}
    call()
    model.run(feed, out=into)
    np.testing.assert_allclose(result, out, rtol=1e-3, atol=2e-3)  # Winograd rounds otherwise
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for function, samples in zip((call, lambda: model.run(feed, out=into)), times, strict=True):
            start = time.perf_counter()
            function()
            samples.append(time.perf_counter() - start)
    middle = [statistics.median(each[i] for each in built) for i in (1, 2)]
    return Row(kernel.name, middle[0], middle[1], statistics.median(seconds), min(times[0]), min(times[1]))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.structured", description=__doc__)
    parser.add_argument("--builds", type=int, default=3, help="compilations of each kernel")
    parser.add_argument("--rounds", type=int, default=100, help="runs of each kernel")
    arguments = parser.parse_args()
    print("| kernel | MLIR's passes, ms | LLVM, ms | Mirlo, whole, ms | structured, us | Mirlo, us | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for kernel in KERNELS:
        row = measure(kernel, arguments.builds, arguments.rounds)
        milliseconds = f"{1000 * row.passes:.0f} | {1000 * row.llvm:.0f} | {1000 * row.ours_compile:.0f}"
        times = f"{1e6 * row.theirs:.0f} | {1e6 * row.ours:.0f} | {row.ours / row.theirs:.2f}"
        print(f"| {row.name} | {milliseconds} | {times} |", flush=True)


if __name__ == "__main__":
    main()
