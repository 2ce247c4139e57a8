"""New interpreters that work for this process know its import path and its plug-ins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from commands import ROOT, mirlo, output_of
from onnx import TensorProto, helper

from mirlo.passes.registry import load_plugin
from mirlo.runtime import fresh_process
from mirlo.runtime.fresh_process import fresh_command

PLUGIN = """
import os
from mirlo.extend import decline, legalize

@legalize("relax.relu", target="llvm", priority=9)
def noted(op, b):
    with open({marks!r}, "a") as file:
        file.write(f"{{os.getpid()}}\\n")
    return decline("only notes where it is asked")
"""
PRINT = "import sys\nprint('mirlo_plugin_noted' in sys.modules, sys.argv[1:], __name__)\n"
OTHERS = {
    "runtime/fresh_process.py": "starts them",
    "targets/llvm/processes.py": "asks whether Python is embedded",
    "targets/llvm/library/link.py": "the compiler of ziglang",
    "runtime/bounded.py": "native parsers of what comes from outside, apart from all that is here",
    "tools/bench/processes.py": "engines in interpreters without Mirlo, and what keeps cores busy",
    "tools/fuzz/programs.py": "programs in C",
    "testing/__init__.py": "commands of lit",
    "testing/commands.py": "commands of Mirlo, as users call them",
    "testing/tool_process.py": "forks of a process that has imported the compiler, for tests",
}
"""Files that name the interpreter for something else than a process of Mirlo, or that start programs."""


@pytest.mark.sample(0)
def test_bench_knows_the_plugin(tmp_path: Path) -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), tmp_path / "m.onnx")
    plugin, marks = tmp_path / "plugin.py", tmp_path / "marks"
    plugin.write_text(PLUGIN.format(marks=str(marks)))
    output_of(mirlo("bench", tmp_path / "m.onnx", "--plugin", plugin, "--seconds", 0.01))
    assert str(os.getpid()) not in marks.read_text().split("\n")


def test_a_module_runs_with_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh_process, "_plugins", {})
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    (tmp_path / "noted.py").write_text("NOTED = 1\n")
    (tmp_path / "work.py").write_text(PRINT)
    monkeypatch.chdir(tmp_path)
    load_plugin("noted.py")
    for runs_rules in (True, False):
        command = fresh_command("work", "a", runs_rules=runs_rules)
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
        assert done.stdout.split() == [str(runs_rules), "['a']", "__main__"]


def test_one_way_to_start_processes() -> None:
    """No file starts an interpreter otherwise."""
    apart = ("test", "benchmarks", "build", "plugins", "docs", "examples", "release")
    files = {path.relative_to(ROOT).as_posix(): path for path in ROOT.glob("*/**/*.py")}
    own = {name: path for name, path in files.items() if name.split("/")[0] not in apart and name[0] != "."}
    found = {name for name, path in own.items() if "sys.executable" in path.read_text(encoding="utf-8")}
    assert found <= set(OTHERS), f"start processes by 'fresh_command': {sorted(found - set(OTHERS))}"
