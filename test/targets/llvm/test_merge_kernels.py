"""Kernels that differ in numbers only are compiled once: scalars and sizes are arguments."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import mirlo
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.driver import compiler
from mirlo.targets.llvm import compile_ahead, emit, units
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.object_code import EntryInterface
from mirlo.targets.llvm.processes import Compilation, CompileTask
from mirlo.targets.llvm.processor import host_processor
from mirlo.targets.llvm.units import CompilationUnit, split

SIZE = 64


@pytest.fixture
def unit_lists(monkeypatch: pytest.MonkeyPatch) -> list[list[CompilationUnit]]:
    """Return a list that gets the units of each model, each kernel in its own."""
    found: list[list[CompilationUnit]] = []
    build = emit.build

    def record(given: Sequence[CompilationUnit], *arguments: Any, **options: Any) -> list[bytes]:
        found.append(list(given))
        return build(given, *arguments, **options)

    monkeypatch.setattr(emit, "build", record)
    monkeypatch.setattr(compiler, "MIN_OPERATORS_FOR_WORKERS", 1)
    for module in (compile_ahead, units):
        monkeypatch.setattr(module, "SMALL", 1)
    for limit in ("BUNDLED", "WHOLE_BUNDLE"):
        monkeypatch.setattr(units, limit, 1)
    return found


def _layers(layer: str, scalars: Sequence[dict[str, object]], rows: str = "2") -> onnx.ModelProto:
    """Return a model of layers of this text, whose inputs are `{x}` and a weight, with scalars in place of names."""
    values = [f"x{i}" for i in range(len(scalars) + 1)]
    lines = [
        layer.format(x=x, y=y, i=i, **own)
        for i, (x, y, own) in enumerate(zip(values, values[1:], scalars, strict=False))
    ]
    weights = ", ".join(f"float[{SIZE}, {SIZE}] w{i}" for i in range(len(scalars)))
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    layers (float[{rows}, {SIZE}] x0, {weights}) => (float[{rows}, {SIZE}] {values[-1]}) {{
      {" ".join(lines)}
    }}"""
    return onnx.parser.parse_model(text)


SCALED = """m{i} = MatMul ({x}, w{i})
  a{i} = Constant <value = float {{{scale}}}> ()
  s{i} = Mul (m{i}, a{i})
  b{i} = Constant <value = float {{{shift}}}> ()
  {y} = Add (s{i}, b{i})
"""
QUANTIZED = """m{i} = MatMul ({x}, w{i})
  s{i} = Constant <value = float {{{scale}}}> ()
  z{i} = Constant <value = int8 {{{zero}}}> ()
  q{i} = QuantizeLinear (m{i}, s{i}, z{i})
  {y} = DequantizeLinear (q{i}, s{i}, z{i})
"""
LIMITED = """m{i} = MatMul ({x}, w{i})
  a{i} = Constant <value = float {{{limit}}}> ()
  {y} = Max (m{i}, a{i})
"""
SCALES = [{"scale": 0.3, "shift": 0.1}, {"scale": 0.7, "shift": -0.2}, {"scale": 0.3, "shift": 1.5}]
ZEROS = [{"scale": 0.3, "zero": 4}, {"scale": 0.07, "zero": -7}, {"scale": 0.11, "zero": 3}]


def _arrays(layers: int, rows: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = [(rows, SIZE), *[(SIZE, SIZE)] * layers]
    return [rng.standard_normal(shape, np.float32) / 8 for shape in shapes]


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", ["2", "N", "400"])
@pytest.mark.parametrize(("layer", "scalars"), [(SCALED, SCALES), (QUANTIZED, ZEROS)], ids=["scaled", "quantized"])
def test_layers_that_differ_in_scalars_are_one_kernel(
    unit_lists, monkeypatch, layer: str, scalars: list[dict[str, object]], rows: str, threads: int
) -> None:
    model = _layers(layer, scalars, rows)
    merged: Any = mirlo.compile(model, cache=False, jobs=1, threads=threads)
    monkeypatch.setattr(compile_ahead, "similar_kernels", lambda module: {})
    apart: Any = mirlo.compile(model, cache=False, jobs=1, threads=threads)
    together, alone = (len(found) - 1 for found in unit_lists)
    assert alone - together == 2, (alone, together)
    arrays = _arrays(len(scalars), int(rows) if rows.isdigit() else 5)
    np.testing.assert_array_equal(merged(*arrays), apart(*arrays))


@pytest.mark.sample(0)
def test_kernels_whose_work_a_call_decides(unit_lists, monkeypatch) -> None:
    """One thread has all panels in calls with few rows: the scalars are arguments of that call, too."""
    monkeypatch.setattr(sys.modules[__name__], "SIZE", 512)
    compiled = mirlo.compile(_layers(QUANTIZED, ZEROS, "N"), cache=False, jobs=1, threads=2)
    assert len(unit_lists[0]) == 2
    assert unit_lists[0][1].text.count("func.call") + unit_lists[0][1].text.count(" call @") == 2
    plain = mirlo.compile(_layers(QUANTIZED, ZEROS, "N"), cache=False, jobs=1)
    for rows in (1, 300):
        arrays = _arrays(len(ZEROS), rows)
        np.testing.assert_array_equal(compiled(*arrays), plain(*arrays))


def test_limits_stay_constants(unit_lists) -> None:
    """A maximum of a constant need not ask whether that is NaN."""
    mirlo.compile(_layers(LIMITED, [{"limit": 0.5}, {"limit": 0.25}]), cache=False, jobs=1)
    assert len(unit_lists[0]) == 3, [unit.name for unit in unit_lists[0]]


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
def test_similar_kernels_are_compiled_ahead_once(unit_lists, monkeypatch, threads: int) -> None:
    added: list[CompileTask] = []
    add = Compilation.add

    def note(self: Compilation, task: CompileTask) -> None:
        added.append(task)
        add(self, task)

    monkeypatch.setattr(Compilation, "add", note)
    mirlo.compile(_layers(QUANTIZED, ZEROS, "400"), cache=False, jobs=2, threads=threads)
    assert added and {task.text for task in added} == {unit.text for unit in unit_lists[0][1:]}


PLANNED = """
func.func @main(%a: memref<4xf32>, %b: memref<4xf32>, %arena: memref<16xi8>) {
  call @first(%a, %b) : (memref<4xf32>, memref<4xf32>) -> ()
  call @second(%b, %a) : (memref<4xf32>, memref<4xf32>) -> ()
  return
}
func.func private @first(%a: memref<4xf32>, %b: memref<4xf32>) attributes {tir.prim_func} {
  %i = arith.constant FIRST : index
  BODY
  return
}
func.func private @second(%a: memref<4xf32>, %b: memref<4xf32>) attributes {tir.prim_func} {
  %i = arith.constant SECOND : index
  BODY
  return
}
"""
BODY = """%c = arith.constant 2.5 : f32
  %v = memref.load %a[%i] : memref<4xf32>
  %s = arith.mulf %v, %c : f32
  memref.store %s, %b[%i] : memref<4xf32>"""


@pytest.fixture
def whole_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "SMALL", 0)
    monkeypatch.setattr(units, "BUNDLED", 0)


def _split(
    scalars: tuple[float, float], indices: tuple[int, int] = (1, 1), operation: str = "mulf"
) -> list[CompilationUnit]:
    text = PLANNED.replace("FIRST", str(indices[0])).replace("SECOND", str(indices[1]))
    for scalar in scalars:
        text = text.replace("BODY", BODY.replace("2.5", f"{scalar:e}").replace("mulf", operation), 1)
    with make_context(), ir.Location.unknown():
        entry, settings = EntryInterface(2, 0, (), False), CodeSettings(host_processor())
        return split(ir.Module.parse(text), entry, settings, similar={"first": 0, "second": 0})


def test_only_what_differs_becomes_an_argument(whole_units) -> None:
    main, kernel = _split((2.5, 3.5))
    signature = kernel.text.splitlines()[0]
    assert ": f32)" in signature and ": index" not in signature
    assert main.text.count(f"call @{kernel.symbol}(") == 2 and "2.5" in main.text and "3.5" in main.text
    main, kernel = _split((2.5, 2.5))
    assert "2.5" in kernel.text and "arith.constant" not in main.text


def test_kernels_that_differ_in_indices_stay_as_they_are(whole_units) -> None:
    for scalars in ((2.5, 3.5), (2.5, 2.5)):
        main, *kernels = _split(scalars, (1, 2))
        assert len(kernels) == 2 and "arith.constant" not in main.text
        assert all(f"arith.constant {scalar}" in k.text for k, scalar in zip(kernels, scalars, strict=True))


@pytest.mark.parametrize(
    ("operation", "scalars", "kernels"),
    [("divf", (3.0, 7.0), 1), ("divf", (4.0, 7.0), 2), ("divf", (3.0, 0.0), 2), ("maximumf", (3.0, 7.0), 2)],
)
def test_scalars_that_are_cheaper_as_constants_stay(whole_units, operation: str, scalars, kernels: int) -> None:
    """LLVM multiplies by the inverse of a power of two, and asks of operands of maxima whether they can be NaN."""
    assert len(_split(scalars, operation=operation)) - 1 == kernels


SIZED = {
    "elementwise": ("float[1, {n}, {m}] x{i}", "float[1, {n}, {m}] y{i}", "y{i} = Sqrt (x{i})"),
    "reduction": ("float[1, {n}, {m}] x{i}", "float y{i}", "y{i} = ReduceMax <keepdims = 0> (x{i})"),
    "rows": (
        "float[1, {n}, {m}] x{i}, float[{m}] w{i}", "float[1, {n}, {m}] y{i}",
        "y{i} = LayerNormalization <axis = -1> (x{i}, w{i})",
    ),
    "pad": (
        "float[1, {n}, {m}] x{i}", "float[1, a{i}, {m}] y{i}",
        "p{i} = Constant <value = int64[6] {{0, 1, 0, 0, 1, 0}}> () y{i} = Pad (x{i}, p{i})",
    ),
    "concat": (
        "float[1, {n}, {m}] x{i}, float[1, {n}, {m}] w{i}", "float[1, {n}, b{i}] y{i}",
        "y{i} = Concat <axis = 2> (x{i}, w{i})",
    ),
    "transpose": ("float[1, {n}, {m}] x{i}", "float[1, {m}, {n}] y{i}", "y{i} = Transpose <perm = [0, 2, 1]> (x{i})"),
}  # fmt: skip
"""Inputs, outputs and nodes of a layer over a matrix of n by m."""
SIZES = [(64, 128), (96, 128), (32, 256), (256, 64), (16, 640), (160, 192), (7, 13), (9, 13), (1, 64), (0, 64)]


def _sized(layer: str, sizes: Sequence[tuple[int, int]]) -> onnx.ModelProto:
    parts = [[part.format(i=i, n=n, m=m) for part in SIZED[layer]] for i, (n, m) in enumerate(sizes)]
    inputs, outputs, nodes = ([each[k] for each in parts] for k in range(3))
    header = '<ir_version: 8, opset_import: ["": 18]>'
    return onnx.parser.parse_model(f"{header} g ({', '.join(inputs)}) => ({', '.join(outputs)}) {{{' '.join(nodes)}}}")


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("layer", SIZED)
def test_kernels_that_differ_in_sizes(unit_lists, monkeypatch, layer: str, threads: int) -> None:
    """They give the same bits as kernels for one size; sizes of 0 and 1 are among them."""
    sizes = [size for size in SIZES if layer != "reduction" or all(size)]
    model = _sized(layer, sizes)
    merged: Any = mirlo.compile(model, cache=False, jobs=1, threads=threads)
    monkeypatch.setattr(compile_ahead, "similar_kernels", lambda module: {})
    apart: Any = mirlo.compile(model, cache=False, jobs=1, threads=threads)
    together, alone = map(len, unit_lists)
    assert together < alone if layer in ("elementwise", "reduction", "concat") else together <= alone, (alone, together)
    rng = np.random.default_rng(0)
    shapes = [[dim.dim_value for dim in each.type.tensor_type.shape.dim] for each in model.graph.input]
    arrays = [rng.uniform(0.5, 2, shape).astype(np.float32) for shape in shapes]
    for result, expected in zip(merged(*arrays), apart(*arrays), strict=True):
        np.testing.assert_array_equal(result, expected)


def test_sizes_of_buffers_of_one_dim(whole_units) -> None:
    """Types, ends of loops and strides are no reason for another kernel; register tiles and sums of products are."""
    texts = []
    for name, rows, columns in (("first", 4, 6), ("second", 3, 5)):
        texts.append(ROWS.format(name=name, rows=rows, columns=columns, size=rows * columns))
    header = """func.func @main(%a: memref<4x6xf32>, %b: memref<3x5xf32>, %arena: memref<16xi8>) {
      call @first(%a) : (memref<4x6xf32>) -> ()
      call @second(%b) : (memref<3x5xf32>) -> ()
      return
    }"""
    annotated = "{llvm.loop_annotation = #llvm.loop_annotation<>}"
    for annotation, term, kernels in (("", "%x", 1), (annotated, "%x", 2), ("", "%y", 2)):
        text = header + "".join(texts).replace("ANNOTATION", annotation).replace("TERM", term)
        text = text.replace("OPERATION", "arith.mulf" if term == "%y" else "arith.maximumf")
        with make_context(), ir.Location.unknown():
            entry, settings = EntryInterface(2, 0, (), False), CodeSettings(host_processor())
            module = ir.Module.parse(text)
            main, *others = split(module, entry, settings, similar={"first": 0, "second": 0})
            ir.Module.parse(main.text).operation.verify()
        assert len(others) == kernels
        assert ("memref<24xf32>, index, index" in main.text) == (kernels == 1)


ROWS = """
func.func private @{name}(%a: memref<{rows}x{columns}xf32>) attributes {{tir.prim_func}} {{
  %v = memref.collapse_shape %a [[0, 1]] : memref<{rows}x{columns}xf32> into memref<{size}xf32>
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %rows = arith.constant {rows} : index
  %columns = arith.constant {columns} : index
  %start = arith.constant 0.0 : f32
  scf.for %i = %zero to %rows step %one {{
    %row = arith.muli %i, %columns : index
    %sum = scf.for %j = %zero to %columns step %one iter_args(%s = %start) -> f32 {{
      %at = arith.addi %row, %j : index
      %x = memref.load %v[%at] : memref<{size}xf32>
      %y = OPERATION %x, %x : f32
      %t = arith.addf %s, TERM : f32
      scf.yield %t : f32
    }} ANNOTATION
    memref.store %sum, %v[%row] : memref<{size}xf32>
  }}
  return
}}
"""
OFFSETS = """
func.func private @{name}(%a: memref<{size}xf32>) attributes {{tir.prim_func}} {{
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %end = arith.constant 4 : index
  {constants}
  scf.for %i = %zero to %end step %one {{
    {loads}
  }}
  return
}}
"""


@pytest.mark.parametrize("offsets", [0, 1, 8, 9])
def test_many_offsets_in_a_loop_stay_constants(whole_units, offsets: int) -> None:
    """As arguments they would be in registers."""
    texts = []
    for name, size in (("first", 100), ("second", 200)):
        constants = [f"%c{k} = arith.constant {size // 2 + k} : index" for k in range(offsets)]
        loads = [f"%i{k} = arith.addi %i, %c{k} : index\n memref.store %x, %a[%i{k}] : memref<{size}xf32>"
                 for k in range(offsets)]  # fmt: skip
        loads.insert(0, f"%x = memref.load %a[%i] : memref<{size}xf32>")
        texts.append(OFFSETS.format(name=name, size=size, constants="\n".join(constants), loads="\n".join(loads)))
    text = """func.func @main(%a: memref<100xf32>, %b: memref<200xf32>, %arena: memref<16xi8>) {
      call @first(%a) : (memref<100xf32>) -> ()
      call @second(%b) : (memref<200xf32>) -> ()
      return
    }""" + "".join(texts)
    with make_context(), ir.Location.unknown():
        entry, settings = EntryInterface(2, 0, (), False), CodeSettings(host_processor())
        main, *others = split(ir.Module.parse(text), entry, settings, similar={"first": 0, "second": 0})
    assert len(others) == (2 if offsets > 8 else 1)
