"""The parts of the combinations: a dialect, prim functions, code generators, a tensor intrinsic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from combination_cells import OPERATORS

import mirlo
from mirlo import T
from mirlo.extend.codegen import CodeGenerator, is_call_tir, is_const, is_op, wildcard
from mirlo.extend.ops import DialectOp, OnnxName, OpError, Trait, operand, register_dialect, result
from mirlo.extend.runtime import ExternalFunctions, NativeCode, register_external_loader
from mirlo.extend.schedules import tensor_intrin
from mirlo.extend.target import Target, register_target
from mirlo.runtime.object_loader import compile_llvm, define_symbol

BY_RULE = 3.0
"""What every rule multiplies by: no operator means that."""
DIALECT = register_dialect("combos")


class Half(DialectOp, name="half", dialect=DIALECT):
    """Half of x."""

    TRAITS = (Trait.ELEMENTWISE,)
    ONNX = OnnxName("Half", domain="com.combos")
    x, output = operand(), result()

    @staticmethod
    def infer(x: Any) -> Any:
        if not x.dtype.is_float:
            raise OpError(f"expected floats, found {x}")
        return x

    @staticmethod
    def meaning(x: Any) -> Any:
        return x * 0.5


N, C = T.dims("N", "C")


@mirlo.prim_func
def quarter(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
    for i, j in T.grid(N, C):
        y[i, j] = x[i, j] * 0.25


@mirlo.prim_func
def triple(x: T.Buffer[(N, C), T.f32], y: T.Out[(N, C), T.f32]):
    for i, j in T.grid(N, C):
        y[i, j] = x[i, j] * 3.0


mirlo.onnx_operator("com.custom", "Quarter", prim_func=quarter)
mirlo.onnx_operator("com.custom", "Triple", prim_func=triple)


def _load(artifact: Any, context: Any) -> ExternalFunctions:
    steps = artifact.metadata["kinds"]

    def function(kind: str) -> Callable[..., None]:
        def call(x: np.ndarray, *others: np.ndarray) -> None:
            others[-1][...] = np.cumsum(x, 1) if kind == "relax.cumsum" else x * BY_RULE

        return call

    return ExternalFunctions({name: function(kind) for name, kind in steps.items()})


def _codegen(module: Any, name: str) -> Any:
    """Return what Python calls by its loader, and C as source."""
    kinds = {f.name: next(node.op for node in f.nodes) for f in module.functions}
    functions = [
        f"int {name}(const mirlo_region *region, DLTensor **tensors, int64_t count) {{\n"
        f"  (void)region;\n  return compute(tensors[0], tensors[count - 1], {int(kind == 'relax.cumsum')});\n}}\n"
        for name, kind in kinds.items()
    ]
    sources = {"parts.c": _COMPUTE.replace("BY_RULE", str(BY_RULE)) + "".join(functions)}
    return NativeCode(sources=sources, loader="combos", metadata={"kinds": kinds})


_COMPUTE = """#include "mirlo.h"
static int compute(const DLTensor *input, const DLTensor *output, int adds) {
  const float *x = (const float *)((char *)input->data + input->byte_offset);
  float *y = (float *)((char *)output->data + output->byte_offset);
  int64_t rows = input->shape[0], columns = input->shape[1], i, j;
  if (input->dtype.bits == 8) {
    for (i = 0; i < rows * columns; ++i)
      ((int8_t *)y)[i] = (int8_t)(((const int8_t *)x)[i] * (int)BY_RULE);
    return 0;
  }
  for (i = 0; i < rows; ++i) {
    float sum = 0;
    for (j = 0; j < columns; ++j) {
      sum += x[i * columns + j];
      y[i * columns + j] = adds ? sum : x[i * columns + j] * (float)BY_RULE;
    }
  }
  return 0;
}
"""


def _of_bytes(operator: Any, x: Any) -> Any:
    return operator(x=x, scale=is_const(), zero_point=is_const())


PATTERNS = [
    ("composite", is_op("relax.floor")(is_op("relax.negative")(wildcard()))),
    (
        "quantized",
        _of_bytes(is_op("relax.quantize"), is_op("relax.negative")(_of_bytes(is_op("relax.dequantize"), wildcard()))),
    ),
    *((s.node, is_op(s.name)(wildcard())) for s in OPERATORS.values() if s.name and not s.steps),
    ("Quarter", is_call_tir("quarter*")(wildcard())),
]


@dataclass(frozen=True)
class Generator(CodeGenerator):
    """Takes the operators of this page, and triples."""

    name = "taker"
    guarded = False

    def patterns(self) -> Any:
        return PATTERNS

    def codegen(self, module: Any) -> Any:
        return _codegen(module, self.name)


@dataclass(frozen=True)
class Neighbour(CodeGenerator):
    """Takes the operator that follows."""

    name = "neighbour"
    guarded = False

    def patterns(self) -> Any:
        return [("sums", is_op("relax.cumsum")(wildcard()))]

    def codegen(self, module: Any) -> Any:
        return _codegen(module, self.name)


@dataclass(frozen=True)
class Region(CodeGenerator):
    """Takes the operators of this page and what follows, and leaves their code to Mirlo, with its own rules."""

    name = "region"
    pipeline = "legalize"
    guarded = False

    def patterns(self) -> Any:
        return PATTERNS


register_external_loader("combos", _load)
for generator in (Generator, Neighbour, Region):
    register_target(Target(generator.name, generator.__doc__ or "", codegen=generator))

CODE = compile_llvm("""
define void @combos_triple(ptr %a, ptr %c) {
  %x = load <8 x float>, ptr %a, align 4
  %y = fmul <8 x float> %x, <float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0, float 3.0>
  store <8 x float> %y, ptr %c, align 4
  ret void
}
""")
define_symbol("combos_triple", CODE.address("combos_triple"))


@mirlo.prim_func(buffers=True)
def by_unit(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    T.call_extern("combos_triple", a, c)


@mirlo.prim_func
def negates(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = -a[v]


@mirlo.prim_func
def halves(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = a[v] * 0.5


@mirlo.prim_func
def quarters(a: T.Buffer[(8,), T.f32], c: T.Out[(8,), T.f32]):
    for j in T.grid(8):
        with T.block("row"):
            v = T.axes("S", j)
            c[v] = a[v] * 0.25


for key, function in (("neg", negates), ("plug-in", halves), ("custom", quarters)):
    tensor_intrin(f"combos.{key}", function, by_unit)
