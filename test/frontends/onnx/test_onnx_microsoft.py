"""Layers of `com.microsoft` in fused and quantized transformers, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto
from onnx_models import make_model, node

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.testing.oracle import exact_session

RANDOM = np.random.default_rng(0)
KINDS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
}


def make(
    operator: str,
    feeds: dict[str, np.ndarray],
    constants: dict[str, np.ndarray],
    names: str,
    outputs: str,
    **given: Any,
) -> Any:
    """Return a model of one node, whose inputs have dynamic dims where they are called b, s and so on."""
    shapes = given.pop("shapes", {})
    inputs = {name: (KINDS[str(x.dtype)], shapes.get(name, list(x.shape))) for name, x in feeds.items()}
    made = node(operator, names, outputs, domain="com.microsoft", **given)
    model = make_model([made], inputs, [name for name in outputs.split() if name != "_"], constants, opset=21)
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


def check(model: Any, feeds: dict[str, np.ndarray], tolerance: float = 1e-5) -> None:
    session = exact_session(model)
    wanted = session.run(None, feeds)
    found = mirlo.compile(model, cache=False, jobs=1)(*feeds.values())
    for left, right in zip(found if isinstance(found, (tuple, list)) else [found], wanted, strict=True):
        assert np.asarray(left).dtype == right.dtype and np.asarray(left).shape == right.shape
        wide = right.astype(np.float64)
        assert np.abs(np.asarray(left).astype(np.float64) - wide).max() <= tolerance * max(np.abs(wide).max(), 1e-9)


def refused(model: Any) -> str:
    with pytest.raises(OnnxImportError) as found:
        mirlo.compile(model, cache=False)
    return str(found.value)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def integers(kind: str, *shape: int) -> np.ndarray:
    limits = np.iinfo(kind)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(kind)


# Rotations


@pytest.mark.sample(2)
@pytest.mark.parametrize("layout, sections", ((0, [2, 3, 3]), (1, [4, 2, 2]), (1, [3, 3, 2])))
@pytest.mark.parametrize("rank", (3, 4))
def test_multimodal_rotation(layout: int, sections: list[int], rank: int) -> None:
    heads, size, length = 2, 16, 5
    x = floats(2, length, heads * size) if rank == 3 else floats(2, heads, length, size)
    feeds = {"x": x, "p": RANDOM.integers(0, 32, (3, 2, length))}
    constants = {"c": floats(32, size // 2), "s": floats(32, size // 2)}
    given = {"mrope_section": sections, "mrope_layout": layout, "interleaved": layout}
    if rank == 3:
        given |= {"num_heads": heads, "rotary_embedding_dim": size}
    check(make("MRotaryEmbedding", feeds, constants, "x p c s", "y", **given), feeds)


def test_errors_of_rotations() -> None:
    feeds = {"x": floats(1, 2, 32), "p": RANDOM.integers(0, 8, (3, 1, 2))}
    constants = {"c": floats(8, 8), "s": floats(8, 8)}
    made = make("MRotaryEmbedding", feeds, constants, "x p c s", "y", mrope_section=[2, 2, 2])
    assert "'mrope_section' must be three numbers whose sum is 8, got [2, 2, 2]" in refused(made)


@pytest.mark.parametrize("operator", ("RotaryEmbedding", "MRotaryEmbedding"))
def test_caches_have_the_angles_of_a_partial_rotation(operator: str) -> None:
    """ONNX Runtime refuses a model whose caches have other angles than half of `rotary_embedding_dim`."""
    count = (3,) if operator == "MRotaryEmbedding" else ()
    feeds = {"x": floats(1, 2, 64), "p": RANDOM.integers(0, 8, (*count, 1, 2))}
    given: dict[str, Any] = {"num_heads": 2, "rotary_embedding_dim": 16}
    given |= {"mrope_section": [2, 3, 3]} if count else {}
    constants = {"c": floats(8, 8), "s": floats(8, 8)}
    check(make(operator, feeds, constants, "x p c s", "y", **given), feeds)
    given["rotary_embedding_dim"] = 24
    message = refused(make(operator, feeds, constants, "x p c s", "y", **given))
    assert "attribute 'rotary_embedding_dim' is 24, but the caches have 8 angles" in message


def test_rotation_from_a_position_of_dynamic_length() -> None:
    feeds = {"x": floats(2, 5, 32), "p": np.array([3])}
    constants = {"c": floats(32, 8), "s": floats(32, 8)}
    check(make("RotaryEmbedding", feeds, constants, "x p c s", "y", shapes={"x": ["b", "s", 32]}), feeds)


# Attention


@pytest.mark.sample(2)
@pytest.mark.parametrize("by_column", (False, True))
@pytest.mark.parametrize("kind, has_mask, has_past", (("uint8", True, False), ("int8", False, True)))
def test_quantized_attention(by_column: bool, kind: str, has_mask: bool, has_past: bool) -> None:
    heads, size, length, hidden = 2, 8, 5, 16
    feeds = {"x": integers("uint8", 2, length, hidden)}
    scales = RANDOM.uniform(0.01, 0.02, 3 * hidden if by_column else 1).astype(np.float32)
    constants = {
        "w": integers(kind, hidden, 3 * hidden),
        "b": floats(3 * hidden),
        "xs": np.array(0.02, np.float32),
        "ws": scales if by_column else scales.reshape(()),
        "xz": np.array(120, np.uint8),
        "wz": np.full(scales.shape if by_column else (), 3, kind),
    }
    shapes: dict[str, list[Any]] = {"x": ["b", "s", hidden]}
    if has_mask:
        feeds["m"] = np.array([3, 5], np.int32)
        shapes["m"] = ["b"]
    if has_past:
        feeds["past"] = floats(2, 2, heads, 3, size)
        shapes = {}
    names = f"x w b xs ws {'m' if has_mask else '_'} xz wz" + (" past" if has_past else "")
    given = {"num_heads": heads, "unidirectional": int(has_past), "shapes": shapes}
    check(make("QAttention", feeds, constants, names, "y p" if has_past else "y", **given), feeds, 1e-4)


def test_quantized_embeddings() -> None:
    feeds = {"i": RANDOM.integers(0, 9, (2, 5)).astype(np.int32), "t": RANDOM.integers(0, 2, (2, 5)).astype(np.int32)}
    feeds["m"] = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    sizes = {"word": (9, 16), "place": (8, 16), "segment": (2, 16), "gamma": (16,), "beta": (16,)}
    constants = {name: integers("uint8", *shape) for name, shape in sizes.items()}
    constants |= {f"{name}_s": np.array(0.02, np.float32) for name in sizes}
    constants |= {f"{name}_z": np.array(128, np.uint8) for name in sizes}
    names = "i t word place segment gamma beta m"
    names += "".join(f" {name}_s" for name in sizes) + "".join(f" {name}_z" for name in sizes)
    shapes = {name: ["b", "s"] for name in feeds}
    check(make("QEmbedLayerNormalization", feeds, constants, names, "y l", shapes=shapes), feeds, 1e-4)


def test_embeddings_of_dynamic_length() -> None:
    feeds = {"i": RANDOM.integers(0, 9, (2, 5)).astype(np.int32)}
    constants = {"word": floats(9, 16), "place": floats(8, 16), "gamma": floats(16), "beta": floats(16)}
    made = make(
        "EmbedLayerNormalization", feeds, constants, "i _ word place _ gamma beta", "y _", shapes={"i": ["b", "s"]}
    )
    check(made, feeds, 1e-4)


# Linear attention

RULES = {"linear": "", "gated": "d", "delta": "r", "gated_delta": "dr"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("rule", RULES)
def test_linear_attention(rule: str) -> None:
    length = 1 if rule == "delta" else 6
    queries, heads, size = 4, 2, 8
    feeds = {"q": floats(2, length, queries * size) / 4, "k": floats(2, length, heads * size) / 4}
    feeds |= {"v": floats(2, length, heads * size), "p": floats(2, heads, size, size)}
    if "d" in RULES[rule]:
        feeds["d"] = -np.abs(floats(2, length, heads))
    if "r" in RULES[rule]:
        feeds["r"] = RANDOM.uniform(0, 1, (2, length, heads)).astype(np.float32)
    names = "q k v p " + ("d" if "d" in feeds else "_") + (" r" if "r" in feeds else "")
    given = {"q_num_heads": queries, "kv_num_heads": heads, "update_rule": rule, "state_window": 0}
    check(make("LinearAttention", feeds, {}, names.removesuffix(" _"), "y s", **given), feeds, 1e-4)


def test_windows_of_states_are_refused() -> None:
    feeds = {"q": floats(1, 2, 8), "k": floats(1, 2, 8), "v": floats(1, 2, 8)}
    given = {"q_num_heads": 1, "kv_num_heads": 1, "update_rule": "linear", "state_window": 2}
    assert "'state_window' must be 0" in refused(make("LinearAttention", feeds, {}, "q k v", "y s", **given))


@pytest.mark.sample(2)
@pytest.mark.parametrize("dilation, last, has_past", ((1, 0, True), (2, 0, False), (1, 1, True), (3, 1, False)))
def test_causal_convolution(dilation: int, last: int, has_past: bool) -> None:
    channels, window, length = 6, 4, 7
    feeds = {"x": floats(2, length, channels) if last else floats(2, channels, length)}
    kept = (window - 1) * dilation
    if has_past:
        feeds["p"] = floats(2, kept, channels) if last else floats(2, channels, kept)
    constants = {"w": floats(channels, 1, window), "b": floats(channels)}
    given = {"dilation": dilation, "channels_last": last, "activation": "silu"}
    shapes = {"x": ["b", "s", channels] if last else ["b", channels, "s"]}
    shapes["p"] = ["b", kept, channels] if last else ["b", channels, kept]
    check(
        make("CausalConvWithState", feeds, constants, "x w b" + " p" * has_past, "y s", shapes=shapes, **given), feeds
    )
    given |= {"state_window": 3}  # ONNX Runtime has it on GPUs only
    assert "'state_window' must be 0" in refused(make("CausalConvWithState", feeds, constants, "x w b", "y s", **given))


@pytest.mark.parametrize("kind", ("silu", "swish", "sigmoid"))
def test_gated_norm(kind: str) -> None:
    feeds = {"x": floats(2, 3, 32), "g": floats(2, 3, 32)}
    shapes = {"x": ["b", "s", 32], "g": ["b", "s", 32]}
    check(make("GatedRMSNorm", feeds, {"w": floats(8)}, "x w g", "y", activation=kind, shapes=shapes), feeds)


@pytest.mark.parametrize("branches, scale", ((0, (4, 8)), (4, (32,)), (4, (8,)), (4, None)))
def test_norm_of_branches(branches: int, scale: tuple[int, ...] | None) -> None:
    feeds = {"x": floats(3, 32) if branches else floats(3, 4, 8)}
    constants = {} if scale is None else {"w": floats(*scale)}
    given = {"num_branches": branches} if branches else {}
    check(make("BranchwiseRMSNorm", feeds, constants, "x" if scale is None else "x w", "y", **given), feeds)


def test_gates() -> None:
    feeds = {"a": floats(2, 3, 4), "b": floats(2, 3, 4)}
    constants = {"bias": floats(4), "scale": -np.abs(floats(4))}
    check(make("LinearAttentionGate", feeds, constants, "a bias scale b", "d r"), feeds)
    feeds = {"x": floats(3, 8), "y": floats(3, 8), "g": floats(3, 1)}
    check(make("GatedAdd", feeds, {}, "x y g", "z"), feeds)
    check(make("ScaledSiLU", {"x": feeds["x"]}, {}, "x", "z", alpha=1.5), {"x": feeds["x"]})
    check(make("ScaledSiLU", {"x": feeds["x"]}, {"s": np.array(0.5, np.float32)}, "x s", "z"), {"x": feeds["x"]})


@pytest.mark.sample(0)
@pytest.mark.parametrize("count", (2, 3))
def test_packed_keys_and_values(count: int) -> None:
    """ONNX Runtime's CPU kernel takes separate inputs only: it gets them."""
    heads, size, length = 2, 8, 5
    parts = {name: floats(2, length, heads * size) for name in "qkv"}
    apart = [part.reshape(2, length, heads, size) for part in parts.values()]
    model = make("MultiHeadAttention", parts, {}, "q k v", "y", num_heads=heads)
    session = exact_session(model)
    (wanted,) = session.run(None, parts)
    feeds = {"q": parts["q"], "p": np.stack(apart[1:], 3)} if count == 2 else {"p": np.stack(apart, 3)}
    shapes = {"q": ["b", "s", heads * size], "p": ["b", "s", heads, count, size]}
    names = " ".join(feeds)
    packed = make("MultiHeadAttention", feeds, {}, names, "y", num_heads=heads, shapes=shapes)
    found = np.asarray(mirlo.compile(packed, cache=False, jobs=1)(*feeds.values()))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
