"""GroupQueryAttention against ONNX Runtime: prompts, steps, packed inputs, rotation, windows."""

from __future__ import annotations

import contextlib
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import mirlo
from mirlo.runtime.errors import MirloError, OutOfMemoryError
from mirlo.testing import oracle
from mirlo.testing.cached_attention import attention_model, tokens

HEADS, KV_HEADS, SIZE, BATCH = 4, 2, 16, 2


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def compare(given: dict[str, Any], used: list[int] | None = None, **attributes: Any) -> None:
    names = ["query", "key", "value", "past_key", "past_value", "last", "total", "cos", "sin", "", "", "sink"]
    listed = [name if name in given else "" for name in names]
    node = helper.make_node(
        "GroupQueryAttention", listed, ["y", "present_key", "present_value"], domain="com.microsoft",
        num_heads=HEADS, kv_num_heads=KV_HEADS, **attributes,
    )  # fmt: skip
    constants = [helper.make_tensor("total", 6, [], [int(given["total"])])]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in given.items()
        if name != "total"
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in node.output]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    feeds = {name: a for name, a in given.items() if name != "total"}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    found = mirlo.compile(model).run(feeds)
    rows = used or [expected[0].shape[1]] * BATCH
    for b, count in enumerate(rows):  # what comes of padding is anyone's guess
        np.testing.assert_allclose(found["y"][b, :count], expected[0][b, :count], rtol=2e-4, atol=2e-5)
    for name, wanted in zip(("present_key", "present_value"), expected[1:], strict=True):
        for b, last in enumerate(given["last"]):
            np.testing.assert_allclose(found[name][b, :, : last + 1], wanted[b, :, : last + 1], rtol=1e-4, atol=1e-5)


def qkv(length: int, packed: bool = False) -> dict[str, Any]:
    parts = [numbers(BATCH, length, n * SIZE, seed=i) for i, n in enumerate((HEADS, KV_HEADS, KV_HEADS))]
    if packed:
        return {"query": np.concatenate(parts, 2)}
    return dict(zip(("query", "key", "value"), parts, strict=True))


def rotation(length: int) -> dict[str, Any]:
    angles = np.arange(length)[:, None] / 10 ** np.linspace(0, 2, SIZE // 2)[None]
    return {"cos": np.float32(np.cos(angles)), "sin": np.float32(np.sin(angles))}


def cache(length: int) -> dict[str, Any]:
    shape = (BATCH, KV_HEADS, length, SIZE)
    return {"past_key": numbers(*shape, seed=8), "past_value": numbers(*shape, seed=9)}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("rotary", [0, 1])
def test_prompt(packed: bool, rotary: int) -> None:
    given = qkv(5, packed) | {"last": np.int32([4, 4]), "total": np.int32(5)} | (rotation(16) if rotary else {})
    compare(given, do_rotary=rotary)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_step(interleaved: int) -> None:
    given = qkv(1) | cache(6) | {"last": np.int32([6, 6]), "total": np.int32(7)} | rotation(16)
    compare(given, do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.sample(0)
def test_steps_of_sequences_of_other_lengths_in_a_large_cache() -> None:
    given = qkv(1) | cache(12) | {"last": np.int32([6, 3]), "total": np.int32(7)} | rotation(16)
    compare(given, do_rotary=1)
    compare(qkv(1) | cache(12) | {"last": np.int32([6, 3]), "total": np.int32(7)}, scale=0.2)


@oracle.needs_new
def test_window() -> None:
    compare(qkv(7) | {"last": np.int32([6, 6]), "total": np.int32(7)}, local_window_size=3)


@pytest.mark.sample(0)
@pytest.mark.parametrize("rotary", [0, 1])
def test_lengths_of_run_time(rotary: int) -> None:
    """Batch, new tokens and cache of any size, from one compilation: a prompt, more tokens, single ones."""
    names = ["query", "key", "value", "past_key", "past_value", "last", "total", *(["cos", "sin"] if rotary else [])]
    shapes: dict[str, Any] = {
        "query": ["b", "s", HEADS * SIZE], "key": ["b", "s", KV_HEADS * SIZE], "value": ["b", "s", KV_HEADS * SIZE],
        "past_key": ["b", KV_HEADS, "p", SIZE], "past_value": ["b", KV_HEADS, "p", SIZE], "last": ["b", 1], "total": [],
        "cos": [64, SIZE // 2], "sin": [64, SIZE // 2],
    }  # fmt: skip
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft",
        num_heads=HEADS, kv_num_heads=KV_HEADS, do_rotary=rotary,
    )  # fmt: skip
    inputs = [
        helper.make_tensor_value_info(name, 6 if name in ("last", "total") else 1, shapes[name]) for name in names
    ]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in node.output]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, outputs), opset_imports=imports, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    compiled = mirlo.compile(model)
    for batch, new, past in ((1, 5, 0), (2, 1, 5), (1, 1, 40), (3, 1, 1)):
        made = [numbers(batch, new, n * SIZE, seed=i) for i, n in enumerate((HEADS, KV_HEADS, KV_HEADS))]
        given = dict(zip(("query", "key", "value"), made, strict=True))
        given |= {name: numbers(batch, KV_HEADS, past, SIZE, seed=past) for name in ("past_key", "past_value")}
        given |= {"last": np.full((batch, 1), past + new - 1, np.int32), "total": np.array(past + new, np.int32)}
        given |= rotation(64) if rotary else {}
        found = compiled.run(given)
        for name, wanted in zip(node.output, session.run(None, given), strict=True):
            np.testing.assert_allclose(
                found[name], wanted, rtol=2e-4, atol=2e-5, err_msg=f"{name} {batch} {new} {past}"
            )


@pytest.mark.sample(0)
@pytest.mark.parametrize("attributes", ({"softcap": 2.0}, {"smooth_softmax": 1}, {"softcap": 3.0, "smooth_softmax": 1}))
def test_scores(attributes: dict[str, Any]) -> None:
    compare(qkv(5) | {"last": np.int32([4, 4]), "total": np.int32(5)}, **attributes)
    compare(qkv(1) | cache(6) | {"last": np.int32([6, 4]), "total": np.int32(7)}, **attributes)


@pytest.mark.sample(0)
def test_sinks_of_heads() -> None:
    compare(qkv(5) | {"last": np.int32([4, 4]), "total": np.int32(5), "sink": numbers(HEADS)})
    compare(qkv(1) | cache(9) | {"last": np.int32([6, 4]), "total": np.int32(7), "sink": numbers(HEADS)}, softcap=4.0)


def test_scores_of_all_tokens() -> None:
    compare(qkv(5) | {"last": np.int32([4, 4]), "total": np.int32(5)}, causal=0)


@pytest.mark.sample(0)
def test_cache_with_room() -> None:
    """The cache keeps its capacity; its rows beyond the longest sequence are not read."""
    shapes: dict[str, Any] = {
        "query": ["b", "s", HEADS * SIZE], "key": ["b", "s", KV_HEADS * SIZE], "value": ["b", "s", KV_HEADS * SIZE],
        "past_key": ["b", KV_HEADS, "p", SIZE], "past_value": ["b", KV_HEADS, "p", SIZE], "mask": ["b", "t"],
    }  # fmt: skip
    names = ["query", "key", "value", "past_key", "past_value", "last", "total"]
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["sum"], keepdims=0),
        helper.make_node("Sub", ["sum", "one"], ["less"]),
        helper.make_node("Cast", ["less"], ["last"], to=6),
        helper.make_node("Shape", ["mask"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["length"], axis=0),
        helper.make_node("Cast", ["length"], ["total"], to=6),
        helper.make_node(
            "GroupQueryAttention", names, ["y", "present_key", "present_value"], domain="com.microsoft",
            num_heads=HEADS, kv_num_heads=KV_HEADS,
        ),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info(name, 7 if name == "mask" else 1, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in nodes[-1].output]
    constants = [helper.make_tensor("one", 7, [1], [1]), helper.make_tensor("first", 7, [], [1])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    session, compiled = onnxruntime.InferenceSession(model.SerializeToString()), mirlo.compile(model)
    for new, past, capacity in ((5, 0, 16), (1, 5, 16), (1, 6, 16), (1, 6, 6), (4, 0, 0), (3, 7, 10)):
        made = [numbers(1, new, n * SIZE, seed=i) for i, n in enumerate((HEADS, KV_HEADS, KV_HEADS))]
        given = dict(zip(("query", "key", "value"), made, strict=True))
        for name in ("past_key", "past_value"):
            given[name] = np.full((1, KV_HEADS, capacity, SIZE), 7, np.float32)
            given[name][:, :, :past] = numbers(1, KV_HEADS, past, SIZE, seed=past)
        given["mask"] = np.ones((1, past + new), np.int64)
        found = compiled.run(given)
        for name, wanted in zip(nodes[-1].output, session.run(None, given), strict=True):
            valid = slice(None) if name == "y" else np.s_[:, :, : past + new]
            assert found[name].shape == wanted.shape, (name, new, past, capacity)
            np.testing.assert_allclose(found[name][valid], wanted[valid], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("total", ["mask", "input"])
def test_no_sequences(total: str) -> None:
    """A batch of 0 takes the time of its other sizes, or is refused: what has no elements may have any dims."""
    model = mirlo.compile(attention_model(total=total))
    for new, past in ((1, 4), (5, 0), (1 << 40, 1)):
        feeds: dict[str, Any] = tokens(min(new, 5), past, batch=0, total=total)
        feeds |= {name: np.zeros((0, new, feeds[name].shape[2]), np.float32) for name in ("query", "key", "value")}
        feeds |= {name: np.zeros((0, KV_HEADS, past, SIZE), np.float32) for name in ("past_key", "past_value")}
        if new > 5:
            with pytest.raises(MirloError, match="larger than any memory, where b = 0"):
                model.run(feeds)
            continue
        found = model.run(feeds)
        assert found["y"].shape == (0, new, HEADS * SIZE)
        assert found["present_key"].shape == found["present_value"].shape == (0, KV_HEADS, new + past, SIZE)


@pytest.mark.parametrize("attributes", ({}, {"local_window_size": 3}, {"causal": 0}, {"softcap": 2.0}))
def test_positions_are_computed_where_they_are_read(attributes: dict[str, Any]) -> None:
    """Without sequences the largest total length takes no time: no kernel writes the positions of all keys."""
    proto = attention_model(total="input")
    proto.graph.node[-1].attribute.extend(helper.make_attribute(*each) for each in attributes.items())
    model = mirlo.compile(proto)
    assert [each.symbol for each in model.artifact.kernels if each.symbol.startswith(("steps", "iota"))] == []
    for batch, new, total in product((0, 1), (0, 1, 3), (0, 1, 5, 2**31 - 2, 2**31 - 1)):
        if batch and (new or total > 5):
            continue
        feeds: dict[str, Any] = tokens(new, 0, batch=batch, total="input") | {"total": np.array(total, np.int32)}
        feeds |= {name: np.zeros((batch, KV_HEADS, 0, SIZE), np.float32) for name in ("past_key", "past_value")}
        if total > 2**30:
            with contextlib.suppress(OutOfMemoryError):  # scratch memory for this length
                model.run(feeds)
            continue
        found = model.run(feeds)
        assert found["y"].shape == (batch, new, HEADS * SIZE)
        assert found["present_key"].shape == found["present_value"].shape == (batch, KV_HEADS, total, SIZE)
