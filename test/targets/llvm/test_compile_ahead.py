"""Compilation of kernels while passes run."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import mirlo
from mirlo.dialects.context import make_context
from mirlo.driver import compiler
from mirlo.passes.memory.plan import PlanMemory
from mirlo.passes.registry import PassError
from mirlo.targets.llvm import compile_ahead, processes, units
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.processes import Compilation, CompileTask
from mirlo.targets.llvm.processor import host_processor

SETTINGS = CodeSettings(host_processor())
KERNEL = "func.func @{name}(%x: memref<4xf32>) {{\n  return\n}}\n"
BAD = 'func.func @k(%x: index) { "no.such"(%x) : (index) -> () return }'


DATA = np.random.default_rng(0).standard_normal((2, 8, 12, 12), np.float32)
TEXT = """
<ir_version: 8, opset_import: ["": 17]>
ahead (float[{batch}, 8, 12, 12] x) => (float[{batch}, 8, 10, 10] {result}) {{
  pooled = MaxPool <kernel_shape = [3, 3]> (x)
  likely = Softmax <axis = -1> (pooled)
  transposed = Transpose <perm = [0, 1, 3, 2]> (likely)
  product = MatMul (transposed, pooled)
  {result} = Tanh (product)
}}
"""


def _model(batch: str = "2", result: str = "y") -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT.format(batch=batch, result=result))


@pytest.fixture
def watched(monkeypatch):
    """Compile small models ahead, too; return the kernels that were added and those that were needed."""
    added: list[CompileTask] = []
    needed: list[CompileTask] = []
    add, finish = Compilation.add, Compilation.finish

    def note_added(self: Compilation, task: CompileTask) -> None:
        added.append(task)
        add(self, task)

    def note_needed(self: Compilation, tasks, while_compiling=None):
        needed.extend(tasks)
        return finish(self, tasks, while_compiling)

    monkeypatch.setattr(Compilation, "add", note_added)
    monkeypatch.setattr(Compilation, "finish", note_needed)
    monkeypatch.setattr(compiler, "MIN_OPERATORS_FOR_WORKERS", 1)
    for module in (compile_ahead, units):
        monkeypatch.setattr(module, "SMALL", 1)
    monkeypatch.setattr(units, "BUNDLED", 1)
    return added, needed


@pytest.mark.sample(0)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("batch", ["2", "N"])
def test_what_is_compiled_ahead_is_what_the_model_needs(watched, threads: int, batch: str) -> None:
    ahead = mirlo.compile(_model(batch), cache=False, jobs=2, threads=threads)
    added, needed = watched
    assert len(added) >= 3
    assert set(added) == {task for task in needed if task.entry is None}
    alone = mirlo.compile(_model(batch), cache=False, jobs=1, threads=threads)
    np.testing.assert_array_equal(ahead(DATA), alone(DATA))


@pytest.mark.sample(0)
def test_code_that_turns_out_otherwise_is_compiled_again(watched, monkeypatch) -> None:
    """Without one of the passes, the kernels ahead are not those of the model, and some cannot be compiled."""
    monkeypatch.setattr(compile_ahead, "OF_KERNELS", ("lower-loops",))
    found = mirlo.compile(_model(), cache=False, jobs=2)(DATA)
    added, needed = watched
    assert set(added) - set(needed)
    monkeypatch.undo()
    np.testing.assert_array_equal(found, mirlo.compile(_model(), cache=False, jobs=1)(DATA))


@pytest.mark.sample(0)
def test_a_failing_pass_frees_the_workers(watched, monkeypatch) -> None:
    def fail(self: PlanMemory, op, session) -> None:
        raise PassError("no plan")

    monkeypatch.setattr(PlanMemory, "run", fail)
    with pytest.raises(mirlo.MirloError, match="no plan"):
        mirlo.compile(_model(), cache=False, jobs=2)
    assert watched[0]
    for process in processes._processes:
        assert process.lock.acquire(timeout=60)
        process.lock.release()


def test_code_in_the_cache_is_not_compiled_ahead(watched, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    added, _ = watched
    mirlo.compile(_model(), jobs=2)
    assert added
    added.clear()
    mirlo.compile(_model(result="other"), jobs=2)
    assert not added


def test_a_task_that_fails_and_is_not_needed_is_no_error() -> None:
    good = [CompileTask(f"k{i}", KERNEL.format(name=f"k{i}"), None) for i in range(3)]
    with make_context():
        compilation = Compilation(SETTINGS, 1)
        compilation.add(CompileTask("bad", BAD, None))
        assert len(compilation.finish(good)) == 3
        compilation = Compilation(SETTINGS, 1)
        compilation.add(CompileTask("bad", BAD, None))
        with pytest.raises(PassError, match="@bad"):
            compilation.finish([*good, CompileTask("bad", BAD, None)])


def test_a_closed_compilation_leaves_no_thread() -> None:
    with make_context():
        compilation = Compilation(SETTINGS, 1)
        compilation.add(CompileTask("k", KERNEL.format(name="k"), None))
        compilation.close()
        for feeder in compilation._feeders:
            feeder.join(timeout=60)
        assert not compilation.has_workers
