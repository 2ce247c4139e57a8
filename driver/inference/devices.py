"""Devices of arrays, as ONNX Runtime names them: values and bindings of sessions are in the memory of the CPU."""

from __future__ import annotations

from mirlo.driver.inference.errors import BindingError
from mirlo.runtime.records import dataclass

_NUMBERS = {"cpu": 0, "cuda": 1, "gpu": 1, "dml": 1, "webgpu": 1, "npu": 2, "cann": 3}
"""The numbers of device types by their names."""


@dataclass(frozen=True)
class OrtDevice:
    """A device by its type and number."""

    name: str
    number: int = 0

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Return a device by the name of its type, such as "cpu", and its number."""
        if ort_device_name.lower() not in _NUMBERS:
            raise BindingError(f"Unsupported device type: {ort_device_name}; there are {', '.join(_NUMBERS)}")
        return OrtDevice(ort_device_name.lower(), device_id)

    def device_type(self) -> int:
        """Return the number of the type: 0 for the CPU."""
        return _NUMBERS[self.name]

    def device_id(self) -> int:
        """Return the number of the device among those of its type."""
        return self.number

    def device_mem_type(self) -> int:
        """Return 0: default memory."""
        return 0

    def device_vendor_id(self) -> int:
        """Return 0: no vendor."""
        return 0


def require_cpu(what: str, device_type: str) -> None:
    """Raise an error for a device whose memory values and bindings cannot be in."""
    if device_type.lower() != "cpu":
        raise BindingError(
            f"{what}: expected device 'cpu', found '{device_type}': for arrays on a GPU use on_device() of the "
            "executable that mirlo.compile returns"
        )
