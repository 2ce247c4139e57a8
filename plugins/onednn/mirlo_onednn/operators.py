"""The operation of the library for each operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from mirlo.extend.codegen import ExternalNode, ExternalValue, kernel_permutation
from mirlo_onednn import plan
from mirlo_onednn.post_ops import BINARY, ELTWISE
from mirlo_onednn.translator import PrimitiveDraft, Translator, shape_of


def _per_dim(values: Sequence[int], count: int, default: int) -> tuple[int, ...]:
    return tuple(values) if values else (default,) * count


def _window(node: ExternalNode, count: int) -> dict[str, tuple[int, ...]]:
    """Return the attributes of a window; the library counts the gap between two taps, not the dilation."""
    padding = _per_dim(node["padding"], 2 * count, 0)
    return {
        "strides": _per_dim(node["strides"], count, 1),
        "dilations": tuple(step - 1 for step in _per_dim(node["dilations"], count, 1)),
        "padding_begin": padding[:count],
        "padding_end": padding[count:],
    }


def _channels_first(node: ExternalNode, rank: int) -> tuple[int, ...] | None:
    """Return the permutation of an image to the library's order of axes, or None if it is in that order."""
    return (0, rank - 1, *range(1, rank - 1)) if node["data_layout"] == "N*C" else None


def _image(t: Translator, node: ExternalNode) -> tuple[str, tuple[int, ...] | None]:
    x = t.value(node["x"])
    axes = _channels_first(node, len(t.tensors[x].shape))
    return (x if axes is None else t.permuted(x, axes)), axes


def _conv(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    x, axes = _image(t, node)
    weight = t.value(node["weight"])
    rank = len(t.tensors[weight].shape)
    if node["kernel_layout"] != "OI*":
        weight = t.permuted(weight, tuple(kernel_permutation(node["kernel_layout"], "OI*", rank)))
    if node["groups"] > 1:
        out, *rest = t.tensors[weight].shape
        weight = t.reshaped(weight, (node["groups"], out // node["groups"], *rest))
    return PrimitiveDraft("convolution", _contracted(t, node, x, weight), _window(node, rank - 2), axes=axes)


def _conv_transpose(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    x, axes = _image(t, node)
    weight, groups = t.value(node["weight"]), node["groups"]
    channels, out, *window = t.tensors[weight].shape
    if groups > 1:
        weight = t.reshaped(weight, (groups, channels // groups, out, *window))
        weight = t.permuted(weight, (0, 2, 1, *range(3, 3 + len(window))))
    else:
        weight = t.permuted(weight, (1, 0, *range(2, 2 + len(window))))
    attributes = _window(node, len(window))
    extra = _per_dim(node["output_padding"], len(window), 0)
    attributes["padding_end"] = tuple(end - more for end, more in zip(attributes["padding_end"], extra, strict=True))
    return PrimitiveDraft("deconvolution", _contracted(t, node, x, weight), attributes, axes=axes)


def _contracted(t: Translator, node: ExternalNode, x: str, weight: str) -> dict[str, str]:
    operands = {"x": x, "weight": weight}
    return operands if node["bias"] is None else {**operands, "bias": t.value(node["bias"])}


def _matmul(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    operands = {}
    for role, name in (("x", "lhs"), ("weight", "rhs")):
        value = t.value(node[name])
        if node[f"transpose_{name}"]:
            rank = len(t.tensors[value].shape)
            value = t.permuted(value, (*range(rank - 2), rank - 1, rank - 2))
        operands[role] = value
    return PrimitiveDraft("matmul", operands)


def _attention(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    query, key, value = (t.value(node[name]) for name in ("query", "key", "value"))
    batch, heads, length, size = t.tensors[query].shape
    keys = t.tensors[key].shape[2]
    scale = node["scale"] if node["scale"] is not None else 1 / math.sqrt(size)
    post_ops = [plan.PostOp("eltwise", "linear", scale)]
    if node["mask"] is not None:
        post_ops.append(plan.PostOp("binary", "add", operand=t.value(node["mask"])))
    if node["causal"]:
        later = np.triu(np.full((length, keys), -np.inf, np.float32), 1 + (keys - length if node["at_end"] else 0))
        post_ops.append(plan.PostOp("binary", "add", operand=t.literal(later.reshape(1, 1, length, keys))))
    scores = t.new((batch, heads, length, keys))
    operands = {"x": query, "weight": t.permuted(key, (0, 1, 3, 2))}
    t.nodes.append(plan.PrimitiveNode("matmul", operands, scores, {}, tuple(post_ops)))
    shares = t.add("softmax", {"x": scores}, (batch, heads, length, keys), axis=3, algorithm="accurate")
    return PrimitiveDraft("matmul", {"x": shares, "weight": value})


def _pool(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    x, axes = _image(t, node)
    kernel = tuple(node["kernel"])
    window = _window(node, len(kernel))
    algorithm = "max"
    if node.op == "relax.avg_pool":
        algorithm = "avg_include_padding" if node["count_include_pad"] else "avg_exclude_padding"
    return PrimitiveDraft("pooling", {"x": x}, {"algorithm": algorithm, "kernel": kernel, **window}, axes=axes)


def _layer_norm(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    rank = node["x"].type.rank
    operands = {name: t.value(node[name]) for name in ("x", "scale", "bias") if node[name] is not None}
    return PrimitiveDraft("layer_norm", operands, {"axis": node["axis"] % rank, "epsilon": node["epsilon"]})


def _batch_norm(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    operands = {name: t.value(node[name]) for name in ("x", "scale", "bias", "mean", "variance")}
    rank = node["x"].type.rank
    axis = node["axis"] % rank
    axes = None
    if axis != 1:
        axes = (0, axis, *(i for i in range(1, rank) if i != axis)) if axis else (1, 0, *range(2, rank))
        operands["x"] = t.permuted(operands["x"], axes)
    return PrimitiveDraft("batch_norm", operands, {"epsilon": node["epsilon"]}, axes=axes)


def _group_norm(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    operands = {name: t.value(node[name]) for name in ("x", "scale", "bias")}
    groups = node["groups"] if node.op == "relax.group_norm" else shape_of(node["x"])[1]
    return PrimitiveDraft("group_norm", operands, {"groups": groups, "epsilon": node["epsilon"]})


def _lrn(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    attributes = {name: node[name] for name in ("size", "alpha", "beta", "bias")}
    return PrimitiveDraft("lrn", {"x": t.value(node["x"])}, attributes)


def _softmax(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    algorithm = "accurate" if node.op == "relax.softmax" else "log"
    axis = node["axis"] % node["x"].type.rank
    return PrimitiveDraft("softmax", {"x": t.value(node["x"])}, {"axis": axis, "algorithm": algorithm})


def _binary(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    left, right = node.inputs
    shape = shape_of(node.output)
    # What is changed is the operand of the result's shape; of two, the one that is not a constant.
    follows = shape_of(left) != shape or (left.constant is not None and shape_of(right) == shape)
    main = right if follows and node.op != "relax.divide" else left
    return _applied(t, main, t.post_ops(node, main))


def _eltwise(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    return _applied(t, node["x"], ELTWISE[node.op](node.attributes))


def _applied(t: Translator, x: ExternalValue, post_ops: Sequence[plan.PostOp]) -> PrimitiveDraft:
    """Apply elementwise functions to a value: the first as an operation, the others as post-ops."""
    first, rest = post_ops[0], tuple(post_ops[1:])
    if first.kind == "binary":
        operands = {"x": t.value(x), "y": first.operand}
        return PrimitiveDraft("binary", operands, {"algorithm": first.algorithm}, rest)
    attributes = {"algorithm": first.algorithm, "alpha": first.alpha, "beta": first.beta}
    return PrimitiveDraft("eltwise", {"x": t.value(x)}, attributes, rest)


def _reduce(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    shape = shape_of(node["x"])
    rank = len(shape)
    axes = sorted({axis % rank for axis in (range(rank) if node["axes"] is None else node["axes"])})
    kept = tuple(1 if axis in axes else dim for axis, dim in enumerate(shape))
    x = {"x": t.value(node["x"])}
    if node.op == "relax.reduce_mean" and 3 <= rank <= 5 and axes == list(range(2, rank)):
        # The mean of an image is a pooling, which reads any layout.
        return PrimitiveDraft("global_average", x, shape=kept)
    algorithm = {"prod": "mul"}.get(node.op.rpartition("_")[2], node.op.rpartition("_")[2])
    return PrimitiveDraft("reduction", x, {"algorithm": algorithm}, shape=kept)


def _concat(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    operands = {f"x{index}": t.value(value) for index, value in enumerate(node.inputs)}
    return PrimitiveDraft("concat", operands, {"axis": node["axis"] % node.output.type.rank})


def _strided_slice(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    shape = shape_of(node["x"])
    begin, steps = [0] * len(shape), [1] * len(shape)
    for axis, *bounds in zip(node["axes"], node["begin"], node["end"], node["strides"], strict=True):
        at = axis % len(shape)
        begin[at], _, steps[at] = slice(*bounds).indices(shape[at])
    return PrimitiveDraft("slice", {"x": t.value(node["x"])}, {"begin": tuple(begin), "steps": tuple(steps)})


def _pick(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    shape = shape_of(node["x"])
    axis = node["axis"] % len(shape)
    number = int(node["indices"].array.reshape(-1)[0])
    begin = tuple(number % shape[axis] if i == axis else 0 for i in range(len(shape)))
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    return PrimitiveDraft("slice", {"x": t.value(node["x"])}, {"begin": begin, "steps": (1,) * len(shape)}, shape=one)


def split(t: Translator, node: ExternalNode) -> None:
    """Translate a split: each part is a slice."""
    begin = [0] * node["x"].type.rank
    axis = node["axis"] % len(begin)
    for piece in node.outputs:
        attributes = {"begin": tuple(begin), "steps": (1,) * len(begin)}
        t.nodes.append(plan.PrimitiveNode("slice", {"x": t.value(node["x"])}, t.value(piece), attributes))
        begin[axis] += shape_of(piece)[axis]


def _permute(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    rank = node["x"].type.rank
    return PrimitiveDraft("permute", {"x": t.value(node["x"])}, {"axes": tuple(axis % rank for axis in node["axes"])})


def _reshape(t: Translator, node: ExternalNode) -> PrimitiveDraft:
    return PrimitiveDraft("reshape", {"x": t.value(node["x"])})


DRAFTS: dict[str, Callable[[Translator, ExternalNode], PrimitiveDraft]] = {
    "relax.conv": _conv,
    "relax.conv_transpose": _conv_transpose,
    "relax.matmul": _matmul,
    "relax.attention": _attention,
    "relax.max_pool": _pool,
    "relax.avg_pool": _pool,
    "relax.layer_norm": _layer_norm,
    "relax.batch_norm": _batch_norm,
    "relax.instance_norm": _group_norm,
    "relax.group_norm": _group_norm,
    "relax.lrn": _lrn,
    "relax.softmax": _softmax,
    "relax.log_softmax": _softmax,
    "relax.concat": _concat,
    "relax.permute": _permute,
    "relax.strided_slice": _strided_slice,
    "relax.gather": _pick,
    **dict.fromkeys(("relax.reshape", "relax.expand_dims", "relax.squeeze"), _reshape),
    **dict.fromkeys((f"relax.reduce_{name}" for name in ("mean", "sum", "max", "min", "prod")), _reduce),
    **dict.fromkeys(BINARY, _binary),
    **dict.fromkeys(ELTWISE, _eltwise),
}
