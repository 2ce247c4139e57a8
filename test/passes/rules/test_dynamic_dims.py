"""A check of dims that is right for numbers is never passed by a dynamic dim that does not satisfy it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mirlo
from mirlo.dialects.core.dims import symbol
from mirlo.extend.codegen import Artifact, CodeGenerator, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo.extend.target import Target
from mirlo.passes.rules import Decline, Rule, run_rule
from mirlo.testing import after_passes, use_target

TILE = 8
CHECKS: dict[str, Callable[[tuple[Any, ...]], object]] = {
    "any remainder": lambda dims: not any(dim % TILE for dim in dims),
    "all whole": lambda dims: all(dim % TILE == 0 for dim in dims),
    "not remainder": lambda dims: all(not dim % TILE for dim in dims),
    "remainder is not 0": lambda dims: not [dim for dim in dims if dim % TILE != 0],
    "sum of remainders": lambda dims: sum(dim % TILE for dim in dims) == 0,
    "divmod": lambda dims: all(divmod(dim, TILE)[1] == 0 for dim in dims),
    "quotient times tile": lambda dims: all(dim // TILE * TILE == dim for dim in dims),
    "rounded up": lambda dims: all(-(-dim // TILE) * TILE == dim for dim in dims),
    "bits": lambda dims: all(dim & (TILE - 1) == 0 for dim in dims),
    "numpy": lambda dims: not (np.array(dims) % TILE).any(),
    "gcd": lambda dims: math.gcd(*dims) % TILE == 0,
    "product": lambda dims: dims[0] * 8 % 64 == 0 and not dims[1] % TILE,
    "is integer": lambda dims: all((dim / TILE).is_integer() for dim in dims),
    "one of": lambda dims: all(dim in (8, 16, 32) for dim in dims),
    "in a range": lambda dims: all(dim in range(8, 64, TILE) for dim in dims),
    "limits": lambda dims: all(8 <= dim <= 16 for dim in dims),
    "next multiple": lambda dims: all(min(range(0, 64, TILE), key=lambda m: abs(m - dim)) == dim for dim in dims),
}
"""Ways in which rules ask whether all dims are multiples of a tile."""


def model(rows: int | str) -> str:
    size = rows if isinstance(rows, int) else "?"
    of = "" if isinstance(rows, int) else f', #relax.dims<["{rows}", {{}}]>'
    x, y = f"tensor<{size}x8xf32{of.format(8)}>", f"tensor<{size}x16xf32{of.format(16)}>"
    return f"""
    func.func @main(%x: {x}, %w: tensor<8x16xf32>) -> {y} {{
      %0 = "relax.matmul"(%x, %w) : ({x}, tensor<8x16xf32>) -> {y}
      return %0 : {y}
    }}"""


def compiled(rows: int | str, path: Path, **options: Any) -> mirlo.Executable:
    (path / "model.mlir").write_text(model(rows))
    return mirlo.compile(path / "model.mlir", cache=False, **options)


X, W = np.ones((3, 8), np.float32), np.ones((8, 16), np.float32)


@pytest.mark.sample(5)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_legalization(check: Callable[..., object], tmp_path: Path) -> None:
    taken = []

    def rule(op: Any, b: Any) -> Any:
        if not check((*op.lhs.shape, *op.rhs.shape)):
            return decline("the unit multiplies whole tiles")
        taken.append(True)
        return b.call_prim(
            lambda p, x, w: p.compute((x.shape[0], w.shape[1]), lambda i, j: x[0, 0] * 0.0), op.lhs, op.rhs
        )

    for rows in ("n", 3):
        found = compiled(rows, tmp_path, legalize={"relax.matmul": rule})(X, W)
        np.testing.assert_array_equal(found, X @ W)
        assert not taken, "a rule for whole tiles was taken"
    compiled(8, tmp_path, legalize={"relax.matmul": rule})
    assert taken, "the rule does not take what it is for"


class TileUnit(CodeGenerator):
    """Takes what a check accepts, and computes nothing."""

    name = "tile_unit"
    check: Callable[[tuple[Any, ...]], object]

    def patterns(self) -> list[Any]:
        def whole(match: Any) -> object:
            op = match.op("matmul")
            assert op.lhs.dtype == "f32"
            return True if TileUnit.check((*op.lhs.shape, *op.rhs.shape)) else decline("the unit takes whole tiles")

        return [("matmul", is_op("relax.matmul")(wildcard(), wildcard()).named("matmul"), whole)]

    def codegen(self, module: Any) -> Artifact:
        return Artifact("tile_unit", module.names, b"", tuple(module.constants), {})


use_target(Target("tile_unit", "a unit for whole tiles", codegen=TileUnit))


@pytest.mark.sample(5)
@pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
def test_pattern(check: Callable[..., object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(TileUnit, "check", staticmethod(check), raising=False)
    for rows in ("n", 3):
        found = compiled(rows, tmp_path, target=["tile_unit", "llvm"])
        np.testing.assert_array_equal(found(X, W), X @ W)
    assert "tile_unit" in after_passes(model(8), "builtin.module(partition{targets=tile_unit})")


def test_a_decline_says_what_to_do() -> None:
    rule = Rule("legalize", "relax.matmul", "default", lambda dim: decline("no tile") if dim % TILE else True)
    declined = run_rule(rule, symbol("n"))
    assert isinstance(declined, Decline)
    assert "isinstance(dim, int)" in declined.reason and "n" in declined.reason
