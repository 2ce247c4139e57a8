"""Translation of a region to a function of the plan: composites become nodes with post-ops, layouts become views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mirlo.extend.codegen import ExternalFunction, ExternalNode
from mirlo_onednn import plan
from mirlo_onednn.operators import DRAFTS, split
from mirlo_onednn.translator import PrimitiveDraft, TranslationError, Translator


def translate(function: ExternalFunction) -> plan.PrimitiveRegion:
    """Translate a region to a function of the plan."""
    translator = Translator(function)
    for step in function.steps:
        _translate_step(translator, step.nodes)
    return translator.finished()


def _translate_step(translator: Translator, nodes: Sequence[ExternalNode]) -> None:
    """Add the nodes for an operator and the elementwise operators after it."""
    first = nodes[0]
    if first.op == "relax.split":
        return split(translator, first)
    make = DRAFTS.get(first.op)
    if make is None:
        raise TranslationError(f"target 'onednn' has no operation for {first}")
    draft = make(translator, first)
    value = first.output
    for node in nodes[1:]:
        draft = replace(draft, post_ops=draft.post_ops + translator.post_ops(node, value, draft.axes))
        value = node.output
    return translator.finish(_with_bias(translator, draft), value)


def _with_bias(translator: Translator, draft: PrimitiveDraft) -> PrimitiveDraft:
    """Turn an added constant with one value per channel into the bias of a contraction that has none."""
    if draft.op not in ("convolution", "deconvolution", "matmul") or "bias" in draft.operands or not draft.post_ops:
        return draft
    post = draft.post_ops[0]
    if (post.kind, post.algorithm) != ("binary", "add") or not _is_constant(translator, post.operand):
        return draft
    shape = translator.tensors[post.operand].shape
    channels = [dim for dim in shape if dim != 1]
    # Of a convolution the channels are the second axis, of a product the last.
    spatial = 0 if draft.op == "matmul" else len(draft.attributes["strides"])
    place = len(shape) - 1 - spatial
    if len(channels) != 1 or place < 0 or shape[place] != channels[0]:
        return draft
    bias = translator.reshaped(post.operand, channels)
    return replace(draft, operands={**draft.operands, "bias": bias}, post_ops=draft.post_ops[1:])


def _is_constant(translator: Translator, name: str) -> bool:
    views = {node.result: node.operands["x"] for node in translator.nodes if node.op in ("reshape", "permute", "slice")}
    while name in views:
        name = views[name]
    return name in translator.params
