"""Values of a session's calls, and ONNX Runtime's texts for their types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mirlo.driver.inference.devices import require_cpu
from mirlo.driver.inference.errors import BindingError
from mirlo.runtime.dtypes import ELEMENT_TYPES, element_type_of, numpy_dtype
from mirlo.runtime.errors import InputError
from mirlo.runtime.inputs import as_array

if TYPE_CHECKING:
    import numpy.typing as npt

    from mirlo.runtime.kinds import Kind

_NAMES = {
    "f32": (1, "float"), "u8": (2, "uint8"), "i8": (3, "int8"), "u16": (4, "uint16"), "i16": (5, "int16"),
    "i32": (6, "int32"), "i64": (7, "int64"), "string": (8, "string"), "bool": (9, "bool"), "f16": (10, "float16"),
    "f64": (11, "double"), "u32": (12, "uint32"), "u64": (13, "uint64"), "bf16": (16, "bfloat16"),
    "f8e4m3fn": (17, "float8e4m3fn"), "f8e4m3fnuz": (18, "float8e4m3fnuz"), "f8e5m2": (19, "float8e5m2"),
    "f8e5m2fnuz": (20, "float8e5m2fnuz"), "u4": (21, "uint4"), "i4": (22, "int4"), "f4e2m1": (23, "float4e2m1"),
    "f8e8m0": (24, "float8e8m0"), "u2": (25, "uint2"), "i2": (26, "int2"),
}  # fmt: skip
"""ONNX's numbers and names of element types."""
_BY_NUMBER = {number: dtype for dtype, (number, _) in _NAMES.items()}
ElementType: TypeAlias = "npt.DTypeLike | int"
"""An element type as numpy's type, Mirlo's name, or ONNX's number."""


def tensor_type(dtype: str) -> str:
    """Return ONNX Runtime's text for a tensor of an element type."""
    return f"tensor({_NAMES[dtype][1]})"


def element_text(number: int) -> str:
    """Return ONNX Runtime's text for a tensor of the element type with ONNX's number; empty if there is none."""
    return tensor_type(_BY_NUMBER[number]) if number in _BY_NUMBER else ""


def kind_type(kind: Kind) -> str:
    """Return ONNX Runtime's text for a kind of value: `seq(tensor(float))`."""
    if kind.element is None:
        return tensor_type(kind.name)
    if kind.key is not None:
        return f"map({_NAMES[kind.key][1]},{tensor_type(kind.element.name)})"
    return f"{'seq' if kind.name == 'sequence' else 'optional'}({kind_type(kind.element)})"


def array_type(element_type: ElementType) -> np.dtype:
    """Return numpy's type of an element type."""
    if isinstance(element_type, int):
        if element_type not in _BY_NUMBER:
            raise InputError(f"there is no element type with ONNX's number {element_type}")
        dtype = _BY_NUMBER[element_type]
        return np.dtype(object) if dtype == "string" else numpy_dtype(dtype)
    if isinstance(element_type, str) and element_type in ELEMENT_TYPES:
        return numpy_dtype(element_type)
    return np.dtype(element_type)


class OrtValue:
    """A value of a session's call: a tensor in the memory of the CPU, or a sequence of tensors."""

    def __init__(self, value: object) -> None:
        self._value = value.numpy() if isinstance(value, OrtValue) else value

    @staticmethod
    def ortvalue_from_numpy(array: np.ndarray, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """Return a value over the memory of an array."""
        require_cpu("OrtValue", device_type)
        return OrtValue(np.asarray(array))

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(array: np.ndarray, onnx_element_type: int) -> OrtValue:
        """Return a value over the memory of an array, whose bits are of an element type given by ONNX's number."""
        dtype = array_type(onnx_element_type)
        if dtype.itemsize != array.dtype.itemsize:
            raise InputError(
                f"element type {onnx_element_type}: its elements take {dtype.itemsize} bytes, found {array.dtype}"
            )
        return OrtValue(array.view(dtype))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: ElementType, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """Return a value over new memory, which is not initialized."""
        require_cpu("OrtValue", device_type)
        return OrtValue(np.empty(tuple(shape), array_type(element_type)))

    @staticmethod
    def from_dlpack(data: object) -> OrtValue:
        """Return a value over the memory of an array of another library."""
        return OrtValue(as_array(data))

    def numpy(self) -> Any:
        """Return the array, which shares the value's memory, or the list of arrays."""
        return self._value

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """Return the array for numpy."""
        array = np.asarray(self._value, dtype)
        return array.copy() if copy and array is self._value else array

    def __dlpack__(self, **options: Any) -> Any:
        """Return the array for other libraries."""
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the CPU in DLPack's numbers."""
        return 1, 0

    def update_inplace(self, array: np.ndarray) -> None:
        """Write an array of the same type and shape to the value's memory."""
        if array.shape != self._array.shape or array.dtype != self._array.dtype:
            raise BindingError(
                f"expected an array {self._array.dtype}{list(self._array.shape)} to update the value with, found "
                f"{array.dtype}{list(array.shape)}"
            )
        self._array[...] = array

    def shape(self) -> list[int]:
        """Return the sizes of the dims."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type as ONNX Runtime writes it: `tensor(float)`."""
        if self.is_tensor_sequence():
            return f"seq({OrtValue(self.numpy()[0]).data_type() if len(self.numpy()) else 'tensor(float)'})"
        return tensor_type(_element_name(self._array.dtype))

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return _NAMES[_element_name(self._array.dtype)][0]

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the elements."""
        return int(self._array.nbytes)

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        """Return "cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """Return whether an optional value is present."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Return whether the value is one tensor."""
        return isinstance(self._value, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """Return whether the value is a sequence of tensors."""
        return isinstance(self._value, (list, tuple))

    def is_sparse_tensor(self) -> bool:
        """Return False: models take and return dense tensors."""
        return False

    @property
    def _array(self) -> np.ndarray:
        if not isinstance(self._value, np.ndarray):
            raise BindingError(f"expected a value that is a tensor, found a {type(self._value).__name__}")
        return self._value


def _element_name(dtype: np.dtype) -> str:
    element = element_type_of(dtype)
    return element.name if element is not None else "string"
