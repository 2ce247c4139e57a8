"""Models of one attention with a sliding window, whose caches may become rings."""

from __future__ import annotations

from typing import Any

from onnx import helper

HEADS, KV_HEADS, SIZE, WINDOW, BLOCK = 4, 2, 8, 5, 3
WIDTHS = {"query": HEADS, "key": KV_HEADS, "value": KV_HEADS}
CACHES = {"present_key": "past_key", "present_value": "past_value"}


def window_model(
    window: int = WINDOW, rows: int | str = "rows", extra: str = "", unused: bool = True, **attributes: Any
) -> Any:
    """Return one attention with a window; `extra` adds an input or output that needs all rows."""
    shapes: dict[str, list[Any]] = {name: ["b", "s", heads * SIZE] for name, heads in WIDTHS.items()}
    shapes |= {name: ["b", KV_HEADS, rows, SIZE] for name in CACHES.values()} | {"last": ["b"], "mask": ["b", "t"]}
    names, outputs = [*WIDTHS, *CACHES.values(), "last", "total"], ["y", *CACHES]
    if extra == "bias":
        shapes["bias"] = ["b", 1, "s", "t"]
        names += ["", "", "", "bias"]
    if extra == "scores":
        outputs.append("scores")
        attributes["qk_output"] = 1
    nodes = [
        helper.make_node("Shape", ["mask"], ["sizes"], start=1),
        helper.make_node("Cast", ["sizes"], ["total"], to=6),
        helper.make_node(
            "GroupQueryAttention", names, outputs, domain="com.microsoft", num_heads=HEADS,
            kv_num_heads=KV_HEADS, local_window_size=window, **attributes,
        ),
    ]  # fmt: skip
    if extra == "read":
        nodes.append(helper.make_node("Neg", ["past_key"], ["negative"]))
        outputs.append("negative")
    kinds = {"last": 6, "mask": 7}
    inputs = [helper.make_tensor_value_info(name, kinds.get(name, 1), shape) for name, shape in shapes.items()]
    declared = [helper.make_tensor_value_info(name, 1, None) for name in outputs]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", inputs, declared), opset_imports=imports, ir_version=8)
