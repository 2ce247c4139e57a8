"""Pass `group-images`: gradients of weights as sums over groups of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import product
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer_windows import CHANNELS_LAST
from mirlo.passes.graph.rewrite import kind_of
from mirlo.passes.graph.row_loop import emit_loop
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.tuned import operations_named
from mirlo.runtime.records import dataclass
from mirlo.targets.llvm.image_groups import group_at, grouped, images_at_once

if TYPE_CHECKING:
    from mirlo.passes.session import Session


@register_pass
@dataclass(frozen=True)
class GroupImages(Pass):
    """Compute gradients of weights of convolutions as sums over groups of images, where that needs less memory.

    Such a gradient is a product of a matrix of all windows, which is as many times larger than the images as a window
    has elements. In a loop over groups, only the windows of some images are in memory.
    """

    name = "group-images"
    keeps_layers = True
    contained = True
    explain: bool = option(False, "print the decision for each gradient")

    def run(self, op: ir.OpView, session: Session) -> None:
        for gradient in operations_named(op, ["relax.conv_weight_gradient"]):
            location, images = gradient.location, images_of_group(gradient.opview)
            if not isinstance(images, Decline):
                _sum_over_groups(gradient, images)
            if self.explain:
                text = f"is computed as a whole: {images}" if isinstance(images, Decline) else f"has groups of {images}"
                session.remark(f"the gradient {text}", location)


def images_of_group(op: ir.OpView) -> int | Decline:
    """Return how many images the gradient of a weight is computed from at once, or decline if these are all."""
    if op.groups != 1 or op.data_layout != CHANNELS_LAST:
        return decline("it is no product with a matrix of windows", groups=op.groups, layout=op.data_layout)
    x, gradient = kind_of(op.x), kind_of(op.gradient)
    if all(size == 1 for size in op.window) and x.shape[:-1] == gradient.shape[:-1]:
        return decline("the images are the matrix of windows")
    row = product([*gradient.shape[1:-1], *op.window, x.shape[-1], x.dtype.bytes])
    batch, images = x.shape[0], images_at_once(x.shape[0], row)
    if not (isinstance(images, int) and x.is_static and gradient.is_static):
        return decline("the size of the batch, or of an image, is known at run time only")
    if images == batch:
        return decline("the matrix of all windows is small", bytes=product([batch, row]))
    in_groups = images * (row + sum(product([*each.shape[1:], each.dtype.bytes]) for each in (x, gradient)))
    sums = 2 * product([*kind_of(op.results[0]).shape, x.dtype.bytes])
    if in_groups + sums >= product([batch, row]):
        return decline("groups of images, and sums over them, take more than all windows", bytes=in_groups + sums)
    return images


def _sum_over_groups(op: ir.Operation, images: int) -> None:
    """Replace the gradient of a weight by the sum of those of groups of images."""
    gradient, output = op.opview, kind_of(op.results[0])
    count = kind_of(gradient.x).static_shape[0] // images

    def step(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        x, by_result = (group_at(each, index) for each in groups)
        part = OPS["conv_weight_gradient"].make(x, by_result, **gradient.attribute_values())
        return [OPS["add"].make(sums[0], part)]

    with ir.InsertionPoint(op), op.location:
        groups = [grouped(each, images) for each in (gradient.x, gradient.gradient)]
        zeros = OPS["full"].make(shape=output.shape, value=0.0, dtype=output.dtype)
        (result,) = emit_loop(count, [zeros], step)
    replace_op(op, [result])
