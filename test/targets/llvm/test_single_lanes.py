"""Stores of one lane write that lane alone, whatever type it was truncated from."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import make_model, node

import mirlo
from mirlo.runtime.unloaded import UnloadedModel
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.llvm.machine_code import CodeSettings, optimized, stores_of_single_lanes
from mirlo.targets.llvm.options import parse_options

SETTINGS = CodeSettings(parse_options().processor)
FENCE = 0xA5


def _store(lanes: int, bits: int, source: int, mask: int) -> str:
    bools = ", ".join(f"i1 {'true' if mask >> lane & 1 else 'false'}" for lane in range(lanes))
    kind, name = f"<{lanes} x i{bits}>", f"@llvm.masked.store.v{lanes}i{bits}.p0"
    return (
        f"define void @store_{mask}(ptr %x, ptr %y) {{\n"
        f"  %w = load <{lanes} x i{source}>, ptr %x, align 1\n  %v = trunc <{lanes} x i{source}> %w to {kind}\n"
        f"  call void {name}({kind} %v, ptr align 1 %y, <{lanes} x i1> <{bools}>)\n  ret void\n}}\n"
    )


@pytest.mark.parametrize(("bits", "source"), [(8, 16), (8, 32), (8, 64), (16, 32), (16, 64), (32, 64)])
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_bytes_that_are_written(lanes: int, bits: int, source: int) -> None:
    masks = [1 << lane for lane in range(lanes)] + [3, (1 << lanes) - 2]
    text = "".join(_store(lanes, bits, source, mask) for mask in dict.fromkeys(masks))
    text += f"declare void @llvm.masked.store.v{lanes}i{bits}.p0(<{lanes} x i{bits}>, ptr, <{lanes} x i1>)\n"
    module = optimized(text, SETTINGS)
    machine = llvmlite().Target.from_triple(SETTINGS.processor.triple).create_target_machine(
        cpu=SETTINGS.processor.base, features=SETTINGS.processor.llvm_features, jit=True
    )  # fmt: skip
    engine = llvmlite().create_mcjit_compiler(module, machine)
    engine.finalize_object()
    values = np.arange(1, lanes + 1, dtype=f"i{source // 8}")
    for mask in masks:
        fenced = np.full(64 + lanes * bits // 8 + 64, FENCE, np.uint8)
        wanted = fenced.copy()
        elements = wanted[64:-64].view(f"i{bits // 8}")
        is_on = [bool(mask >> lane & 1) for lane in range(lanes)]
        elements[is_on] = values[is_on]
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(
            engine.get_function_address(f"store_{mask}")
        )
        function(values.ctypes.data, fenced.ctypes.data + 64)
        np.testing.assert_array_equal(fenced, wanted, err_msg=f"mask {mask:b}")


def test_other_stores_stay() -> None:
    assert stores_of_single_lanes(_store(4, 8, 32, 3)) is None
    call = "  tail call void @llvm.masked.store.v2i8.p0(<2 x i8> <i8 1, i8 2>, ptr nonnull align 4 %p, <2 x i1> MASK)"
    assert stores_of_single_lanes(call.replace("MASK", "%m")) is None
    assert stores_of_single_lanes(call.replace("MASK", "<i1 false, i1 true>")) == (
        '  %"lane.0" = extractelement <2 x i8> <i8 1, i8 2>, i64 1\n'
        '  %"lane.0.address" = getelementptr i8, ptr %p, i64 1\n'
        '  store i8 %"lane.0", ptr %"lane.0.address", align 1'
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("columns", [1, 16, 17, 33])
@pytest.mark.parametrize("cpu", ["native", "x86-64-v3"])
def test_quantized_products_end_where_their_result_does(columns: int, cpu: str) -> None:
    numbers = {"sa": np.float32(0.25), "za": np.uint8(3), "zb": np.uint8(1), "sy": np.float32(0.125), "zy": np.uint8(9)}
    constants = {name: np.asarray(value) for name, value in numbers.items()}
    model = make_model(
        [node("QLinearMatMul", "a sa za b sa zb sy zy", "y")],
        {"a": (TensorProto.UINT8, (3, 5)), "b": (TensorProto.UINT8, (5, columns))}, ["y"], constants,
        output_types={"y": (TensorProto.UINT8, (3, columns))},
    )  # fmt: skip
    target = "llvm" if cpu == "native" else f"llvm{{cpu={cpu}}}"
    compiled = mirlo.compile(model, target, cache=False, jobs=1)
    if isinstance(compiled, UnloadedModel):
        pytest.skip(f"this machine is not an {cpu}")
    fenced = np.full(64 + 3 * columns + 64, FENCE, np.uint8)
    result = fenced[64:-64].reshape(3, columns)
    compiled.run(compiled.random_inputs(0), out={"y": result})
    assert (fenced[:64] == FENCE).all() and (fenced[-64:] == FENCE).all()
