"""Pass `group-images`: gradients of weights as sums over groups of images.

A batch is computed in several steps where what is computed of all its images needs much memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim, product
from mirlo.dialects.core.surgery import replace_op
from mirlo.dialects.relax import OPS
from mirlo.dialects.relax.infer import CHANNELS_LAST
from mirlo.passes.graph.rewrite import kind_of
from mirlo.passes.graph.row_loop import emit_loop, row_at
from mirlo.passes.registry import Pass, option, register_pass
from mirlo.passes.rules import Decline, decline
from mirlo.passes.schedule.tuned import operations_named
from mirlo.runtime.records import dataclass

if TYPE_CHECKING:
    from mirlo.passes.session import Session


AT_ONCE = 2 << 20
"""Most bytes that are computed of the images of a group: of fewer, products have few rows."""


def images_at_once(batch: Dim, image_bytes: Dim, least: int = 0) -> Dim:
    """Return how many images a group has of which each needs this memory: a divisor of the batch.

    Groups may have `least` bytes in any case. A batch or an image whose size is known at run time only is not divided.
    """
    if not isinstance(batch, int) or not isinstance(image_bytes, int):
        return batch
    most = max(AT_ONCE, least)
    divisors = (count for count in range(batch, 0, -1) if batch % count == 0)
    return next((count for count in divisors if count * image_bytes <= most), min(1, batch))


def grouped(images: ir.Value, count: Dim) -> ir.Value:
    """Emit a view of images as groups of this many, at the insertion point."""
    batch, *rest = kind_of(images).shape
    view: ir.Value = OPS["reshape"].make(images, shape=(batch // count, count, *rest))
    return view


def group_at(groups: ir.Value, index: ir.Value) -> ir.Value:
    """Emit the read of one group of images, at the insertion point."""
    images: ir.Value = OPS["reshape"].make(row_at(groups, index), shape=kind_of(groups).shape[1:])
    return images


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
