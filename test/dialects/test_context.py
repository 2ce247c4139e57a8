"""What a new context has, and what it loads when it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mirlo.dialects.bindings import BUILT_DIALECTS, ir, new_context
from mirlo.dialects.context import make_context
from mirlo.dialects.relax.activation import Silu


@pytest.mark.skipif(not hasattr(ir.Context, "is_dialect_loaded"), reason="this build of MLIR does not tell")
def test_dialects_that_text_names_are_loaded() -> None:
    with new_context() as context, ir.Location.unknown():
        assert not context.is_dialect_loaded("shape") and all(map(context.is_dialect_loaded, BUILT_DIALECTS))
        assert ir.Module.parse("%0 = shape.const_size 4").operation.verify()
        assert context.is_dialect_loaded("shape")


_VIEWS = """
import sys
from mirlo.dialects.bindings import PACKAGE, ir, new_context
name = f"{PACKAGE}.dialects.llvm"
with new_context(), ir.Location.unknown():
    module = ir.Module.parse("llvm.func @f() { llvm.return }")
    view = module.body.operations[0]
    print(type(view).__name__, view.operation.name, name in sys.modules)
    from mirlo.dialects.bindings import llvm
    print(type(module.body.operations[0]).__name__, str(llvm.PointerType.get()))
"""


def test_views_of_the_llvm_dialect_are_imported_by_who_uses_them() -> None:
    done = subprocess.run([sys.executable, "-c", _VIEWS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["OpView llvm.func False", "LLVMFuncOp !llvm.ptr"]


def test_a_check_that_raises_by_mistake_is_an_error_of_its_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(op: ir.OpView) -> None:
        raise KeyError("groups")

    monkeypatch.setattr(Silu, "check", check, raising=False)
    with make_context(), ir.Location.unknown(), pytest.raises(ir.MLIRError) as caught:
        ir.Module.parse(
            "func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {\n"
            '  %0 = "relax.silu"(%x) : (tensor<4xf32>) -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}'
        )
    assert "'relax.silu' op its check raised KeyError" in str(caught.value)
