"""Sizes of dynamic dims for scripts, IR and models of PyTorch: the same results, and errors that name the dims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo import R, T
from mirlo.dialects.bindings import ir
from mirlo.dialects.core.types import dims_of
from mirlo.frontends.onnx.importer import import_model
from mirlo.passes.pipeline import Pipeline
from mirlo.passes.session import Session
from mirlo.tools.cli import main
from mirlo.tools.fuzz.graphs import random_graph

M, N = T.dims("M", "N")


@mirlo.prim_func
def scaled(a: T.Buffer[(M, N), T.f32], c: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("scaled"):
            vi, vj = T.axes("SS", i, j)
            c[vi, vj] = a[vi, vj] * T.f32(N)


@mirlo.prim_func
def shifted(a: T.Buffer[(M, N), T.f32], c: T.Out[(M, N), T.f32]):
    """Loops over buffers, which take the values of symbols."""
    for i in range(M):
        for j in T.serial(1, N):
            c[i, j] = a[i, j - 1]
        c[i, 0] = 0.0


@mirlo.script
def model(x: R.Tensor[("n", "m"), R.f32], y: R.Tensor[("m", "k"), R.f32]):  # noqa: UP037, F821
    z = R.call_tir(scaled, R.matmul(x, y))
    return R.reshape(R.call_tir(shifted, R.call_tir(scaled, z)), shape=["n*k"]), R.call_tir(scaled, y)


X, Y = (np.random.default_rng(i).standard_normal(s, np.float32) for i, s in enumerate([(3, 5), (5, 7)]))
SIZES = {"n": 3, "m": 5, "k": 7}


def expected() -> list[np.ndarray]:
    z = X @ Y * np.float32(49)
    return [np.concatenate([np.zeros((3, 1), np.float32), z[:, :-1]], axis=1).reshape(-1), Y * np.float32(7)]


def assert_right(found: Any) -> None:
    for value, wanted in zip(found(X, Y), expected(), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5)


@pytest.mark.parametrize(("given", "target"), [*[((n,), "llvm") for n in SIZES], ((*SIZES,), "llvm"), ((*SIZES,), "c")])
def test_dims_of_scripts(given: tuple[str, ...], target: str) -> None:
    compiled = mirlo.compile(model, target, dims={name: SIZES[name] for name in given})
    assert_right(compiled)
    left = {dim for spec in compiled.inputs for dim in spec.shape if isinstance(dim, str)}
    assert left == set(SIZES) - set(given)


@pytest.mark.sample(0)
@pytest.mark.parametrize("suffix", [".py", ".mlir"])
def test_files_of_ir(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"model{suffix}"
    path.write_text(mirlo.script_of(model) if suffix == ".py" else str(model))
    assert_right(mirlo.compile(path, dims={"n": 3, "k": 7}))
    assert_right(mirlo.compile(path, shapes={"x": [3, 5]}))
    assert_right(mirlo.compile(path, dims={"n": 3}, shapes={"y": ["m", 7]}))
    several = mirlo.compile(path, specialize=[{"n": 3}, SIZES])
    assert_right(several)
    assert [str(build.inputs[0]) for build in several.builds] == ["x: f32[3, 5]", "x: f32[3, m]"]
    output = tmp_path / "model.mirlo"
    assert main(["compile", str(path), "--dim", "n=3", "--dim", "m=5", "--shape", "y=5x7", "-o", str(output)]) == 0
    assert_right(mirlo.load(output))


def test_later_stages(tmp_path: Path) -> None:
    """The IR of a stage with prim functions is compiled for sizes; that of a planned one has none left to give."""
    mirlo.compile(model, save_ir=tmp_path, cache=False)
    stages = sorted(tmp_path.glob("*.mlir"))
    legalized = next(path for path in stages if "legalize" in path.name)
    assert_right(mirlo.compile(legalized, dims=SIZES))
    planned = next(path for path in stages if "plan-memory" in path.name)
    with pytest.raises(mirlo.MirloError, match="its memory is planned, so that its shapes are fixed"):
        mirlo.compile(planned, dims=SIZES)


def test_exported_programs() -> None:
    torch = pytest.importorskip("torch")

    layer = torch.nn.Linear(4, 2).eval()
    x = torch.ones(3, 4)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    (name,) = map(str, program.range_constraints)
    found = mirlo.compile(program, dims={name: 3})
    torch.testing.assert_close(torch.as_tensor(found(x)), layer(x))
    with pytest.raises(ValueError, match=f"it has no dim 'm', for which a size is given; dims of its inputs: {name}"):
        mirlo.compile(program, dims={"m": 3})


def test_prim_functions_of_constants_only() -> None:
    with model.context:
        copy = ir.Module.parse(str(model))
        Pipeline("fix-dims{dims=n=3,m=5,k=7},verify-calls").run(copy, Session())
    assert copy.operation.verify()
    assert "relax.dims" not in str(copy) and "tir.symbols" not in str(copy)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": {"nn": 3}}, "it has no dim 'nn', for which a size is given; dims of its inputs: k, m, n; did you"),
        ({"dims": {"n": -3}}, "the size of the dim 'n' must be a number from 0, found -3"),
        ({"dims": {"n": 3}, "shapes": {"x": [4, "m"]}}, "dim 0 of input 'x' is 3 and cannot be 4"),
        ({"shapes": {"x": [4]}}, r"input 'x' is f32\[n, m\], it cannot have the shape \[4\]"),
        ({"shapes": {"z": [4]}}, "it has no input 'z', for which a shape is given; its inputs are x, y"),
        ({"shapes": {"x": [4, "q"]}}, "dim 1 of input 'x' is 'm', which cannot become 'q': the dims of IR keep"),
        ({"shapes": {"x": [4, 5], "y": [6, 7]}}, "dim 0 of input 'y' is 5, 'm' by the shapes that are given, and"),
        ({"specialize": [{"nn": 3}]}, "specialize: 'nn' is not a symbolic dim of the model: those of the inputs are"),
    ],
)
def test_wrong_sizes(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mirlo.compile(model, **arguments)


def test_sizes_that_an_operator_refuses() -> None:
    text = '@script\ndef main(x: R.Tensor[("n",), R.f32]):\n    return R.reshape(x, shape=[4, "floordiv(n, 4)"])\n'
    with pytest.raises(mirlo.MirloError, match=r"with n = 9 it is not valid: .*:3:12: .* f32\[9\] has 9 elements"):
        mirlo.compile(mirlo.parse_script(text), dims={"n": 9})


@pytest.mark.sample(0)
def test_graphs_of_random_operators() -> None:
    """Fixed in the IR, dims give the results of the dynamic model."""
    checked = 0
    for seed in range(200):
        graph = random_graph(seed)
        module, store = import_model(graph.model)
        known = {str(dim) for kind in module.body.operations[0].type.inputs for dim in dims_of(kind)}
        dims = {f"n{size}": size for size in range(2, 64) if f"n{size}" in known}
        if not dims:
            continue
        checked += 1
        if checked > 8:
            return
        wanted = mirlo.compile(graph.model).run(graph.feeds)
        found = mirlo.compile(module, params=store, dims=dims).run(graph.feeds)
        for name, array in wanted.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4, err_msg=f"seed {seed}: {name}")
    raise AssertionError(f"{checked} graphs with dims")
