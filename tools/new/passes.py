"""`mirlo new pass`: a pass over graphs."""

from __future__ import annotations

from mirlo.tools.new import common

_MODULE = '''"""The pass `@DASHED@`: change what it matches and makes, and run the tests."""

from mirlo.runtime.records import dataclass

from mirlo.dialects.core.surgery import operations, replace_op
from mirlo.extend.target import Pass, option, register_pass


@register_pass
@dataclass(frozen=True)
class @CLASS@(Pass):
    """Replace an operator that changes nothing when it is applied twice by its operand."""

    name = "@DASHED@"
    anchor = "func.func"
    operator: str = option("relax.relu", "the operator")

    def run(self, op, session):
        for outer in operations(op):
            inner = outer.operands[0].owner if outer.name == self.operator else None
            if getattr(inner, "name", "") == self.operator:
                replace_op(outer, [inner.results[0]])
'''

_TEST = '''"""The pass `@DASHED@` keeps what a model computes."""

import @NAME@  # noqa: F401 (registers the pass)
import numpy as np

from mirlo.extend.target import Pipeline
from mirlo.testing import after_passes, runs_as_numpy

MODEL = """
func.func @main(%x: tensor<4x9xf32> {relax.name = "x"}) -> (tensor<4x9xf32> {relax.name = "y"}) {
  %0 = "relax.relu"(%x) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  %1 = "relax.relu"(%0) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %1 : tensor<4x9xf32>
}
"""


def test_it_rewrites():
    assert after_passes(MODEL, "@DASHED@").count("relax.relu") == 1


def test_values():
    runs_as_numpy(MODEL, lambda x: np.maximum(x, 0), pipeline="@DASHED@" + Pipeline.named("llvm"))
'''

_LIT = """// RUN: mirlo-opt %s --load-pass-plugin %plugin --@DASHED@ | FileCheck %s

// CHECK:     func.func @main
// CHECK:     "relax.relu"
// CHECK-NOT: "relax.relu"
func.func @main(%x: tensor<4x9xf32>) -> tensor<4x9xf32> {
  %0 = "relax.relu"(%x) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  %1 = "relax.relu"(%0) : (tensor<4x9xf32>) -> tensor<4x9xf32>
  return %1 : tensor<4x9xf32>
}
"""


def files(name: str) -> dict[str, str]:
    """Return the files of the package."""
    texts = {f"{name}.py": _MODULE, f"tests/test_{name}.py": _TEST, f"tests/{name}.mlir": _LIT}
    words = {"@NAME@": name, "@CLASS@": common.class_name(name), "@DASHED@": name.replace("_", "-")}
    for word, text in words.items():
        texts = {path: old.replace(word, text) for path, old in texts.items()}
    return common.files(name, {"passes": name}) | texts
