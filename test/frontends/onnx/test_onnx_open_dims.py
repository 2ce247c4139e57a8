"""Models whose inputs have symbols for dims: one compilation gives what ONNX's reference gives, for several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import mirlo
from mirlo.frontends.onnx import importer
from mirlo.frontends.onnx.importer import build_main
from mirlo.testing import oracle

F32 = TensorProto.FLOAT


def model_of(
    nodes: list[onnx.NodeProto], inputs: dict[str, list[Any]], constants: dict[str, Any] | None = None, opset: int = 20
) -> onnx.ModelProto:
    """Its outputs are those of the last node."""
    held = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    values = [helper.make_tensor_value_info(name, F32, dims) for name, dims in inputs.items()]
    outputs = [helper.make_tensor_value_info(name, F32, None) for name in nodes[-1].output]
    graph = helper.make_graph(nodes, "open", values, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def assert_like_reference(model: onnx.ModelProto, *shapes: dict[str, tuple[int, ...]]) -> None:
    """Compare for each of these shapes of the inputs, with one compilation."""
    compiled, reference = mirlo.compile(model), ReferenceEvaluator(model)
    random = np.random.default_rng(0)
    for sizes in shapes:
        inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
        for got, wanted in zip(compiled.run(inputs).values(), reference.run(None, inputs), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=str(sizes))


def node(operator: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(operator, inputs.split(), outputs.split(), **attributes)


FAR = 2**62


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (1, FAR, 1), (-3, FAR, 1), (2, -1, 1), (-1, -FAR, -1), (4, 0, -2), (-2, 1, -1), (FAR, FAR, 1), (0, 4, 2),
        (-4, -2, 1),
    ],
)  # fmt: skip
def test_slices_of_numbers(start: int, end: int, step: int) -> None:
    bounds = {"s": [start], "e": [end], "a": [0], "t": [step]}
    compiled = mirlo.compile(model_of([node("Slice", "x s e a t", "y")], {"x": ["n", 3]}, bounds))
    for n in (0, 1, 2, 5, 9):
        x = np.arange(n * 3, dtype=np.float32).reshape(n, 3)
        expected = x[start : None if end == -FAR else end : step]
        np.testing.assert_array_equal(compiled.run({"x": x})["y"], expected, err_msg=str(n))


@pytest.mark.sample(4)
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(
    ("operator", "attributes"),
    [
        ("Conv", {"group": 2}),
        ("MaxPool", {"kernel_shape": [3, 2]}),
        ("AveragePool", {"kernel_shape": [3, 2]}),
        ("AveragePool", {"kernel_shape": [3, 2], "count_include_pad": 1}),
    ],
)
def test_windows_padded_for_the_same_size(operator: str, attributes: dict[str, Any], auto_pad: str) -> None:
    """How much is padded depends on the sizes: as the same model with its sizes fixed."""
    made = node(operator, "x w" if operator == "Conv" else "x", "y", strides=[2, 3], auto_pad=auto_pad, **attributes)
    weight = {"w": np.random.default_rng(1).standard_normal((4, 1, 3, 2)).astype(np.float32)}
    model = model_of([made], {"x": [1, 2, "h", "w"]}, weight if operator == "Conv" else None)
    compiled = mirlo.compile(model)
    for h, w in ((1, 1), (4, 6), (7, 8), (5, 10)):
        x = np.random.default_rng(2).standard_normal((1, 2, h, w)).astype(np.float32)
        expected = mirlo.compile(model, shapes={"x": [1, 2, h, w]}).run({"x": x})["y"]
        np.testing.assert_allclose(compiled.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-6, err_msg=f"{h}, {w}")


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": [2, 3]},
        {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 0]},
        {"dilations": [2, 1]},
        {"strides": [2, 2], "output_shape": [6, 11]},
        {"strides": [2, 3], "auto_pad": "SAME_UPPER"},
    ],
)
def test_transposed_convolution(attributes: dict[str, Any]) -> None:
    """With a window of open size, too."""
    model = model_of([node("ConvTranspose", "x w b", "y", **attributes)], {
        "x": [1, 2, "h", "w"], "w": [2, 3, "kh", "kw"], "b": [3],
    })  # fmt: skip
    compiled = mirlo.compile(model)
    random = np.random.default_rng(3)
    for image, window in (((3, 4), (3, 2)), ((5, 2), (2, 4))):
        shapes = {"x": (1, 2, *image), "w": (2, 3, *window), "b": (3,)}
        inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        expected = mirlo.compile(model, shapes={name: list(shape) for name, shape in shapes.items()}).run(inputs)["y"]
        np.testing.assert_allclose(compiled.run(inputs)["y"], expected, rtol=1e-5, atol=1e-5, err_msg=str(shapes))


def test_padding_by_differences_of_dims() -> None:
    """The padded dim is known to be that of the other input, and is added to it."""
    nodes = [
        node("Shape", "y", "long", start=1),
        node("Shape", "x", "short", start=1),
        node("Sub", "long short", "more"),
        node("Concat", "zero more", "pads", axis=0),
        node("Pad", "x pads nothing axes", "padded"),
        node("Add", "padded y", "z"),
    ]
    constants = {"zero": [0], "axes": [-1], "nothing": np.float32(0)}
    model = model_of(nodes, {"x": [2, "n"], "y": [2, "m"]}, constants)
    assert_like_reference(model, {"x": (2, 3), "y": (2, 5)}, {"x": (2, 4), "y": (2, 4)})


def test_dims_that_can_only_be_equal() -> None:
    """What operators need of dims is found at import, and checked at the call."""
    nodes = [node("Shape", "y", "shape"), node("Expand", "x shape", "z")]
    compiled = mirlo.compile(model_of(nodes, {"x": [1, "n"], "y": ["b", "m"]}))
    found = compiled.run({"x": np.ones((1, 3), np.float32), "y": np.zeros((2, 3), np.float32)})["z"]
    np.testing.assert_array_equal(found, np.ones((2, 3)))
    with pytest.raises(mirlo.MirloError, match=r"Expand.* a tensor of shape \[1, n\] does not broadcast to"):
        compiled.run({"x": np.ones((1, 3), np.float32), "y": np.zeros((2, 4), np.float32)})

    grid = mirlo.compile(model_of([node("AffineGrid", "t size", "g")], {"t": ["n", "a", "b"]}, {"size": [2, 1, 2, 3]}))
    assert str(grid.inputs[0]).endswith("f32[n, 2, 3]")


def test_equations_of_one_node_are_solved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes before a node that requires several dims to be equal are imported twice, not once for each."""
    imports = []

    def counted(*arguments: Any, **options: Any) -> Any:
        imports.append(arguments)
        return build_main(*arguments, **options)

    monkeypatch.setattr(importer, "build_main", counted)
    inputs = {name: [name * 2, 2] for name in "abcd"}
    model = model_of([node("Concat", "a b c d", "y", axis=1)], inputs | {"a": ["aa", "aa"]})
    shapes = {name: (2, 2) for name in "abcd"}
    assert_like_reference(model, shapes)
    assert len(imports) == 2
    with pytest.raises(mirlo.MirloError, match="an earlier input has 3"):
        mirlo.compile(model).run({name: np.zeros((3, 2), np.float32) for name in "abcd"})


def test_what_a_dim_leaves_of_the_elements() -> None:
    """-1 where only run time knows whether the other dims divide the elements."""
    nodes = [node("Shape", "z", "rows"), node("Concat", "rows rest", "shape", axis=0), node("Reshape", "x shape", "y")]
    model = model_of(nodes, {"x": ["a", "b"], "z": ["c"]}, {"rest": np.array([-1])})
    assert_like_reference(model, {"x": (4, 6), "z": (3,)}, {"x": (5, 2), "z": (10,)})
    with pytest.raises(mirlo.MirloError, match="node 'y' .Reshape.: the other dims of the shape do not divide"):
        mirlo.compile(model)(np.zeros((4, 6), np.float32), np.zeros(5, np.float32))


def test_a_table_cut_to_the_length_of_a_sequence() -> None:
    """As exporters write position embeddings: that the sequence is no longer than the table is checked by the call."""
    table = np.random.default_rng(0).standard_normal((1, 16, 4)).astype(np.float32)
    nodes = [
        node("Shape", "x", "length", start=1, end=2), node("Slice", "table zero length one one", "rows"),
        node("Shape", "x", "wanted", start=0, end=2), node("Concat", "wanted four", "shape", axis=0),
        node("Expand", "rows shape", "spread"), node("Add", "x spread", "y"),
    ]  # fmt: skip
    numbers = {"zero": np.array([0]), "one": np.array([1]), "four": np.array([4])}
    model = model_of(nodes, {"x": ["batch", "seq", 4]}, {"table": table, **numbers})
    assert_like_reference(model, {"x": (2, 5, 4)}, {"x": (1, 16, 4)}, {"x": (3, 1, 4)})
    with pytest.raises(mirlo.MirloError, match=r"shape \[1, min\(16, seq\), 4\] does not broadcast"):
        mirlo.compile(model)(np.zeros((1, 17, 4), np.float32))


@pytest.mark.parametrize("image, window", [((4, 5), (2, 3)), ((3, 3), (1, 2))])
def test_patches_to_images_of_any_size(image: tuple[int, ...], window: tuple[int, ...]) -> None:
    """Sizes of images and windows are inputs; those that do not fit are an error."""
    model = model_of([node("Col2Im", "x image window", "y", pads=[1, 0, 0, 1])], {"x": [1, "rows", "columns"]})
    for name in ("image", "window"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, [2]))
    count = (image[0] + 1 - window[0] + 1) * (image[1] + 1 - window[1] + 1)
    x = np.random.default_rng(4).standard_normal((1, 2 * window[0] * window[1], count)).astype(np.float32)
    inputs = {"x": x, "image": np.array(image), "window": np.array(window)}
    compiled = mirlo.compile(model)
    expected = ReferenceEvaluator(model).run(None, inputs)[0]
    np.testing.assert_allclose(compiled.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)
    for wrong in ({"image": np.array([9, 9])}, {"window": np.array([5, 5])}, {"window": np.array([0, 1])}):
        with pytest.raises(mirlo.MirloError, match="do not fit"):
            compiled.run({**inputs, **wrong})


def test_boxes_of_any_number() -> None:
    names = {"boxes": ["n", "b", 4], "scores": ["n", "c", "b"]}
    constants = {"most": [2], "overlap": np.float32([0.3]), "threshold": np.float32([0.2])}
    inputs = "boxes scores most overlap threshold"
    model = model_of([node("NonMaxSuppression", inputs, "selected")], names, constants)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    compiled, reference = mirlo.compile(model), ReferenceEvaluator(model)
    random = np.random.default_rng(5)
    for n, c, b in ((1, 1, 1), (2, 3, 9)):
        corner = random.random((n, b, 2), np.float32)
        given = {"boxes": np.concatenate([corner, corner + 0.5], 2), "scores": random.random((n, c, b), np.float32)}
        np.testing.assert_array_equal(compiled.run(given)["selected"], reference.run(None, given)[0])
    empty = {"boxes": np.zeros((1, 0, 4), np.float32), "scores": np.zeros((1, 2, 0), np.float32)}
    assert compiled.run(empty)["selected"].shape == (0, 3)


@pytest.mark.sample(2)
@pytest.mark.parametrize("operator", ["Det", "GroupNormalization", "DeformConv", "CausalConvWithState"])
def test_operators_of_open_dims(operator: str) -> None:
    """As the same model with its sizes fixed."""
    cases: dict[str, tuple[dict[str, list[Any]], dict[str, Any], list[dict[str, tuple[int, ...]]]]] = {
        "Det": ({"x": ["b", "n", "n"]}, {}, [{"x": (2, 3, 3)}, {"x": (1, 1, 1)}]),
        "GroupNormalization": (
            {"x": ["b", "c", "n"], "s": ["c"], "t": ["c"]}, {"num_groups": 2},
            [{"x": (2, 4, 3), "s": (4,), "t": (4,)}, {"x": (1, 2, 5), "s": (2,), "t": (2,)}],
        ),
        "DeformConv": (
            {"x": ["b", "c", "h", "w"], "w": ["o", "c", 2, 2], "d": ["b", 8, "p", "q"]}, {"pads": [1, 0, 0, 0]},
            [{"x": (1, 2, 3, 4), "w": (3, 2, 2, 2), "d": (1, 8, 3, 3)},
             {"x": (2, 1, 4, 5), "w": (1, 1, 2, 2), "d": (2, 8, 4, 4)}],
        ),
        "CausalConvWithState": (
            {"x": ["b", "c", "n"], "w": ["c", 1, "k"], "t": ["c"], "past": ["b", "c", "p"]}, {"activation": "silu"},
            [{"x": (2, 3, 5), "w": (3, 1, 4), "t": (3,), "past": (2, 3, 3)},
             {"x": (1, 2, 1), "w": (2, 1, 3), "t": (2,), "past": (1, 2, 2)}],
        ),
    }  # fmt: skip
    names, attributes, shapes = cases[operator]
    outputs = "y z" if operator == "CausalConvWithState" else "y"
    model = model_of([node(operator, " ".join(names), outputs, **attributes)], names, opset=27)
    model.ir_version = 13
    compiled = mirlo.compile(model)
    random = np.random.default_rng(6)
    for sizes in shapes:
        inputs = {name: random.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
        expected = mirlo.compile(model, shapes={name: list(shape) for name, shape in sizes.items()}).run(inputs)
        for name, found in compiled.run(inputs).items():
            np.testing.assert_allclose(found, expected[name], rtol=1e-4, atol=1e-5, err_msg=f"{name} of {sizes}")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "attributes, parts",
    [({}, 1), ({}, 2), ({"onesided": 1}, 1), ({"inverse": 1}, 2), ({"inverse": 1, "onesided": 1}, 2)],
)
def test_transforms_of_any_length(attributes: dict[str, int], parts: int) -> None:
    """As of a known length; a length that is an input cuts off or adds zeros."""
    length = helper.make_tensor_value_info("length", TensorProto.INT64, [])
    model = model_of([node("DFT", "x length axis", "y", **attributes)], {"x": ["b", "n", parts]}, {"axis": [1]})
    model.graph.input.append(length)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array(1), "axis"))
    compiled = mirlo.compile(model)
    for n, wanted in ((8, 8), (5, 9), (6, 4)):
        x = np.random.default_rng(7).standard_normal((2, n, parts)).astype(np.float32)
        if attributes.get("inverse") and attributes.get("onesided"):
            expected = np.fft.irfft(x[..., 0] + 1j * x[..., 1], wanted, axis=1)[..., None]
        else:
            signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
            made = (np.fft.ifft if attributes.get("inverse") else np.fft.fft)(signal, wanted, axis=1)
            made = made[:, : wanted // 2 + 1] if attributes.get("onesided") else made
            expected = np.stack([made.real, made.imag], -1)
        found = compiled.run({"x": x, "length": np.array(wanted)})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=f"{n}, {wanted}")


def test_frames_of_a_signal_of_any_length() -> None:
    model = model_of([node("STFT", "x step window", "y")], {"x": ["b", "n", 1], "window": ["w"]}, opset=17)
    model.graph.input.append(helper.make_tensor_value_info("step", TensorProto.INT64, []))
    compiled, reference = mirlo.compile(model), ReferenceEvaluator(model)
    random = np.random.default_rng(8)
    for n, window, step in ((32, 8, 4), (21, 5, 3)):
        x = random.standard_normal((2, n, 1)).astype(np.float32)
        inputs = {"x": x, "window": np.hanning(window).astype(np.float32), "step": np.array(step)}
        np.testing.assert_allclose(compiled.run(inputs)["y"], reference.run(None, inputs)[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(mirlo.MirloError, match="do not fit"):
        compiled.run({"x": x[:, :4], "window": inputs["window"], "step": np.array(1)})


@pytest.mark.parametrize(
    ("parts", "attributes"),
    [(1, {}), (2, {"inverse": 1}), (1, {"onesided": 1}), (2, {"inverse": 1, "onesided": 1})],
    ids=["real", "inverse", "half", "half-inverse"],
)
def test_long_transforms(parts: int, attributes: dict[str, int]) -> None:
    """A transform that is too long for one matrix is composed of shorter ones."""
    length = 8400
    size = length // 2 + 1 if len(attributes) == 2 else length
    model = model_of([node("DFT", "x", "y", **attributes)], {"x": [1, size, parts]}, opset=19)
    x = np.random.default_rng(4).standard_normal((1, size, parts)).astype(np.float32)
    signal = x[..., 0] + (1j * x[..., 1] if parts == 2 else 0)
    if len(attributes) == 2:
        expected = np.fft.irfft(signal, length)[..., None]
    else:
        made = (np.fft.ifft if "inverse" in attributes else np.fft.fft)(signal)
        made = made[:, : length // 2 + 1] if "onesided" in attributes else made
        expected = np.stack([made.real, made.imag], -1)
    found = mirlo.compile(model).run({"x": x})["y"]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * abs(expected).max())


@pytest.mark.parametrize(
    ("length", "message"), [(2**25, "transforms 33554432 elements: at most 16777216"), (8209, "a prime number")]
)
def test_transforms_that_are_too_long(length: int, message: str) -> None:
    model = model_of([node("DFT", "x", "y")], {"x": [1, length, 1]}, opset=19)
    with pytest.raises(mirlo.MirloError, match=rf"node 'DFT_0' \(DFT\): .*{message}"):
        mirlo.compile(model)


@pytest.mark.parametrize("step", [np.int64(2), None], ids=["step", "any-step"])
@pytest.mark.parametrize("dims", [[2, 13, 1], ["b", "n", 1]], ids=["static", "dynamic"])
def test_short_frames(dims: list[int | str], step: np.int64 | None) -> None:
    """Frames of few elements are slices where the step is known."""
    constants: dict[str, Any] = {"window": np.array([0.5, 1, -0.25], np.float32)}
    if step is not None:
        constants["step"] = step
    model = model_of([node("STFT", "x step window", "y")], {"x": dims}, constants, opset=17)
    inputs: dict[str, Any] = {"x": np.random.default_rng(3).standard_normal((2, 13, 1)).astype(np.float32)}
    if step is None:
        model.graph.input.append(helper.make_tensor_value_info("step", TensorProto.INT64, []))
        inputs["step"] = np.array(2)
    expected = ReferenceEvaluator(model).run(None, inputs)[0]
    np.testing.assert_allclose(mirlo.compile(model).run(inputs)["y"], expected, rtol=1e-5, atol=1e-5)


def test_frames_of_known_length_of_a_signal_of_any_length() -> None:
    """The sines and cosines are constants then."""
    nodes = [node("STFT", "x step window", "y", onesided=1)]
    model = model_of(nodes, {"x": ["b", "n", 1]}, {"step": 3, "window": np.hanning(8).astype(np.float32)}, opset=17)
    assert_like_reference(model, {"x": (2, 32, 1)}, {"x": (1, 21, 1)}, {"x": (1, 8, 1)})
    with pytest.raises(mirlo.MirloError, match=r"node 'y' \(STFT\): frames of 8 elements do not fit f32\[b, n, 1\]"):
        mirlo.compile(model).run({"x": np.zeros((2, 7, 1), np.float32)})
    model.graph.node[0].input.append("length")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(9), "length"))
    with pytest.raises(mirlo.MirloError, match="frames of 9 elements do not fit a window of 8"):
        mirlo.compile(model)


def test_parts_of_complex_signals() -> None:
    """A last dim of any size is that of complex numbers."""
    model = model_of([node("STFT", "x step window", "y")], {"x": ["b", 32, "parts"], "window": [8]}, opset=17)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(4), "step"))
    compiled, x = mirlo.compile(model), np.random.default_rng(9).standard_normal((1, 32, 3)).astype(np.float32)
    window = np.hanning(8).astype(np.float32)
    assert compiled.run({"x": x[..., :2].copy(), "window": window})["y"].shape[-1] == 2
    with pytest.raises(mirlo.MirloError, match=r"expected f32\[b, 32, 2\]"):
        compiled.run({"x": x, "window": window})


def test_pooling_and_back() -> None:
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [node("MaxPool", "x", "p i", **windows), node("MaxUnpool", "p i shape", "y", **windows)]
    model = model_of(nodes, {"x": ["b", 2, "h", "w"]})
    model.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [4]))
    compiled = mirlo.compile(model)
    for h, w in ((4, 6), (2, 8)):
        x = np.random.default_rng(9).permutation(4 * h * w).reshape(2, 2, h, w).astype(np.float32)
        found = compiled.run({"x": x, "shape": np.array([2, 2, h, w + 1])})["y"]
        blocks = x.reshape(2, 2, h // 2, 2, w // 2, 2)
        largest = blocks.max((3, 5), keepdims=True)
        expected = np.where(blocks == largest, blocks, 0).reshape(x.shape)
        np.testing.assert_array_equal(found, np.pad(expected, [(0, 0)] * 3 + [(0, 1)]))
    with pytest.raises(mirlo.MirloError, match="does not hold"):
        compiled.run({"x": x, "shape": np.array([2, 2, h, w - 1])})


def test_mel_filters_of_any_size() -> None:
    model = model_of([node("MelWeightMatrix", "bins length rate low high", "y")], {"low": [], "high": []})
    for name in ("bins", "length", "rate"):
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
    compiled, reference = mirlo.compile(model), ReferenceEvaluator(model)
    for bins, length in ((8, 16), (5, 31)):
        numbers = {"bins": bins, "length": length, "rate": 8192}
        inputs = {name: np.array(number) for name, number in numbers.items()}
        inputs |= {"low": np.float32(0), "high": np.float32(4096)}
        expected = reference.run(None, inputs)[0]
        np.testing.assert_allclose(compiled.run(inputs)["y"], expected, rtol=1e-4, atol=1e-5)


@oracle.needs_onnx(1, 19)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_shrinking_with_antialiasing(mode: str) -> None:
    """The kernel is as wide as the input range of a result element, for any sizes."""
    made = node("Resize", "x roi scales sizes", "y", mode=mode, antialias=1)
    constants = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": [1, 1, 3, 4]}
    model = model_of([made], {"x": [1, 1, "h", "w"]}, constants)
    assert_like_reference(model, {"x": (1, 1, 4, 9)}, {"x": (1, 1, 11, 6)}, {"x": (1, 1, 3, 4)})


def test_regions_of_images_of_any_size() -> None:
    model = model_of([node("RoiAlign", "x rois which", "y", output_height=2, output_width=3)], {
        "x": ["b", "c", "h", "w"], "rois": ["r", 4],
    })  # fmt: skip
    model.graph.input.append(helper.make_tensor_value_info("which", TensorProto.INT64, ["r"]))
    compiled = mirlo.compile(model)
    for h, w in ((5, 7), (9, 4)):
        inputs = {
            "x": np.random.default_rng(10).random((2, 3, h, w), np.float32),
            "rois": np.float32([[0, 0, 3, 3], [1, 2, w, h]]),
            "which": np.array([1, 0]),
        }
        sizes = {name: list(array.shape) for name, array in inputs.items()}
        expected = mirlo.compile(model, shapes=sizes).run(inputs)["y"]
        np.testing.assert_allclose(compiled.run(inputs)["y"], expected, rtol=1e-5, atol=1e-6)


def test_dims_that_no_symbol_stands_for_broadcast() -> None:
    """As many rows as are not zero, and as the input has: that is known when the model runs."""
    nodes = [node("NonZero", "x", "places"), node("Cast", "places", "found", to=F32), node("Add", "found y", "z")]
    compiled = mirlo.compile(model_of(nodes, {"x": ["n"], "y": [1, "m"]}))
    x, y = np.float32([0, 1, 0, 1]), np.float32([[10, 20]])
    np.testing.assert_array_equal(compiled.run({"x": x, "y": y})["z"], [[11, 23]])
    with pytest.raises(mirlo.MirloError, match=r"shape \[1, m\] does not broadcast"):
        compiled.run({"x": x + 1, "y": y})


def test_axes_of_run_time() -> None:
    """Where dims of 1 come and go; axes that are not of 1, or named twice, are an error."""
    axes = helper.make_tensor_value_info("axes", TensorProto.INT64, [2])
    for operator, dims, shape in (("Squeeze", ["n", 1, "m", "k"], (3, 1, 2, 1)), ("Unsqueeze", ["n", "m"], (3, 2))):
        model = model_of([node(operator, "x axes", "y")], {"x": dims})
        model.graph.input.append(axes)
        compiled = mirlo.compile(model)
        x = np.arange(6, dtype=np.float32).reshape(shape)
        for given in ([1, 3], [-1, -3], [3, 1]):
            made = np.squeeze(x, tuple(given)) if operator == "Squeeze" else np.expand_dims(x, tuple(given))
            np.testing.assert_array_equal(compiled.run({"x": x, "axes": np.array(given)})["y"], made)
        for wrong in ([1, 1], [1, 7]) if operator == "Unsqueeze" else ([0, 1], [1, 1]):
            with pytest.raises(mirlo.MirloError, match="'axes' must name"):
                compiled.run({"x": x, "axes": np.array(wrong)})


def test_parts_of_a_dim_that_need_not_be_equal() -> None:
    model = model_of([node("Split", "x", "a b c", num_outputs=3)], {"x": [2, "n"]}, opset=18)
    model.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    compiled = mirlo.compile(model)
    for n, sizes in ((7, (3, 3, 1)), (6, (2, 2, 2)), (9, (3, 3, 3)), (1, (1, 0, 0))):
        x = np.arange(2 * n, dtype=np.float32).reshape(2, n)
        parts = np.split(x, np.cumsum(sizes)[:-1], axis=1)
        for found, expected in zip(compiled.run({"x": x}).values(), parts, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_models_that_are_older_than_all_converters() -> None:
    """Broadcasting as operator set 6 has it, where the dims are symbols."""
    model = model_of([node("Add", "x y", "z", broadcast=1)], {"x": ["b", "n"], "y": ["n"]}, opset=6)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", F32, ["b", "n"]))
    compiled = mirlo.compile(model)
    for b, n in ((2, 3), (1, 5)):
        x, y = np.ones((b, n), np.float32), np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(compiled.run({"x": x, "y": y})["z"], x + y)
