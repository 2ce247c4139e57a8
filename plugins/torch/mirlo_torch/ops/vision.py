"""Operators of torchvision."""

from __future__ import annotations

from mirlo.extend.frontend import Tensor
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import converter


@converter("torchvision.roi_align.default")
def roi_align(
    op: AtenOperation, x: Tensor, rois: Tensor, scale: float, height: int, width: int, samples: int, aligned: bool
) -> Tensor:
    """Convert `roi_align`: means over regions, whose first column is the index of the image."""
    batch = rois.slice(1, 0, 1).reshape((rois.shape[0],)).cast("i64")
    words = {"height": op.fixed(height, "a height"), "width": op.fixed(width, "a width")}
    return op.emit(
        "roi_align", x, rois.slice(1, 1, 4), batch, **words, samples=max(samples, 0), scale=scale,
        mode="mean", half_pixel=aligned,
    )  # fmt: skip
