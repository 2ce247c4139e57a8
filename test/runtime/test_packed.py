"""Functions that a model calls by name, and DLPack."""

from __future__ import annotations

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from mirlo.runtime import dlpack, packed
from mirlo.runtime.artifact import TensorSpec
from mirlo.runtime.dtypes import ELEMENT_TYPES, numpy_dtype
from mirlo.runtime.errors import InputError, PackedFunctionError
from mirlo.runtime.executable import Executable
from mirlo.runtime.params import ParameterStore

# One call of the function in the first slot after the parameters (there are none), on x: f32[3] and y: f32[3].
DECLARATIONS = """
%Tensor = type { ptr, i32, i32, i32, i8, i8, i16, ptr, ptr, i64 }
@shape = internal constant [1 x i64] [i64 3]
"""
BODY = """
  %record.at = getelementptr ptr, ptr %tensors, i64 2
  %record = load ptr, ptr %record.at
  %args = alloca [2 x ptr]
  %t0 = alloca %Tensor
  %t1 = alloca %Tensor
  %x = load ptr, ptr %tensors
  %py = getelementptr ptr, ptr %tensors, i64 1
  %y = load ptr, ptr %py
  store %Tensor { ptr null, i32 1, i32 0, i32 1, i8 2, i8 32, i16 1, ptr @shape, ptr null, i64 0 }, ptr %t0
  store %Tensor { ptr null, i32 1, i32 0, i32 1, i8 2, i8 32, i16 1, ptr @shape, ptr null, i64 0 }, ptr %t1
  store ptr %x, ptr %t0
  store ptr %y, ptr %t1
  store ptr %t0, ptr %args
  %a1 = getelementptr ptr, ptr %args, i64 1
  store ptr %t1, ptr %a1
  %f = load ptr, ptr %params
  %code = call i32 %f(ptr %args, i64 2)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %failed, label %done
failed:
  store i64 1, ptr %record
  %wide = sext i32 %code to i64
  %pcode = getelementptr i64, ptr %record, i64 1
  store i64 %wide, ptr %pcode
  br label %done
done:
  ret void"""

X = np.array([1, 2, 3], np.float32)


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(packed, "_FUNCTIONS", {})


@pytest.fixture
def executable(make_artifact):
    spec = [TensorSpec(name, "f32", (3,)) for name in ("x", "y")]

    def make(name: str) -> Executable:
        metadata = {"packed": [name]}
        artifact = make_artifact(BODY, DECLARATIONS, inputs=(spec[0],), outputs=(spec[1],), metadata=metadata)
        return Executable(artifact, ParameterStore())

    return make


def test_python_function(executable):
    @packed.packed("test.double")
    def double(x, y):
        np.multiply(x, 2, out=y)

    exe = executable("test.double")
    assert exe(X).tolist() == [2, 4, 6]
    packed.unregister("test.double")
    assert exe(X).tolist() == [2, 4, 6]  # a loaded model keeps what it was loaded with


def test_c_function_needs_no_python(executable):
    seen = []

    @packed.CPackedFunction
    def negate(tensors, count):
        x, y = (dlpack.array_of_tensor(tensors[index].contents) for index in range(count))
        y[:] = -x
        seen.append(count)
        return 0

    packed.register("test.negate", negate)
    assert executable("test.negate")(X).tolist() == [-1, -2, -3] and seen == [2]


def test_failures_are_errors_that_name_the_function(executable):
    def explode(x, y):
        raise KeyError("no such row")

    packed.register("test.explode", explode)
    with pytest.raises(PackedFunctionError, match="function 'test.explode' raised KeyError: 'no such row'") as caught:
        executable("test.explode")(X)
    assert isinstance(caught.value.__cause__, KeyError)
    packed.register("test.code", packed.CPackedFunction(lambda tensors, count: -7))
    with pytest.raises(PackedFunctionError, match="packed function 'test.code' failed: it returned -7"):
        executable("test.code")(X)


def test_python_function_on_a_thread_without_python_above(executable, capsys):
    packed.register("test.explode", lambda *arrays: 1 / 0)
    assert packed.resolve(["test.explode"], "the test")[0](None, 0) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_interrupt_goes_through(executable):
    def interrupt(x, y):
        raise KeyboardInterrupt

    packed.register("test.interrupt", interrupt)
    with pytest.raises(KeyboardInterrupt):
        executable("test.interrupt")(X)


def test_model_within_a_function(executable):
    packed.register("test.inner", lambda x, y: np.add(x, 1, out=y))
    inner = executable("test.inner")
    packed.register("test.outer", lambda x, y: inner(x, out=y))
    assert executable("test.outer")(X).tolist() == [2, 3, 4]


def test_registry_errors(executable):
    packed.register("test.one", lambda x, y: None)
    with pytest.raises(PackedFunctionError, match="'test.one' is registered already; pass override=True"):
        packed.register("test.one", lambda x, y: None)
    packed.register("test.one", lambda x, y: y.fill(9), override=True)
    assert executable("test.one")(X).tolist() == [9, 9, 9]
    with pytest.raises(PackedFunctionError, match="calls 'test.on', not registered: .*; did you mean 'test.one'"):
        executable("test.on")
    with pytest.raises(PackedFunctionError, match="expected a callable, found int"):
        packed.register("test.int", 3)


class Producer:
    """A tensor of another library, by DLPack alone."""

    def __init__(self, array: np.ndarray, device: int = 1, versioned: bool = False, read_only: bool = False) -> None:
        self.tensor = dlpack.tensor_of_array(array)
        self.tensor.device.device_type = device
        self.device, self.versioned, self.read_only = device, versioned, read_only
        self.freed = False

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **options):
        if options and not self.versioned:
            raise TypeError("max_version: unexpected")
        if self.versioned:
            flags = int(self.read_only)
            self.managed = dlpack.DLManagedTensorVersioned(major=1, flags=flags, dl_tensor=self.tensor)
            name = b"dltensor_versioned"
        else:
            self.managed = dlpack.DLManagedTensor(dl_tensor=self.tensor)
            name = b"dltensor"
        self._freed = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._free)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self._name = name  # the capsule keeps the pointer, not the text
        make = new(("PyCapsule_New", ctypes.pythonapi))
        return make(ctypes.addressof(self.managed), name, ctypes.cast(self._freed, ctypes.c_void_p))

    def _free(self, _) -> None:
        self.freed = True


NAMES = [name for name, row in ELEMENT_TYPES.items() if row.dlpack_code is not None]


@pytest.mark.parametrize("versioned", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_dlpack_of_every_type_is_zero_copy(name, versioned):
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(numpy_dtype(name))
    found = dlpack.from_dlpack(Producer(array.T, versioned=versioned))
    assert found.dtype == array.dtype and found.shape == (3, 2) and found.ctypes.data == array.ctypes.data
    assert found.tobytes() == array.T.tobytes()


@pytest.mark.sample(0)
def test_dlpack_memory_is_freed_with_the_last_array():
    producer = Producer(X.copy(), versioned=True, read_only=True)
    array = dlpack.from_dlpack(producer)
    part = array[1:]
    del array
    gc.collect()
    assert not producer.freed and part.tolist() == [2, 3] and not part.flags.writeable
    del part
    gc.collect()
    assert producer.freed


def test_dlpack_that_cannot_be_read():
    with pytest.raises(dlpack.DLPackError, match="it is on device 'cuda'; move it to the CPU first"):
        dlpack.from_dlpack(Producer(X, device=2))
    wide = Producer(X)
    wide.tensor.dtype.lanes = 4
    with pytest.raises(dlpack.DLPackError, match=r"DLPack type \(code 2, 32 bits, 4 lanes\) is not an element type"):
        dlpack.from_dlpack(wide)


def test_dlpack_inputs(affine):
    exe = affine()
    a, b = exe.random_inputs().values()
    np.testing.assert_array_equal(exe(Producer(a), Producer(b, versioned=True)), exe(a, b))
    with pytest.raises(InputError, match=r"input 'b': expected an array f32\[8\]: it is on device 'cuda'"):
        exe(a, Producer(b, device=2))
    with pytest.raises(InputError, match=r"input 'b': expected f32\[8\], found bf16\[8\]"):
        exe(a, Producer(b.astype(ml_dtypes.bfloat16)))


def test_tensor_of_array_keeps_it_alive():
    owner = np.arange(6, dtype=np.int16)
    freed = weakref.ref(owner)
    tensor = dlpack.tensor_of_array(owner.reshape(2, 3)[:, ::2])
    del owner
    gc.collect()
    assert dlpack.array_of_tensor(tensor).tolist() == [[0, 2], [3, 5]] and freed() is not None
    narrow = dlpack.tensor_of_array(np.ones(2, ml_dtypes.int4))
    assert (narrow.dtype.code, narrow.dtype.bits) == (0, 8)
