"""Bits of scalars of bf16 are masked without an end of the process, however the scalar was made."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import make_model, node

import mirlo
from mirlo.passes.byoc.guard import guarded
from mirlo.targets.llvm.machine_code import CodeSettings, emit, optimized
from mirlo.targets.llvm.options import parse_options

SCALARS = {
    "a load": ("ptr %p", "%x = load bfloat, ptr %p"),
    "an argument": ("bfloat %x", ""),
    "a rounding": ("float %f", "%x = fptrunc float %f to bfloat"),
    "an element": ("<8 x bfloat> %v", "%x = extractelement <8 x bfloat> %v, i64 0"),
    "a sum": ("bfloat %f", "%x = fadd bfloat %f, %f"),
    "a splat": (
        "ptr %p",
        "%l = load bfloat, ptr %p\n %i = insertelement <8 x bfloat> poison, bfloat %l, i64 0\n"
        "%t = shufflevector <8 x bfloat> %i, <8 x bfloat> poison, <8 x i32> zeroinitializer\n"
        "%x = extractelement <8 x bfloat> %t, i64 3",
    ),
}
USES = {
    "and": "%r = and i16 %b, -32768",
    "the magnitude": "%r = and i16 %b, 32767",
    "a shift": "%s = lshr i16 %b, 15\n %r = shl i16 %s, 15",
    "a comparison": "%c = icmp slt i16 %b, 0\n %r = select i1 %c, i16 -32768, i16 0",
    "xor": "%r = xor i16 %b, -32768",
}


@pytest.mark.sample(6)
@pytest.mark.parametrize("cpu", ["", "cpu=x86-64-v3", "cpu=x86-64-v4", "cpu=sapphirerapids"])
@pytest.mark.parametrize("scalar", SCALARS)
def test_masks(scalar: str, cpu: str) -> None:
    taken, made = SCALARS[scalar]
    settings = CodeSettings(parse_options(cpu).processor)
    functions = (
        f"define i16 @f{i}({taken}) {{\n{made}\n%b = bitcast bfloat %x to i16\n{use}\nret i16 %r\n}}"
        for i, use in enumerate(USES.values())
    )
    text = "\n".join(functions)
    assert guarded(lambda: emit(optimized(text, settings), settings), quiet=True)


OPERATORS: dict[str, tuple[Callable[[Any, Any], Any], dict[str, int]]] = {
    "Add": (operator.add, {}), "Sub": (operator.sub, {}), "Mul": (operator.mul, {}), "Div": (operator.truediv, {}),
    "Mod": (np.fmod, {"fmod": 1}), "Pow": (np.power, {}), "Max": (np.maximum, {}), "Min": (np.minimum, {}),
}  # fmt: skip


@pytest.mark.sample(0)
@pytest.mark.parametrize("shapes", [((5,), ()), ((), (5,)), ((), ()), ((3, 7), (3, 1))], ids=str)
@pytest.mark.parametrize("name", [*OPERATORS, "remainder"])
def test_operators_on_scalars(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    function, attributes = OPERATORS.get(name, (np.mod, {"fmod": 0}))
    kind = TensorProto.BFLOAT16
    model = make_model(
        [node("Mod" if name == "remainder" else name, "x y", "z", **attributes)],
        {"x": (kind, list(shapes[0])), "y": (kind, list(shapes[1]))}, ["z"], opset=18,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    x, y = (np.asarray(rng.uniform(0.5, 9, shape)).astype(ml_dtypes.bfloat16) for shape in shapes)
    y = y if name == "Pow" else (y * np.where(rng.uniform(size=y.shape) < 0.5, -1, 1)).astype(ml_dtypes.bfloat16)
    found = mirlo.compile(model, cache=False)(x, y)
    wanted = function(x.astype(np.float32), y.astype(np.float32))
    np.testing.assert_allclose(np.asarray(found).astype(np.float32), wanted, rtol=2**-7, atol=0)
