"""Plans computed by the library, compared with numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mirlo_onednn.native.desc import reshaped_strides
from mirlo_onednn.native.library import is_available
from mirlo_onednn.plan import PostOp, PrimitiveNode
from plans import RELU, Region, close, conv, conv_attributes, random

pytestmark = pytest.mark.skipif(not is_available(), reason="needs onednn-cpu-gomp")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("channels", "out", "kernel", "groups", "padding", "stride", "gap"),
    [(3, 16, 7, 1, 3, 2, 0), (32, 24, 1, 1, 0, 1, 0), (32, 64, 3, 1, 1, 1, 0), (16, 16, 3, 16, 1, 1, 0),
     (32, 32, 3, 4, 1, 2, 0), (8, 12, 3, 1, 2, 1, 1), (6, 10, 3, 2, 0, 1, 0)],
)  # fmt: skip
def test_convolution(
    channels: int, out: int, kernel: int, groups: int, padding: int, stride: int, gap: int, threads: int
) -> None:
    x, w, b = random(2, channels, 15, 15), random(out, channels // groups, kernel, kernel) * 0.2, random(out)
    expected = np.maximum(conv(x, w, padding, stride, gap, groups) + b[:, None, None], 0)
    weight = w if groups == 1 else w.reshape(groups, out // groups, *w.shape[1:])
    operands = {"x": "x", "weight": "w", "bias": "b"}
    node = PrimitiveNode("convolution", operands, "y", conv_attributes(padding, stride, gap), (RELU,))
    region = Region([node], {"x": x}, {"y": expected.shape}, {"w": weight, "b": b}, threads=threads)
    close(region(), expected)


def test_a_residual_is_added_where_it_lies() -> None:
    x, w = random(1, 32, 10, 10), random(32, 32, 3, 3) * 0.1
    first, second = conv_attributes(1), conv_attributes(1)
    add = (PostOp("binary", "add", operand="a"), RELU)
    nodes = [
        PrimitiveNode("convolution", {"x": "x", "weight": "w"}, "a", first, (RELU,)),
        PrimitiveNode("convolution", {"x": "a", "weight": "w"}, "b", second, (RELU,)),
        PrimitiveNode("convolution", {"x": "b", "weight": "w"}, "c", second, add),
    ]
    region = Region(nodes, {"x": x}, dict.fromkeys("abc", x.shape), {"w": w})
    a = np.maximum(conv(x, w, 1), 0)
    b = np.maximum(conv(a, w, 1), 0)
    close(region(), np.maximum(conv(b, w, 1) + a, 0))
    # The two in the middle stay in the library's layout: it is left at both ends only.
    assert region.report.reorders <= 2
    kept = Region(nodes, {"x": x}, dict.fromkeys("abc", x.shape), {"w": w}, outputs=("a", "c"))
    found_a, found_c = kept()
    close(found_a, a)
    close(found_c, np.maximum(conv(b, w, 1) + a, 0))


def test_deconvolution() -> None:
    x, w = random(1, 6, 5, 5), random(6, 4, 3, 3)
    expected = np.zeros((1, 4, 11, 11), np.float32)
    for i, j in np.ndindex(5, 5):
        expected[0, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3] += np.einsum("c,cokl->okl", x[0, :, i, j], w)
    expected = expected[:, :, 1:, 1:]  # padding 1 at the begin, and at the end 1 less output_padding 1
    nodes = [
        PrimitiveNode("permute", {"x": "w"}, "v", {"axes": (1, 0, 2, 3)}),
        PrimitiveNode("deconvolution", {"x": "x", "weight": "v"}, "y",
             {"strides": (2, 2), "dilations": (0, 0), "padding_begin": (1, 1), "padding_end": (0, 0)}),
    ]  # fmt: skip
    region = Region(nodes, {"x": x}, {"v": (4, 6, 3, 3), "y": expected.shape}, {"w": w})
    close(region(), expected)


@pytest.mark.parametrize(
    ("x", "w", "bias"),
    [((5, 7), (7, 9), True), ((2, 3, 16, 8), (8, 24), True), ((1, 32, 64), (64, 48), False),
     ((4, 6, 5), (4, 5, 3), False), ((2, 3, 6, 5), (1, 3, 5, 3), False), ((1, 1, 8), (8, 1), True)],
)  # fmt: skip
def test_matmul(x: tuple[int, ...], w: tuple[int, ...], bias: bool) -> None:
    left, right, b = random(*x), random(*w), random(w[-1])
    product = left @ right
    r = random(*product.shape, seed=1)
    expected = np.maximum(product + (b if bias else 0) + r, 0)
    operands = {"x": "x", "weight": "w", **({"bias": "b"} if bias else {})}
    node = PrimitiveNode("matmul", operands, "y", {}, (PostOp("binary", "add", operand="r"), RELU))
    params = {"w": right, "b": b} if bias else {"w": right}
    close(Region([node], {"x": left, "r": r}, {"y": product.shape}, params)(), expected)
    inputs = {"x": left, "w": right, "r": r, **({"b": b} if bias else {})}
    close(Region([node], inputs, {"y": product.shape})(), expected)


def test_attention_moves_nothing() -> None:
    x, w, mask = random(1, 32, 48), random(48, 48) * 0.2, random(1, 1, 32, 32)
    shapes: dict[str, tuple[int, ...]] = {"s": (1, 4, 32, 32), "p": (1, 4, 32, 32), "o": (1, 4, 32, 12)}
    nodes = []
    for name, axes in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes += [
            PrimitiveNode("matmul", {"x": "x", "weight": "w"}, f"{name}0"),
            PrimitiveNode("reshape", {"x": f"{name}0"}, f"{name}1"),
            PrimitiveNode("permute", {"x": f"{name}1"}, name, {"axes": axes}),
        ]
        shapes |= {f"{name}0": (1, 32, 48), f"{name}1": (1, 32, 4, 12)}
        shapes[name] = (1, 4, 12, 32) if name == "k" else (1, 4, 32, 12)
    scale = (PostOp("eltwise", "linear", 0.25), PostOp("binary", "add", operand="mask"))
    nodes += [
        PrimitiveNode("matmul", {"x": "q", "weight": "k"}, "s", {}, scale),
        PrimitiveNode("softmax", {"x": "s"}, "p", {"axis": 3, "algorithm": "accurate"}),
        PrimitiveNode("matmul", {"x": "p", "weight": "v"}, "o"),
        PrimitiveNode("permute", {"x": "o"}, "o1", {"axes": (0, 2, 1, 3)}),
        PrimitiveNode("reshape", {"x": "o1"}, "y"),
    ]
    shapes |= {"o1": (1, 32, 4, 12), "y": (1, 32, 48)}
    region = Region(nodes, {"x": x, "mask": mask}, shapes, {"w": w})
    heads = (x @ w).reshape(1, 32, 4, 12).transpose(0, 2, 1, 3)
    s = heads @ heads.transpose(0, 1, 3, 2) * 0.25 + mask
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    close(region(), (p @ heads).transpose(0, 2, 1, 3).reshape(1, 32, 48))
    assert region.report.reorders == 0
    assert len({step.implementation for step in region.report.steps if step.operation == "matmul"}) == 1


ERF = np.vectorize(math.erf)
ELTWISE = {
    "relu": (0.1, 0, lambda x: np.where(x > 0, x, 0.1 * x)),
    "tanh": (0, 0, np.tanh),
    "elu": (1.5, 0, lambda x: np.where(x > 0, x, 1.5 * np.expm1(x))),
    "square": (0, 0, np.square),
    "abs": (0, 0, np.abs),
    "linear": (2, 3, lambda x: 2 * x + 3),
    "soft_relu": (1, 0, lambda x: np.log1p(np.exp(x))),
    "hardsigmoid": (0.2, 0.5, lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
    "logistic": (0, 0, lambda x: 1 / (1 + np.exp(-x))),
    "exp": (0, 0, np.exp),
    "gelu_tanh": (0, 0, lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    "swish": (1, 0, lambda x: x / (1 + np.exp(-x))),
    "clip": (-0.5, math.inf, lambda x: np.maximum(x, -0.5)),
    "gelu_erf": (0, 0, lambda x: 0.5 * x * (1 + ERF(x / math.sqrt(2)))),
    "round": (0, 0, np.round),
    "mish": (0, 0, lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    "hardswish": (1 / 6, 0.5, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
}


@pytest.mark.parametrize("algorithm", ELTWISE)
def test_eltwise(algorithm: str) -> None:
    alpha, beta, function = ELTWISE[algorithm]
    x, w = 2 * random(3, 37), random(37, 37)
    attributes = {"algorithm": algorithm, "alpha": alpha, "beta": beta}
    close(
        Region([PrimitiveNode("eltwise", {"x": "x"}, "y", attributes)], {"x": x}, {"y": x.shape})(), function(x), 3e-4
    )
    post_op = PostOp("eltwise", algorithm, alpha, beta)
    fused = Region(
        [PrimitiveNode("matmul", {"x": "x", "weight": "w"}, "y", {}, (post_op,))],
        {"x": 0.1 * x},
        {"y": x.shape},
        {"w": w},
    )
    product = 0.1 * x @ w
    if algorithm != "round":  # a sum just beside a half may fall on either side
        close(fused(), function(product), 3e-4)


@pytest.mark.parametrize("function", ["log", "sqrt", "reciprocal", "rsqrt"])
def test_eltwise_of_positive_numbers(function: str) -> None:
    x = np.abs(random(5, 19)) + 0.1
    algorithm, alpha, beta, expected = {
        "log": ("log", 0.0, 0.0, np.log(x)),
        "sqrt": ("sqrt", 0.0, 0.0, np.sqrt(x)),
        "reciprocal": ("pow", 1.0, -1.0, 1 / x),
        "rsqrt": ("pow", 1.0, -0.5, 1 / np.sqrt(x)),
    }[function]
    attributes = {"algorithm": algorithm, "alpha": alpha, "beta": beta}
    close(Region([PrimitiveNode("eltwise", {"x": "x"}, "y", attributes)], {"x": x}, {"y": x.shape})(), expected)


@pytest.mark.sample(2)
@pytest.mark.parametrize("shape", [(2, 8, 5, 6), (8, 1, 1), (6,), (1, 1, 5, 1), (2, 1, 1, 1), (1,), (2, 8, 1, 6)])
@pytest.mark.parametrize("algorithm", ["add", "sub", "mul", "div", "max", "min"])
def test_binary(algorithm: str, shape: tuple[int, ...]) -> None:
    x, y, w = random(2, 8, 5, 6), random(*shape, seed=1) + 3, random(8, 8, 1, 1)
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum}
    compute = function.get(algorithm, np.minimum)
    node = PrimitiveNode("binary", {"x": "x", "y": "y"}, "z", {"algorithm": algorithm}, (RELU,))
    close(Region([node], {"x": x, "y": y}, {"z": x.shape})(), np.maximum(compute(x, y), 0))
    # After a convolution, whose layout the library chooses.
    nodes = [
        PrimitiveNode(
            "convolution",
            {"x": "x", "weight": "w"},
            "a",
            conv_attributes(),
            (PostOp("binary", algorithm, operand="y"),),
        ),
        PrimitiveNode("binary", {"x": "a", "y": "y"}, "z", {"algorithm": "add"}),
    ]
    expected = compute(conv(x, w), y) + y
    close(Region(nodes, {"x": x, "y": y}, {"a": x.shape, "z": x.shape}, {"w": w})(), expected, 1e-4)
    close(Region(nodes, {"x": x}, {"a": x.shape, "z": x.shape}, {"w": w, "y": y})(), expected, 1e-4)


@pytest.mark.parametrize("shape", [(7, 2, 1), (7, 16, 1), (3, 33, 1, 1), (1, 3, 1, 1), (7, 5), (4, 1, 3)])
def test_numbers_per_channel_after_arithmetic(shape: tuple[int, ...]) -> None:
    """Also with images of one pixel, which the library reads in the wrong order."""
    x, y = random(*shape), random(*shape, seed=1)
    a, b = (random(1, shape[1], *(1,) * (len(shape) - 2), seed=seed) for seed in (2, 3))
    after = (PostOp("binary", "mul", operand="a"), PostOp("binary", "add", operand="b"))
    node = PrimitiveNode("binary", {"x": "x", "y": "y"}, "z", {"algorithm": "mul"}, after)
    close(Region([node], {"x": x, "y": y}, {"z": shape}, {"a": a, "b": b})(), x * y * a + b)


@pytest.mark.parametrize("algorithm", ["max", "avg_include_padding", "avg_exclude_padding"])
def test_pooling(algorithm: str) -> None:
    x = random(2, 5, 9, 9)
    outside = -np.inf if algorithm == "max" else 0
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=outside), (3, 3), (2, 3)
    )[:, :, ::2, ::2]
    inside = np.lib.stride_tricks.sliding_window_view(np.pad(np.ones((9, 9)), 1), (3, 3))[::2, ::2].sum((-1, -2))
    expected = windows.max((-1, -2)) if algorithm == "max" else windows.sum((-1, -2))
    if algorithm != "max":
        expected = expected / (9 if algorithm == "avg_include_padding" else inside)
    attributes = {**conv_attributes(1, 2), "kernel": (3, 3), "algorithm": algorithm}
    close(Region([PrimitiveNode("pooling", {"x": "x"}, "y", attributes)], {"x": x}, {"y": expected.shape})(), expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("algorithm", ["accurate", "log"])
def test_softmax(axis: int, algorithm: str) -> None:
    x = random(3, 4, 17)
    shifted = x - x.max(axis, keepdims=True)
    expected = shifted - np.log(np.exp(shifted).sum(axis, keepdims=True))
    expected = np.exp(expected) if algorithm == "accurate" else expected
    node = PrimitiveNode("softmax", {"x": "x"}, "y", {"axis": axis, "algorithm": algorithm})
    close(Region([node], {"x": x}, {"y": x.shape})(), expected)


@pytest.mark.parametrize("factors", [(), ("scale",), ("bias",), ("scale", "bias")])
def test_layer_norm(factors: tuple[str, ...]) -> None:
    x = random(2, 5, 3, 8) + 100
    params = {name: random(3, 8, seed=len(name)) for name in factors}
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-5) * params.get("scale", 1) + params.get("bias", 0)
    node = PrimitiveNode(
        "layer_norm", {"x": "x", **{name: name for name in factors}}, "y", {"axis": 2, "epsilon": 1e-5}
    )
    close(Region([node], {"x": x}, {"y": x.shape}, params)(), expected, 1e-4)


def test_batch_norm() -> None:
    x, scale, bias, mean = random(2, 6, 4, 4), random(6), random(6, seed=1), random(6, seed=2)
    variance = np.abs(random(6, seed=3)) + 0.1
    column = (slice(None), None, None)
    expected = (x - mean[column]) / np.sqrt(variance[column] + 1e-3) * scale[column] + bias[column]
    params = {"scale": scale, "bias": bias, "mean": mean, "variance": variance}
    node = PrimitiveNode("batch_norm", {"x": "x", **{name: name for name in params}}, "y", {"epsilon": 1e-3})
    close(Region([node], {"x": x}, {"y": x.shape}, params)(), expected)


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups: int) -> None:
    x, scale, bias = random(3, 6, 4, 5) + 2, random(6), random(6, seed=1)
    grouped = x.reshape(3, groups, -1)
    normal = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + 1e-5)
    expected = normal.reshape(x.shape) * scale[:, None, None] + bias[:, None, None]
    operands = {"x": "x", "scale": "scale", "bias": "bias"}
    node = PrimitiveNode("group_norm", operands, "y", {"groups": groups, "epsilon": 1e-5})
    close(Region([node], {"x": x}, {"y": x.shape}, {"scale": scale, "bias": bias})(), expected)


def test_lrn() -> None:
    x = random(2, 7, 3, 3)
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    around = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    expected = x / (1.5 + 0.3 / 3 * around) ** 0.75
    node = PrimitiveNode("lrn", {"x": "x"}, "y", {"size": 3, "alpha": 0.3, "beta": 0.75, "bias": 1.5})
    close(Region([node], {"x": x}, {"y": x.shape})(), expected)


@pytest.mark.parametrize("algorithm", ["sum", "mean", "max", "min", "mul"])
def test_reduction(algorithm: str) -> None:
    x = random(4, 5, 6)
    compute = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min, "mul": np.prod}[algorithm]
    node = PrimitiveNode("reduction", {"x": "x"}, "y", {"algorithm": algorithm})
    close(Region([node], {"x": x}, {"y": (4, 1, 6)})(), compute(x, axis=1, keepdims=True))  # type: ignore[operator]


def test_reshape_of_padded_channels() -> None:
    """One channel is padded to a block: the dim of 1 cannot be left out without moving the rest."""
    x, w, m = random(5, 1, 4, 4), random(1, 1, 3, 1), random(4, 1)
    window = {"strides": (3, 1), "dilations": (0, 0), "padding_begin": (1, 0), "padding_end": (1, 0)}
    nodes = [
        PrimitiveNode("convolution", {"x": "x", "weight": "w"}, "a", window),
        PrimitiveNode("reshape", {"x": "a"}, "r"),
        PrimitiveNode("matmul", {"x": "r", "weight": "m"}, "y"),
    ]
    region = Region(nodes, {"x": x}, {"a": (5, 1, 2, 4), "r": (10, 4), "y": (10, 1)}, {"w": w, "m": m})
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, 0]
    rows = np.stack([np.einsum("nhw,h->nw", padded[:, at : at + 3], w.reshape(3)) for at in (0, 3)], 1)
    close(region(), rows.reshape(10, 4) @ m)


@pytest.mark.parametrize("seed", range(40))
def test_strides_of_reshapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dims = [int(dim) for dim in rng.choice([1, 2, 3, 4], rng.integers(1, 6))]
    axes = tuple(int(axis) for axis in rng.permutation(len(dims)))
    array = np.arange(np.prod(dims)).reshape(dims).transpose(axes)
    factors = [f for dim in array.shape for f in ([2, 2] if dim == 4 else [dim])]
    cuts = sorted(rng.choice(len(factors) + 1, 2))
    parts = [factors[: cuts[0]], factors[cuts[0] : cuts[1]], factors[cuts[1] :]]
    wanted = tuple(int(np.prod(part)) for part in parts)
    strides = reshaped_strides(array.shape, [step // 8 for step in array.strides], wanted)
    expected = array.reshape(wanted)
    if strides is None:
        assert not np.shares_memory(array, expected)
    else:
        bytes_ = [8 * step for step in strides]
        np.testing.assert_array_equal(np.lib.stride_tricks.as_strided(array, wanted, bytes_), expected)


def test_reduction_of_single_elements() -> None:
    x = random(4, 1, 6)
    node = PrimitiveNode("reduction", {"x": "x"}, "y", {"algorithm": "mean"})
    np.testing.assert_array_equal(Region([node], {"x": x}, {"y": x.shape})(), x)


def test_slices_are_views() -> None:
    x, w = random(2, 6, 12), random(12, 24)
    pieces = [((0, 0, 8 * i), (1, 1, 1)) for i in range(3)]
    nodes = [PrimitiveNode("matmul", {"x": "x", "weight": "w"}, "m")]
    nodes += [PrimitiveNode("slice", {"x": "m"}, f"p{i}", {"begin": b, "steps": s}) for i, (b, s) in enumerate(pieces)]
    nodes += [
        PrimitiveNode("permute", {"x": "p1"}, "q1", {"axes": (0, 2, 1)}),
        PrimitiveNode("matmul", {"x": "p0", "weight": "q1"}, "s"),
        PrimitiveNode("eltwise", {"x": "p2"}, "r", {"algorithm": "relu", "alpha": 0.0, "beta": 0.0}),
        PrimitiveNode("matmul", {"x": "s", "weight": "r"}, "y"),
        PrimitiveNode("slice", {"x": "y"}, "z", {"begin": (1, 1, 0), "steps": (1, 2, 3)}),
    ]
    shapes = {"m": (2, 6, 24), "p0": (2, 6, 8), "p1": (2, 6, 8), "p2": (2, 6, 8), "q1": (2, 8, 6), "s": (2, 6, 6)}
    shapes |= {"r": (2, 6, 8), "y": (2, 6, 8), "z": (1, 3, 3)}
    m = x @ w
    expected = m[..., :8] @ m[..., 8:16].transpose(0, 2, 1) @ np.maximum(m[..., 16:], 0)
    region = Region(nodes, {"x": x}, shapes, {"w": w}, outputs=("y", "z"))
    y, z = region()
    close(y, expected)
    close(z, expected[1:, 1::2, ::3])
    inputs = Region(
        [PrimitiveNode("slice", {"x": "x"}, "y", {"begin": (1, 0, 2), "steps": (1, 5, 2)})], {"x": x}, {"y": (1, 2, 5)}
    )
    np.testing.assert_array_equal(inputs(), x[1:, ::5, 2::2])


def test_concat_and_views() -> None:
    x, y = random(2, 3, 4), random(2, 5, 4)
    nodes = [
        PrimitiveNode("concat", {"x0": "x", "x1": "y"}, "c", {"axis": 1}),
        PrimitiveNode("permute", {"x": "c"}, "p", {"axes": (1, 2, 0)}),
        PrimitiveNode("reshape", {"x": "p"}, "r"),
    ]
    region = Region(nodes, {"x": x, "y": y}, {"c": (2, 8, 4), "p": (8, 4, 2), "r": (32, 2)}, outputs=("c", "p", "r"))
    c, p, r = region()
    joined = np.concatenate([x, y], 1)
    np.testing.assert_array_equal(c, joined)
    np.testing.assert_array_equal(p, joined.transpose(1, 2, 0))
    np.testing.assert_array_equal(r, joined.transpose(1, 2, 0).reshape(32, 2))
