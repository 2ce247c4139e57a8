"""The loader `cuda`: a compiled model on an NVIDIA GPU, placed there by its first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mirlo.runtime.artifact import Artifact
from mirlo.runtime.device_array import CUDA, DeviceMemory, DeviceView
from mirlo.runtime.errors import InputError
from mirlo.runtime.loaders import LoadedCode
from mirlo.runtime.on_device import Given
from mirlo.targets.gpu.device_layout import WhenCalled
from mirlo.targets.nvvm.decisions import run
from mirlo.targets.nvvm.device import check, gpu
from mirlo.targets.nvvm.memory import pool
from mirlo.targets.nvvm.model import CudaModel
from mirlo.targets.nvvm.timing import microseconds

if TYPE_CHECKING:
    import ctypes


LEGACY = 1
"""The handle of CUDA's default stream."""


def load(artifact: Artifact) -> LoadedCode:
    """Make an artifact for CUDA callable, on the first GPU by default."""
    return load_on(artifact, 0)


def load_on(artifact: Artifact, number: int) -> LoadedCode:
    """Make an artifact callable on the GPU with this number."""
    entry = WhenCalled(lambda: CudaModel(artifact, gpu(number), run))
    return LoadedCode(
        entry, keep=entry, device=CudaDeviceSide(entry, number), on=lambda other: load_on(artifact, other),
        device_arena=artifact.metadata["program"]["arena"], release=lambda: _trim(entry, number),
        has_memory=True, timed=lambda repeats: microseconds(entry.model, repeats) if entry.is_placed else None,
    )  # fmt: skip


class CudaDeviceSide:
    """Calls whose arrays stay on the GPU; implements `mirlo.runtime.on_device.DeviceSide`."""

    def __init__(self, entry: WhenCalled[CudaModel], number: int) -> None:
        self._entry = entry
        self.device = (CUDA, number)

    @property
    def stream(self) -> int:
        """Return the model's stream."""
        return int(self._entry.model.stream)

    def handle_of(self, stream: object) -> int:
        """Return the handle of a stream: a number, one of PyTorch, CuPy or `cuda.core`, or None for the default."""
        if stream is None:
            return LEGACY
        if hasattr(stream, "__cuda_stream__"):
            return int(stream.__cuda_stream__()[1]) or LEGACY
        for name in ("cuda_stream", "ptr", "handle"):
            if hasattr(stream, name):
                return int(getattr(stream, name)) or LEGACY
        if isinstance(stream, int):
            return stream or LEGACY
        raise InputError(f"stream: expected a CUDA stream or its handle, found {type(stream).__name__}")

    def device_of(self, view: DeviceView) -> tuple[int, int]:
        """Return the GPU of a memory range; ask the driver if the producer does not say."""
        kind, number = view.device
        if kind == MANAGED:
            return self.device
        if kind != CUDA or number >= 0:
            return view.device
        on = self._entry.model.gpu
        ordinal = on.cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        with on.entered():
            return CUDA, int(check(on.cuda.cuPointerGetAttribute(ordinal, view.address), "asking where an array is"))

    def run(
        self,
        inputs: Sequence[Given],
        outputs: Sequence[DeviceView | int | None],
        record: ctypes.Array[ctypes.c_int64],
        params: ctypes.Array[ctypes.c_void_p],
        stream: int,
    ) -> Sequence[DeviceMemory | None]:
        """Enqueue a call in the order of a stream."""
        return self._entry.model.run(inputs, outputs, record, params, stream)


MANAGED = 13
"""DLPack's device type of managed memory."""


def _trim(entry: WhenCalled[CudaModel], number: int) -> None:
    if entry.is_placed:
        with gpu(number).entered():
            pool(number).trim()
