"""Programs of exporters, with sizes and ranks that the operators leave open, compared with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mirlo
from mirlo.extend.runtime import InputError

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-torch")


def model_of(nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], constants: dict[str, Any]) -> onnx.ModelProto:
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "exported", values, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def assert_like_onnxruntime(model: onnx.ModelProto, *cases: dict[str, tuple[int, ...]]) -> None:
    compiled = mirlo.compile(model)
    oracle = onnxruntime.InferenceSession(model.SerializeToString())
    for case in cases:
        numbers = np.random.default_rng(0)
        given = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in case.items()}
        (expected,) = oracle.run(None, given)
        np.testing.assert_allclose(compiled.run(given)["out"], expected, rtol=1e-4, atol=1e-4, err_msg=str(case))


@pytest.mark.sample(2)
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_any_size_to_one_size(mode: str, coordinates: str) -> None:
    """Only the sizes of the results are constant."""
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "nearest_mode": "floor"}
    model = model_of(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["out"], **attributes)],
        {"x": [1, 2, "h", "w"]}, {"sizes": np.array([1, 2, 10, 6])},
    )  # fmt: skip
    assert_like_onnxruntime(model, {"x": (1, 2, 5, 4)}, {"x": (1, 2, 13, 7)}, {"x": (1, 2, 10, 6)})


def test_a_condition_of_one_element_if_the_sizes_are_right() -> None:
    def branch(operator: str) -> onnx.GraphProto:
        made = helper.make_node(operator, ["x", "one"], [operator])
        return helper.make_graph(
            [made], operator, [], [helper.make_tensor_value_info(operator, TensorProto.FLOAT, None)]
        )

    nodes = [
        helper.make_node("Greater", ["c", "zero"], ["holds"]),
        helper.make_node("If", ["holds"], ["out"], then_branch=branch("Add"), else_branch=branch("Sub")),
    ]
    compiled = mirlo.compile(model_of(nodes, {"x": ["n"], "c": ["k"]}, {"one": np.float32(1), "zero": np.float32(0)}))
    x = np.arange(3, dtype=np.float32)
    for sign in (1, -1):
        np.testing.assert_array_equal(compiled.run({"x": x, "c": np.full(1, sign, np.float32)})["out"], x + sign)
    with pytest.raises(mirlo.MirloError, match="If.* a tensor of k elements is looked at as one of 1"):
        compiled.run({"x": x, "c": np.ones(2, np.float32)})


@pytest.mark.parametrize("dims", [["batch", 32], ["batch", "length"], [2, 32]])
@pytest.mark.parametrize("onesided", [0, 1])
def test_spectra_of_a_signal_without_a_dim_for_its_parts(dims: list[Any], onesided: int) -> None:
    nodes = [helper.make_node("STFT", ["x", "step", "window"], ["out"], onesided=onesided)]
    window = np.hanning(8).astype(np.float32)
    flat = model_of(nodes, {"x": dims}, {"step": np.int64(4), "window": window})
    whole = model_of(nodes, {"x": [*dims, 1]}, {"step": np.int64(4), "window": window})
    x = np.random.default_rng(0).standard_normal((2, 32)).astype(np.float32)
    expected = onnxruntime.InferenceSession(whole.SerializeToString()).run(None, {"x": x[..., None]})[0]
    np.testing.assert_allclose(mirlo.compile(flat).run({"x": x})["out"], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "max"])
def test_bags_of_embeddings_of_any_number(mode: str, tmp_path: Path) -> None:
    """PyTorch writes a loop that collects a sequence, slices by run-time lists, and a cast of what it joins."""
    pytest.importorskip("onnxscript", reason="torch.onnx.export needs it")
    bag = torch.nn.EmbeddingBag(20, 4, mode=mode).eval()
    given = torch.randint(0, 20, (9,)), torch.tensor([0, 2, 5])
    dims = {"input": {0: torch.export.Dim("n")}, "offsets": {0: torch.export.Dim("bags")}}
    torch.onnx.export(bag, given, dynamo=True, dynamic_shapes=dims, verbose=False).save(tmp_path / "bag.onnx")
    f, oracle = mirlo.compile(tmp_path / "bag.onnx"), onnxruntime.InferenceSession(tmp_path / "bag.onnx")
    names = [value.name for value in oracle.get_inputs()]
    for indices, begins in ((given[0], given[1]), (torch.randint(0, 20, (5,)), torch.tensor([0]))):
        feed = dict(zip(names, (indices.numpy(), begins.numpy()), strict=True))
        (found,) = f.run(feed).values()
        np.testing.assert_allclose(found, oracle.run(None, feed)[0], rtol=1e-5)


def test_slices_of_as_many_axes_as_the_call_gives() -> None:
    """Without axes, the leading axes are sliced; a list of the call determines how many."""
    model = model_of([helper.make_node("Slice", ["x", "starts", "ends"], ["out"])], {"x": ["n", 4]}, {})
    for name, dim in (("starts", "k"), ("ends", "m")):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [dim]))
    f, oracle = mirlo.compile(model), onnxruntime.InferenceSession(model.SerializeToString())
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for starts, ends in (([1], [3]), ([0, 1], [2, 9]), ([-2], [9]), ([], [])):
        given = {"x": x, "starts": np.array(starts, np.int64), "ends": np.array(ends, np.int64)}
        np.testing.assert_array_equal(f.run(given)["out"], oracle.run(None, given)[0])
    for starts, ends in (([1], [2, 2]), ([1, 1, 1], [2, 2, 2])):
        with pytest.raises(mirlo.MirloError, match="must be of one length, at most 2"):
            f.run({"x": x, "starts": np.array(starts), "ends": np.array(ends)})


class SmallUNet(torch.nn.Module):
    """One level of a U-Net of volumes, whose sizes are even."""

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.Conv3d(1, 3, 3, stride=2, padding=1)
        self.norm = torch.nn.InstanceNorm3d(3)
        self.up = torch.nn.ConvTranspose3d(3, 2, 2, 2)
        self.last = torch.nn.Conv3d(3, 2, 1)

    def forward(self, x: Any) -> Any:
        return self.last(torch.cat([self.up(torch.relu(self.norm(self.down(x)))), x], 1))


def test_volumes_whose_sizes_are_multiples_of_dims() -> None:
    """Ranges that PyTorch derives for `2 * half` are checked like those of a symbol."""
    model, x = SmallUNet().eval(), torch.rand(1, 1, 4, 6, 8)
    half = torch.export.Dim("half", min=2, max=6)
    dims = {2: 2 * half, 3: 2 * torch.export.Dim("h"), 4: 2 * torch.export.Dim("w")}
    compiled = mirlo.compile(torch.export.export(model, (x,), dynamic_shapes=(dims,)))
    for shape in ((1, 1, 4, 6, 8), (1, 1, 12, 4, 10)):
        x = torch.rand(shape)
        np.testing.assert_allclose(compiled(x), model(x).detach(), rtol=1e-4, atol=1e-4)
    with pytest.raises(InputError, match="a size of at most"):
        compiled(torch.rand(1, 1, 14, 6, 8))
