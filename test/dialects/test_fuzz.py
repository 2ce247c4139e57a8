"""Random operations, mostly nonsense: a verifier accepts or reports an error, and never fails in another way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from mirlo.dialects import relax, tir
from mirlo.dialects.bindings import ir
from mirlo.dialects.context import make_context
from mirlo.dialects.core import attributes as A

TENSORS = (
    """
tensor<f32> | tensor<4xf32> | tensor<2x3xf32> | tensor<1x3x8x8xf32> | tensor<4x3x3x3xf32> | tensor<2x8x4x64xf32>
tensor<2xi64> | tensor<3x2xi64> | tensor<2x3xi1> | tensor<0x3xf32> | tensor<?x3xf32> | tensor<4xf8E4M3FN>
tensor<?x3xf32, #relax.dims<["n", 3]>> | tensor<?x?xf32, #relax.dims<["n", "n + 1"]>> | tensor<3xui8> | tensor<3xi8>
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
OTHERS = (
    """
tensor<*xf32> | f32 | i32 | index | none | memref<4xf32> | memref<*xf32> | vector<4xf32> | tuple<f32> | !llvm.ptr
tensor<2xcomplex<f32>> | tensor<?x2xf32, #relax.dims<["n"]>> | tensor<?xf32, #relax.dims<["+"]>>
tensor<9223372036854775807xf32>
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
WRONG_KIND = (
    """
1 : i64 | "x" | [1, 2] | unit | array<i64: 1> | 1.0 : f64 | true | @f | dense<1> : tensor<2xi64> | f32 | [] | {a = 1}
affine_map<(d0) -> (d0)> | ["n + ", -3] | [9223372036854775807] | 0x7FC00000 : f32
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
RAW = (
    """
unit | [] | [unit] | [unit, unit] | [0.0 : f32] | dense<1.0> : tensor<4xf32> | [affine_map<(d0) -> (d0)>, unit]
[affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>] | [affine_map<(d0)[s0] -> (d0)>]
""".strip()
    .replace("\n", " | ")
    .split(" | ")
)
BODIES = [
    "",
    '^bb0: "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()',
    '^bb0(%i: index): "tir.yield"() {operandSegmentSizes = array<i32: 0, 0, 0, 0>} : () -> ()',
    '^bb0(%i: index, %x: f32): "tir.yield"(%x) {operandSegmentSizes = array<i32: 1, 0, 0, 0>} : (f32) -> ()',
]
NUMBERS = [0, 1, 1, 2, 3, 4, 8, -1, -2, 100, 2**31, -(2**63), 2**63 - 1]
FLOATS = ["0.0", "1.0", "-3.5", "1e300", "0x7FF8000000000000", "0x7FF0000000000000"]
TEXTS = ["", "x", "ij,jk->ik", "...i", "->", "é", "std::f"]
DIMS = ["1", "2", "3", "8", "0", '"n"', '"max(n, 3)"', '"?"', "9223372036854775807"]

OPERATIONS = {**relax.DIALECT.operations, **tir.DIALECT.operations}


class Generator:
    """Makes the text of one operation in a function."""

    def __init__(self, rng: random.Random):
        self.rng = rng

    def some(self, choices: Sequence[Any], most: int = 4) -> list[Any]:
        return [self.rng.choice(choices) for _ in range(self.rng.randint(0, most))]

    def attribute(self, declared: A.Attribute) -> str:
        rng = self.rng
        if rng.random() < 0.1:
            return rng.choice(WRONG_KIND)
        if declared.choices and rng.random() < 0.8:
            choice = rng.choice(list(declared.choices))
            return f'"{choice}"' if isinstance(choice, str) else f"{choice} : i64"
        makers = {
            A.Int: lambda: f"{rng.choice(NUMBERS)} : i64",
            A.Float: lambda: f"{rng.choice(FLOATS)} : f64",
            A.Bool: lambda: rng.choice(["true", "false"]),
            A.Str: lambda: f'"{rng.choice(TEXTS)}"',
            A.Ints: lambda: array("i64", self.some(NUMBERS)),
            A.Floats: lambda: array("f64", self.some(FLOATS)),
            A.Strs: lambda: rng.choice(["[]", '["spatial"]', '["spatial", "reduce"]', '["x"]']),
            A.Dims: lambda: f"[{', '.join(self.some(DIMS))}]",
            A.ElementType: lambda: rng.choice(["f32", "i8", "ui8", "i1", "index", "vector<2xf32>", "complex<f32>"]),
            A.Symbol: lambda: rng.choice(["@f", "@m::@f", "@a::@b::@c"]),
            A.Raw: lambda: rng.choice(RAW),
        }
        return makers[type(declared)]()

    def segments(self, count: int, groups: int) -> str:
        if self.rng.random() < 0.4:
            return array("i32", [self.rng.randint(-1, 3) for _ in range(self.rng.choice([groups, groups - 1]))])
        if self.rng.random() < 0.5:
            return array("i32", [int(i < count) for i in range(groups)])
        return array("i32", [count] + [0] * (groups - 1))

    def types(self, count: int) -> list[str]:
        if self.rng.random() < 0.4:
            return [self.rng.choice(TENSORS)] * count
        return [self.rng.choice(TENSORS if self.rng.random() < 0.85 else OTHERS) for _ in range(count)]

    def function(self, name: str, op: Any) -> str:
        rng = self.rng
        inputs, outputs = op._operand_layout, op._result_layout
        operands = self.types(max(0, inputs.least + rng.choice([0, 0, 0, 1, 2, -1])))
        results = self.types(max(0, outputs.least + rng.choice([0, 0, 0, 1, -1])))
        if operands and rng.random() < 0.5:
            results = [operands[0]] * len(results)
        entries = {
            key: self.attribute(declared)
            for key, declared in op._attributes.items()
            if rng.random() < (0.95 if declared.default is A.REQUIRED else 0.3)
        }
        for layout, types in ((inputs, operands), (outputs, results)):
            if layout.segments and rng.random() < 0.95:
                entries[layout.segments] = self.segments(len(types), len(layout.limits))
        body = f" ({{ {rng.choice(BODIES)} }})" if op.REGIONS and rng.random() < 0.9 else ""
        names = [f"%x{i}" for i in range(len(operands))]
        made = f"%r:{len(results)} = " if results else ""
        return (
            f"func.func @f({', '.join(f'{n}: {t}' for n, t in zip(names, operands, strict=True))}) {{\n"
            f'  {made}"{name}"({", ".join(names)}){body} '
            f"{{{', '.join(f'{key} = {value}' for key, value in entries.items())}}} : "
            f"({', '.join(operands)}) -> ({', '.join(results)})\n  return\n}}"
        )


def array(element: str, values: Sequence[Any]) -> str:
    return f"array<{element}{': ' if values else ''}{', '.join(map(str, values))}>"


@pytest.fixture(scope="module")
def context() -> Any:
    return make_context()


@pytest.mark.parametrize("name", OPERATIONS)
def test_verifiers_only_accept_or_report(name: str, context: Any) -> None:
    generator = Generator(random.Random(name))
    with context:
        for _ in range(25):
            text = generator.function(name, OPERATIONS[name])
            try:
                module = ir.Module.parse(text)
            except ir.MLIRError as error:
                assert error.error_diagnostics and all(d.message for d in error.error_diagnostics), text
                continue
            assert str(ir.Module.parse(str(module))) == str(module)
