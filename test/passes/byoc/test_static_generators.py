"""Code generators that take fixed sizes only: what has others is declined, with the reason, before their checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mirlo.extend.codegen import CodeGenerator, is_op
from mirlo.extend.target import Target, register_target
from mirlo.testing import placement_of, temporary_registrations

MODULE = """
func.func @main(%x: tensor<SIZEx4xf32> {relax.name = "x"}) -> (tensor<SIZEx4xf32> {relax.name = "y"}) {
  %0 = "relax.exp"(%x) : (tensor<SIZEx4xf32>) -> tensor<SIZEx4xf32>
  return %0 : tensor<SIZEx4xf32>
}
"""


class Fixed(CodeGenerator):
    name = "fixed_sizes"
    static = True

    def patterns(self) -> Sequence[object]:
        return [("exp", is_op("relax.exp"), _no_dynamic_size)]


def _no_dynamic_size(match: object) -> bool:
    assert all(isinstance(dim, int) for dim in match.root.results[0].shape)  # type: ignore[attr-defined]
    return True


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("fixed_sizes", "a generator of a test", codegen=Fixed))
        yield


@pytest.mark.parametrize(("size", "dims"), [("3", ""), ("?", ', #relax.dims<["n", 4]>')])
def test_dynamic_sizes_are_declined(size: str, dims: str, tmp_path: Path) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(MODULE.replace("SIZEx4xf32", f"{size}x4xf32{dims}"))
    placement = placement_of(path, "fixed_sizes,llvm").placement
    (node,) = (each for each in placement.nodes if each.operator == "relax.exp")
    assert bool(placement.taken) == (size == "3")
    if size == "?":
        assert "sizes must be known when the model is compiled" in placement.why_not(node.id, "fixed_sizes")
