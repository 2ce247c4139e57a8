"""Functions between quantizations, which accelerators have tables for: right tables are right, a wrong one is found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from mirlo.extend.codegen import CodeGenerator, ExternalModule, functions_of_one_operand, is_const, is_op, wildcard
from mirlo.extend.runtime import NativeCode
from mirlo.extend.target import Target, option, register_target
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main
from mirlo.tools.conformance.check import names
from mirlo.tools.conformance.derived import evaluate
from mirlo.tools.conformance.patterns import check_patterns
from mirlo.tools.conformance.values import constant_of

LOOP = """
#include <mirlo.h>
int NAME(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  static const int8_t table[256] = {TABLE};
  const uint8_t *x = tensors[0]->data;
  int8_t *y = tensors[count - 1]->data;
  int64_t size = 1;
  for (int i = 0; i < tensors[0]->ndim; ++i) size *= tensors[0]->shape[i];
  for (int64_t i = 0; i < size; ++i) y[i] = table[x[i]];
  return 0;
}
"""


@dataclass(frozen=True)
class Tables(CodeGenerator):
    """A function of rectified int8 as a table of 256 elements."""

    name = "tables"
    guarded = False
    shift: int = option(0, "what is added to each entry")

    def patterns(self):  # type: ignore[no-untyped-def]
        x = is_op("relax.relu")(wildcard().has_dtype("i8"))
        real = is_op("relax.dequantize")(x, is_const().has_rank(0), is_const().has_rank(0))
        function = is_op("relax.sigmoid")(real)
        return [("table", is_op("relax.quantize")(function, is_const().has_rank(0), ...).has_dtype("i8"))]

    def codegen(self, module: ExternalModule) -> NativeCode:
        sources = {}
        for region in module.functions:
            x = np.arange(256, dtype=np.uint8).view(np.int8).astype(np.int64)
            for node in region.nodes:
                operands = [x, *(each.array for each in node.inputs[1:])]
                operands += [None] * (node.op.endswith("quantize") and len(operands) == 2)
                attributes = node.operation.opview.attribute_values()
                (x,) = evaluate(node.op.removeprefix("relax."), operands, attributes)
                x = x.astype(np.int64) if node.op == "relax.quantize" else x
            table = ", ".join(str((int(entry) + self.shift + 128) % 256 - 128) for entry in x)
            text = LOOP.replace("NAME", region.name).replace("TABLE", table)
            sources[f"{region.name}.c"] = text
        return NativeCode(sources=sources)


@pytest.fixture(autouse=True)
def tables() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("tables", "a test", codegen=Tables))
        yield


@pytest.mark.sample(0)
@pytest.mark.parametrize("shift", [0, 1])
def test_tables_are_compared(shift: int) -> None:
    names()
    (check,) = check_patterns(f"tables{{shift={shift}}},llvm")
    assert not check.untaken and not check.failures
    wrong = [text for texts in check.kinds.values() for text in texts]
    assert wrong and any(wrong) == bool(shift)


def test_a_pattern_is_checked_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-target", "tables,llvm", "--operator", "tables.table"]) == 0
    assert "1 checks of 1 operators, intrinsics and patterns: 1 ok" in capsys.readouterr().out
    assert main(["check-target", "tables,llvm", "--operator", "tables.tables"]) == 1
    assert "did you mean 'tables.table'?" in capsys.readouterr().err


def test_numbers_that_a_type_does_not_hold_wrap() -> None:
    """A pattern may contain a constant, `is_const(128)`, out of range of the drawn type."""
    assert constant_of(128, np.zeros(2, np.int8)).tolist() == [-128, -128]
    assert constant_of(0.5, np.zeros((), np.float32)) == 0.5


def test_every_function_of_one_operand_has_a_meaning() -> None:
    listed = functions_of_one_operand()
    assert {"relax.tanh", "relax.sigmoid", "relax.hard_swish", "relax.gelu"} <= set(listed)
    assert not {"relax.cast", "relax.isnan", "relax.logical_not", "relax.add", "relax.softmax"} & set(listed)
