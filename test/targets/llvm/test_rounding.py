"""Rounding to integers by additions: the bits of numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from mirlo.dialects.bindings import execution_engine, ir
from mirlo.dialects.context import make_context
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.llvm.rounding import expand_rounding

ROUND = {"roundeven": np.rint, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
PLAIN = Processor("x86_64-unknown-linux-gnu", "x86-64", ())


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("name", ROUND)
def test_rounding(name: str, kind: str) -> None:
    dtype = {"f32": np.float32, "f64": np.float64}[kind]
    random = np.random.default_rng(0)
    bits = {"f32": np.uint32, "f64": np.uint64}[kind]
    x = random.integers(0, np.iinfo(bits).max, 1 << 14, dtype=bits, endpoint=True).view(dtype)
    steps = np.arange(-64, 64).astype(dtype) / 4
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**23 - 0.5, 2.0**23 + 1, 2.0**52 - 0.5, 0.49999997], dtype)
    x = np.concatenate([x, steps, np.nextafter(steps, dtype(0)), ends, -ends])
    x = np.resize(x, -(-x.size // 4) * 4)
    found = np.empty_like(x)
    text = f"""
      func.func @kernel(%a: memref<{x.size}x{kind}>, %out: memref<{x.size}x{kind}>) {{
        %zero = arith.constant 0 : index
        %step = arith.constant 4 : index
        %count = arith.constant {x.size} : index
        scf.for %i = %zero to %count step %step {{
          %x = vector.load %a[%i] : memref<{x.size}x{kind}>, vector<4x{kind}>
          %y = math.{name} %x : vector<4x{kind}>
          vector.store %y, %out[%i] : memref<{x.size}x{kind}>, vector<4x{kind}>
        }}
        return
      }}"""
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        expand_rounding(module)
        assert f"math.{name}" not in str(module)
        lower_to_llvm(module, PLAIN)
        engine = execution_engine.ExecutionEngine(module, opt_level=2)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, found)]
        packed = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("kernel"))(ctypes.addressof(packed))
    with np.errstate(all="ignore"):
        wanted = ROUND[name](x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))
