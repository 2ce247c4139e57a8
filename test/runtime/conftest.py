"""Small compiled models for the tests of the run time, made with llvmlite from LLVM IR written by hand."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import cache

import llvmlite.binding as llvm
import numpy as np
import pytest

from mirlo.runtime.artifact import Artifact, KernelInfo, TensorSpec
from mirlo.runtime.executable import Executable
from mirlo.runtime.loaders import llvm_host
from mirlo.runtime.object_loader import llvm_binding
from mirlo.runtime.params import ParameterStore

ENTRY = "define void @model(ptr %tensors, ptr %params, ptr %arena, ptr %profile)"
# AArch64 keeps its cycle counter from user code; its steady one runs at a constant rate too.
COUNTER = "readsteadycounter" if platform.machine() in ("aarch64", "arm64") else "readcyclecounter"

_LOOP = """
define internal void @{name}(ptr %a, ptr %b, ptr %out) noinline {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %pa = getelementptr float, ptr %a, i64 %i
  %pb = getelementptr float, ptr %b, i64 %i
  %po = getelementptr float, ptr %out, i64 %i
  %va = load float, ptr %pa, align 4
  %vb = load float, ptr %pb, align 4
  %r = {op} float %va, %vb
  store float %r, ptr %po, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {count}
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""

# y = (a + w) * b, the sum in the arena: two inputs, one parameter, two kernels.
_MODEL = """
declare i64 @llvm.{counter}()
define internal void @stamp(ptr %profile, i64 %slot) {{
  %off = icmp eq ptr %profile, null
  br i1 %off, label %done, label %write
write:
  %t = call i64 @llvm.{counter}()
  %p = getelementptr i64, ptr %profile, i64 %slot
  store i64 %t, ptr %p
  br label %done
done:
  ret void
}}
{entry} {{
  %a = load ptr, ptr %tensors
  %pb = getelementptr ptr, ptr %tensors, i64 1
  %b = load ptr, ptr %pb
  %py = getelementptr ptr, ptr %tensors, i64 2
  %y = load ptr, ptr %py
  %w = load ptr, ptr %params
  call void @stamp(ptr %profile, i64 0)
  call void @add(ptr %a, ptr %w, ptr %arena)
  call void @stamp(ptr %profile, i64 1)
  call void @mul(ptr %arena, ptr %b, ptr %y)
  call void @stamp(ptr %profile, i64 2)
  ret void
}}
"""


@cache
def compile_ir(text: str, triple: str | None = None) -> bytes:
    """Return an object file."""
    if triple:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    llvm_binding()  # initializes LLVM for this machine
    module = llvm.parse_assembly(text)
    module.triple = triple or llvm.get_process_triple()
    machine = llvm.Target.from_triple(module.triple).create_target_machine(reloc="pic", codemodel="small")
    return machine.emit_object(module)


def affine_artifact(count: int = 8) -> Artifact:
    text = _LOOP.format(name="add", op="fadd", count=count) + _LOOP.format(name="mul", op="fmul", count=count)
    spec = [TensorSpec(name, "f32", (count,)) for name in ("a", "b", "y", "w")]
    return Artifact(
        target="llvm",
        loader="llvm",
        code=compile_ir(text + _MODEL.format(entry=ENTRY, counter=COUNTER)),
        entry="model",
        inputs=(spec[0], spec[1]),
        outputs=(spec[2],),
        params=(spec[3],),
        arena_bytes=count * 4,
        kernels=(
            KernelInfo("add", "/layer/Add", "elementwise", count, count * 12),
            KernelInfo("mul", "/layer/Mul", "elementwise", count, count * 12),
        ),
        metadata=llvm_host(),
    )


def weights(count: int = 8) -> ParameterStore:
    store = ParameterStore()
    store.add("w", np.arange(count, dtype=np.float32))
    return store


@pytest.fixture
def affine() -> Callable[[int], Executable]:
    """Make the executable of y = (a + w) * b on vectors of a length, w = 0, 1, 2..."""
    return lambda count=8: Executable(affine_artifact(count), weights(count))


@pytest.fixture
def artifact() -> Artifact:
    """Return the artifact of y = (a + w) * b on vectors of 8."""
    return affine_artifact()


@pytest.fixture
def store() -> ParameterStore:
    """Its parameters."""
    return weights()


@pytest.fixture
def object_code() -> Callable[..., bytes]:
    """Compiles LLVM IR to an object file."""
    return compile_ir


@pytest.fixture
def make_artifact() -> Callable[..., Artifact]:
    """Return an artifact whose entry function has the given body in LLVM IR."""

    def make(body: str, declarations: str = "", **fields) -> Artifact:
        code = compile_ir(f"{declarations}\n{ENTRY} {{\n{body}\n}}")
        defaults = {
            "target": "llvm",
            "loader": "llvm",
            "code": code,
            "entry": "model",
            "inputs": (),
            "outputs": (),
            "params": (),
            "arena_bytes": 0,
        }
        metadata = {**llvm_host(), **fields.pop("metadata", {})}
        return Artifact(**{**defaults, **fields}, metadata=metadata)

    return make
