"""Object files of weights: what LLVM reads in them is what was written, for every system."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx_models import F32, make_model, node

from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.targets.llvm.cpus import arch_of
from mirlo.targets.llvm.library import objects
from mirlo.targets.llvm.library.build import write_library
from mirlo.targets.llvm.library.description import LibraryError

llvm = pytest.importorskip("llvmlite.binding")

TRIPLES = [
    "x86_64-unknown-linux-gnu", "aarch64-linux-gnu", "riscv64-linux-gnu", "x86_64-w64-windows-gnu",
    "x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc", "aarch64-apple-macosx13", "arm64-apple-macosx13",
    "x86_64-apple-macosx13", "x86_64-macos",
]  # fmt: skip
MAGIC = {"linux": b"\x7fELF", "windows": b"", "macos": b"\xcf\xfa\xed\xfe"}


def _sections(content: bytes) -> list[bytes]:
    return [bytes(section.data()) for section in llvm.ObjectFileRef.from_data(content).sections()]


@pytest.mark.parametrize("size", [64, 65, 1000])
@pytest.mark.parametrize("triple", TRIPLES)
def test_llvm_reads_what_was_written(triple: str, size: int, tmp_path: Path) -> None:
    form = objects.data_format(triple)
    assert form is not None
    content = bytes(i * 7 % 256 for i in range(size))
    parts = [content[:10], memoryview(content[10:]), b""]
    form.write(tmp_path / "w.o", arch_of(triple), "mirlo_weights_m", parts, size)
    written = (tmp_path / "w.o").read_bytes()
    assert written.startswith(next(magic for system, magic in MAGIC.items() if system in triple))
    assert _sections(written).count(content) == 1
    assert b"mirlo_weights_m\0" in written


@pytest.mark.parametrize("triple", ["wasm32-unknown-unknown"])
def test_other_systems_have_none(triple: str) -> None:
    assert objects.data_format(triple) is None


def _model() -> Any:
    nodes = [node("MatMul", "x w", "y")]
    return make_model(nodes, {"x": (F32, (2, 40))}, ["y"], {"w": np.ones((40, 8), np.float32)})


def test_more_weights_than_a_file_may_have_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = "llvm{cpu=x86-64-v2 triple=x86_64-w64-windows-gnu}"
    artifact, store = compile_code(CompileRequest(_model(), target, form="llvm-ir", jobs=1, cache=False))
    form = objects.DATA_FORMATS["windows"]
    monkeypatch.setitem(objects.DATA_FORMATS, "windows", objects.DataFormat(form.machines, form.write, 1000))
    with pytest.raises(
        LibraryError, match=r"'m' has \d+ bytes of weights, and at most 1000 are embedded in object files"
    ):
        write_library(artifact, store, tmp_path / "a", "m", shared=False, weights="embed")
    names = {path.name for path in write_library(artifact, store, tmp_path / "b", "m", shared=False)}
    assert "m.weights" in names and "m_weights.o" not in names


def test_where_object_files_cannot_have_weights_they_are_beside(tmp_path: Path) -> None:
    target = "llvm{cpu=generic triple=wasm32-unknown-unknown}"
    artifact, store = compile_code(CompileRequest(_model(), target, form="llvm-ir", jobs=1, cache=False))
    with pytest.raises(LibraryError, match="at most 0 are embedded in object files for wasm32"):
        write_library(artifact, store, tmp_path / "a", "m", shared=False, weights="embed")
    assert "m.weights" in {path.name for path in write_library(artifact, store, tmp_path / "b", "m", shared=False)}
