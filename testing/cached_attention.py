"""Models with caches: an attention that writes rows of a cache, and a sum over a growing one."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

HEADS, KV_HEADS, SIZE = 4, 2, 16
NAMES = ("query", "key", "value", "past_key", "past_value", "last", "total")
CACHES = {"present_key": "past_key", "present_value": "past_value"}


def attention_model(rows: int | str = "rows", total: str = "mask") -> Any:
    """Return one attention; `total` comes from the shape of a mask, or is an input."""
    shapes: dict[str, list[Any]] = {
        "query": ["b", "s", HEADS * SIZE], "key": ["b", "s", KV_HEADS * SIZE], "value": ["b", "s", KV_HEADS * SIZE],
        "past_key": ["b", KV_HEADS, rows, SIZE], "past_value": ["b", KV_HEADS, rows, SIZE], "last": ["b"],
    }  # fmt: skip
    nodes = []
    if total == "mask":
        shapes["mask"] = ["b", "t"]
        nodes = [
            helper.make_node("Shape", ["mask"], ["sizes"], start=1),
            helper.make_node("Cast", ["sizes"], ["total"], to=6),
        ]
    else:
        shapes["total"] = []
    nodes.append(
        helper.make_node(
            "GroupQueryAttention", list(NAMES), ["y", *CACHES], domain="com.microsoft", num_heads=HEADS,
            kv_num_heads=KV_HEADS,
        )
    )  # fmt: skip
    kinds = {"last": 6, "total": 6, "mask": 7}
    inputs = [helper.make_tensor_value_info(name, kinds.get(name, 1), shape) for name, shape in shapes.items()]
    outputs = [
        helper.make_tensor_value_info("y", 1, None),
        *(helper.make_tensor_value_info(n, 1, None) for n in CACHES),
    ]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def tokens(count: int, past: int, batch: int = 1, seed: int = 0, total: str = "mask") -> dict[str, Any]:
    random = np.random.default_rng([seed, past])
    widths = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
    result: dict[str, Any] = {
        name: random.standard_normal((batch, count, heads * SIZE)).astype(np.float32) for name, heads in widths.items()
    }
    result["last"] = np.full(batch, past + count - 1, np.int32)
    after = past + count
    result |= {"mask": np.ones((batch, after), np.int64)} if total == "mask" else {"total": np.array(after, np.int32)}
    return result


def grown_model() -> Any:
    """Return a model that appends its input to a cache."""
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=2),
        helper.make_node("ReduceSum", ["present"], ["y"], keepdims=0),
    ]
    shapes = {"x": ["b", 2, "s", 4], "past": ["b", 2, "p", 4]}
    inputs = [helper.make_tensor_value_info(name, 1, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info("y", 1, []), helper.make_tensor_value_info("present", 1, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
