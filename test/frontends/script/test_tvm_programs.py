"""What TVM's users paste computes what numpy does, or is refused with what to write instead."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import Any

import numpy as np
import pytest
from tvm_programs import BUFFERS, GRAPHS, PRIM_FUNCS, REFUSED, REFUSED_STATEMENTS, SIGNATURE

import mirlo

HEADER = "from tvm.script import ir as I\nfrom tvm.script import relax as R\nfrom tvm.script import tir as T\n"


def members(*texts: str) -> str:
    """Return a module of these functions."""
    return f"{HEADER}@I.ir_module\nclass M:\n" + textwrap.indent("\n".join(texts), "    ")


def function(name: str, parameters: str, body: str) -> str:
    return f"@R.function\ndef {name}({parameters}):\n{textwrap.indent(body, '    ')}\n"


@cache
def results() -> dict[str, np.ndarray]:
    """Return the results of all programs, which are compiled in one module."""
    texts, parameters, calls, arrays = [], [], [], list[np.ndarray]()

    def argument(array: np.ndarray) -> str:
        name = f"x{len(arrays)}"
        arrays.append(array)
        parameters.append(f"{name}: R.Tensor({array.shape}, '{array.dtype}')")
        return name

    for number, (definition, x, wanted) in enumerate(PRIM_FUNCS.values()):
        texts.append(f"@T.prim_func\ndef f{number}({definition}")
        kind = f"R.Tensor({wanted.shape}, '{'int32' if wanted.dtype.kind == 'i' else 'float32'}')"
        calls.append(f"R.call_tir(M.f{number}, ({argument(x)},), out_sinfo={kind})")
    for number, (signature, body, given, _) in enumerate(GRAPHS.values()):
        static = signature.replace("('n', 8)", "(4, 8)")
        texts.append(function(f"g{number}", static, body.replace("(n, 8)", "(4, 8)") if "'n'" in signature else body))
        calls.append(f"M.g{number}({', '.join(map(argument, given))})")
    lines = [f"r{i} = {call}" for i, call in enumerate(calls)]
    returned = ", ".join(f"r{i}" for i in range(len(calls)))
    texts.append(function("main", ", ".join(parameters), "\n".join([*lines, f"return {returned}"])))
    made: Any = mirlo.compile(mirlo.parse_script(members(*texts)), cache=False, jobs=1)(*arrays)
    names = [*(f"prim {name}" for name in PRIM_FUNCS), *(f"graph {name}" for name in GRAPHS)]
    return dict(zip(names, made, strict=True))


@pytest.mark.parametrize("name", PRIM_FUNCS)
def test_prim_functions(name: str) -> None:
    np.testing.assert_allclose(results()[f"prim {name}"], PRIM_FUNCS[name][2], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str) -> None:
    np.testing.assert_allclose(results()[f"graph {name}"], GRAPHS[name][3], rtol=1e-4, atol=1e-5)


def test_symbols_of_graphs_and_prim_functions() -> None:
    """One executable computes all sizes."""
    name = "a symbol as a parameter"
    prim = f"@T.prim_func\ndef f({PRIM_FUNCS[name][0]}"
    body = "n = T.int64()\nreturn R.call_tir(M.f, (x,), out_sinfo=R.Tensor((n, 8), 'float32'), tir_vars=R.shape([n]))"
    module = mirlo.parse_script(members(prim, function("main", "x: R.Tensor(('n', 8), 'float32')", body)))
    exe = mirlo.compile(module, cache=False, jobs=1)
    for rows in (1, 5):
        x = np.full((rows, 8), 3, np.float32)
        np.testing.assert_array_equal(exe(x), x * 2)


@pytest.mark.parametrize(
    "body",
    [
        'bx = T.launch_thread("blockIdx.x", 8)\ntx = T.launch_thread("threadIdx.x", 8)\nB[bx, tx] = A[bx, tx]',
        'with T.launch_thread("blockIdx.x", 8) as bx:\n'
        '    with T.launch_thread("threadIdx.x", 8) as tx:\n        B[bx, tx] = A[bx, tx]',
    ],
)
def test_threads_are_loops(body: str) -> None:
    call = function("main", "x: R.Tensor((8, 8), 'float32')", "return R.call_tir(f, x)")
    prim = f"@T.prim_func\ndef f({BUFFERS}):\n{textwrap.indent(body, '    ')}\n"
    text = mirlo.script_of(mirlo.parse_script(members(prim, call)))
    assert re.search(r'in T\.thread_binding\(8, "blockIdx\.x"\):\n +for \w+ in T\.thread_binding\(8, "threadIdx', text)


@pytest.mark.parametrize("expression", REFUSED)
def test_expressions_without_a_meaning_are_refused(expression: str) -> None:
    with pytest.raises(mirlo.MirloError, match=REFUSED[expression]):
        mirlo.parse_script(members(function("main", SIGNATURE, f"y = {expression}\nreturn y")))


@pytest.mark.parametrize("statement", REFUSED_STATEMENTS)
def test_statements_without_a_meaning_are_refused(statement: str) -> None:
    prim = (
        f"@T.prim_func\ndef f({BUFFERS}):\n    {statement}\n    for i, j in T.grid(8, 8):\n        B[i, j] = A[i, j]\n"
    )
    with pytest.raises(mirlo.MirloError, match=REFUSED_STATEMENTS[statement]):
        mirlo.parse_script(members(prim, function("main", "x: R.Tensor((8, 8), 'float32')", "return R.call_tir(f, x)")))


@pytest.mark.parametrize("given", ["x", "x, axis=1", "x, keepdims=False"])
def test_defaults_that_are_not_those_of_tvm_are_given(given: str) -> None:
    """A text that does not import TVM's script may mean either."""
    body = f"y = R.argmax({given})\nreturn y"
    with pytest.raises(mirlo.MirloError, match="R.argmax: give axis and keepdims, .*axis=0, keepdims=True"):
        mirlo.parse_script(members(function("main", SIGNATURE, body)).removeprefix(HEADER))
