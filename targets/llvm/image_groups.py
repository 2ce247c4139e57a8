"""Groups of images: a batch in several steps, where what is computed of all its images needs much memory."""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.relax import OPS
from mirlo.passes.graph.rewrite import kind_of
from mirlo.passes.graph.row_loop import row_at

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
