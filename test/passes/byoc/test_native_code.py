"""Native code from code generators: errors in it, and calls of it from Python."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from c_compiler import needs_c_compiler

import mirlo
from mirlo import R
from mirlo.extend.codegen import CodeGenerator, is_op, wildcard
from mirlo.extend.runtime import (
    ExternalArtifact,
    ExternalFunctions,
    LoadContext,
    NativeCode,
    native_code,
    register_external_loader,
)
from mirlo.extend.target import LlvmTarget, Target, find_target, register_target
from mirlo.passes.byoc.artifacts import artifacts_of, attach_artifact
from mirlo.passes.targets import TargetError, makes_libraries, makes_source, takes_options
from mirlo.runtime.errors import ArtifactError, PackedFunctionError
from mirlo.runtime.external import load_externals
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.params import ParameterStore
from mirlo.targets.c.compiler import compile_shared, find_compiler
from mirlo.targets.c.native import define_c_functions, with_host_library

NEGATE = """#include "mirlo.h"
int FUNCTION(const mirlo_region *region, DLTensor **tensors, int64_t count) {
  const float *x = (const float *)((char *)tensors[0]->data + tensors[0]->byte_offset);
  float *y = (float *)((char *)tensors[1]->data + tensors[1]->byte_offset);
  int64_t size = 1, i;
  (void)region, (void)count;
  if (x[0] == 7) return 5;
  for (i = 0; i < tensors[0]->ndim; ++i) size *= tensors[0]->shape[i];
  for (i = 0; i < size; ++i) y[i] = -x[i];
  return 0;
}
"""
SOURCES = {"negate.c": NEGATE.replace("FUNCTION", "minus_0")}
X = np.arange(6, dtype=np.float32).reshape(2, 3)


N = "n"


@mirlo.script
def negated(x: R.Tensor[(N, 3), R.f32]):
    return R.negative(x)


def executable(code: Any, **options: Any) -> Any:
    """Compile a negation by a code generator that returns this."""

    @dataclass(frozen=True)
    class Minus(CodeGenerator):
        name = "minus"
        guarded = options.pop("guarded", False)

        def patterns(self) -> Any:
            return [("negate", is_op("relax.negative")(wildcard()))]

        def codegen(self, module: Any) -> Any:
            return code

    register_target(Target("minus", "negations", codegen=Minus))
    return mirlo.compile(negated, "minus,llvm", cache=False, jobs=1)


WRONG = {
    "defines nothing: give it sources, objects, or the name of a driver": NativeCode(),
    "whose functions name the region 'other_0', which the module does not have": NativeCode({"other_0": "f"}),
    "whose programs name the region 'other_0'": NativeCode(driver="run", programs={"other_0": b"1"}),
    "whose program of the region 'minus_0' is a str: expected bytes": NativeCode(
        driver="run", programs={"minus_0": "1"}  # type: ignore[dict-item]
    ),
    "whose function of the region 'minus_0' is 'a b': expected a name of C": NativeCode(driver="a b"),
    "whose objects have no triple": NativeCode(objects={"a.o": b""}),
    "a file '../a.c': expected a file name without a folder": NativeCode(sources={"../a.c": ""}),
    "workspace of the region 'minus_0' is 1.5: expected bytes": NativeCode(
        driver="run", workspaces={"minus_0": 1.5}
    ),
    "'m*4' bytes, and no input has the dim 'm': expected a number, or an expression of n": NativeCode(
        driver="run", workspaces={"minus_0": "m*4"}
    ),
    "'n - 4' bytes, and it may be negative": NativeCode(driver="run", workspaces={"minus_0": "n - 4"}),
    "has no size": NativeCode(driver="run", workspaces={"minus_0": "4 bytes"}),
    "asks for the constant 'w', which the module does not have": NativeCode(driver="run", params=["w"]),
}  # fmt: skip


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said_when_it_is_compiled(message: str) -> None:
    with pytest.raises(mirlo.MirloError) as raised:
        executable(WRONG[message])
    assert message in str(raised.value)


def test_it_survives_the_ir() -> None:
    code = NativeCode(
        {"a_0": "run_a"}, "run", {"a.c": "x"}, {"a.o": b"\0\1"}, "x86_64-unknown-linux-gnu", {"a_0": b"\2"},
        {"a_0": "4*n"}, ("w",), {"s.c": "y"}, ("-O3",), {3: "off"}, "mine", b"lib", "t", {"more": [1]},
    )  # fmt: skip
    from mirlo.dialects.bindings import ir
    from mirlo.extend.ops import make_context

    with make_context(), ir.Location.unknown():
        module = ir.Module.create()
        attach_artifact(module, replace(code.artifact(["a_0"]), target="a"))
        (again,) = artifacts_of(ir.Module.parse(str(module)))
    assert native_code(again) == code


@needs_c_compiler
@pytest.mark.parametrize("guarded", [False, True])
def test_python_calls_it(guarded: bool, tmp_path: Path) -> None:
    made = executable(NativeCode(sources=SOURCES, errors={5: "seven is not for this unit"}), guarded=guarded)
    np.testing.assert_array_equal(made(X), -X)
    made.save(tmp_path / "m.mirlo")
    np.testing.assert_array_equal(mirlo.load(tmp_path / "m.mirlo")(X[:1]), -X[:1])
    with pytest.raises(PackedFunctionError, match=r"'minus_0' returned 5: seven is not for this unit"):
        made(X + 7)


@needs_c_compiler
def test_a_library_for_this_machine_needs_no_compiler_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    code = with_host_library(NativeCode(sources=SOURCES), ["minus_0"])
    monkeypatch.setattr("mirlo.targets.c.native.host_library", None)
    np.testing.assert_array_equal(executable(code)(X), -X)


@needs_c_compiler
def test_source_that_does_not_compile() -> None:
    with pytest.raises(ArtifactError, match=r"target 'minus' compiled raised CompilerError: .*failed with code 1"):
        executable(NativeCode(sources={"bad.c": "int minus_0( {"}))


@needs_c_compiler
def test_a_driver_of_this_process(tmp_path: Path) -> None:
    code = NativeCode(driver="own_negate_run")
    with pytest.raises(ArtifactError, match=r"its driver 'own_negate_run' is not in this process .* load the driver"):
        executable(code)
    content = compile_shared(NEGATE.replace("FUNCTION", "own_negate_run"), find_compiler())
    (tmp_path / "driver.so").write_bytes(content)
    ctypes.CDLL(str(tmp_path / "driver.so"), ctypes.RTLD_GLOBAL)
    np.testing.assert_array_equal(executable(code)(X), -X)


def test_a_loader_in_python() -> None:
    """A simulator in Python gets the programs; it needs no C compiler."""

    def load(artifact: ExternalArtifact, context: LoadContext) -> ExternalFunctions:
        factor = int(native_code(artifact).programs["minus_0"])
        return ExternalFunctions({"minus_0": lambda x, y: np.multiply(x, factor, out=y)})

    register_external_loader("minus-simulator", load)
    code = NativeCode(driver="run", programs={"minus_0": b"-3"}, loader="minus-simulator")
    np.testing.assert_array_equal(executable(code)(X), -3 * X)


@needs_c_compiler
def test_parts_of_older_versions_load() -> None:
    """Call a library of target `c` as it was before NativeCode: functions take the constants alone."""
    text = """#include "mirlo.h"
    int old(void **params, DLTensor **tensors, int64_t count) {
      (void)count;
      *(float *)tensors[0]->data = *(const float *)params[0] + 1;
      return 0;
    }"""
    metadata = {"symbols": {"c_0": "old"}, "triple": llvm_host()["triple"], "source": text}
    data = compile_shared(text, find_compiler())
    store = ParameterStore()
    store.add("w", np.array([41], np.float32))
    loaded = load_externals([ExternalArtifact("c", ("c_0",), data, ("w",), metadata, "c")], store, 1)
    from mirlo.runtime.dlpack import DLTensor

    y = np.zeros(1, np.float32)
    tensor = DLTensor(data=y.ctypes.data, ndim=1)
    tensors = (ctypes.POINTER(DLTensor) * 1)(ctypes.pointer(tensor))
    assert loaded.functions["c.c_0"](tensors, 1) == 0 and y[0] == 42
    loaded.release()


@needs_c_compiler
def test_functions_for_compiled_code() -> None:
    with pytest.raises(mirlo.MirloError, match="the C source does not define 'other'"):
        define_c_functions("int one(void) { return 1; }", ["other"])


def test_targets_inherit_what_their_parents_answer() -> None:
    llvm = find_target("llvm")

    class Same(Target):
        pipeline, emit = LlvmTarget.pipeline, LlvmTarget.emit

    class Own(Target):
        pipeline = LlvmTarget.pipeline

        def emit(self, module: Any, options: Any) -> Any:
            return llvm.emit(module, options)

    register_target(Same("same-emit", "", parent="llvm"))
    register_target(Own("own-emit", "", parent="llvm"))
    register_target(Same("refusing", "", parent="llvm", takes_options=False, makes_libraries=False))
    answers = {
        name: (takes_options(name), makes_libraries(name), makes_source(name))
        for name in ("llvm", "c", "same-emit", "own-emit", "refusing", "nvvm")
    }
    assert answers == {
        "llvm": (True, True, False), "c": (True, False, True), "same-emit": (True, True, False),
        "own-emit": (True, False, False), "refusing": (False, False, False), "nvvm": (True, False, False),
    }  # fmt: skip
    np.testing.assert_array_equal(mirlo.compile(negated, "same-emit{cpu=native}", cache=False, jobs=1)(X), -X)
    with pytest.raises(TargetError, match="takes no options"):
        mirlo.compile(negated, "refusing{cpu=native}")
