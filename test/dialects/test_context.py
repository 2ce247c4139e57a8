"""What a new context has, and what it loads when it is needed."""

from __future__ import annotations

import subprocess
import sys

from mirlo.dialects.bindings import BUILT_DIALECTS, ir, new_context


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
