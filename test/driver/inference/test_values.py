"""Values of sessions: types, numbers and memory as those of ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import mirlo
from mirlo.driver.inference.values import element_text
from mirlo.runtime.errors import InputError

_TYPES = ["f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]


def _facts(ort: Any, array: np.ndarray) -> list[Any]:
    value = ort.OrtValue.ortvalue_from_numpy(array)
    value.update_inplace(np.ones_like(array))
    return [
        value.shape(), value.data_type(), value.element_type(), value.device_name().lower(), value.is_tensor(),
        value.is_tensor_sequence(), value.is_sparse_tensor(), value.has_value(), value.tensor_size_in_bytes(),
        value.numpy().tolist(), np.asarray(value).tolist(), array.dtype == bool or np.from_dlpack(value).tolist(),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", _TYPES)
def test_a_value_tells_what_onnx_runtime_does(dtype: str) -> None:
    array = np.zeros((2, 3), dtype)
    assert _facts(mirlo, array.copy()) == _facts(onnxruntime, array.copy())


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16])
def test_element_types_have_the_numbers_of_onnx(number: int) -> None:
    found, expected = (ort.OrtValue.ortvalue_from_shape_and_type([2], number) for ort in (mirlo, onnxruntime))
    assert (found.data_type(), found.element_type()) == (expected.data_type(), expected.element_type())


@pytest.mark.skipif(not hasattr(TensorProto, "INT2"), reason="an older onnx has fewer element types")
@pytest.mark.parametrize("number", [number for number in range(1, 27) if number not in (14, 15)])  # complex
def test_element_types_have_the_names_of_messages(number: int) -> None:
    name = TensorProto.DataType.Name(number).lower()
    assert element_text(number) == f"tensor({name})"


def test_bits_are_taken_as_another_element_type() -> None:
    bits = np.array([0x3F80, 0xC000], np.uint16)
    value = mirlo.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)
    assert value.data_type() == "tensor(bfloat16)" and value.numpy().astype("f4").tolist() == [1.0, -2.0]
    with pytest.raises(InputError, match="element type 1: its elements take 4 bytes, found uint16"):
        mirlo.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 1)
    with pytest.raises(InputError, match="no element type with ONNX's number 99"):
        mirlo.OrtValue.ortvalue_from_shape_and_type([1], 99)


def test_memory_is_shared() -> None:
    array = np.zeros(3, np.float32)
    value = mirlo.OrtValue.ortvalue_from_numpy(array)
    assert value.__dlpack_device__() == array.__dlpack_device__()
    assert value.data_ptr() == array.ctypes.data and value.numpy() is array
    assert mirlo.OrtValue.from_dlpack(array).data_ptr() == array.ctypes.data
    assert mirlo.OrtValue([array, array]).data_type() == "seq(tensor(float))"


def test_devices_have_the_numbers_of_onnx_runtime() -> None:
    for name, number in (("cpu", 0), ("cuda", 0), ("cuda", 1)):
        found, expected = (ort.OrtDevice.make(name, number) for ort in (mirlo, onnxruntime))
        assert (found.device_type(), found.device_id()) == (expected.device_type(), expected.device_id())
    with pytest.raises(RuntimeError, match="Unsupported device type: abacus"):
        mirlo.OrtDevice.make("abacus", 0)
