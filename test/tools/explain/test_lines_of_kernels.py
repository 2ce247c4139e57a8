"""Nodes are those of the graph: lines of kernels are none, and what code generators give back says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mirlo
from mirlo import R, T
from mirlo.extend.codegen import CodeGenerator, DeclinedRegions, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo.extend.target import Target, register_target
from mirlo.runtime.errors import ArtifactError
from mirlo.runtime.external import ExternalArtifact, _find_loader, register_external_loader
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main


@mirlo.script
class Written:
    @T.prim_func
    def signed(x: T.Buffer[(4,), T.f32], y: T.Out[(4,), T.f32]):  # noqa: F821
        for i in range(4):
            y[i] = T.exp(x[i]) if x[i] > 0.0 else T.tanh(x[i])

    @R.function
    def main(x: R.Tensor[(4,), R.f32]) -> R.Tensor[(4,), R.f32]:  # noqa: F821
        return R.call_tir(signed, x)  # noqa: F821


class Returning(CodeGenerator):
    name = "returned"

    def patterns(self) -> Any:
        return [("relu", is_op("relax.relu")(wildcard()))]

    def codegen(self, module: Any) -> DeclinedRegions:
        return DeclinedRegions({function.name: decline("not today") for function in module.functions})


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_target(Target("returned", "gives all regions back", codegen=Returning))
        yield


def test_lines_of_a_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(Written.operation.get_asm(enable_debug_info=True))
    assert main(["explain", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "simplified away" not in printed and printed.count("node ") == 1
    assert "tir.exp on " in printed and "tir.tanh on " in printed


def test_regions_given_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.mlir"
    path.write_text(
        'func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n  %0 = "relax.relu"(%x) : (tensor<4xf32>) -> '
        'tensor<4xf32> loc("first")\n  return %0 : tensor<4xf32>\n}\n'
    )
    assert main(["explain", str(path), "--target", "returned,llvm"]) == 0
    assert "node first\n  given back by 'returned': not today\n" in capsys.readouterr().out


def test_a_loader_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirlo.runtime.external._LOADERS", {})
    register_external_loader("accelerator", lambda artifact, context: None)  # type: ignore[arg-type,return-value]
    with pytest.raises(ArtifactError, match=r"loader 'acelerator' is not installed \(did you mean 'accelerator'\?\)"):
        _find_loader(ExternalArtifact("acelerator", (), target="mine"))
