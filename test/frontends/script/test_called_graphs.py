"""Calls of graphs: symbols in their types are their own, and they are defined in any order."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.frontends.script.errors import ScriptError
from mirlo.passes.entry import find_entry
from mirlo.runtime.regions import described_regions

Parse = Callable[[str], Any]
DECLARED = '-> R.Tensor[({dims}), "f32"]'
HELPER = """
    @R.function
    def helper(x: R.Tensor[({dims}), "f32"], y: R.Tensor[({last},), "f32"]) {declared}:
        {body}
"""
MAIN = """
    @R.function
    def main(x: R.Tensor[({dims}), "f32"], y: R.Tensor[({last},), "f32"]):
        return R.add(helper(x, y), helper(x, y))
"""
HEAD = 'import mirlo\nfrom mirlo import R, T\n\nS = T.shapes("S")\n\n\n@mirlo.script\n'
PRIM = """
    @T.prim_func
    def prim(x: T.Buffer[S, "f32"], z: T.Out[S, "f32"]):
        for i in T.grid(*S):
            z[i] = T.exp(x[i])
"""
BODIES = {
    "operators": "return R.add(R.exp(x), y)",
    "reshape": "return R.reshape(R.reshape(R.add(R.exp(x), y), (x.shape[0] * x.shape[1],)), x.shape)",
    "prim function": "return R.add(R.call_tir(prim, x, out=R.Tensor[({dims}), 'f32']), y)",
    "another": "return R.add(other(x), y)",
}
OTHER = """
    @R.function
    def other(x: R.Tensor[("q", "r"), "f32"]) -> R.Tensor[("q", "r"), "f32"]:
        return R.exp(x)
"""
DIMS = {"numbers": ("3", "4"), "same": ('"n"', '"k"'), "other": ('"m"', '"l"'), "swapped": ('"k"', '"n"'),
        "mixed": ('"m"', "4")}  # fmt: skip


def script(body: str, callee: tuple[str, str], caller: tuple[str, str], declared: bool, order: tuple[int, ...]) -> str:
    dims = ", ".join(callee)
    annotated = DECLARED.format(dims=dims) if declared else ""
    parts = [
        HELPER.format(dims=dims, last=callee[1], declared=annotated, body=BODIES[body].format(dims=dims)),
        MAIN.format(dims=", ".join(caller), last=caller[1]),
        OTHER,
    ]
    prim = PRIM if body == "prim function" else ""
    return f"{HEAD}class M:\n{prim}{''.join(parts[i] for i in order)}"


@pytest.fixture
def parse(tmp_path: Path) -> Parse:
    """Return what runs a program and returns its module."""

    def run(text: str) -> Any:
        (tmp_path / "script.py").write_text(text)
        linecache.checkcache()
        names: dict[str, Any] = {"__name__": __name__}
        exec(compile(text, str(tmp_path / "script.py"), "exec"), names)
        return names["M"]

    return run


@pytest.mark.sample(8)
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("callee", "caller"), list(itertools.product(["same", "numbers"], DIMS)))
def test_dims(body: str, callee: str, caller: str, parse: Parse) -> None:
    """What the callee computes is computed for the caller's dims, or the call does not fit."""
    if callee == "numbers" and caller != "numbers":
        with pytest.raises(ScriptError, match="'helper' takes f32\\[3, 4\\], found f32"):
            parse(script(body, DIMS[callee], DIMS[caller], declared=True, order=(0, 1, 2)))
        return
    module = parse(script(body, DIMS[callee], DIMS[caller], declared=True, order=(0, 1, 2)))
    x, y = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.arange(4, dtype=np.float32)
    found = mirlo.compile(module, cache=False)(x, y)
    np.testing.assert_allclose(found, 2 * (np.exp(x) + y), rtol=1e-5)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("declared", [True, False])
def test_order(declared: bool, order: tuple[int, ...], parse: Parse) -> None:
    module = parse(script("another", DIMS["same"], DIMS["mixed"], declared, order))
    x, y = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    assert "main" in str(find_entry(module).attributes["sym_name"])
    np.testing.assert_allclose(mirlo.compile(module, cache=False)(x, y), 2 * (np.exp(x) + y), rtol=1e-5)


def test_dims_that_do_not_fit(parse: Parse) -> None:
    text = script("operators", DIMS["same"], ('"m"', '"l"'), declared=True, order=(0, 1, 2))
    wrong = text.replace('y: R.Tensor[("l",), "f32"]', 'y: R.Tensor[("m",), "f32"]')
    with pytest.raises(ScriptError, match=r"'helper' takes f32\[k\], found f32\[m\]"):
        parse(wrong)


def test_recursion_needs_a_type(parse: Parse) -> None:
    text = HEAD + 'class M:\n    @R.function\n    def main(x: R.Tensor[("n",), "f32"]):\n        return main(x)\n'
    with pytest.raises(ScriptError, match="calls itself, directly or not, must declare what it returns"):
        parse(text)


def test_partition_of_a_helper(parse: Parse) -> None:
    module = parse(script("operators", DIMS["numbers"], DIMS["numbers"], declared=True, order=(0, 1, 2)))
    passes = "partition{targets=onnx functions=helper},outline-external,run-on-external,codegen-external,legalize,"
    passes += "annotate-kinds,fuse-ops,fuse-tir,schedule,lower-loops,lower-intrinsics,verify-bounds,plan-memory"
    exe = mirlo.compile(module, "onnx,llvm", pipeline=passes, cache=False)
    x, y = np.ones((3, 4), np.float32), np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(exe(x, y), 2 * (np.exp(x) + y), rtol=1e-5)
    assert "onnx" in {region.target for region in described_regions(exe.artifact)}
