"""f16 and bf16 on processors without instructions for them: the bits of numpy and of ml_dtypes."""

from __future__ import annotations

import ctypes
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from mirlo.dialects.bindings import execution_engine, ir, passmanager
from mirlo.dialects.context import make_context
from mirlo.targets.emulated_floats import KINDS, emulate_floats, move_as_integers, round_once, used_floats
from mirlo.targets.host.llvm_ir import lower_pipeline
from mirlo.targets.llvm.fma import expand_fma
from mirlo.targets.llvm.processor import Processor

LANES = 8


def _kernel(body: str, inputs: tuple[str, ...], result: str, count: int) -> str:
    parameters = "".join(f"%p{i}: memref<{count}x{kind}>, " for i, kind in enumerate(inputs))
    loads = "\n".join(
        f"%x{i} = vector.load %p{i}[%i] : memref<{count}x{kind}>, vector<{LANES}x{kind}>"
        for i, kind in enumerate(inputs)
    )
    return f"""
      func.func @kernel({parameters}%out: memref<{count}x{result}>) {{
        %zero = arith.constant 0 : index
        %step = arith.constant {LANES} : index
        %count = arith.constant {count} : index
        scf.for %i = %zero to %count step %step {{
          {loads}
          {body}
          vector.store %y, %out[%i] : memref<{count}x{result}>, vector<{LANES}x{result}>
        }}
        return
      }}"""


def _run(text: str, arrays: list[np.ndarray], out: np.ndarray) -> str:
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        expand_fma(module, KINDS)
        emulate_floats(module, KINDS)
        expanded = str(module)
        passmanager.PassManager.parse(lower_pipeline()).run(module.operation)
        move_as_integers(module, KINDS)
        assert module.operation.verify() and not used_floats(str(module))
        engine = execution_engine.ExecutionEngine(module, opt_level=2)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (*arrays, out)]
        packed = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(pointer) for pointer in pointers))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("kernel"))(ctypes.addressof(packed))
    return expanded


def _patterns(count: int) -> np.ndarray:
    bits = np.random.default_rng(0).integers(0, 2**32, count, dtype=np.uint32)
    # Halves, neighbours of halves, infinities, NaNs whose payload is in the bits that are dropped, denormals, zeros.
    edges = [0x3F808000, 0x3F818000, 0x3F807FFF, 0x7F800000, 0xFF800000, 0x7F800001, 0x7F7FFFFF, 1, 0x80000001, 0]
    bits[: len(edges)] = edges
    return bits.view(np.float32)


def _equal(found: np.ndarray, wanted: np.ndarray) -> None:
    nan = np.isnan(wanted.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    np.testing.assert_array_equal(found.view(np.uint16)[~nan], wanted.view(np.uint16)[~nan])


DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("kind", KINDS)
def test_f32_rounds_to_the_nearest(kind: str) -> None:
    x = _patterns(1 << 16)
    # All halves between two neighbours, and the numbers beside them.
    narrow = np.arange(1 << 15, dtype=np.uint16).view(DTYPES[kind]).astype(np.float32)
    with np.errstate(all="ignore"):
        halves = (narrow[:-1].astype(np.float64) + narrow[1:]).astype(np.float32) / 2
        x = np.concatenate([x, halves, np.nextafter(halves, 0), np.nextafter(halves, np.inf), -halves])
    x = x[: x.size // LANES * LANES]
    found = np.empty(x.shape, DTYPES[kind])
    types = f"vector<{LANES}xf32> to vector<{LANES}x{kind}>"
    _run(_kernel(f"%y = arith.truncf %x0 : {types}", ("f32",), kind, x.size), [x], found)
    with np.errstate(all="ignore"):
        _equal(found, x.astype(DTYPES[kind]))


@pytest.mark.parametrize("wide", ["f32", "f64"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_extended(kind: str, wide: str) -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[kind])
    found = np.empty(x.shape, DTYPES[wide])
    types = f"vector<{LANES}x{kind}> to vector<{LANES}x{wide}>"
    _run(_kernel(f"%y = arith.extf %x0 : {types}", (kind,), wide, x.size), [x], found)
    np.testing.assert_array_equal(found, x.astype(DTYPES[wide]))


def _near_halves(kind: str) -> np.ndarray:
    """Return f64 next to the midpoints of two neighbors, which round to the midpoints in f32."""
    narrow = np.arange(1 << 15, dtype=np.uint16).view(DTYPES[kind]).astype(np.float64)
    narrow = narrow[np.isfinite(narrow)]
    halves = (narrow[:-1] + narrow[1:]) / 2
    ends = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1e300,
        -1e300,
        1e-300,
        5e-324,
        narrow[-1],
        np.nextafter(narrow[-1], 1e9),
    ]
    x = np.concatenate([halves, np.nextafter(halves, 0), np.nextafter(halves, np.inf), -np.nextafter(halves, 0), ends])
    return np.resize(x, -(-x.size // LANES) * LANES)


def _nearest(x: np.ndarray, kind: str) -> np.ndarray:
    """Return f64 rounded once: by numpy to f16; to bf16 by way of f32, moved off the halves."""
    with np.errstate(all="ignore"):
        if kind == "f16":
            return x.astype(np.float16)
        near = x.astype(np.float32)
        exact = near.astype(np.float64) == x
        toward = np.where(np.abs(near) > np.abs(x), np.nextafter(near, np.float32(0)), near)
        odd = (toward.view(np.int32) | 1).view(np.float32)
        return np.where(exact | ~np.isfinite(x), near, odd).astype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("is_emulated", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_f64_rounds_once(kind: str, is_emulated: bool) -> None:
    x = _near_halves(kind)
    found = np.empty(x.shape, DTYPES[kind])
    text = _kernel(f"%y = arith.truncf %x0 : vector<{LANES}xf64> to vector<{LANES}x{kind}>", ("f64",), kind, x.size)
    if is_emulated:
        _run(text, [x], found)
    else:
        with make_context(), ir.Location.unknown():
            module = ir.Module.parse(text)
            round_once(module, [kind])
            assert "f64 to" not in str(module) or f"f64> to vector<{LANES}x{kind}>" not in str(module)
        _run(str(module), [x], found)
    _equal(found, _nearest(x, kind))


@pytest.mark.parametrize("operation", ["addf", "subf", "mulf", "divf"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_rounds(kind: str, operation: str) -> None:
    count = 1 << 14
    x = np.random.default_rng(1).integers(0, 2**16, count, dtype=np.uint16).view(DTYPES[kind])
    y = np.random.default_rng(2).integers(0, 2**16, count, dtype=np.uint16).view(DTYPES[kind])
    shape = f"vector<{LANES}x{kind}>"
    # Two operations one after the other: what is between them is rounded as well.
    body = f"%a = arith.{operation} %x0, %x1 : {shape}\n%y = arith.addf %a, %x0 : {shape}"
    found = np.empty(count, DTYPES[kind])
    expanded = _run(_kernel(body, (kind, kind), kind, count), [x, y], found)
    assert "arith.truncf" not in expanded and "arith.extf" not in expanded
    compute = {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}[operation]
    with np.errstate(all="ignore"):
        _equal(found, (compute(x, y) + x).astype(DTYPES[kind]))


def test_fused_products_of_f16_round_once() -> None:
    count = 1 << 14
    x, y, z = (
        np.random.default_rng(seed).integers(0, 2**16, count, dtype=np.uint16).view(np.float16) for seed in (1, 2, 3)
    )
    # A sum that f32 rounds to the half of two neighbours: (1 + 2^-10)(1 - 2^-10)... and the smallest addend.
    x[:2], y[:2], z[:2] = 1 + 2.0**-10, 0.5 + 2.0**-11, [2.0**-24, -(2.0**-24)]
    shape = f"vector<{LANES}xf16>"
    found = np.empty(count, np.float16)
    _run(_kernel(f"%y = math.fma %x0, %x1, %x2 : {shape}", ("f16", "f16", "f16"), "f16", count), [x, y, z], found)
    exact = np.longdouble if np.finfo(np.longdouble).nmant > 60 else np.float64
    with np.errstate(all="ignore"):
        total = x.astype(exact) * y.astype(exact) + z.astype(exact)
        _equal(found, total.astype(np.float64).astype(np.float16))


def test_constants_keep_their_bits() -> None:
    words = ["1.5", "-0.0", "0x7F80", "0xFF80", "0x7FC1", "3.0", "0x0001", "0.0"]
    body = f"%y = arith.constant dense<[{', '.join(words)}]> : vector<{LANES}xbf16>"
    found = np.empty(LANES, ml_dtypes.bfloat16)
    _run(_kernel(body, (), "bf16", LANES), [], found)
    expected = [0x3FC0, 0x8000, 0x7F80, 0xFF80, 0x7FC1, 0x4040, 0x0001, 0]
    assert [int(bits) for bits in found.view(np.uint16)] == expected


def test_parts_of_vectors_and_math() -> None:
    """LLVM loads and stores lanes one by one where the machine has no masks for them, as f32 if it sees bf16."""
    body = f"""
      %mask = arith.constant dense<[true, true, true, false, true, false, true, true]> : vector<{LANES}xi1>
      %none = arith.constant dense<-2.5> : vector<{LANES}xbf16>
      %some = vector.maskedload %p0[%i], %mask, %none
        : memref<{LANES}xbf16>, vector<{LANES}xi1>, vector<{LANES}xbf16> into vector<{LANES}xbf16>
      %one = arith.constant 1.0 : bf16
      %ones = vector.broadcast %one : bf16 to vector<{LANES}xbf16>
      %y = math.fma %some, %some, %ones : vector<{LANES}xbf16>"""
    x, found = np.arange(LANES).astype(ml_dtypes.bfloat16), np.empty(LANES, ml_dtypes.bfloat16)
    _run(_kernel(body, ("bf16",), "bf16", LANES), [x], found)
    np.testing.assert_array_equal(found.astype(np.float32), [1, 2, 5, 7.25, 17, 7.25, 37, 50])


def test_whose_instructions_convert() -> None:
    x86 = partial(Processor, "x86_64-unknown-linux-gnu", "x86-64")
    assert x86(("avx512bf16", "avx512vl", "f16c")).emulated_floats == ()
    assert x86(("avxneconvert",)).emulated_floats == ("f16",)
    assert x86(("avx2", "avx512f", "avx512vl")).emulated_floats == ("f16", "bf16")
    assert Processor("aarch64-linux-gnu", "generic").emulated_floats == ()
    assert Processor("riscv64-linux-gnu", "generic-rv64").emulated_floats == ("f16", "bf16")
    assert Processor("wasm32-unknown-unknown", "generic").emulated_floats == ("f16", "bf16")


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("func.func @mirlo_ef16c73896dfc3eea52e7669(%arg0: memref<2xf32>)", set()),
        ("func.func @mirlo_0f16(%arg0: memref<2xf32>)", set()),
        ("func.func @conv_f16_1(%bf16: memref<2xf32>)", {"bf16"}),
        ("%0 = arith.constant 0.0 : f16", {"f16"}),
        ("memref<2x?xbf16>, vector<f16>", {"f16", "bf16"}),
        ("vector<[4]xf16>", {"f16"}),
        ("", set()),
    ],
)
def test_types_are_no_parts_of_names(text: str, used: set[str]) -> None:
    """A name that is a type's costs a pass that finds nothing; the digest of a kernel is not one."""
    assert used_floats(text) == used
