"""A code generator that computes in fewer bits than the element type, and says how far its results are off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mirlo.extend.codegen import Artifact, CodeGenerator, is_op, wildcard
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, register_target
from mirlo.testing import temporary_registrations
from mirlo.tools.cli import main


class Rounding(CodeGenerator):
    name = "rounding"
    format = "rounding"

    def patterns(self) -> Any:
        return [("multiply", is_op("relax.multiply")(wildcard(), wildcard()))]

    def codegen(self, module: Any) -> Artifact:
        return Artifact("rounding", tuple(function.name for function in module.functions))


class Declared(Rounding):
    name = "declared"
    error = 2e-2


def load(artifact: Any, context: Any) -> ExternalFunctions:
    def multiply(*tensors: np.ndarray) -> None:
        *inputs, output = (tensors[0], *tensors)[-3:]
        product = np.multiply(*(each.astype(ml_dtypes.bfloat16) for each in inputs))
        output[...] = product.astype(output.dtype)

    return ExternalFunctions(dict.fromkeys(artifact.functions, multiply))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with temporary_registrations(__name__):
        register_external_loader("rounding", load)
        for generator in (Rounding, Declared):
            register_target(Target(generator.name, "products in bf16", codegen=generator))
        yield


def test_check_target_allows_what_is_declared(capsys: pytest.CaptureFixture[str]) -> None:
    for target in ("rounding", "declared"):
        main(["check-target", f"{target},llvm", "--operator", f"{target}.multiply"])
        wrong = f"{target}.multiply f32: wrong" in capsys.readouterr().out
        assert wrong == (target == "rounding")


def test_bisect_allows_what_is_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 4)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Mul", ["x", "x"], ["y"], name="square")], "model", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    command = ["bisect", str(path), "--against", "reference", "-o", str(tmp_path / "found"), "--target"]
    assert main([*command, "rounding,llvm"]) == 1
    assert "the code generator departs: rounding.multiply" in capsys.readouterr().out
    assert main([*command, "declared,llvm"]) == 0
