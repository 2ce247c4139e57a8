"""Operators of torchvision in Python, for a torchvision whose compiled ones do not load.

The wheel that package registries have is compiled for CUDA; its library does not load beside a torch for CPUs, and
torchvision then cannot be imported. What is exported is the operator, whatever computes it here.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, "
    "int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) "
    "-> (Tensor, Tensor)",
    "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, "
    "SymInt offset_groups, bool use_mask) -> Tensor",
)
_library: Any = None


def load() -> Any:
    """Return torchvision, its operators declared here if its own do not load."""
    global _library
    import torch

    if _library is None and not _loads():
        _library = torch.library.Library("torchvision", "FRAGMENT")
        _declare(_library)
        import torchvision.ops._register_onnx_ops as onnx_ops

        for name, module in list(sys.modules.items()):
            if name.startswith("torchvision.") and hasattr(module, "_has_ops"):
                module._has_ops = _has_ops  # type: ignore[attr-defined]
        onnx_ops._register_custom_op()
        _library.impl("roi_align", _roi_align, "CPU")
    import torchvision

    return torchvision


def _loads() -> bool:
    """Return whether torchvision's own operators load."""
    import importlib.util

    import torch

    spec = importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None:
        raise ImportError("torchvision is not installed: pip install 'mirlo[zoo]'")
    try:
        torch.ops.load_library(next(Path(spec.origin).parent.glob("_C*.so")))
    except (OSError, StopIteration):
        return False
    return True


def _has_ops() -> bool:
    """Return True; a function with a name, which TorchScript can compile where it compiles its callers."""
    return True


def _declare(library: Any) -> None:
    for schema in SCHEMAS:
        library.define(schema)
    backward = (
        "_roi_align_backward", "_roi_pool_backward", "_ps_roi_align_backward", "_ps_roi_pool_backward",
        "_deform_conv2d_backward",
    )  # fmt: skip
    for name in backward:  # named when torchvision is imported, never called
        library.define(f"{name}(Tensor input) -> Tensor")
    library.impl("nms", _nms, "CPU")


def _nms(boxes: Any, scores: Any, threshold: float) -> Any:
    """Return the boxes that overlap none of a higher score by more than the threshold."""
    import torch

    order = scores.argsort(descending=True, stable=True).tolist()
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    for at in order:
        corner = torch.maximum(boxes[at, :2], boxes[kept, :2])
        size = (torch.minimum(boxes[at, 2:], boxes[kept, 2:]) - corner).clamp(min=0)
        overlap = size[:, 0] * size[:, 1]
        if not bool((overlap / (area[at] + area[kept] - overlap) > threshold).any()):
            kept.append(at)
    return torch.tensor(kept, dtype=torch.int64)


def _roi_align(x: Any, rois: Any, scale: float, rows: int, columns: int, ratio: int, aligned: bool) -> Any:
    import inspect

    from torchvision.ops.roi_align import _roi_align as compiled

    # Not torch.compile of it: TorchScript does not trace that.
    return inspect.unwrap(compiled)(x, rois, scale, rows, columns, ratio, aligned)
