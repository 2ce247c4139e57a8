"""A device with WebGPU through the package `wgpu`: buffers, pipelines, submissions. Independent of models."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

from mirlo.extend.runtime import ArtifactError, NoDevice
from mirlo_webgpu.ranges import MIN_BOUND, words

if TYPE_CHECKING:
    from types import ModuleType

    import wgpu

BACKENDS = ("Vulkan", "Metal", "DX12")
"""Graphics APIs that support compute; OpenGL cannot bind parts of buffers."""
_KINDS = {"DiscreteGPU": 0, "IntegratedGPU": 1, "CPU": 3}
"""Order of preference of device types; software devices come last."""
_LIMITS = (
    "max-buffer-size", "max-storage-buffer-binding-size", "max-storage-buffers-per-shader-stage",
    "min-storage-buffer-offset-alignment",
)  # fmt: skip
"""Limits that are requested at the device's maximum instead of the guaranteed values."""


class DeviceError(ArtifactError):
    """No device can run the model, or the device failed."""


class NoWebGpuDevice(DeviceError, NoDevice):
    """This machine has no device for the model, or no driver of one."""


@cache
def api() -> ModuleType:
    """Return the package `wgpu`, restricted to the interfaces in `BACKENDS`."""
    try:
        import wgpu
        from wgpu.backends.wgpu_native.extras import set_instance_extras
    except (ImportError, OSError, RuntimeError) as error:
        raise NoWebGpuDevice(
            f"target 'webgpu' runs through the package 'wgpu', which does not load ({error}): pip install wgpu"
        ) from error
    with suppress(RuntimeError):  # raised where the program has opened WebGPU before: then as it did
        set_instance_extras(backends=list(BACKENDS))
    return wgpu


class WebGpuDevice:
    """One device. Only one thread at a time may call its methods: hold `lock`."""

    def __init__(self, number: int = 0) -> None:
        wgpu = api()
        self.lock = threading.RLock()
        adapters = [each for each in wgpu.gpu.enumerate_adapters_sync() if each.info["backend_type"] != "OpenGL"]
        if not adapters:
            raise NoWebGpuDevice(
                "WebGPU has no device on this machine: install the driver of its GPU, or a software device "
                "(on Debian: apt install mesa-vulkan-drivers)"
            )
        if not 0 <= number < len(adapters):
            raise DeviceError(f"there is no WebGPU device {number}: this machine has {len(adapters)}, counted from 0")
        adapter = sorted(adapters, key=lambda each: _KINDS.get(each.info["adapter_type"], 2))[number]
        self.name = str(adapter.info["device"])
        self.limits: dict[str, int] = {name: int(adapter.limits[name]) for name in _LIMITS}
        self.handle: wgpu.GPUDevice = adapter.request_device_sync(required_limits=self.limits)
        self.queue: wgpu.GPUQueue = self.handle.queue
        self._layouts: dict[tuple[int, bool], tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]] = {}

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Raise errors of the package as errors of the device: a model from a file may be malformed."""
        try:
            yield
        except api().GPUError as error:
            raise DeviceError(f"'{self.name}' does not run the model: {_first_line(error)}") from error

    @property
    def alignment(self) -> int:
        """Return the alignment in bytes of the offsets of bound ranges."""
        return self.limits["min-storage-buffer-offset-alignment"]

    def buffer(self, size: int) -> wgpu.GPUBuffer:
        """Allocate memory for kernels and copies."""
        flags = api().BufferUsage
        return self._buffer(size, flags.STORAGE | flags.COPY_SRC | flags.COPY_DST)

    def staging(self, size: int) -> wgpu.GPUBuffer:
        """Allocate memory that the host can read."""
        flags = api().BufferUsage
        return self._buffer(size, flags.MAP_READ | flags.COPY_DST)

    def _buffer(self, size: int, usage: int) -> wgpu.GPUBuffer:
        largest = self.limits["max-buffer-size"]
        if size > largest:
            raise DeviceError(f"'{self.name}' has no buffers of {size} bytes, at most of {largest}")
        try:
            return self.handle.create_buffer(size=max(words(size), MIN_BOUND), usage=usage)
        except Exception as error:
            raise DeviceError(f"'{self.name}' has no room for {size} bytes: {_first_line(error)}") from error

    def upload(self, buffer: wgpu.GPUBuffer, offset: int, address: int, size: int) -> None:
        """Copy bytes of the host, padded to a multiple of four; the padding is undefined."""
        if not size:
            return
        whole = size // 4 * 4
        if whole:
            self.queue.write_buffer(buffer, offset, (ctypes.c_char * whole).from_address(address))
        if whole < size:
            rest = ctypes.string_at(address + whole, size - whole)
            self.queue.write_buffer(buffer, offset + whole, rest.ljust(4, b"\0"))

    def layout(self, bindings: int, reads_scalars: bool) -> tuple[wgpu.GPUBindGroupLayout, wgpu.GPUPipelineLayout]:
        """Return the layouts of kernels with this number of buffers; the last one may hold scalars."""
        key = (bindings, reads_scalars)
        if key not in self._layouts:
            wgpu = api()
            most = self.limits["max-storage-buffers-per-shader-stage"]
            if bindings > most:
                raise DeviceError(f"a kernel of the model has {bindings} buffers, '{self.name}' has room for {most}")
            kinds = ["storage"] * (bindings - reads_scalars) + ["read-only-storage"] * reads_scalars
            group = self.handle.create_bind_group_layout(entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": kind}}
                for i, kind in enumerate(kinds)
            ])  # fmt: skip
            self._layouts[key] = group, self.handle.create_pipeline_layout(bind_group_layouts=[group])
        return self._layouts[key]

    def pipeline(self, text: str, entry: str, bindings: int, reads_scalars: bool) -> wgpu.GPUComputePipeline:
        """Return the pipeline of a kernel."""
        layout = self.layout(bindings, reads_scalars)[1]
        try:
            module = self.handle.create_shader_module(code=text)
            return self.handle.create_compute_pipeline(
                layout=layout, compute={"module": module, "entry_point": entry}
            )  # fmt: skip
        except Exception as error:
            raise DeviceError(f"'{self.name}' does not take a kernel of the model: {_first_line(error)}") from error

    def bind(self, places: Sequence[tuple[wgpu.GPUBuffer, int, int]], reads_scalars: bool) -> wgpu.GPUBindGroup:
        """Return a bind group of ranges: buffer, offset and size in bytes of each."""
        entries = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size}}
            for i, (buffer, offset, size) in enumerate(places)
        ]
        return self.handle.create_bind_group(layout=self.layout(len(places), reads_scalars)[0], entries=entries)

    def read(self, staging: wgpu.GPUBuffer, address: int, size: int, offset: int = 0) -> None:
        """Wait for all submissions; copy bytes of a staging buffer to the host."""
        staging.map_sync("READ", offset, words(size))
        ctypes.memmove(address, bytes(staging.read_mapped(offset, words(size), copy=False))[:size], size)
        staging.unmap()


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def device(number: int = 0) -> WebGpuDevice:
    """Return the device with this number; by default a discrete GPU if there is one."""
    return _device(number)


@cache
def _device(number: int) -> WebGpuDevice:
    return WebGpuDevice(number)
