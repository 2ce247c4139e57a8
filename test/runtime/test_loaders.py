"""Loading code: what would end the process is found before LLVM sees it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from mirlo.runtime import loaders
from mirlo.runtime.artifact import TensorSpec, save
from mirlo.runtime.elf_linker import BadObject, symbols_of
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.executable import Executable
from mirlo.runtime.object_loader import define_symbol
from mirlo.runtime.params import ParameterStore

CALLS = """
declare float @expf(float)
declare float @nobody_defines_this(float)
@table = internal constant [2 x float] [float 1.0, float 2.0]
@number = external global i32
define float @used(float %x) {
  %a = call float @expf(float %x)
  %b = call float @nobody_defines_this(float %a)
  ret float %b
}
define internal float @hidden(float %x) { ret float %x }
define i32 @read_number() { %n = load i32, ptr @number
  ret i32 %n }
"""


@pytest.mark.parametrize(
    ("triple", "format"),
    [
        ("x86_64-unknown-linux-gnu", "elf"),
        ("aarch64-unknown-linux-gnu", "elf"),
        ("arm64-apple-macosx13.0", "macho"),
        ("x86_64-pc-windows-msvc", "coff"),
    ],
)
def test_symbols_of_each_format(object_code, triple, format):
    code = object_code(CALLS, triple)
    symbols = symbols_of(code)
    assert symbols.format == format
    assert {"used", "read_number"} <= symbols.defined and "hidden" not in symbols.defined
    assert {"expf", "nobody_defines_this", "number"} <= symbols.undefined and "used" not in symbols.undefined
    for length in range(0, len(code), 5):  # never anything but an answer or this error
        try:
            symbols_of(code[:length])
        except BadObject:
            continue


def test_symbol_that_nobody_defines(make_artifact):
    body = "call void @nobody_defines_this()\n ret void"
    artifact = make_artifact(body, "declare void @nobody_defines_this()")
    with pytest.raises(ArtifactError, match="the model's code needs nobody_defines_this, which this process does not"):
        Executable(artifact, ParameterStore())


def test_symbol_that_the_process_defines(make_artifact):
    body = """
      %y = load ptr, ptr %tensors
      %v = call i32 @mirlo_test_answer()
      store i32 %v, ptr %y
      ret void"""
    artifact = make_artifact(body, "declare i32 @mirlo_test_answer()", outputs=(TensorSpec("y", "i32", ()),))
    answer = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 42)
    define_symbol("mirlo_test_answer", ctypes.cast(answer, ctypes.c_void_p).value)
    assert int(Executable(artifact, ParameterStore())()) == 42


def test_symbol_of_the_c_library_in_a_new_process(make_artifact, tmp_path):
    body = """
      %y = load ptr, ptr %tensors
      %r = call ptr @memset(ptr %y, i32 1, i64 4)
      ret void"""
    artifact = make_artifact(body, "declare ptr @memset(ptr, i32, i64)", outputs=(TensorSpec("y", "i32", ()),))
    save(tmp_path / "m.mirlo", artifact, ParameterStore())
    # A new one, as LLVM sees the C library from the first model on that a process has loaded.
    script = f"import mirlo; print(int(mirlo.load({str(tmp_path / 'm.mirlo')!r})()))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == (str(0x01010101), "")


def test_code_that_is_no_object(artifact, store):
    for code in (b"", b"hello world" * 10, artifact.code[: len(artifact.code) // 2]):
        with pytest.raises(ArtifactError, match="the model's code cannot be loaded: .*; compile the model again"):
            Executable(replace(artifact, code=code), store)


def test_entry_that_is_not_there(artifact, store):
    with pytest.raises(ArtifactError, match="does not define its entry function 'main'"):
        Executable(replace(artifact, entry="main"), store)


def test_other_machines(artifact, store):
    def load_with(**metadata) -> None:
        Executable(replace(artifact, metadata={**artifact.metadata, **metadata}), store)

    load_with(triple=artifact.metadata["triple"].replace("unknown", "pc"))  # the vendor does not matter
    with pytest.raises(ArtifactError, match="compiled for riscv64-unknown-linux-gnu, this machine is"):
        load_with(triple="riscv64-unknown-linux-gnu")
    with pytest.raises(ArtifactError, match="compiled for a CPU with avx4096, which this one lacks"):
        load_with(features=[*artifact.metadata["features"], "avx4096"])
    with pytest.raises(ArtifactError, match=r"'features', a list of texts .*; found '.*' and \[\['avx'\]\]"):
        load_with(features=[["avx"]])
    with pytest.raises(ArtifactError, match="does not say for which machine"):
        Executable(replace(artifact, metadata={}), store)


def test_unknown_loader(artifact, store):
    with pytest.raises(ArtifactError, match="target 'tpu', whose loader 'tpu' is not installed; known: llvm"):
        Executable(replace(artifact, loader="tpu", target="tpu"), store)


def test_loader_of_a_plugin(artifact, store, monkeypatch):
    """A target may bring a loader that needs no machine code: here, Python."""

    def load(_: object) -> loaders.LoadedCode:
        def entry(tensors, params, arena, profile) -> None:
            ctypes.memmove(tensors[2], params[0], 32)

        return loaders.LoadedCode(entry, keep=None)

    monkeypatch.setattr(loaders, "_LOADERS", dict(loaders._LOADERS))
    loaders.register_loader("copy", load)
    exe = Executable(replace(artifact, loader="copy"), store)
    np.testing.assert_array_equal(exe(*exe.random_inputs().values()), store.get("w"))
