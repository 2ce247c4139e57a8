"""The memory of a compilation: weights are packed one by one; pages of files are released once unneeded."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from memory_growth import peak_growth
from onnx_models import F32, make_model, node

import mirlo
from mirlo.runtime import memory, system
from mirlo.runtime.errors import NotForThisMachine, OutOfMemoryError, ParameterError

COUNT, SIZE = 8, 1536


def save_products(path: Path, size: int) -> list[np.ndarray]:
    """Write a chain of products with constants, which are packed; return these."""
    weights = [np.random.default_rng(i).random((size, size), np.float32) / size for i in range(COUNT)]
    nodes = [node("MatMul", f"x{i} w{i}", f"x{i + 1}") for i in range(COUNT)]
    named = {f"w{i}": weight for i, weight in enumerate(weights)}
    onnx.save(make_model(nodes, {"x0": (F32, [4, size])}, [f"x{COUNT}"], named), path)
    return weights


@pytest.mark.sample(0)
def test_weights_are_in_memory_once(tmp_path: Path) -> None:
    """Beside the packed weights, one of them is in memory a second time, and pages of one are mapped."""

    def compile_and_run(path: Path, weights: list[np.ndarray]) -> None:
        expected = x = np.random.default_rng(9).random((4, len(weights[0])), np.float32)
        for weight in weights:
            expected = expected @ weight
        np.testing.assert_allclose(mirlo.compile(path, jobs=1, cache=False)(x), expected, rtol=1e-4)

    few = save_products(tmp_path / "few.onnx", 32)
    compile_and_run(tmp_path / "few.onnx", few)  # imports
    base = peak_growth(lambda: compile_and_run(tmp_path / "few.onnx", few))
    weights = save_products(tmp_path / "many.onnx", SIZE)
    growth = peak_growth(lambda: compile_and_run(tmp_path / "many.onnx", weights)) - base
    size = sum(weight.nbytes for weight in weights)
    assert size < growth < 1.6 * size


@pytest.mark.sample(0)
def test_weights_that_are_only_saved_are_not_kept(tmp_path: Path) -> None:
    """The file is the same, with and without the cache; weights are in memory one after the other."""
    few, many, saved = tmp_path / "few.onnx", tmp_path / "many.onnx", tmp_path / "saved.mirlo"
    save_products(few, 32)
    weights = save_products(many, SIZE)
    mirlo.compile(many, jobs=1, cache=False).save(tmp_path / "loaded.mirlo")

    def compile_and_save(path: Path) -> None:
        mirlo.compile(path, jobs=1, cache=False, load=False).save(saved)

    compile_and_save(few)  # imports
    base = peak_growth(lambda: compile_and_save(few))
    growth = peak_growth(lambda: compile_and_save(many)) - base
    assert growth < 0.5 * sum(weight.nbytes for weight in weights)
    assert saved.read_bytes() == (tmp_path / "loaded.mirlo").read_bytes()
    model = mirlo.compile(many, jobs=1, cache=False, load=False)
    assert model.memory.weights_bytes >= sum(weight.nbytes for weight in weights)
    with pytest.raises(NotForThisMachine, match="load=False"):
        model(np.ones((4, SIZE), np.float32))
    mirlo.compile(many, jobs=1, cache=tmp_path / "cache", load=False).save(saved)
    assert saved.read_bytes() == (tmp_path / "loaded.mirlo").read_bytes()


@pytest.mark.sample(0)
def test_little_memory(tmp_path: Path) -> None:
    """Where memory is worth more than time, packed weights are pages of a file, of which few are in memory."""
    few, many = tmp_path / "few.onnx", tmp_path / "many.onnx"
    save_products(few, 32)
    weights = save_products(many, SIZE)
    compiled = mirlo.compile(few, "llvm{memory=small}", cache=False)
    assert np.array_equal(
        compiled(np.ones((4, 32), np.float32)), mirlo.compile(few, cache=False)(np.ones((4, 32), np.float32))
    )
    base = peak_growth(lambda: mirlo.compile(few, "llvm{memory=small}", cache=False))
    growth = peak_growth(lambda: mirlo.compile(many, "llvm{memory=small}", cache=False)) - base
    assert growth < 0.6 * sum(weight.nbytes for weight in weights)
    executable = mirlo.compile(many, "llvm{memory=small}", cache=False)
    x = np.random.default_rng(9).random((4, SIZE), np.float32)
    assert np.array_equal(executable(x), mirlo.compile(many, cache=False)(x))


def test_too_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.onnx"
    save_products(path, 512)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "available_bytes", lambda: 1 << 20)
        with pytest.raises(OutOfMemoryError, match=r"the weights: 8\d{6} bytes .* 1048576 .*llvm\{memory=small\}"):
            mirlo.compile(path, cache=False)
        mirlo.compile(path, "llvm{memory=small}", cache=False)

    def fill_disk(nbytes: int, folder: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(system, "map_temporary", fill_disk)
    with pytest.raises(OutOfMemoryError, match=r"a file of \d+ bytes in '.*': No space left on device"):
        mirlo.compile(path, "llvm{memory=small}", cache=False)


def test_memory_that_runs_out_in_a_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*arguments: object) -> None:
        raise MemoryError("1 MiB")

    path = tmp_path / "net.onnx"
    save_products(path, 32)
    monkeypatch.setattr("mirlo.driver.compiler.find_tables", run_out)
    with pytest.raises(OutOfMemoryError, match="too little memory to compile the model, 1 MiB; compile for"):
        mirlo.compile(path, cache=False)


def code_in_memory() -> int:
    """Return the bytes of LLVM's code that are mapped into this process."""
    total, is_code = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            is_code = words[1] == "r-xp" and "libllvmlite" in line
        elif words[0] == "Rss:" and is_code:
            total += int(words[1]) << 10
    return total


@pytest.mark.skipif(sys.platform != "linux", reason="pages of other systems stay mapped")
def test_code_of_the_compiler_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is loaded needs no code of LLVM, which is mapped again for the next one."""
    path, x = tmp_path / "net.onnx", np.ones((4, 32), np.float32)
    save_products(path, 32)
    with monkeypatch.context() as patch:
        patch.setattr(system, "release_code", lambda: None)
        expected = mirlo.compile(path, jobs=1, cache=False)(x)
    before = code_in_memory()
    monkeypatch.setattr(system, "_last_release", float("-inf"))
    executable = mirlo.compile(path, jobs=1, cache=False)
    assert code_in_memory() < before / 4
    assert np.array_equal(executable(x), expected)


@pytest.mark.parametrize("is_cut_off", [False, True], ids=["overwritten", "cut off"])
def test_weights_of_a_file_that_changes(tmp_path: Path, is_cut_off: bool) -> None:
    """Weights that stay in the model's file until they are saved are those that were compiled, or there is an error."""
    path, saved = tmp_path / "net.onnx", tmp_path / "saved.mirlo"
    save_products(path, 256)
    kept, changed = mirlo.compile(path, cache=False, load=False), mirlo.compile(path, cache=False, load=False)
    content = path.read_bytes()
    path.rename(tmp_path / "old.onnx")
    path.write_bytes(b"another")
    kept.save(saved)  # another file of the same name is none of its business
    expected = saved.read_bytes()
    with open(tmp_path / "old.onnx", "r+b") as file:
        file.truncate(4096) if is_cut_off else file.write(content)
    for model in (kept, changed):
        with pytest.raises(ParameterError, match=r"net\.onnx: the file has changed since it was opened"):
            model.save(saved)
    assert saved.read_bytes() == expected
