"""The dialects of a new context, and those that are loaded on demand."""

from __future__ import annotations

import subprocess
import sys
import weakref

import pytest

from mirlo.dialects import context as contexts
from mirlo.dialects.bindings import BUILT_DIALECTS, ir, new_context
from mirlo.dialects.context import make_context, recycle_context
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
    assert "'relax.silu' op its check() at " in str(caught.value) and " raised KeyError: " in str(caught.value)


@pytest.fixture
def none_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_free", [])


@pytest.mark.usefixtures("none_is_free")
def test_a_context_that_nothing_refers_to_is_used_again() -> None:
    context = make_context()
    kept = weakref.ref(context)
    with context, ir.Location.unknown():
        module = ir.Module.parse("func.func @f() { return }")
    del module
    recycle_context(context)
    del context
    again = make_context()
    assert again is kept() and make_context() is not again


@pytest.mark.usefixtures("none_is_free")
def test_garbage_in_cycles_is_no_reference_to_a_context() -> None:
    context = make_context()
    kept = weakref.ref(context)
    cycle: list[object] = [context]
    cycle.append(cycle)
    recycle_context(context)
    del context, cycle
    assert make_context() is kept()


@pytest.mark.usefixtures("none_is_free")
@pytest.mark.parametrize("what", ("module", "attribute", "context"))
def test_a_context_in_use_is_not_used_again(what: str) -> None:
    context = make_context()
    with context, ir.Location.unknown():
        parsed = ir.Module.parse("func.func @f() { return }"), ir.Attribute.parse("1 : i32"), context
    held = parsed[("module", "attribute", "context").index(what)]
    del parsed
    recycle_context(context)
    kept = weakref.ref(context)
    del context
    assert make_context() is not kept() and held is not None


@pytest.mark.usefixtures("none_is_free")
def test_a_context_without_the_latest_operations_is_not_used_again() -> None:
    context = make_context()
    recycle_context(context)
    before = weakref.ref(context)
    del context
    dialect = contexts.register_dialect("later")
    try:
        with make_context(), ir.Location.unknown():
            assert before() is None and ir.Module.parse("").operation.verify() and dialect in contexts.EXTRA_DIALECTS
    finally:
        contexts.forget_dialects(__name__)


@pytest.mark.usefixtures("none_is_free")
def test_a_context_of_others_is_not_used_again() -> None:
    for context in (new_context(), make_context(allow_unregistered=True)):
        recycle_context(context)
    del context
    assert not contexts._free and not make_context().allow_unregistered_dialects


@pytest.mark.usefixtures("none_is_free")
def test_a_context_is_used_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MAX_USES", 3)
    used: list[bool] = []
    for _ in range(6):
        context = make_context()
        used.append(bool(contexts._uses.get(context)))
        recycle_context(context)
        del context
    assert used == [False, True, True, False, True, True]
