"""Whole models for processors without an operating system: one source file with static memory, and a report."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from c_compiler import needs_c_compiler

import mirlo
from mirlo.benchmarks.models import tiny
from mirlo.driver.code import compile_code
from mirlo.driver.request import CompileRequest
from mirlo.extend.codegen import CProcessor
from mirlo.extend.target import register_target
from mirlo.passes.targets import TargetError, forget_targets
from mirlo.targets.c.compiler import find_compiler
from mirlo.targets.c.library import write_source
from mirlo.targets.llvm.library.description import LibraryError
from mirlo.tools.quantize.static import quantize

PRELUDE = "/* of the processor */"


@pytest.fixture(scope="module", autouse=True)
def processor() -> Iterator[None]:
    register_target(CProcessor("small", "a small processor", prelude=PRELUDE, flags=("-O1",)))
    yield
    forget_targets(__name__)


@pytest.fixture(scope="module")
def model() -> object:
    """Return a small dense network in int8."""
    net = tiny.Net("dense")
    x = net.op("Relu", net.dense(net.input("x", (1, 24)), 24, 16))
    made = net.model(net.dense(x, 16, 4), (1, 4))
    return quantize(made, np.random.default_rng(0).standard_normal((8, 24), np.float32), whole=True).model


def written(model: object, folder: Path, target: str = "c{cpu=small}") -> Path:
    artifact, store = compile_code(CompileRequest(model, target, form="source", cache=False))
    write_source(artifact, store, folder, "net")
    return folder


@needs_c_compiler
@pytest.mark.parametrize("target", ["c{cpu=small}", "small"])
def test_a_model_is_one_file_that_needs_no_run_time(model: object, target: str, tmp_path: Path) -> None:
    folder = written(model, tmp_path, target)
    assert sorted(path.name for path in folder.iterdir()) == ["net.c", "net.h", "net.txt"]
    text = (folder / "net.c").read_text()
    assert PRELUDE in text
    assert not {"malloc", "stdio.h", "mirlo.h"} & set(
        text.replace('"', " ").replace("<", " ").replace(">", " ").split()
    )
    x = np.linspace(-2, 2, 24, dtype=np.float32).reshape(1, 24)
    listed = ", ".join(f"{value!r}f" for value in x.reshape(-1).tolist())
    (folder / "main.c").write_text(f"""#include "net.h"
#include <stdio.h>
int main(void) {{
  static const float x[] = {{{listed}}};
  float out[4];
  int i;
  net_run(x, out);
  for (i = 0; i < 4; ++i) printf("%.9g\\n", out[i]);
  return 0;
}}
""")
    program = folder / "main"
    command = [
        find_compiler(),
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O2",
        folder / "main.c",
        folder / "net.c",
        "-o",
    ]
    subprocess.run([*map(str, command), str(program), "-lm"], check=True)
    found = np.array(subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout.split(), float)
    expected = np.asarray(mirlo.compile(model, cache=False)(x))[0]
    np.testing.assert_array_equal(found.astype(np.float32), expected)


def test_the_report_lists_kernels_with_their_multiply_adds(model: object, tmp_path: Path) -> None:
    lines = (written(model, tmp_path) / "net.txt").read_text().splitlines()
    assert lines[0] == "model net for small"
    assert f"multiply-adds: {24 * 16 + 16 * 4}" in lines
    header = next(line for line in lines if line.startswith("kernel"))
    assert header.split() == ["kernel", "multiply-adds", "flash", "RAM", "stack", "nodes"]
    assert any(line.startswith("RAM, stack: at most ") for line in lines)
    products = [int(line.split()[1]) for line in lines[lines.index(header) + 1 :]]
    assert {24 * 16, 16 * 4} <= set(products)


@needs_c_compiler
def test_a_big_endian_compiler_is_refused(model: object, tmp_path: Path) -> None:
    folder = written(model, tmp_path)
    command = [find_compiler(), "-D__BIG_ENDIAN__", "-c", folder / "net.c", "-o", folder / "net.o"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode and "this model is for little-endian processors" in done.stderr


def test_an_unknown_processor_is_an_error(model: object) -> None:
    with pytest.raises(TargetError, match=r"target 'c' has no processor 'smal'; did you mean 'small'"):
        compile_code(CompileRequest(model, "c{cpu=smal}", form="source", cache=False))


def test_dynamic_dims_are_an_error_that_names_them(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 4)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", values[:1], values[1:])
    dynamic = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    with pytest.raises(Exception, match=r"dynamic dim.*n.*--dim") as raised:
        written(dynamic, tmp_path)
    assert isinstance(raised.value, LibraryError | TargetError)


def test_weights_beside_the_source_are_an_error(model: object, tmp_path: Path) -> None:
    artifact, store = compile_code(CompileRequest(model, "c{cpu=small}", form="source", cache=False))
    with pytest.raises(LibraryError, match=r"weights: expected 'embed' or 'auto', found 'beside'"):
        write_source(artifact, store, tmp_path, "net", "beside")


def test_f32_is_computed_in_f64_where_the_processor_is_not_named(tmp_path: Path) -> None:
    """Elsewhere it takes less time, and is rounded once; a small processor may have no instructions of f64."""
    net = tiny.Net("functions")
    made = net.model(net.op("Tanh", net.op("Sigmoid", net.input("x", (1, 8)))), (1, 8))
    anywhere, small = (
        "".join(path.read_text() for path in written(made, tmp_path / name, target).glob("*.c"))
        for name, target in (("anywhere", "c"), ("small", "c{cpu=small}"))
    )
    assert re.search(r"\bexp\(", anywhere) and not re.search(r"\b(tanhf|expf)\(", anywhere)
    assert re.search(r"\bexpf\(", small) and re.search(r"\btanhf\(", small) and not re.search(r"\bexp\(", small)
