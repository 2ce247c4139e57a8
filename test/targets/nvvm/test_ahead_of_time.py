"""Machine code compiled ahead of time, and NVIDIA's library of math functions, if requested."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembled import needs_ptxas

import mirlo
from mirlo import R
from mirlo.runtime.cache import Cache
from mirlo.targets.nvvm import cubin, libdevice
from mirlo.targets.nvvm.chips import find_chip
from mirlo.testing.ptx.fake_cuda import FakeDriver

ELF = b"\x7fELF"


@mirlo.script
def model(x: R.Tensor[(4, 32), R.f32]):
    return x * x


@mirlo.script
def functions(x: R.Tensor[(4, 32), R.f32], h: R.Tensor[(64,), R.f16], d: R.Tensor[(8,), R.f64]):
    return R.softmax(R.tanh(x)), R.erf(h), R.power(d, d)


def code_of(compiled: Any, kind: str) -> bytes:
    (at, size), *others = {tuple(kernel[kind]) for kernel in compiled.artifact.metadata["kernels"].values()}
    assert not others
    return bytes(compiled.artifact.code[at : at + size])


@needs_ptxas()
def test_cubins_come_along(driver: FakeDriver, tmp_path: Path) -> None:
    compiled = mirlo.compile(model, target="nvvm{chip=sm_90a cubin=true}", cache=False)
    assert code_of(compiled, "binary").startswith(ELF) and code_of(compiled, "code").startswith(b"//")
    compiled.save(tmp_path / "model.mirlo")
    (x,) = compiled.random_inputs().values()
    np.testing.assert_allclose(mirlo.load(tmp_path / "model.mirlo")(x), x * x, rtol=1e-6)
    assert driver.images == [ELF]
    driver.takes_binaries = False
    np.testing.assert_allclose(compiled.to(device=1)(x), x * x, rtol=1e-6)
    assert driver.images[1:] == [ELF, b"//\n/"], "the PTX serves where the driver does not know the cubin"


@needs_ptxas()
def test_other_chips_take_the_ptx(driver: FakeDriver) -> None:
    compiled = mirlo.compile(model, target="nvvm{chip=sm_80 cubin=true}", cache=False)
    (x,) = compiled.random_inputs().values()
    np.testing.assert_allclose(compiled(x), x * x, rtol=1e-6)
    assert driver.images == [b"//\n/"]
    assert [find_chip("sm_80").runs_on(it) for it in ((8, 0), (8, 6), (9, 0), (7, 5))] == [True, True, False, False]
    assert [find_chip("sm_90a").runs_on(it) for it in ((9, 0), (9, 1))] == [True, False]


@needs_ptxas()
def test_cubins_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled() -> Any:
        # A rule of the caller: such models are not kept whole.
        return mirlo.compile(
            model,
            target="nvvm{chip=sm_80 cubin=true}",
            cache=Cache(tmp_path),
            legalize={"relax.abs": lambda op, b: None},
        )

    first = code_of(compiled(), "binary")
    monkeypatch.setattr(cubin, "run_ptxas", None)
    assert code_of(compiled(), "binary") == first


@pytest.mark.skipif(cubin.find_nvjitlink() is None, reason="no nvJitLink: pip install nvidia-nvjitlink")
def test_nvjitlink_assembles_too() -> None:
    compiled = mirlo.compile(model, target="nvvm{chip=sm_90a}", cache=False)
    assert cubin.link(code_of(compiled, "code"), find_chip("sm_90a")).startswith(ELF)
    with pytest.raises(cubin.AssemblerError, match="nonsense"):
        cubin.link(b".version 8.0\n.target sm_80\n.address_size 64\nnonsense", find_chip("sm_80"))


def test_without_an_assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubin, "_tool", lambda: None)
    with pytest.raises(mirlo.MirloError, match="needs NVIDIA's ptxas or nvJitLink: pip install nvidia-cuda-nvcc"):
        mirlo.compile(model, target="nvvm{chip=sm_80 cubin=true}", cache=False)


@pytest.mark.sample(0)
@pytest.mark.skipif(libdevice._find_library() is None, reason="no libdevice: pip install nvidia-nvvm")
def test_libdevice_is_linked() -> None:
    own = code_of(mirlo.compile(functions, target="nvvm{chip=sm_80}", cache=False), "code")
    target = "nvvm{chip=sm_80 libdevice=true}"
    linked = code_of(mirlo.compile(functions, target=target, cache=False), "code")
    assert own != linked and b"__nv_" not in linked, "the functions are part of the kernels"
    named = f"nvvm{{chip=sm_80 libdevice={libdevice.find_libdevice('true')}}}"
    assert code_of(mirlo.compile(functions, target=named, cache=False), "code") == linked
    if cubin._tool() is not None:
        assert cubin.to_cubin(linked, find_chip("sm_80")).startswith(ELF)


@pytest.mark.skipif(libdevice._find_library() is None, reason="no libdevice: pip install nvidia-nvvm")
def test_libdevice_has_what_is_called() -> None:
    from llvmlite import binding

    library = binding.parse_bitcode(libdevice.find_libdevice("true").read_bytes())
    defined = {function.name for function in library.functions if not function.is_declaration}
    wanted = {f"__nv_{name}{suffix}" for name in libdevice.FUNCTIONS.values() for suffix in ("", "f")}
    assert wanted <= defined


def test_without_libdevice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libdevice, "_find_library", lambda: None)
    with pytest.raises(mirlo.MirloError, match="libdevice of target 'nvvm' is not on this machine: pip install"):
        mirlo.compile(functions, target="nvvm{chip=sm_80 libdevice=true}", cache=False)
    with pytest.raises(mirlo.MirloError, match="library '/nowhere/libdevice.bc' of target 'nvvm' cannot be read"):
        mirlo.compile(functions, target="nvvm{chip=sm_80 libdevice=/nowhere/libdevice.bc}", cache=False)
    (tmp_path / "library.bc").write_bytes(b"no bitcode")
    with pytest.raises(mirlo.MirloError, match="is neither LLVM bitcode nor PTX"):
        mirlo.compile(functions, target=f"nvvm{{chip=sm_80 libdevice={tmp_path}/library.bc}}", cache=False)
