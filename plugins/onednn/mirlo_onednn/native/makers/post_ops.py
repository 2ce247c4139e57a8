"""Post-ops: elementwise operations on a result before it is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mirlo_onednn.native import api
from mirlo_onednn.native.builder import PrimitiveBuilder, attributes, chosen, implementation
from mirlo_onednn.native.desc import Desc, any_layout
from mirlo_onednn.native.makers.steps import binary_step, eltwise_step
from mirlo_onednn.native.storage import PrimitiveValue
from mirlo_onednn.plan import PostOp


@dataclass(frozen=True)
class Operand:
    """The second operand of a binary post-op, brought to the rank of the result."""

    index: int
    value: PrimitiveValue
    name: str
    whole: bool
    """Whether it has the shape of the result, and so must have its layout, too."""


class PostOps:
    """The post-ops of a node, for a result of this shape."""

    def __init__(
        self,
        builder: PrimitiveBuilder,
        post_ops: Sequence[PostOp],
        shape: Sequence[int],
        adapt: Callable[[PrimitiveValue], PrimitiveValue] = lambda value: value,
    ) -> None:
        """Collect post-ops; `adapt` converts an operand for a result of another shape than the node's."""
        self.builder = builder
        self.post_ops = tuple(post_ops)
        self.operands = []
        for index, post in enumerate(post_ops):
            if post.kind == "binary":
                value = broadcastable(builder, adapt(builder.values[post.operand]), shape)
                whole = value.desc.shape == tuple(shape)
                self.operands.append(Operand(index, value, post.operand, whole))

    @property
    def residual(self) -> Operand | None:
        """Return the operand of the result's shape that is added to it."""
        wholes = [entry for entry in self.operands if entry.whole]
        adds = [entry for entry in wholes if self.post_ops[entry.index].algorithm == "add"]
        return adds[0] if len(wholes) == 1 and adds else None

    def attributes(self, accumulate: Operand | None = None) -> api.Owned:
        """Create the attributes of the primitive; the result's memory already holds the operand `accumulate`."""
        handle = api.create_object("post_ops_create", "post_ops_destroy")
        operands = {entry.index: entry for entry in self.operands}
        for index, post in enumerate(self.post_ops):
            if post.kind == "eltwise":
                algorithm = api.ELTWISE[post.algorithm]
                api.call("post_ops_append_eltwise", handle.pointer, algorithm, post.alpha, post.beta)
            elif operands[index] is accumulate:
                api.call("post_ops_append_sum", handle.pointer, 1.0, 0, api.DATA_TYPES[accumulate.value.desc.dtype])
            else:
                entry = operands[index]
                desc = any_layout(entry.value.desc.shape, entry.value.desc.dtype) if entry.whole else entry.value.desc
                api.call("post_ops_append_binary", handle.pointer, api.BINARY[post.algorithm], desc.pointer)
        attr = attributes(handle)
        api.call("primitive_attr_set_fpmath_mode", attr.pointer, api.FPMATH[self.builder.memories.fpmath])
        return attr

    def arguments(
        self, builder: PrimitiveBuilder, descriptor: api.Owned, accumulate: Operand | None = None
    ) -> dict[int, PrimitiveValue]:
        """Return the operands in the layouts that the primitive chose."""
        result = {}
        for entry in self.operands:
            if entry is accumulate:
                continue
            role = api.post_op_source(entry.index)
            value = entry.value
            if entry.whole:
                value = builder.in_layout(value, chosen(descriptor, api.QUERY_EXEC_ARG, value.desc, role))
            result[role] = value
        return result


def broadcastable(builder: PrimitiveBuilder, value: PrimitiveValue, shape: Sequence[int]) -> PrimitiveValue:
    """Return an operand with leading dims of 1 up to the rank that it broadcasts to; row-major if smaller."""
    missing = len(shape) - len(value.desc.shape)
    value = builder.reshaped(value, (1,) * missing + value.desc.shape) if missing > 0 else value
    if missing < 0:
        value = builder.reshaped(value, value.desc.shape[-len(shape) :])
    return value if value.desc.shape == tuple(shape) else builder.in_row_major(value)


def fused(
    builder: PrimitiveBuilder, post_ops: PostOps, describe: Callable[[api.Owned], api.Owned]
) -> tuple[api.Owned, PostOps, tuple[PostOp, ...]]:
    """Return the best primitive descriptor and the post-ops that it does not include.

    It includes the post-ops if the library has a good implementation with them. The third result is the post-ops that
    remain for separate steps.
    """
    try:
        descriptor = describe(post_ops.attributes())
        if not post_ops.post_ops or not is_slow(descriptor):
            return descriptor, post_ops, ()
    except api.Refused:
        if not post_ops.post_ops:
            raise
        descriptor = None
    alone = PostOps(builder, (), ())
    bare = describe(alone.attributes())
    if descriptor is not None and is_slow(bare):
        return descriptor, post_ops, ()
    return bare, alone, post_ops.post_ops


def is_slow(descriptor: api.Owned) -> bool:
    """Return whether the library has only its reference implementation."""
    return "ref" in implementation(descriptor)


def emit_post_ops(
    builder: PrimitiveBuilder,
    value: PrimitiveValue,
    post_ops: Sequence[PostOp],
    adapt: Callable[[PrimitiveValue], PrimitiveValue] = lambda value: value,
) -> PrimitiveValue:
    """Emit post-ops as separate steps, in place."""
    for post in post_ops:
        over = value
        if post.kind == "eltwise":
            value = eltwise_step(builder, value, post.algorithm, post.alpha, post.beta, over.view_as(over.desc))
        else:
            operand = broadcastable(builder, adapt(builder.values[post.operand]), value.desc.shape)
            value = binary_step(builder, post.algorithm, value, operand, over.view_as(over.desc))
    return value


def residual_layout(post_ops: PostOps, like: Desc) -> Desc:
    """Return the layout to request: that of a residual that the library made, else the library's choice."""
    residual = post_ops.residual
    return residual.value.desc if residual is not None and residual.value.storage.kind == "arena" else like
