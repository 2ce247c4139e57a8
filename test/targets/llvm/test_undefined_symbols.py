"""The functions that code calls: none that C libraries may lack, whatever the processor and the element type."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx_models import make_model, node
from wasm_objects import imported_functions

import mirlo
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.runtime import archive
from mirlo.runtime.artifact import Artifact
from mirlo.runtime.dtypes import numpy_dtype
from mirlo.runtime.elf_linker import symbols_of
from mirlo.targets.llvm.cpus import CPUS, WASM_THREADS, X86
from mirlo.targets.llvm.library.objects import has_pool, pool_object
from mirlo.targets.llvm.processor import Processor, host_processor

LIBRARY = {
    *("memcpy", "memset", "memmove", "fmod", "fmodf", "fma", "fmin", "fminf", "fmax", "fmaxf"),
    "_GLOBAL_OFFSET_TABLE_",
}
"""Functions of every C library, and the symbol that linkers define."""
TARGETS = {
    "x86-64": "cpu=x86-64 triple=x86_64-linux-gnu",
    "x86-64-v2": "cpu=x86-64-v2 triple=x86_64-linux-gnu",
    "x86-64-v3": "cpu=x86-64-v3 triple=x86_64-linux-gnu",
    "x86-64-v4": "cpu=x86-64-v4 triple=x86_64-linux-gnu",
    "sapphirerapids": "cpu=sapphirerapids triple=x86_64-linux-gnu",
    "aarch64": "cpu=generic triple=aarch64-linux-gnu",
    "neoverse-n1": "cpu=neoverse-n1 triple=aarch64-linux-gnu",
    "neoverse-n2": "cpu=neoverse-n2 triple=aarch64-linux-gnu",
    "riscv64": "cpu=generic-rv64",
    "rv64gcv": "cpu=sifive-x280",
    "wasm32": "cpu=generic triple=wasm32-unknown-unknown",
    "wasm32-simd128": "cpu=generic triple=wasm32-unknown-unknown features=+simd128",
}
TYPES = {
    "f16": onnx.TensorProto.FLOAT16, "bf16": onnx.TensorProto.BFLOAT16, "f32": onnx.TensorProto.FLOAT,
    "f64": onnx.TensorProto.DOUBLE, "i8": onnx.TensorProto.INT8, "u8": onnx.TensorProto.UINT8,
    "i16": onnx.TensorProto.INT16, "i32": onnx.TensorProto.INT32, "u32": onnx.TensorProto.UINT32,
    "i64": onnx.TensorProto.INT64, "u64": onnx.TensorProto.UINT64,
}  # fmt: skip
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = [dtype for dtype in TYPES if dtype not in FLOATS]
CALLS = [
    (name, dtype)
    for place, name in enumerate(TARGETS)
    for dtype in (*FLOATS, INTEGERS[place % len(INTEGERS)], INTEGERS[(place + 3) % len(INTEGERS)])
]
"""Floats call functions; integers of a processor differ in width, so each has two, and each type several processors."""
UNARY = ("Exp", "Log", "Sqrt", "Tanh", "Erf", "Sin", "Round", "Floor", "Ceil", "Abs", "Softmax", "Sigmoid", "Sign")


def _sample(dtype: str) -> onnx.ModelProto:
    """Return a model of elementwise operators, conversions, rows and a product of a type, with a dynamic dim."""
    kind = TYPES[dtype]
    nodes = [node(op, "x y", f"out_{op}") for op in ("Add", "Mul", "Div", "Max", "Less")]
    nodes += [node("Cast", "x", f"to_{other}", to=TYPES[other]) for other in TYPES if other != dtype]
    nodes.append(node("Mod", "x y", "out_mod", fmod=int(dtype in FLOATS)))
    if dtype in FLOATS:
        nodes += [node(op, "x", f"out_{op}") for op in UNARY if dtype != "bf16" or op not in ("Sin", "Round")]
        nodes += [node("Pow", "x y", "out_pow"), node("ReduceSum", "x", "out_sum"), node("MatMul", "x w", "out_w")]
    elif dtype in ("i32", "u32", "i64", "u64"):
        nodes.append(node("MatMul", "x w", "out_w"))
    elif dtype in ("i8", "u8"):
        nodes.append(node("MatMulInteger", "x w", "out_w"))
    inputs = {"x": (kind, ("n", 9)), "y": (kind, ("n", 9))}
    if any("w" in each.input for each in nodes):
        inputs["w"] = (kind, (9, 21))
    return make_model(nodes, inputs, [each.output[0] for each in nodes], opset=20)


def _artifact(name: str, dtype: str) -> Artifact:
    return compile_code(CompileRequest(_sample(dtype), f"llvm{{{TARGETS[name]}}}", form="obj", cache=False, jobs=1))[0]


def _undefined(artifact: Artifact) -> set[str]:
    members = archive.unpack(artifact.code) if archive.is_archive(artifact.code) else [("", artifact.code)]
    if artifact.metadata["triple"].startswith("wasm"):
        found = [(set(), imported_functions(code)) for _, code in members]
    else:
        found = [(symbols.defined, symbols.undefined) for symbols in (symbols_of(code) for _, code in members)]
    return {name for _, undefined in found for name in undefined} - {name for defined, _ in found for name in defined}


@pytest.mark.sample(18)
@pytest.mark.parametrize(("name", "dtype"), CALLS)
def test_code_calls_what_c_libraries_have(name: str, dtype: str) -> None:
    # Functions of Mirlo's run time, the pool and the memory of a call, have this prefix.
    undefined = _undefined(_artifact(name, dtype))
    assert not {symbol for symbol in undefined if not symbol.startswith("mirlo_")} - LIBRARY


def test_the_pool_of_webassembly_calls_nothing() -> None:
    """It has instructions for what other systems have functions for."""
    triple = "wasm32-unknown-unknown"
    plain, threads = (Processor(triple, "generic", features) for features in (("simd128",), (*WASM_THREADS, "simd128")))
    assert not has_pool(plain) and has_pool(threads)
    assert imported_functions(pool_object(threads)) == set()


def _arrays(dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    kind = numpy_dtype(dtype)
    shapes = ((5, 9), (5, 9), (9, 21))
    if dtype in FLOATS:
        arrays = [(np.abs(random.standard_normal(shape)) * 2 + 0.1).astype(kind) for shape in shapes]
        arrays[0][0, :3] = [6.1e-5, 1e-5, 60000]  # a normal, a subnormal, and a large f16
        return arrays
    return [random.integers(1, 100, shape).astype(kind) for shape in shapes]


HOST = host_processor()
BELOW = [
    name
    for name in ("x86-64", "x86-64-v2", "x86-64-v3")
    if HOST.arch == X86 and CPUS[name].features <= set(HOST.features)
]


@pytest.mark.sample(0)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", BELOW)
def test_samples_compute_the_same_on_each_level(name: str, dtype: str) -> None:
    model, arrays = _sample(dtype), _arrays(dtype)
    arrays = arrays[: len(model.graph.input)]
    found = mirlo.compile(model, f"llvm{{cpu={name}}}", cache=False, jobs=1)(*arrays)
    wanted = mirlo.compile(model, cache=False, jobs=1)(*arrays)
    for spec, one, other in zip(model.graph.output, found, wanted, strict=True):
        if spec.name.startswith("to_") or dtype not in FLOATS:
            np.testing.assert_array_equal(one, other, err_msg=spec.name)
            continue
        bound = {"f16": 4e-3, "bf16": 3e-2, "f32": 3e-6, "f64": 1e-14}[dtype]
        one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
        np.testing.assert_allclose(one, other, rtol=bound, atol=bound, err_msg=spec.name)
