"""Calls whose arrays stay on a device: the loader's interface for them, and their checks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from mirlo.runtime.artifact import Artifact, TensorSpec, describe
from mirlo.runtime.device_array import DeviceArray, DeviceMemory, DeviceView, is_on_device, view_of
from mirlo.runtime.dlpack import device_name
from mirlo.runtime.errors import InputError
from mirlo.runtime.inputs import check_shape, convert, outputs_given
from mirlo.runtime.records import dataclass
from mirlo.runtime.sizes import RecordWords, Sizes

if TYPE_CHECKING:
    import ctypes

Given = np.ndarray | DeviceView
"""An input in CPU or device memory."""


class DeviceSide(Protocol):
    """The interface of a loader whose models take and return arrays on a device."""

    device: tuple[int, int]
    """DLPack's device type, and the device number."""

    @property
    def stream(self) -> int:
        """Return the stream of the model, which producers of inputs make wait for them."""

    def handle_of(self, stream: object) -> int:
        """Return the handle of a stream given as an integer or as an object of a library."""

    def device_of(self, view: DeviceView) -> tuple[int, int]:
        """Return the device that holds the memory."""

    def run(
        self,
        inputs: Sequence[Given],
        outputs: Sequence[DeviceView | int | None],
        record: RecordWords,
        params: ctypes.Array[ctypes.c_void_p],
        stream: int,
    ) -> Sequence[DeviceMemory | None]:
        """Start a call in the order of `stream`, and return the memory of its outputs.

        An output is memory of the caller, a number of bytes, or None for a data-dependent size; that has no memory if
        the call failed before it. The call may still be in flight when this returns; work that waits for the memory
        or the stream comes after it.
        """


@dataclass(frozen=True)
class DeviceCall:
    """The callbacks and outputs of an executable for a call on a device."""

    params: ctypes.Array[ctypes.c_void_p]
    measure: Callable[[RecordWords], None]
    """Checks and computes the sizes in a record."""
    finish: Callable[[RecordWords], None]
    """Raises the error that a record reports."""
    late: Collection[int]
    """The outputs with data-dependent sizes."""


def run_on_device(
    side: DeviceSide,
    artifact: Artifact,
    sizes: Sizes,
    values: Sequence[object],
    out: object,
    stream: object,
    call: DeviceCall,
) -> list[DeviceArray]:
    """Return the outputs of a call as arrays on the device."""
    handle = side.handle_of(stream)
    dims: dict[str, int] = {}
    inputs = [_input(spec, value, dims, side) for spec, value in zip(artifact.inputs, values, strict=True)]
    record = sizes.record(dims)
    call.measure(record)
    taken = [view for view in inputs if isinstance(view, DeviceView)]
    outputs: list[DeviceView | int | None] = []
    for i, (spec, output) in enumerate(zip(artifact.outputs, outputs_given(artifact.outputs, out), strict=True)):
        if i in call.late:
            if output is not None:
                raise InputError(f"output '{spec.name}': its size depends on data, so that out cannot contain it")
            outputs.append(None)
            continue
        wanted = DeviceView(0, side.device, spec.dtype, sizes.shape(spec.shape, record), True, False, None)
        if output is None:
            outputs.append(wanted.nbytes)
            continue
        outputs.append(_output(spec, wanted, output, taken, side))
        taken.append(outputs[-1])  # type: ignore[arg-type]
    memories = side.run(inputs, outputs, record, call.params, handle)
    call.finish(record)
    shapes = [sizes.shape(spec.shape, record) for spec in artifact.outputs]
    return [
        DeviceArray(shape, spec.dtype, memory)
        for shape, spec, memory in zip(shapes, artifact.outputs, memories, strict=True)
        if memory is not None
    ]


def _input(spec: TensorSpec, value: object, dims: dict[str, int], side: DeviceSide) -> Given:
    if not is_on_device(value):
        return convert(spec, value, dims)
    where = f"input '{spec.name}'"
    view = _view(where, value, side)
    if view.dtype != spec.dtype:
        expected, actual = describe(spec.dtype, spec.shape), describe(view.dtype, view.shape)
        raise InputError(f"{where}: expected {expected}, found {actual} on the device: convert it there")
    check_shape(spec, view.shape, dims)
    if not view.is_contiguous:
        raise InputError(f"{where}: an array on a device must be contiguous: pass x.contiguous()")
    return view


def _output(
    spec: TensorSpec, wanted: DeviceView, output: object, taken: list[DeviceView], side: DeviceSide
) -> DeviceView:
    where = f"output '{spec.name}'"
    if not is_on_device(output):
        raise InputError(f"{where}: out must be an array on the device, found {type(output).__name__}")
    view = _view(where, output, side)
    if (view.dtype, view.shape) != (wanted.dtype, wanted.shape):
        expected, actual = describe(wanted.dtype, wanted.shape), describe(view.dtype, view.shape)
        raise InputError(f"{where}: out must be {expected}, found {actual}")
    if not view.is_contiguous or view.read_only:
        raise InputError(f"{where}: out must be contiguous and writeable: pass a new array")
    if any(view.overlaps(other) for other in taken):
        raise InputError(f"{where}: out shares memory with an input or another output: pass a new array")
    return view


def _view(where: str, value: object, side: DeviceSide) -> DeviceView:
    try:
        view = view_of(value, side.stream)
    except (ValueError, TypeError, RuntimeError, BufferError) as problem:
        raise InputError(f"{where}: {problem}") from None
    device = side.device_of(view)
    if device != side.device:
        here, there = (f"{device_name(kind)}:{number}" for kind, number in (side.device, device))
        raise InputError(f"{where} is on {there}, the model on {here}: move one of them (executable.to(device=...))")
    return view
