"""IR as script and back gives the same IR, for output of the compiler and for hand-written IR."""

from __future__ import annotations

import re

import pytest
from commands import ROOT
from weightless import weightless_model

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.frontends.onnx.importer import import_model
from mirlo.frontends.script.same import same_ir
from mirlo.passes.instrumentation import PassFailed
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session

FUSED = "legalize,annotate-kinds,fuse-ops,fuse-tir,canonicalize,cse"
SCHEDULED = f"{FUSED},schedule"


def _there_and_back(module) -> str:
    text = mirlo.script_of(module)
    assert same_ir(module, mirlo.parse_script(text, context=module.context))
    return text


@pytest.mark.sample(0)
@pytest.mark.parametrize("name", ["bert_base", "gpt2", "mobilenetv2", "resnet50", "vit_base"])
def test_models(name, tmp_path) -> None:
    """As imported, legalized and fused, all is script; vectors and tiles stand as MLIR."""
    module, store = import_model(weightless_model(name, tmp_path))
    assert "mlir(" not in _there_and_back(module)
    with module.context, ir.Location.unknown():
        Pipeline("builtin.module(legalize)").run(module, Session(store))
    assert "mlir(" not in _there_and_back(module)
    if name in ("bert_base", "resnet50"):
        with module.context, ir.Location.unknown():
            Pipeline(f"builtin.module({FUSED})").run(module, Session(store))
        assert "mlir(" not in _there_and_back(module)
        with module.context, ir.Location.unknown():
            Pipeline("builtin.module(schedule)").run(module, Session(store))
        assert "mlir(" in _there_and_back(module)


@mirlo.script
def operators(
    x: R.Tensor[(4, 6), R.f32],
    i: R.Tensor[(2,), R.i64],
    u: R.Tensor[(4, 6), R.u8],
    b: R.Tensor[(4, 6), R.bool],
    h: R.Tensor[(4, 6), R.f16],
):
    values, places = R.topk(x, k=3)
    sums = R.cumsum(x, axis=1)
    order = R.argsort(x, axis=1)
    rows = R.gather(x, i, axis=0)
    return sums, order, rows, ~b, R.gelu(h), R.cast(u, dtype="f32"), R.maximum(u, u), values, places


def test_loops_and_types() -> None:
    """Functions of loops, with `while`, scratch memory and workspaces; unsigned numbers, bool, halves."""
    with operators.context, ir.Location.unknown():
        _there_and_back(operators)
        module = ir.Module.parse(str(operators))
        Pipeline("builtin.module(legalize)").run(module, Session())
        text = _there_and_back(module)
    assert "mlir(" not in text
    assert "while " in text and "T.alloc(" in text and "T.op(" in text


@mirlo.script
class Written:
    """Hand-written functions in both forms."""

    @T.prim_func(buffers=True)
    def histogram(x: T.Buffer[(64,), T.i32], counts: T.Out[(8,), T.i32], size: T.Out[(), T.f32]):
        local = T.alloc((8,), T.i32, scope="local")
        wide = T.alloc((8192,), T.f32)
        for b in range(8):
            local[b] = 0
        total = T.f32(0.0)
        for i in T.serial(64):
            value = x[i]
            if value >= 0 and value < 8:
                local[value] += 1
            else:
                wide[i] = x[i].cast("f32") * 0.5
                total += T.exp(wide[i])
        for b in T.vectorized(8):
            counts[b] = local[b]
        for b in T.unrolled(1, 3):
            counts[b] = T.max(counts[b - 1], counts[b])
        T.call_extern("srand", T.i32(3))
        size[()] = total

    @T.prim_func
    def softmax(x: T.Buffer[(4, 16), T.f32], y: T.Out[(4, 16), T.f32]):
        peak = T.alloc((4,), T.f32)
        total = T.alloc((4,), T.f32)
        for i, j in T.grid(4, 16):
            with T.block("peak"):
                vi, vj = T.axes("SR", i, j)
                with T.init():
                    peak[vi] = float("-inf")
                peak[vi] = T.max(peak[vi], x[vi, vj])
        for i in range(4):
            total[i] = 0.0
            for j in range(16):
                total[i] += T.exp(x[i, j] - peak[i])
        for i, j in T.grid(4, 16):
            y[i, j] = T.exp(x[i, j] - peak[i]) / total[i]

    @T.prim_func
    def position(x: T.Buffer[(4, 16), T.f32], best: T.Out[(4,), T.f32], at: T.Out[(4,), T.i64]):
        for i, j in T.grid(4, 16):
            with T.block("argmax"):
                vi, vj = T.axes("SR", i, j)
                with T.init():
                    best[vi] = float("-inf")
                    at[vi] = 0
                larger = x[vi, vj] > best[vi]
                at[vi] = T.select(larger, T.i64(vj), at[vi])
                best[vi] = T.select(larger, x[vi, vj], best[vi])

    @T.prim_func
    def edges(x: T.Buffer[(4, 16), T.f32], y: T.Out[(4, 14), T.f32]):
        for i, j in T.grid(4, 14):
            y[i, j] = x.at(i, j * 2 - 3, outside=0.0) if j % 3 == 1 else x[i, 15 - j]

    @R.function
    def main(x: R.Tensor[(4, 16), R.f32], bytes: R.Tensor[(4,), R.u8, "in.put"]):
        y = R.call_tir(softmax, x)
        best, at = R.call_tir(position, x)
        w = R.param("layer/weight", (16, 4), R.f32)
        named = R.call_dps_packed("my.f", x, bytes, out=(R.Tensor[(4,), R.f32], R.Tensor[(2, 2), R.bool]))
        z = R.concat([y, x], axis=0) @ w * 2.0 + R.const([1.0, float("inf"), -0.5, float("nan")], "f32")
        return y, z, named[0], at, best, R.const(True, "bool", shape=(2, 3))


def test_written() -> None:
    with Written.context, ir.Location.unknown():
        text = _there_and_back(Written)
        assert "mlir(" not in text


def test_one_function() -> None:
    text = mirlo.script_of(Written.body.operations[0])
    assert "@mirlo.prim_func(buffers=True)\ndef histogram(" in text
    again = mirlo.parse_script(text, context=Written.context)
    assert same_ir(again.body.operations[0], Written.body.operations[0])


def _modules(folder: str):
    """Each part of the lit tests of a folder that is a valid module, with its place."""
    for path in sorted((ROOT / folder).glob("*.mlir")):
        for number, text in enumerate(re.split(r"^// -----.*$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)):
            try:
                yield f"{path.name}, part {number}", ir.Module.parse(text)
            except ir.MLIRError:
                continue  # a test of what the verifiers refuse


FOLDERS = sorted(
    {path.parent.relative_to(ROOT).as_posix() for part in ("dialects", "passes", "targets", "tools")
     for path in (ROOT / "test" / part).rglob("*.mlir") if not {"Inputs", "Output"} & set(path.parts)}
)  # fmt: skip


@pytest.mark.parametrize("folder", FOLDERS)
def test_all_operations(folder: str) -> None:
    """Whatever the modules of the tests have: it comes back, as script or as MLIR."""
    with make_context(), ir.Location.unknown():
        for place, module in _modules(folder):
            again = mirlo.parse_script(mirlo.script_of(module), context=module.context)
            assert same_ir(module, again), place


def test_folders_have_modules() -> None:
    with make_context(), ir.Location.unknown():
        assert len(FOLDERS) > 15 and sum(1 for folder in FOLDERS for _ in _modules(folder)) > 300


@pytest.mark.sample(0)
def test_every_legalized_operator_is_script() -> None:
    with make_context(), ir.Location.unknown():
        count = 0
        for place, module in _modules("test/passes/legalize"):
            try:
                Pipeline("builtin.module(legalize)").run(module, Session())
            except PassFailed:
                continue
            text = mirlo.script_of(module)
            assert "mlir(" not in text or "vector." in text, place  # loops over vectors are written as MLIR
            assert same_ir(module, mirlo.parse_script(text, context=module.context)), place
            count += 1
    assert count > 100
