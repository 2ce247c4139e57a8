"""Operators of `torch.library` as kernels, scheduled or not, as operators that rules take, and as functions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")

from mirlo_torch.custom import torch_operator  # noqa: E402
from mirlo_torch.registry import USERS  # noqa: E402

import mirlo  # noqa: E402
from mirlo import T  # noqa: E402
from mirlo.extend.codegen import CodeGenerator, is_op, wildcard  # noqa: E402
from mirlo.extend.ops import DialectOp, Float, compute, elementwise, operand, register_dialect, result  # noqa: E402
from mirlo.extend.rules import legalize  # noqa: E402
from mirlo.extend.runtime import packed  # noqa: E402
from mirlo.extend.schedules import scheduled  # noqa: E402
from mirlo.extend.target import Target, register_target  # noqa: E402

DYNAMIC = torch.export.Dim.DYNAMIC
M, N = T.dims("M", "N")
k = T.attrs("k")


@torch.library.custom_op("mirlotest::scale", mutates_args=())  # type: ignore[misc]
def scale(x: torch.Tensor, w: torch.Tensor, k: float = 0.5) -> torch.Tensor:
    return x * w * k


@scale.register_fake  # type: ignore[misc]
def _(x: Any, w: Any, k: float = 0.5) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("mirlotest::extremes", mutates_args=())  # type: ignore[misc]
def extremes(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.amax(1), x.amin(1)


@extremes.register_fake  # type: ignore[misc]
def _(x: Any) -> Any:
    return x.new_empty(x.shape[0]), x.new_empty(x.shape[0])


@mirlo.prim_func
def scale_kernel(x: T.Buffer[(M, N), T.f32], w: T.Buffer[(N,), T.f32], y: T.Out[(M, N), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("scale"):
            vi, vj = T.axes("SS", i, j)
            y[vi, vj] = x[vi, vj] * w[vj] * T.f32(k)


@mirlo.prim_func
def extremes_kernel(x: T.Buffer[(M, N), T.f32], high: T.Out[(M,), T.f32], low: T.Out[(M,), T.f32]):
    for i, j in T.grid(M, N):
        with T.block("extremes"):
            vi, vj = T.axes("SR", i, j)
            with T.init():
                high[vi] = -3.0e38
                low[vi] = 3.0e38
            high[vi] = T.max(high[vi], x[vi, vj])
            low[vi] = T.min(low[vi], x[vi, vj])


UNIT = register_dialect("mirlotest")


class Scale(DialectOp, name="scale", dialect=UNIT):
    """x * w * k."""

    x = operand()
    w = operand()
    output = result()
    k = Float(1.0)

    @staticmethod
    def infer(x: Any, w: Any, *, k: float) -> Any:
        return x


class Bare(DialectOp, name="bare", dialect=UNIT):
    """An operator without attributes."""

    x = operand()
    w = operand()
    output = result()


@legalize("mirlotest.scale")
def by_elements(op: Any, b: Any) -> Any:
    return elementwise(op, b, [op.x, op.w], lambda x, w: x * w * compute.constant(op.k, "f32"))


class Scaler(CodeGenerator):
    """A code generator that takes the operator by a pattern."""

    name = "mirlotest"
    pipeline = "legalize"

    def patterns(self) -> list[tuple[str, Any]]:
        return [("scale", is_op("mirlotest.scale")(wildcard(), wildcard()))]


register_target(Target("mirlotest", "scales", codegen=Scaler))


@packed("mirlotest.extremes")
def packed_extremes(x: np.ndarray, high: np.ndarray, low: np.ndarray) -> None:
    high[...], low[...] = x.max(1), x.min(1)


def rows(s: Any) -> None:
    s.vectorize(s.split(s.loops("scale")[1], (None, 8))[1])


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    yield
    USERS.clear()
    torch._dynamo.reset()


class Model(torch.nn.Module):
    def forward(self, x: Any, w: Any) -> Any:
        high, low = torch.ops.mirlotest.extremes(torch.ops.mirlotest.scale(x.sin(), w, 2.0))
        return torch.relu(torch.ops.mirlotest.scale(x, w)) + high[:, None], low


X, W = torch.randn(6, 20), torch.randn(20)
WAYS: dict[str, list[dict[str, Any]]] = {
    "kernels": [{"prim_func": scale_kernel}, {"prim_func": extremes_kernel}],
    "schedule": [{"prim_func": scheduled(scale_kernel, rows)}, {"prim_func": extremes_kernel}],
    "rules": [{"operator": Scale}, {"packed": "mirlotest.extremes"}],
}


def register(way: str) -> None:
    for name, given in zip(("scale", "extremes"), WAYS[way], strict=True):
        torch_operator(f"mirlotest::{name}", **given)


def require_close(found: Any, x: torch.Tensor) -> None:
    for value, wanted in zip(found, Model()(x, W), strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", WAYS)
def test_exported_programs(way: str) -> None:
    register(way)
    made = mirlo.compile(Model().eval(), args=(X, W), dynamic_shapes={"x": {0: DYNAMIC}, "w": None})
    for count in (6, 3):
        require_close(made.torch(X[:count], W), X[:count])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_functions(way: str, dynamic: bool) -> None:
    """Nothing runs eagerly, and dims that only the kernel requires to be equal are symbols of their own."""
    register(way)
    fast = torch.compile(Model().eval(), backend="mirlo", dynamic=dynamic, options={"strict": True})
    with torch.no_grad():
        require_close(fast(X, W), X)
        if dynamic:
            require_close(fast(X[:4], W), X[:4])


def test_code_generators_take_operators() -> None:
    register("rules")
    made = mirlo.compile(Model().eval(), "mirlotest,llvm", args=(X, W))
    require_close(made.torch(X, W), X)


def test_without_a_kernel_it_runs_eagerly_or_is_an_error() -> None:
    remedy = r"mirlo_torch\.custom\.torch_operator\('mirlotest::\w+', prim_func=\.\.\.\)"
    with warnings.catch_warnings(), pytest.raises(mirlo.MirloError, match=remedy):
        warnings.simplefilter("ignore")
        mirlo.compile(Model().eval(), args=(X, W))
    fast = torch.compile(Model().eval(), backend="mirlo")
    with torch.no_grad(), pytest.warns(UserWarning, match=remedy):
        require_close(fast(X, W), X)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs one of prim_func=, a prim function, packed=.* found 0 of them"),
        ({"operator": Scale, "packed": "f"}, "found 2 of them"),
    ],
)
def test_wrong_declarations(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        torch_operator("mirlotest::scale", **given)
    with pytest.raises(TypeError, match=r"expected a name such as 'acme::scale', as in torch.library, found 'scale'"):
        torch_operator("scale", packed="f")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prim_func": extremes_kernel}, "has the argument 'k', which the prim function 'extremes_kernel' does not"),
        ({"packed": "f"}, "has the argument 'k', a number: the packed function 'f' takes tensors"),
        ({"operator": Bare}, "has the argument 'k', which is not an attribute of 'mirlotest.bare'; those are: none"),
    ],
)
def test_arguments_that_a_kernel_does_not_take(given: dict[str, Any], message: str) -> None:
    register("kernels")
    torch_operator("mirlotest::scale", **given)
    with warnings.catch_warnings(), pytest.raises(mirlo.MirloError, match=message):
        warnings.simplefilter("ignore")
        mirlo.compile(Model().eval(), args=(X, W))
