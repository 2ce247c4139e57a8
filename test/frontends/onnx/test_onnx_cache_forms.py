"""GroupQueryAttention with quantized caches, windows of rows, norms of heads and scores as output."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import mirlo
from mirlo.frontends.onnx.errors import OnnxImportError
from mirlo.testing import oracle

HEADS, KV_HEADS, SIZE = 4, 2, 16
NAMES = ["query", "key", "value", "past_key", "past_value", "last", "total", "cos", "sin", "position", "bias", "sink"]
NAMES += ["k_scale", "v_scale", "q_norm", "k_norm"]
RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def step(length: int, rows: int, before: int, batch: int = 1) -> dict[str, Any]:
    """Return the inputs for these numbers of new and past tokens, with a cache of this number of rows."""
    given = {"query": floats(batch, length, HEADS * SIZE), "key": floats(batch, length, KV_HEADS * SIZE)}
    given |= {"value": floats(batch, length, KV_HEADS * SIZE)}
    given |= {name: floats(batch, KV_HEADS, rows, SIZE) for name in ("past_key", "past_value")}
    total = before + length
    return given | {"last": np.full(batch, total - 1, np.int32), "total": np.array(total, np.int32)}


def make(given: dict[str, Any], scores: bool = False, **attributes: Any) -> Any:
    listed = [name if name in given else "" for name in NAMES]
    while not listed[-1]:
        listed.pop()
    outputs = ["y", "present_key", "present_value"] + ["qk"] * scores
    node = helper.make_node(
        "GroupQueryAttention",
        listed,
        outputs,
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        **attributes,
    )
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    cache = helper.np_dtype_to_tensor_dtype(given["past_key"].dtype) if "past_key" in given else 1
    kinds = [cache if name.startswith("present") else 1 for name in outputs]
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds, strict=True)]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, made), opset_imports=imports, ir_version=8)


@cache
def compiled(model: bytes) -> tuple[onnxruntime.InferenceSession, mirlo.Executable]:
    """Compile a model once for all steps of a test."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    loaded = onnx.load_model_from_string(model)
    return onnxruntime.InferenceSession(model, options), mirlo.compile(loaded, cache=False, jobs=1)


def compare(given: dict[str, Any], kept: int, scores: bool = False, **attributes: Any) -> dict[str, np.ndarray]:
    """Compare the result and the first rows of the cache with ONNX Runtime; return its outputs."""
    session, executable = compiled(make(given, scores, **attributes).SerializeToString())
    wanted = dict(zip([output.name for output in session.get_outputs()], session.run(None, given), strict=True))
    found = executable.run(given)
    for name, expected in wanted.items():
        assert found[name].dtype == expected.dtype
        rows = (slice(None),) * 2 + (slice(kept),) if name.startswith("present") else ()
        np.testing.assert_allclose(found[name][rows], expected[rows], rtol=2e-4, atol=2e-5, err_msg=name)
    return wanted


@pytest.mark.sample(0)
@pytest.mark.parametrize("bits", (4, 8))
@pytest.mark.parametrize("kind", ("PER_TENSOR", "PER_CHANNEL"))
@pytest.mark.parametrize("room", (0, 4))
def test_quantized_cache(bits: int, kind: str, room: int) -> None:
    given = step(1, 6 + room, 6)
    shape = (1,) if kind == "PER_TENSOR" else (1, KV_HEADS, 1, SIZE)
    for which, name in (("k_scale", "past_key"), ("v_scale", "past_value")):
        limit = 1 << (bits - 1)
        given[which] = (RANDOM.uniform(2, 3, shape) / limit).astype(np.float32)
        values = RANDOM.integers(-limit, limit, (1, KV_HEADS, 6 + room, SIZE))
        given[name] = values.astype(np.int8)
        if bits == 4:
            given[name] = ((values[..., ::2] + 8) | (values[..., 1::2] + 8) << 4).astype(np.uint8)
    compare(given, 7, k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)


@pytest.mark.sample(0)
@pytest.mark.parametrize("rows, window", ((4, 4), (7, 4), (6, 2)))
@pytest.mark.parametrize("length", (1, 9))
def test_window_of_rows(rows: int, window: int, length: int) -> None:
    """A prompt, then tokens until rows were dropped at least twice; each step gets the cache of the one before."""
    given, before = step(length, rows, 0), 0
    given["past_key"][:], given["past_value"][:] = 0, 0
    group = rows - window + 1
    for _ in range(4):
        total = before + length
        kept = total - max(0, -(-(total - rows) // group)) * group
        made = compare(given, kept, local_window_size=window, sliding_window_cache=1)
        before = total
        given = step(length, rows, before)
        given |= {name: made[f"present_{name[5:]}"] for name in ("past_key", "past_value")}


@pytest.mark.sample(0)
@oracle.needs_new
@pytest.mark.parametrize("output, attributes", ((1, {"softcap": 2.0}), (1, {"local_window_size": 3}), (2, {})))
def test_scores_as_output(output: int, attributes: dict[str, Any]) -> None:
    given = step(2, 5, 5)
    window = attributes.get("local_window_size", 7)
    model = make(given, True, qk_output=output, **attributes)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    wanted = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, given)
    found = mirlo.compile(model, cache=False, jobs=1).run(given)
    np.testing.assert_allclose(found["y"], wanted[0], rtol=2e-4, atol=2e-5)
    for token in range(2):  # scores of keys that a token does not see are not specified
        keys = slice(max(0, 6 + token - window), 6 + token)
        np.testing.assert_allclose(found["qk"][:, :, token, keys], wanted[3][:, :, token, keys], rtol=2e-4, atol=2e-5)


@pytest.mark.sample(0)
def test_norms_of_heads() -> None:
    """ONNX Runtime normalizes on GPUs only: it gets queries and keys that were normalized before."""
    given = step(3, 4, 4)
    weights = {"q_norm": floats(SIZE), "k_norm": floats(SIZE)}
    executable = mirlo.compile(make(given | weights, qk_norm_epsilon=1e-4), cache=False, jobs=1)
    normal = dict(given)
    for name, weight in (("query", "q_norm"), ("key", "k_norm")):
        heads = given[name].reshape(1, 3, -1, SIZE).astype(np.float64)
        rows = heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-4) * weights[weight]
        normal[name] = rows.reshape(given[name].shape).astype(np.float32)
    wanted = compare(normal, 7)
    found = executable.run(given | weights)
    for name, expected in wanted.items():
        np.testing.assert_allclose(found[name], expected, rtol=2e-4, atol=2e-5, err_msg=name)


ERRORS = [
    ({"qk_output": 1}, "'qk_output' = 1: 1 or 2 with output 'output_qk'"),
    ({"sliding_window_cache": 1}, "a cache of a window needs attribute 'local_window_size'"),
    ({"sliding_window_cache": 1, "local_window_size": 9}, "at least as many rows, got 9 and 4 rows"),
    ({"k_quant_type": "PER_TENSOR"}, "a cache of 8 bits (i8) or 4 bits (u8) is expected, got 8 bits and f32"),
    ({"k_quant_type": "EACH"}, "'k_quant_type' must be one of 'NONE', 'PER_TENSOR'"),
]


@pytest.mark.parametrize("attributes, text", ERRORS)
def test_errors(attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(OnnxImportError) as found:
        mirlo.compile(make(step(1, 4, 4), **attributes), cache=False)
    assert text in str(found.value)
