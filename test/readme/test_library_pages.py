"""The pages about libraries and other machines: their commands and programs, executed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from c_compiler import needs_c_compiler
from commands import ENVIRONMENT, ROOT, output_of, python, run_script, shell_commands
from onnx_models import F32, make_model, node

import mirlo
from mirlo.targets.llvm.processor import host_processor
from mirlo.testing.pages import code_blocks

DOCS = ROOT / "docs"
PIXELS = (np.arange(2 * 64, dtype=np.float32) / 128).reshape(2, 64)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the model of the pages, and `mirlo` on the path."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((64, 10)).astype(np.float32)}
    nodes = [node("MatMul", "pixels w", "a"), node("Softmax", "a", "scores")]
    onnx.save(make_model(nodes, {"pixels": (F32, ("batch", 64))}, ["scores"], weights), tmp_path / "digits.onnx")
    shell_commands(tmp_path, "mirlo")
    return tmp_path


def _shell(text: str, folder: Path) -> str:
    environment = {**ENVIRONMENT, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, cwd=folder, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _write(page: str, language: str, folder: Path) -> None:
    for block in code_blocks((DOCS / page).read_text(), language):
        name = re.search(r"file: ([\w.]+)", block)
        assert name is not None
        (folder / name[1]).write_text(block)


def _scores(output: str) -> np.ndarray:
    """Return the numbers of the lines that have nothing else: commands of `mirlo` print words."""
    lines = [line.split() for line in output.splitlines()]
    is_number = re.compile(r"[-+.\deinfa]+").fullmatch
    return np.array([word for words in lines if all(map(is_number, words)) for word in words], np.float32)


def _expected(folder: Path) -> np.ndarray:
    return np.ravel(mirlo.compile(folder / "digits.onnx", cache=False, jobs=1)(PIXELS))


def _printed(page: str, folder: Path) -> np.ndarray:
    """Run the commands of a page on its program in C; return the scores that the program prints."""
    _write(page, "c", folder)
    (commands,) = code_blocks((DOCS / page).read_text(), "sh")
    output = _shell(commands, folder).splitlines()
    return _scores("\n".join(line for line in output if not line.startswith("wrote")))


@pytest.mark.sample(0)
@needs_c_compiler
def test_from_c(folder: Path) -> None:
    np.testing.assert_array_equal(_printed("from-c.md", folder), _expected(folder))


@pytest.mark.sample(0)
@needs_c_compiler
def test_accelerators_in_c(folder: Path) -> None:
    new, build = code_blocks((DOCS / "accelerators-in-c.md").read_text(), "sh")
    _write("accelerators-in-c.md", "c", folder)
    _shell(new, folder)
    install = ["pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", folder / "site"]
    output_of(python("-m", *install, folder / "unit"))
    (folder / "bin" / "mirlo").write_text(
        f'#!/bin/sh\nPYTHONPATH="{folder / "site"}:$PYTHONPATH" exec "{sys.executable}" -m mirlo.tools.cli "$@"\n'
    )
    printed = _shell(build, folder)
    assert "calls of the unit: 1" in printed
    np.testing.assert_allclose(_unit_scores(printed), _expected(folder), rtol=1e-5)
    assert "It calls the driver unit_run for unit.unit_0" in (folder / "digits" / "digits.h").read_text()
    registered = "options.functions = functions;\n  options.function_count = 1;\n"
    program = (folder / "main.c").read_text()
    assert registered in program
    (folder / "main.c").write_text(program.replace(registered, ""))
    linked = _shell("\n".join(build.splitlines()[1:]), folder)
    assert "calls of the unit: 0" in linked
    np.testing.assert_allclose(_unit_scores(linked), _expected(folder), rtol=1e-5)


def _unit_scores(printed: str) -> np.ndarray:
    return _scores(re.sub("^(wrote|calls).*$", "", printed, flags=re.MULTILINE))


@pytest.mark.sample(0)
@needs_c_compiler
def test_c_source(folder: Path) -> None:
    np.testing.assert_allclose(_printed("c-source.md", folder), _expected(folder), rtol=1e-5)


@pytest.mark.sample(0)
@needs_c_compiler
def test_from_cpp(folder: Path) -> None:
    if shutil.which("c++") is None:
        pytest.skip("there is no C++ compiler")
    _write("from-cpp.md", "c++", folder)
    (commands,) = code_blocks((DOCS / "from-cpp.md").read_text(), "sh")
    output = _shell(commands, folder).splitlines()
    found = _scores("\n".join(line for line in output if not line.startswith("wrote")))
    np.testing.assert_array_equal(found, _expected(folder))


@pytest.mark.sample(0)
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
@pytest.mark.parametrize("weights", ["embed", "beside"])
def test_cmake(weights: str, folder: Path) -> None:
    """Build with the compiler that CMake finds: Microsoft's on Windows."""
    _write("from-cpp.md", "c++", folder)
    _write("from-cpp.md", "cmake", folder)
    if weights == "beside":
        code = (folder / "main.cpp").read_text()
        lines = ["mirlo_options options = {};", "options.size = sizeof options;"]
        lines += [
            'options.weights_path = "digits/digits.weights";',
            "mirlo::Model model(mirlo_model_digits, &options);",
        ]
        (folder / "main.cpp").write_text(code.replace("mirlo::Model model(mirlo_model_digits);", "\n  ".join(lines)))
    _shell(f"mirlo compile digits.onnx --emit object --weights {weights} --threads 2 -o digits", folder)
    _shell("cmake -S . -B build -DCMAKE_BUILD_TYPE=Release && cmake --build build --config Release", folder)
    places = ("main", "main.exe", "Release/main.exe")
    program = next(folder / "build" / each for each in places if (folder / "build" / each).exists())
    done = subprocess.run([str(program)], capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(_scores(done.stdout), _expected(folder))


@pytest.mark.sample(0)
@pytest.mark.skipif(host_processor().arch != "x86_64", reason="the page's first CPU is an x86-64")
def test_on_another_machine(folder: Path) -> None:
    *commands, emulated = code_blocks((DOCS / "another-machine.md").read_text(), "sh")
    for each in commands:
        _shell(each, folder)
    (code,) = code_blocks((DOCS / "another-machine.md").read_text(), "python")
    assert output_of(run_script("-c", code, cwd=folder)).strip() == re.findall(r"# (\d+)$", code, re.MULTILINE)[0]
    if shutil.which("qemu-aarch64-static") is None or shutil.which("aarch64-linux-gnu-gcc") is None:
        pytest.skip("there is no emulated AArch64: install qemu-user-static and gcc-aarch64-linux-gnu")
    (program,) = code_blocks((DOCS / "from-c.md").read_text(), "c")
    opened = re.compile(r'mirlo_open\("[^"]*", "digits",')
    assert opened.search(program)
    linked = opened.sub("mirlo_create(&mirlo_model_digits,", program).replace("mirlo.h", "digits.h")
    (folder / "arm.c").write_text(linked)
    np.testing.assert_allclose(_scores(_shell(emulated, folder)), _expected(folder), rtol=1e-6)


@needs_c_compiler
@pytest.mark.skipif(sys.platform == "win32", reason="the runner is for POSIX")
@pytest.mark.sample(0)
def test_boards(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    page = (DOCS / "boards.md").read_text()
    start, *commands = code_blocks(page, "sh")
    (code,) = code_blocks(page, "python")
    (folder / "board.py").write_text(code.replace("9190", str(port)))
    shell = [start.replace("sleep 1", "trap 'kill $!' EXIT; sleep 1"), *commands, f"'{sys.executable}' board.py"]
    text = "\n".join(shell)
    output = _shell(text.replace("9190", str(port)), folder)
    assert f"127.0.0.1:{port}: " in output and "takes models up to 2048 MiB, and calls up to 300 s" in output
    assert "4 ok, 0 declined, 0 wrong, 0 failed" in output
    assert f"127.0.0.1:{port}, {host_processor().arch}, " in output
    assert "digits.onnx: every output is as reference computes it" in output
    assert "kernel calls, " in output
