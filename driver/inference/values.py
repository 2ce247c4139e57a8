"""What an `InferenceSession` takes and returns besides arrays: descriptions of inputs, values, and bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from mirlo.runtime.dtypes import ELEMENT_TYPES, element_type_of, numpy_dtype
from mirlo.runtime.errors import InputError

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.runtime.kinds import Kind

_ONNX_NAMES = {
    "f64": "double", "f32": "float", "f16": "float16", "bf16": "bfloat16", "f8e4m3fn": "float8e4m3fn",
    "f8e4m3fnuz": "float8e4m3fnuz", "f8e5m2": "float8e5m2", "f8e5m2fnuz": "float8e5m2fnuz", "f8e8m0": "float8e8m0",
    "f4e2m1": "float4e2m1", "i64": "int64", "i32": "int32", "i16": "int16", "i8": "int8", "i4": "int4", "i2": "int2",
    "u64": "uint64", "u32": "uint32", "u16": "uint16", "u8": "uint8", "u4": "uint4", "u2": "uint2", "bool": "bool",
    "string": "string",
}  # fmt: skip
"""ONNX's names of element types, in the type texts of ONNX Runtime."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output of a model: its name, its dims (a dynamic one is a text), and its type (`tensor(float)`)."""

    name: str
    shape: list[int | str]
    type: str


def tensor_type(dtype: str) -> str:
    """Return ONNX Runtime's text for a tensor of an element type."""
    return f"tensor({_ONNX_NAMES[dtype]})"


def kind_type(kind: Kind) -> str:
    """Return ONNX Runtime's text for a kind of value: `seq(tensor(float))`."""
    if kind.element is None:
        return tensor_type(kind.name)
    if kind.key is not None:
        return f"map({_ONNX_NAMES[kind.key]},{tensor_type(kind.element.name)})"
    return f"{'seq' if kind.name == 'sequence' else 'optional'}({kind_type(kind.element)})"


class OrtValue:
    """A tensor in memory, passed to and from bindings."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Return a value over the memory of an array."""
        _require_cpu("OrtValue", device_type)
        return OrtValue(np.asarray(array))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: npt.DTypeLike, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Return a value over new memory, which is not initialized."""
        _require_cpu("OrtValue", device_type)
        return OrtValue(np.empty(tuple(shape), np.dtype(element_type)))

    def numpy(self) -> np.ndarray:
        """Return the array; it shares the value's memory."""
        return self._array

    def shape(self) -> list[int]:
        """Return the sizes of the dims."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type as ONNX Runtime writes it: `tensor(float)`."""
        dtype = element_type_of(self._array.dtype)
        return tensor_type(dtype.name if dtype is not None else "string")

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        """Return "cpu"."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Return True: other values are passed as Python objects."""
        return True


class IOBinding:
    """Arrays for the inputs and outputs of a session's calls, set once and used by `run_with_iobinding`."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._names = {"input": list(inputs), "output": list(outputs)}
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: dict[str, np.ndarray | None] = {}
        """By name the caller's array, or None for a new one of each call."""
        self.results: dict[str, np.ndarray] = {}

    def bind_cpu_input(self, name: str, array: np.ndarray) -> None:
        """Bind an array to an input."""
        self.inputs[self._known("input", name)] = np.asarray(array)

    def bind_ortvalue_input(self, name: str, value: OrtValue) -> None:
        """Bind a value to an input."""
        self.inputs[self._known("input", name)] = value.numpy()

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: npt.DTypeLike,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Bind memory, by its address, to an input; it must stay valid and hold an array of this type and shape."""
        _require_cpu(f"input '{name}'", device_type)
        self.inputs[self._known("input", name)] = _array_at(buffer_ptr, element_type, shape)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: npt.DTypeLike | None = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Bind memory, by its address, to an output; without one each call allocates it."""
        _require_cpu(f"output '{name}'", device_type)
        self._known("output", name)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InputError(f"output '{name}': a buffer needs its element type and shape")
        self.outputs[name] = _array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, value: OrtValue) -> None:
        """Bind a value to an output, which calls write."""
        self.outputs[self._known("output", name)] = value.numpy()

    def copy_outputs_to_cpu(self) -> list[np.ndarray]:
        """Return the outputs of the last call, in the order in which they were bound."""
        return [self.results[name] for name in self.outputs]

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last call as values."""
        return [OrtValue(np.asarray(self.results[name])) for name in self.outputs]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.outputs.clear()
        self.results.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: inputs are in the memory of the CPU."""

    def synchronize_outputs(self) -> None:
        """Do nothing: outputs are in the memory of the CPU when a call returns."""

    def _known(self, what: str, name: str) -> str:
        names = self._names[what]
        if name not in names:
            raise InputError(f"no {what} is named '{name}'; {what}s: {', '.join(names)}")
        return name


def _array_at(address: int, element_type: npt.DTypeLike, shape: Sequence[int]) -> np.ndarray:
    is_named = isinstance(element_type, str) and element_type in ELEMENT_TYPES
    dtype = numpy_dtype(str(element_type)) if is_named else np.dtype(element_type)
    count = int(np.prod(tuple(shape), dtype=np.int64))
    if not count:
        return np.empty(tuple(shape), dtype)
    buffer = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memoryview(buffer), dtype).reshape(tuple(shape))


def _require_cpu(what: str, device_type: str) -> None:
    if device_type.lower() != "cpu":
        raise InputError(
            f"{what}: expected device 'cpu', found '{device_type}': for arrays on a GPU use on_device() of the "
            "executable that mirlo.compile returns"
        )
