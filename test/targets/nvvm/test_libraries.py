"""C functions in kernels: from files of bitcode and PTX that the target names, and from libdevice."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, T
from mirlo.targets.host.llvm_ir import llvmlite
from mirlo.targets.nvvm import cubin, libdevice
from mirlo.targets.nvvm.chips import find_chip
from mirlo.targets.nvvm.libraries import merge_ptx, open_library
from mirlo.targets.nvvm.ptx import TRIPLE, _machine
from mirlo.testing.ptx.driver import emulated

SOURCE = f"""
target triple = "{TRIPLE}"
define float @twice_plus(float %x, float %y) {{
  %a = fadd float %x, %x
  %b = fadd float %a, %y
  ret float %b
}}
define void @fill(ptr %p, i64 %at, float %x) {{
  %q = getelementptr float, ptr %p, i64 %at
  store float %x, ptr %q
  ret void
}}
"""
M, N = T.dims("M", "N")


@mirlo.prim_func
def doubled(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("doubled"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = T.call_extern("twice_plus", x[vi, vj], T.f32(1.0), dtype="f32")


@mirlo.script
def model(x: R.Tensor[(3, 40), R.f32]):
    return R.call_tir(doubled, x)


@mirlo.prim_func(buffers=True)
def filled(x: T.Buffer[(8,), T.f32], y: T.Out[(8,), T.f32]):
    for i in T.serial(0, 8):
        T.call_extern("fill", y, i, x[i])


@mirlo.script
def pointers(x: R.Tensor[(8,), R.f32]):
    return R.call_tir(filled, x)


@mirlo.prim_func
def error_function(x: T.Buffer[(M, N), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("erf"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = T.call_extern("__nv_erff", x[vi, vj], dtype="f32")


@mirlo.script
def of_libdevice(x: R.Tensor[(3, 40), R.f32]):
    return R.call_tir(error_function, x)


def module_of(source: str) -> Any:
    binding = llvmlite()
    module = binding.parse_assembly(source)
    machine = _machine("sm_80", find_chip("sm_80").ptx, 3)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    return module, machine


def bitcode(folder: Path, source: str = SOURCE) -> Path:
    path = folder / "functions.bc"
    path.write_bytes(module_of(source)[0].as_bitcode())
    return path


def ptx(folder: Path, source: str = SOURCE) -> Path:
    path = folder / "functions.ptx"
    module, machine = module_of(source)
    path.write_text(machine.emit_assembly(module))
    return path


def compiled(program: Any, *libraries: Any, chip: str = "sm_80", **options: Any) -> Any:
    named = " ".join(f"library={library}" for library in libraries)
    return mirlo.compile(program, target=f"nvvm{{chip={chip} {named}}}", cache=False, **options)


@pytest.mark.sample(0)
def test_bitcode_is_linked(tmp_path: Path) -> None:
    with emulated("sm_80"):
        f = compiled(model, bitcode(tmp_path))
        (x,) = f.random_inputs().values()
        np.testing.assert_allclose(f(x), 2 * x + 1, rtol=1e-6)
        f = compiled(pointers, bitcode(tmp_path))
        (x,) = f.random_inputs().values()
        np.testing.assert_array_equal(f(x), x)


@pytest.mark.parametrize("program", [model, pointers])
def test_ptx_is_merged(program: Any, tmp_path: Path) -> None:
    code = bytes(compiled(program, ptx(tmp_path)).artifact.code)
    name = b"twice_plus" if program is model else b"fill"
    assert b"call.uni" in code and code.count(name + b"(") + code.count(name + b"\n(") == 1
    assert b".extern .func" not in code and code.count(b".version") == 1
    if cubin._tool() is not None:
        whole = code[: code.rindex(b"}") + 1]
        assert cubin.to_cubin(whole, find_chip("sm_80")).startswith(b"\x7fELF")


@pytest.mark.sample(0)
@pytest.mark.skipif(libdevice._find_library() is None, reason="no libdevice: pip install nvidia-nvvm")
@pytest.mark.parametrize("named", ["libdevice", "file", "option"])
def test_libdevice(named: str) -> None:
    if named == "option":
        f = mirlo.compile(of_libdevice, target="nvvm{chip=sm_80 libdevice=true}", cache=False)
    else:
        f = compiled(of_libdevice, named if named == "libdevice" else libdevice.find_libdevice("true"))
    assert b"__nv_" not in bytes(f.artifact.code)
    with emulated("sm_80"):
        f = compiled(of_libdevice, "libdevice")
        (x,) = f.random_inputs().values()
        np.testing.assert_allclose(f(x), np.vectorize(math.erf)(x), rtol=1e-5, atol=1e-6)


def test_the_newest_version_counts(tmp_path: Path) -> None:
    path = ptx(tmp_path)
    path.write_text(path.read_text().replace(".version 8.0", ".version 8.7"))
    assert b".version 8.7\n" in bytes(compiled(model, path).artifact.code)


def test_files_that_are_no_libraries(tmp_path: Path) -> None:
    for content, reason in (
        (b"", "neither LLVM bitcode nor PTX"),
        (b"\x7fELF", "neither LLVM bitcode nor PTX"),
        (b"BC\xc0\xde" + bytes(range(200)), "cannot be read: "),
        (b"BC\xc0\xde", "cannot be read: "),
        (b".version 8.0\n.address_size 64", "which no library of target 'nvvm' defines"),
    ):
        (tmp_path / "library").write_bytes(content)
        with pytest.raises(mirlo.MirloError, match=reason):
            compiled(model, tmp_path / "library")
    with pytest.raises(mirlo.MirloError, match="library '/nowhere.bc' of target 'nvvm' cannot be read: No such file"):
        compiled(model, "/nowhere.bc")
    with pytest.raises(mirlo.MirloError, match="cannot be read: Is a directory"):
        compiled(model, tmp_path)
    with pytest.raises(mirlo.MirloError, match="option library of target 'nvvm' needs a file"):
        compiled(model, "")


def test_every_cut_of_a_library_is_an_error(tmp_path: Path) -> None:
    content = bitcode(tmp_path).read_bytes()
    for size in range(4, len(content), max(1, len(content) // 6)):
        (tmp_path / "cut.bc").write_bytes(content[:size])
        with pytest.raises(mirlo.MirloError, match="cannot be read|which no library"):
            compiled(model, tmp_path / "cut.bc")


def test_functions_that_are_nowhere(tmp_path: Path) -> None:
    with pytest.raises(mirlo.MirloError, match=r"test_libraries.py:\d+:\d+: .*'twice_plus', which no library"):
        compiled(model, bitcode(tmp_path, SOURCE.replace("twice_plus", "thrice_plus")))
    with pytest.raises(mirlo.MirloError, match="the C function 'twice_plus', .*nvvm{library=FILE}"):
        compiled(model)
    with pytest.raises(mirlo.MirloError, match="'__nv_erff', .*nvvm{library=libdevice}"):
        compiled(of_libdevice)


@pytest.mark.parametrize("make", [bitcode, ptx])
def test_other_types(make: Any, tmp_path: Path) -> None:
    wrong = "define double @twice_plus(double %x, float %y) {\n  ret double %x\n}\n"
    with pytest.raises(mirlo.MirloError, match="a kernel calls 'twice_plus' as .*, but library .* defines it as"):
        compiled(model, make(tmp_path, wrong))


def test_ptx_of_another_chip(tmp_path: Path) -> None:
    path = ptx(tmp_path)
    path.write_text(path.read_text().replace(".target sm_80", ".target sm_90"))
    with pytest.raises(mirlo.MirloError, match="is for sm_90, which 'sm_80' does not run"):
        compiled(model, path)


def test_clashes(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for make in (bitcode, ptx):
        with pytest.raises(mirlo.MirloError, match="other/.* defines 'twice_plus', as another library does"):
            compiled(model, make(tmp_path), make(tmp_path / "other"))
    text = ptx(tmp_path).read_text()
    assert merge_ptx(text, find_chip("sm_80"), []) == text


def test_another_content_is_another_model(tmp_path: Path) -> None:
    from mirlo.passes.targets import find_target

    target, path = find_target("nvvm"), bitcode(tmp_path)
    first = target.fingerprint(f"chip=sm_80 library={path}")
    assert first == target.fingerprint(f"chip=sm_80 library={path}") != target.fingerprint("chip=sm_80")
    bitcode(tmp_path, SOURCE.replace("fadd float %a, %y", "fsub float %a, %y"))
    assert target.fingerprint(f"chip=sm_80 library={path}") != first
    assert set(open_library(str(path)).functions) == {"twice_plus", "fill"}
