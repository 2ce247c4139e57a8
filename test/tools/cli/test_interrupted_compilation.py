"""Ctrl-C while kernels are compiled: one line, exit code 130, no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ENVIRONMENT
from weightless import weightless_model

from mirlo.dialects.context import make_context
from mirlo.targets.llvm import processes
from mirlo.targets.llvm.machine_code import CodeSettings
from mirlo.targets.llvm.processes import CompileTask, compile_all
from mirlo.targets.llvm.processor import host_processor

SETTINGS = CodeSettings(host_processor())
TEXT = "func.func @{name}(%x: memref<4xf32>) {{ return }}"


def _children(pid: int) -> list[int]:
    return [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds processes in /proc")
@pytest.mark.parametrize("step", ["legalize", "emit"])
@pytest.mark.sample(0)
def test_ctrl_c_in_a_terminal(step: str, tmp_path: Path) -> None:
    """A terminal sends the signal to all processes of the group."""
    model = weightless_model("mobilenetv2", tmp_path)
    command = [sys.executable, "-um", "mirlo.tools.cli", "compile", str(model), "-v", "--no-cache", "--jobs", "2"]
    with subprocess.Popen(
        [*command, "-o", str(tmp_path / "m.mirlo")], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT,
        start_new_session=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as child:  # fmt: skip
        assert child.stderr is not None
        seen = []
        try:
            while not any(step in line for line in seen):
                seen.append(child.stderr.readline())
                assert seen[-1], seen
            started = _children(child.pid)
            os.killpg(child.pid, signal.SIGINT)
            rest = child.stderr.read()
            code = child.wait(timeout=60)
        finally:
            child.kill()
    assert code == 130 and rest.endswith("mirlo: interrupted\n") and "Traceback" not in rest, rest
    assert started and not any(Path(f"/proc/{pid}").exists() for pid in started)
    assert not (tmp_path / "m.mirlo").exists()


def test_an_interrupt_ends_the_processes_and_the_next_compilation_starts_others() -> None:
    tasks = [CompileTask(f"f{i}", TEXT.format(name=f"f{i}"), None) for i in range(4)]

    def interrupt() -> None:
        raise KeyboardInterrupt

    with make_context():
        before = processes._running(1)
        with pytest.raises(KeyboardInterrupt):
            compile_all(tasks, SETTINGS, jobs=2, while_compiling=interrupt)
        assert before[0].popen.wait(timeout=30) is not None
        objects = compile_all(tasks, SETTINGS, jobs=2)
    assert len(objects) == 4 and all(objects) and processes._running(1)[0] is not before[0]
