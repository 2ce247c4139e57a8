"""bf16 on processors without instructions for it: the same bits as those that numpy's ml_dtypes rounds to."""

from __future__ import annotations

import ctypes
from functools import partial

import ml_dtypes
import numpy as np
import pytest

from mirlo.dialects.bindings import execution_engine, ir, passmanager
from mirlo.dialects.context import make_context
from mirlo.targets.llvm.bfloat16 import expand_bf16, move_bf16_as_integers, uses_bf16
from mirlo.targets.llvm.pipeline import lower_pipeline
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
        expand_bf16(module)
        expanded = str(module)
        passmanager.PassManager.parse(lower_pipeline()).run(module.operation)
        move_bf16_as_integers(module)
        assert module.operation.verify() and not uses_bf16(module)
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


def test_f32_rounds_to_the_nearest_bf16() -> None:
    x = _patterns(1 << 16)
    found = np.empty(x.shape, ml_dtypes.bfloat16)
    narrow, wide = f"vector<{LANES}xbf16>", f"vector<{LANES}xf32>"
    _run(_kernel(f"%y = arith.truncf %x0 : {wide} to {narrow}", ("f32",), "bf16", x.size), [x], found)
    with np.errstate(invalid="ignore"):
        _equal(found, x.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("operation", ["addf", "subf", "mulf", "divf"])
def test_each_operation_rounds(operation: str) -> None:
    count = 1 << 14
    x = np.random.default_rng(1).integers(0, 2**16, count, dtype=np.uint16).view(ml_dtypes.bfloat16)
    y = np.random.default_rng(2).integers(0, 2**16, count, dtype=np.uint16).view(ml_dtypes.bfloat16)
    kind = f"vector<{LANES}xbf16>"
    # Two operations one after the other: what is between them is rounded as well.
    body = f"%a = arith.{operation} %x0, %x1 : {kind}\n%y = arith.addf %a, %x0 : {kind}"
    found = np.empty(count, ml_dtypes.bfloat16)
    expanded = _run(_kernel(body, ("bf16", "bf16"), "bf16", count), [x, y], found)
    assert "arith.truncf" not in expanded and "arith.extf" not in expanded
    compute = {"addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide}[operation]
    with np.errstate(all="ignore"):
        _equal(found, (compute(x, y) + x).astype(ml_dtypes.bfloat16))


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


def test_whose_instructions_round() -> None:
    x86 = partial(Processor, "x86_64-unknown-linux-gnu", "x86-64")
    assert x86(("avx512bf16", "avx512vl")).rounds_bf16 and x86(("avxneconvert",)).rounds_bf16
    assert not x86(("avx2", "avx512f", "avx512vl")).rounds_bf16
