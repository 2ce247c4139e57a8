"""Kernels for devices with 32 bits only: other widths are emulated, f64 is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from devices import needs_vulkan
from onnx import TensorProto, helper

import mirlo
from mirlo.passes.targets import Target, forget_targets, register_target
from mirlo.runtime.errors import MirloError
from mirlo.targets.spirv import SpirvTarget
from mirlo.targets.spirv.binary import to_binaries
from mirlo.targets.spirv.emit import emit_kernels
from mirlo.targets.spirv.environment import WEBGPU

NAME = "words"
KINDS = {
    "int64": TensorProto.INT64, "uint64": TensorProto.UINT64,
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16,
    "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16, "bool": TensorProto.BOOL,
}  # fmt: skip
WIDE = np.array([0, 1, -1, 7, -9, 1 << 31, -(1 << 31), (1 << 40) + 3, -(1 << 62) - 5, (1 << 63) - 1, -(1 << 63)])


@pytest.fixture(scope="module", autouse=True)
def words() -> Iterator[None]:
    """Register a target for devices that have words of 32 bits only, and are driven by Vulkan."""

    class WordTarget(Target):
        pipeline = SpirvTarget.pipeline

        def emit(self, module: Any, options: Any) -> Any:
            return emit_kernels(module, NAME, "vulkan", partial(to_binaries, environment=WEBGPU))

    register_target(WordTarget(NAME, "words of 32 bits", parent="spirv", loader="vulkan"))
    yield
    forget_targets(__name__)


def model(inputs: Mapping[str, np.ndarray], results: Mapping[str, str]) -> onnx.ModelProto:
    """Return a model whose results, of types, are named after operators."""
    values = [helper.make_tensor_value_info(n, KINDS[str(x.dtype)], x.shape) for n, x in inputs.items()]
    outputs = [helper.make_tensor_value_info(n, KINDS[kind], None) for n, kind in results.items()]
    graph = helper.make_graph([helper.make_node(n, list(inputs), [n]) for n in results], "model", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def pairs(numbers: np.ndarray) -> dict[str, np.ndarray]:
    x, y = (grid.reshape(-1) for grid in np.meshgrid(numbers, numbers))
    return {"x": x, "y": y}


FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add, "Mul": np.multiply, "Min": np.minimum, "Less": np.less,
}  # fmt: skip


@needs_vulkan()
@pytest.mark.parametrize("kind", ["int64", "int8", "uint8"])
def test_integers_wrap_at_their_width(kind: str) -> None:
    bounds = np.iinfo(kind)
    # An odd number of results: threads store parts of the last word.
    numbers = WIDE if kind == "int64" else np.linspace(bounds.min, bounds.max, 51).astype(kind)
    inputs = pairs(numbers)
    with np.errstate(over="ignore"):
        expected = {name: function(inputs["x"], inputs["y"]) for name, function in FUNCTIONS.items()}
    proto = model(inputs, {name: str(array.dtype) for name, array in expected.items()})
    compiled = mirlo.compile(proto, target=NAME, cache=False)
    assert not {"Int64", "Int8", "Int16"} & set(compiled.artifact.metadata["features"])
    results = compiled.run(inputs)
    for name, array in expected.items():
        np.testing.assert_array_equal(results[name], array, err_msg=name)


@needs_vulkan()
def test_quotients_of_64_bits() -> None:
    inputs = pairs(WIDE)
    kept = (inputs["y"] != 0) & ~((inputs["x"] == np.iinfo(np.int64).min) & (inputs["y"] == -1))
    inputs = {name: x[kept] for name, x in inputs.items()}
    numbers = [(int(x), int(y)) for x, y in zip(*inputs.values(), strict=True)]
    results = mirlo.compile(model(inputs, {"Div": "int64", "Mod": "int64"}), target=NAME, cache=False).run(inputs)
    quotients = [abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in numbers]
    np.testing.assert_array_equal(results["Div"], np.array(quotients))
    np.testing.assert_array_equal(results["Mod"], np.array([x % y for x, y in numbers]))


@needs_vulkan()
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_of_64_bits(direction: str) -> None:
    inputs = {"x": WIDE.astype(np.uint64).repeat(64), "y": np.tile(np.arange(64, dtype=np.uint64), len(WIDE))}
    proto = model(inputs, {"BitShift": "uint64"})
    proto.graph.node[0].attribute.append(helper.make_attribute("direction", direction))
    results = mirlo.compile(proto, target=NAME, cache=False).run(inputs)
    shift = np.left_shift if direction == "LEFT" else np.right_shift
    np.testing.assert_array_equal(results["BitShift"], shift(inputs["x"], inputs["y"]))


@needs_vulkan()
def test_f16_is_computed_in_f32_and_rounded() -> None:
    special = np.array([0, 0x8000, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0xFC00, 0x7E00], np.uint16)
    numbers = np.concatenate([special, np.random.default_rng(0).integers(0, 1 << 16, 40).astype(np.uint16)])
    inputs = pairs(numbers.view(np.float16))
    results = mirlo.compile(model(inputs, {"Add": "float16", "Mul": "float16"}), target=NAME, cache=False).run(inputs)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(results["Add"], inputs["x"] + inputs["y"])
        np.testing.assert_array_equal(results["Mul"], inputs["x"] * inputs["y"])


def test_f64_is_refused() -> None:
    x = np.zeros(4)
    with pytest.raises(MirloError, match="WebGPU has no f64: convert the model to f32"):
        mirlo.compile(model({"x": x}, {"Neg": "float64"}), target=NAME, cache=False)
