"""Comparisons of extended integers with constants: the same truth at the integers' own width, and on the device."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import pytest
from devices import needs_vulkan
from onnx import helper
from onnx_models import make_model, node

import mirlo
from mirlo.dialects.bindings import execution_engine, ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core.value import INT_PREDICATES
from mirlo.targets.llvm.pipeline import lower_to_llvm
from mirlo.targets.llvm.processor import Processor
from mirlo.targets.spirv.comparisons import compare_unextended

PLAIN = Processor("x86_64-unknown-linux-gnu", "x86-64", ())
FUNCTIONS = {
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip
SIGNS = {"eq": "eq", "ne": "ne", **{name: f"s{name}" for name in ("lt", "le", "gt", "ge")}}


def _ends(bits: int) -> list[int]:
    """Return numbers near the ends of the range of integers of some bits, signed and not."""
    near = [sign * (1 << power) + step for power in (bits - 1, bits) for sign in (-1, 1) for step in (-1, 0, 1)]
    return [*near, -2, -1, 0, 1, 2]


@pytest.mark.parametrize("extension", ["extsi", "extui"])
@pytest.mark.parametrize(("narrow", "wide"), [(8, 16), (8, 64), (16, 32), (32, 64)])
def test_comparisons_keep_their_truth(narrow: int, wide: int, extension: str) -> None:
    """Each predicate with constants inside and outside of the range, on either side."""
    rng = random.Random(f"{narrow} {wide} {extension}")
    constants = [c for c in (*_ends(narrow), *_ends(wide)) if -(1 << wide - 1) <= c < 1 << wide - 1]
    constants += [rng.randrange(-(1 << wide - 1), 1 << wide - 1) for _ in range(2)]
    cases = [(name, c, side) for name in INT_PREDICATES for c in constants for side in (False, True)]
    lines = []
    for i, (name, c, is_left) in enumerate(cases):
        operands = f"%c{i}, %w" if is_left else f"%w, %c{i}"
        lines += [
            f"%c{i} = arith.constant {c} : i{wide}",
            f"%b{i} = arith.cmpi {SIGNS.get(name, name)}, {operands} : i{wide}",
            f"%y{i} = arith.extui %b{i} : i1 to i8", f"%p{i} = arith.constant {i} : index",
            f"memref.store %y{i}, %out[%k, %p{i}] : memref<?x{len(cases)}xi8>",
        ]  # fmt: skip
    numbers = np.array(_ends(narrow), np.int64)
    if extension == "extsi":
        numbers = numbers[(numbers >= -(1 << narrow - 1)) & (numbers < 1 << narrow - 1)]
    else:
        numbers = numbers[(numbers >= 0) & (numbers < 1 << narrow)]
    x = numbers.astype(f"u{narrow // 8}" if extension == "extui" else f"i{narrow // 8}")
    text = f"""
      func.func @kernel(%a: memref<{x.size}xi{narrow}>, %result: memref<{x.size}x{len(cases)}xi8>) {{
        %out = memref.cast %result : memref<{x.size}x{len(cases)}xi8> to memref<?x{len(cases)}xi8>
        %zero = arith.constant 0 : index
        %one = arith.constant 1 : index
        %count = arith.constant {x.size} : index
        scf.for %k = %zero to %count step %one {{
          %x = memref.load %a[%k] : memref<{x.size}xi{narrow}>
          %w = arith.{extension} %x : i{narrow} to i{wide}
          {chr(10).join(lines)}
        }}
        return
      }}"""
    found = np.empty((x.size, len(cases)), np.int8)
    with make_context(), ir.Location.unknown():
        module = ir.Module.parse(text)
        compare_unextended(module)
        assert f": i{wide}\n" not in "\n".join(line for line in str(module).splitlines() if "cmpi" in line) + "\n"
        lower_to_llvm(module, PLAIN)
        engine = execution_engine.ExecutionEngine(module, opt_level=0)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (x, found)]
        packed = (ctypes.c_void_p * 2)(*(ctypes.addressof(pointer) for pointer in pointers))
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.raw_lookup("kernel"))(ctypes.addressof(packed))
    compute = {name: getattr(np, full) for name, full in FUNCTIONS.items()}
    for i, (name, c, is_left) in enumerate(cases):
        w = [int(each) for each in x]
        left, right = ([c] * len(w), w) if is_left else (w, [c] * len(w))
        modulus = 1 << wide
        if name.startswith("u"):
            left, right = ([each % modulus for each in side] for side in (left, right))
        wanted = compute[name.removeprefix("u")](np.array(left, object), np.array(right, object))
        assert (found[:, i] == wanted.astype(bool)).all(), (name, c, is_left)


@needs_vulkan()
@pytest.mark.sample(3)
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
@pytest.mark.parametrize("constant", [-(1 << 40), -(1 << 31), -1, 0, 1, 1 << 31, 1 << 32])
def test_widened_integers_are_compared_right(dtype: str, constant: int) -> None:
    """A cast to 64 bits and comparisons with a constant, as Sign after ArgMax has them."""
    kinds = np.iinfo(dtype)
    x = np.array([kinds.min, kinds.max, 0, 1, 2, 1 if kinds.min == 0 else -1], dtype)
    names = {"Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
             "Equal": np.equal}  # fmt: skip
    nodes = [node("Cast", "x", "w", to=int(helper.np_dtype_to_tensor_dtype(np.dtype("int64"))))]
    nodes += [node(name, "w c", name) for name in names] + [node("Sign", "w", "s")]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = make_model(nodes, {"x": (kind, (6,))}, [*names, "s"], {"c": np.array(constant, np.int64)})
    found = mirlo.compile(model, "spirv", cache=False).run({"x": x})
    for name, compute in names.items():
        np.testing.assert_array_equal(found[name], compute(x.astype(np.int64), constant))
    np.testing.assert_array_equal(found["s"], np.sign(x.astype(np.int64)))
