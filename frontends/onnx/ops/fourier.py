"""Fourier transforms, of whole tensors and of frames of a signal."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from mirlo.dialects.core import dims as D
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import OpError
from mirlo.dialects.relax.dynamic import RequireDims
from mirlo.dialects.relax.infer import require_equal_dims
from mirlo.frontends.builder import sizes_if
from mirlo.frontends.library.fourier import transform_rows
from mirlo.frontends.library.frames import frames_of
from mirlo.frontends.onnx.declared import required
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import converter
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.tensor import Tensor, stack, where

MAX_POSITIONS = 2**24
"""Most elements of all frames of a signal: ten minutes of speech, for example."""


@converter("DFT", since=17)
def dft_attribute(node: Node) -> Converted:
    return _dft(node, node.attr.int("axis", 1))


@converter("DFT", since=20)
def dft(node: Node) -> Converted:
    if not node.has(2) or node.value(2).array is not None:
        return _dft(node, int(node.scalar(2, -2)))
    return _dft_of_declared_shape(node)


def _dft_of_declared_shape(node: Node) -> Tensor:
    """Convert DFT with a run-time axis: select among the axes that make the declared shape."""
    x, rank = node.type(0), node.type(0).rank
    declared: tuple[Dim, ...] | None = node.declared(0)
    if declared is None and not node.has(1) and not node.attr.bool("onesided", 0):
        declared = (*x.shape[:-1], 2)  # whichever axis it is
    if declared is None:
        raise NodeError("input 'axis' must be a constant, or the model must declare the shape of the result")
    fitting: dict[int, Tensor] = {}
    for axis in range(rank - 1):
        with suppress(NodeError, OpError):  # an axis that cannot be transformed is not a candidate
            output = _dft(node, axis)
            if output.type.shape == declared:
                fitting[axis] = output
    if not fitting:
        raise NodeError(f"no axis makes the shape {list(declared)} that is declared")
    axis_operand = node.single(2)

    def is_axis(axis: int) -> Tensor:
        return axis_operand.equals(axis) | axis_operand.equals(axis - rank)

    flags = {axis: is_axis(axis) for axis in fitting}
    result: Tensor | None = None
    known: Tensor | None = None
    for axis, value in fitting.items():
        result = value if result is None else where(flags[axis], value, result)
        known = flags[axis] if known is None else known | flags[axis]
    assert result is not None and known is not None
    return required(node, known, "input 'axis' is another", result)


def _dft(node: Node, axis: int) -> Tensor:
    """Transform along one axis of a tensor whose last dim holds the real and possibly the imaginary part."""
    x = node.type(0)
    if (
        not -x.rank <= axis < x.rank
        or axis % x.rank == x.rank - 1
        or x.shape[-1] not in (1, 2, *_if_dynamic(x.shape[-1]))
    ):
        raise NodeError(f"the axis is {axis} of {x}, of which the last dim must be 1 or 2 and cannot be transformed")
    axis %= x.rank
    size, parts = x.shape[axis], x.shape[-1]
    if not isinstance(parts, int):
        require_equal_dims(parts, 2, f"the last dim of {x} and the parts of a complex number")
    inverse, onesided = node.attr.bool("inverse", 0), node.attr.bool("onesided", 0)
    length: Dim = 2 * (size - 1) if inverse and onesided else size
    if node.has(1):
        length = int(node.scalar(1)) if node.value(1).array is not None else _dynamic_length(node, 1)
    order = [*(i for i in range(x.rank) if i not in (axis, x.rank - 1)), axis, x.rank - 1]
    rows = node[0].permute(order)
    result = transform_rows(rows, length, inverse=inverse, onesided=onesided)
    return result.permute([order.index(i) for i in range(x.rank)])


@converter("STFT", since=17)
def stft(node: Node) -> Converted:
    """Convert STFT: frames of the signal, times a window, each transformed."""
    if node.type(0).rank == 2:  # a real signal, as [batch, length, 1]
        real = node[0].reshape((*node.type(0).shape, 1))
        node.inputs = [real, *node.inputs[1:]]
    x, parts = node.type(0), node.type(0).shape[-1]
    if x.rank != 3 or parts not in (1, 2, *_if_dynamic(parts)):
        raise NodeError(f"input 'signal' must be [batch, length, 1 or 2], got {x}")
    if not isinstance(parts, int):
        require_equal_dims(parts, 2, f"the last dim of {x} and the parts of a complex number")
    if not node.has(2) and not node.has(3):
        raise NodeError("one of the inputs 'window' and 'frame_length' must be there")
    if node.has(2) and node.type(2).rank != 1:
        raise NodeError(f"input 'window' must have one dim, got {node.type(2)}")
    onesided = node.attr.bool("onesided", 1)
    size, window = x.shape[1], node.type(2).shape[0] if node.has(2) else 0
    is_known = node.value(1).array is not None and (not node.has(3) or node.value(3).array is not None)
    if not isinstance(window, int):
        return _dynamic_stft(node, onesided)
    if not is_known:
        if not isinstance(size, int):
            return _dynamic_stft(node, onesided)
        return _stft_of_declared_shape(node, size, window, onesided)
    step, length = int(node.scalar(1)), int(node.scalar(3, 0)) or window
    if length < 1 or step < 1 or (isinstance(size, int) and length > size):
        raise NodeError(f"frames of {length} elements every {step} do not fit a signal of {size}")
    if node.has(2) and window < length:
        raise NodeError(f"frames of {length} elements do not fit a window of {window}")
    if not D.is_nonnegative(size - length):
        what = f"node '{node.outputs[0]}' (STFT): frames of {length} elements do not fit {x}"
        RequireDims.build(dims=(size - length,), what=what, result_types=[])
    return _frames(node, (size - length) // step + 1, length, step, onesided)


def _stft_of_declared_shape(node: Node, size: int, window: int, onesided: bool) -> Tensor:
    """Convert STFT with a run-time step or length: compute what makes the declared shape."""
    declared = node.declared(0)
    if declared is None or len(declared) != 4:
        return _dynamic_stft(node, onesided)
    count, bins = declared[1], declared[2]
    lengths = [2 * bins - 2, 2 * bins - 1] if onesided else [bins]
    if node.has(3) and node.value(3).array is not None:
        lengths = [int(node.scalar(3))]
    elif not node.has(3):
        lengths = [window]
    step = node.single(1).cast("i64")
    frame_length = node.single(3).cast("i64") if node.has(3) else node.constant(np.int64(lengths[0]))
    result = fits = None
    for length in lengths:
        if not 0 < length <= size or (node.has(2) and window != length):
            continue
        output = _frames(node, count, length, step, onesided)
        room = node.constant(np.int64(size - length)) - step * _whole(node, count - 1)
        one = frame_length.equals(_whole(node, length)) & _between(node, room, step)
        result = output if result is None else where(one, output, result)
        fits = one if fits is None else fits | one
    if fits is None or result is None:
        raise NodeError(f"no length of frames makes the shape {list(declared)} that is declared")
    return required(node, fits, "inputs 'frame_step' and 'frame_length' are others", result)


def _whole(node: Node, number: int) -> Tensor:
    return node.constant(np.int64(number))


def _between(node: Node, room: Tensor, step: Tensor) -> Tensor:
    """Return whether the signal continues after the last frame, but by less than one step."""
    return (room >= _whole(node, 0)) & (room < step)


def _dynamic_stft(node: Node, onesided: bool) -> Tensor:
    """Convert STFT of a signal of any length, with a size and step that may be run-time values."""
    size = node.type(0).shape[1]
    step, length = _frame_sizes(node, size)
    return _frames(node, (size - length) // step + 1, length, step, onesided)


def _frames(node: Node, count: Dim, length: Dim, step: Dim | Tensor, onesided: bool) -> Tensor:
    """Return the transforms of this many frames of this length, one every `step` elements."""
    if isinstance(count, int) and isinstance(length, int) and count * length > MAX_POSITIONS:
        raise NodeError(f"{count} frames of {length} elements are too many")
    frames = frames_of(node[0], 1, count, length, step)
    if node.has(2):
        window = node[2]
        if node.type(2).shape[0] != length:
            window = window.slice(0, 0, length)
        frames = frames * window.reshape((length, 1))
    return transform_rows(frames, length, inverse=False, onesided=onesided)


def _frame_sizes(node: Node, size: Dim) -> tuple[Dim, Dim]:
    """Return the step and the length of frames, checked at run time."""
    step = node.single(1).cast("i64")
    window = node.size(node.type(2).shape[0]) if node.has(2) else None
    length = node.single(3).cast("i64") if node.has(3) else window
    assert length is not None, "checked by the converter"
    fits = [step >= 1, length >= 1, length <= node.size(size)]
    if window is not None:
        fits.append(length.equals(window))
    checked = sizes_if(stack(fits, axis=0), stack((step, length), axis=0))
    bound = node.bind(checked, f"frames of input 'frame_length' every 'frame_step' do not fit {node.type(0)}")
    return bound[0], bound[1]


def _dynamic_length(node: Node, index: int) -> Dim:
    """Return a length given by a run-time input."""
    operand = node.single(index).cast("i64").reshape((1,))
    wrong = operand >= 1
    (length,) = node.bind(sizes_if(wrong, operand), f"input '{node.input_name(index)}' must be at least 1")
    return length


def _if_dynamic(dim: Dim) -> tuple[Dim, ...]:
    """Return the dim itself if it is dynamic."""
    return () if isinstance(dim, int) else (dim,)
