"""CUDA's driver with the emulator in place of a GPU: models are compiled, loaded and called as everywhere."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mirlo.targets.nvvm import device, emit, maps, options
from mirlo.targets.nvvm import model as model_module
from mirlo.targets.nvvm.chips import find_chip
from mirlo.testing.ptx.errors import KernelError
from mirlo.testing.ptx.fake_cuda import SUCCESS, Action, FakeDriver
from mirlo.testing.ptx.kernel import PtxKernel
from mirlo.testing.ptx.launch import launch, packed
from mirlo.testing.ptx.memory import GlobalMemory
from mirlo.testing.ptx.parse import parse
from mirlo.testing.ptx.residues import Residues
from mirlo.testing.ptx.tensormap import BYTES, EncodedMap, encode
from mirlo.testing.ptx.text import Module

GRANULE = 16
"""Bytes that memory comes in: kernels count on this alignment."""
UNWRITTEN = 0xFF
"""What new memory is filled with: NaN of every format."""


class EmulatedMaps:
    """The driver's function that writes tensor maps."""

    def __init__(self) -> None:
        self.known: list[EncodedMap] = []
        self._kept = maps._ENCODE(self._encode)
        self.function = ctypes.cast(self._kept, ctypes.c_void_p).value

    def _encode(self, target: int, *described: Any) -> int:
        status, fake = encode(target, *described)
        if fake is not None:
            self.known.append(fake)
            ctypes.memmove(target, fake.packed(), BYTES)
        return status

    def given(self, encoded: Any) -> bytes:
        """Return the bytes of a map that a launch is given."""
        return ctypes.string_at(encoded.getPtr(), BYTES)


Ranges = tuple[tuple[int, int], ...]


class EmulatedDriver(FakeDriver):
    """A driver whose kernels are the PTX that it is given."""

    def __init__(
        self, chip: str = "sm_90a", gpus: int = 1, races: bool = False, residues: Residues | None = None
    ) -> None:
        super().__init__(gpus)
        digits = "".join(c for c in chip if c.isdigit())
        self.capability = (int(digits) // 10, int(digits) % 10)
        self.units = find_chip(chip).units
        self.maps = EmulatedMaps()
        self.races = races
        self.residues = residues
        self.edit: Callable[[str], str] = lambda ptx: ptx
        """What is done to the PTX of modules before they are loaded."""
        self.behind: dict[bytes, bytes] = {}
        """The PTX that machine code was made of, which is executed in its place."""
        self.launched: list[str] = []
        """The names of the kernels that were executed."""
        self.opcodes: set[str] = set()
        """The instructions of these."""
        self.ranges: Ranges | None = None
        """Of the next launch, where known: the addresses and sizes of what the kernel may use."""
        self._sizes: dict[int, int] = {}
        self._modules: dict[int, Module] = {}
        self._kernels: dict[tuple[int, str], PtxKernel] = {}
        self._functions: dict[str, tuple[int, str]] = {}

    # Memory

    def cuMemAlloc(self, size: int) -> tuple[Any, int]:
        status, address = self._allocate(-(-size // GRANULE) * GRANULE)
        self._sizes[address] = size
        ctypes.memset(address, UNWRITTEN, size)
        return status, address

    def cuMemFree(self, address: int) -> tuple[Any]:
        done = super().cuMemFree(address)
        del self._sizes[address]
        return done

    # Kernels

    def cuModuleLoadData(self, code: bytes) -> tuple[Any, Any]:
        status, _ = super().cuModuleLoadData(code)
        if status is not SUCCESS:
            return status, None
        self._next += 1
        number = self._next
        self._modules[number] = parse(self.edit(self.behind.get(code, code).rstrip(b"\0").decode()))
        self._check_target(self._modules[number])
        return SUCCESS, number

    def _check_target(self, module: Module) -> None:
        digits = "".join(c for c in module.target if c.isdigit())
        version = int(digits) // 10, int(digits) % 10
        if version > self.capability or (module.target.endswith("a") and version != self.capability):
            raise KernelError(f"PTX for {module.target} on a GPU of capability {self.capability}")

    def cuModuleUnload(self, module: int) -> tuple[Any]:
        del self._modules[module]
        self._kernels = {key: kernel for key, kernel in self._kernels.items() if key[0] != module}
        return (SUCCESS,)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[Any, str]:
        assert name.decode() in self._modules[module].functions
        function = f"{module}:{name.decode()}"
        self._functions[function] = (module, name.decode())
        return SUCCESS, function

    def _work(self, function: str, sizes: list[int], parameters: list[tuple[Any, Any]], shared: int) -> Action:
        ranges, self.ranges = self.ranges, None
        module, name = self._functions[function]
        if (module, name) not in self._kernels:
            self._kernels[module, name] = PtxKernel(self._modules[module], name, self.residues)
        kernel = self._kernels[module, name]
        values = [value for value, _ in parameters]

        def run() -> None:
            self.launched.append(name)
            self.opcodes |= kernel.opcodes
            x, y, z, *block = sizes
            memory, params = self._memory(ranges), packed(kernel, values)
            launch(kernel, memory, (x, y, z), (block[0], block[1], block[2]), params, shared, self.races)

        return run

    def _memory(self, ranges: Ranges | None) -> GlobalMemory:
        """Return what a kernel may use: the ranges that it is given, or all memory of the GPU."""
        memory = GlobalMemory()
        for address, size in _joined(self._sizes.items() if ranges is None else ranges):
            memory.add(address, size, f"the range at {address:#x}", GRANULE)
        return memory

    def range_of(self, model: Any, where: list[Any], address: int) -> tuple[int, int]:
        """Return the address and the size of what a step of a program gives to a kernel."""
        space, number, offset, size = where
        if size < 0 and space == "tensor":
            # All of a tensor whose size the call tells.
            size = model.frame.regions[number].size - offset
        if size <= 0:
            base = max(base for base in self._sizes if base <= address)
            size = base + self._sizes[base] - address
        return address, size


def _joined(ranges: Any) -> list[tuple[int, int]]:
    """Sort ranges, and merge those that overlap."""
    fake: list[tuple[int, int]] = []
    for address, size in sorted(ranges):
        if fake and address < sum(fake[-1]):
            fake[-1] = fake[-1][0], max(fake[-1][1], address + size - fake[-1][0])
        else:
            fake.append((address, size))
    return fake


@contextmanager
def emulated(
    chip: str = "sm_90a", gpus: int = 1, races: bool = False, residues: Residues | None = None
) -> Iterator[EmulatedDriver]:
    """Run models of target nvvm on emulated GPUs with a chip's compute capability.

    `races`: look for them, slowly. With `residues`, floats are residues modulo a prime.
    """
    fake = EmulatedDriver(chip, gpus, races, residues)
    step, assemble = model_module.CudaModel.step, emit.to_cubin

    def remembering(code: bytes, *rest: Any) -> bytes:
        binary = assemble(code, *rest)
        fake.behind[binary] = code
        return binary

    def noting(model: Any, described: Any, tensors: Any) -> None:
        if "kernel" in described:
            wheres = [a["map"] if isinstance(a, dict) else a for a in described["arguments"] if not isinstance(a, int)]
            fake.ranges = tuple(fake.range_of(model, where, model.place(where, tensors)) for where in wheres)
        step(model, described, tensors)

    with (
        patch.object(device, "driver", lambda: fake),
        patch.object(model_module.CudaModel, "step", noting),
        patch.object(emit, "to_cubin", remembering),
    ):
        _forget_devices()
        try:
            yield fake
        finally:
            _forget_devices()


def _forget_devices() -> None:
    for known in (device.gpu, device.capability, options._present, options._as_here):
        known.cache_clear()


@contextmanager
def fake_driver() -> Iterator[EmulatedDriver]:
    """Replace CUDA's driver by a fake one with two GPUs, which executes the PTX compiled next."""
    with emulated(gpus=2) as fake:
        # Code is made for the chip that tests name, not for the one that stands in.
        _forget_chips()
        with patch.object(device, "capability", lambda: None):
            options._present()
        yield fake
    _forget_chips()


def _forget_chips() -> None:
    options._present.cache_clear()
    options._as_here.cache_clear()
