"""The part of oneDNN's C interface that is used: constants, prototypes, and the meaning of statuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from functools import cache

from mirlo_onednn.native.library import OneDnnError, load_library

DATA_TYPES = {"f16": 1, "bf16": 2, "f32": 3, "i32": 4, "i8": 5, "ui8": 6}
FORMAT_ANY = 1
FORWARD_INFERENCE = 96

STATUS = (
    "success", "out of memory", "invalid arguments", "unimplemented", "last implementation reached", "runtime error",
    "not required", "invalid graph", "invalid graph operation", "invalid shape", "invalid data type",
)  # fmt: skip

ELTWISE = {
    name: 0x20 + index
    for index, name in enumerate((
        "relu", "tanh", "elu", "square", "abs", "sqrt", "linear", "soft_relu", "hardsigmoid", "logistic", "exp",
        "gelu_tanh", "swish", "log", "clip", "clip_v2", "pow", "gelu_erf", "round", "mish", "hardswish",
    ))
}  # fmt: skip
BINARY = {
    name: 0x1FFF0 + index
    for index, name in enumerate(("add", "mul", "max", "min", "div", "sub", "ge", "gt", "le", "lt", "eq", "ne"))
}
POOLING = {"max": 0x1FF, "avg_include_padding": 0x2FF, "avg_exclude_padding": 0x3FF}
REDUCTION = {name: 0x2FFF2 + index for index, name in enumerate(("max", "min", "sum", "mul", "mean"))}
SOFTMAX = {"accurate": 0x30000, "log": 0x30001}
CONVOLUTION_DIRECT, DECONVOLUTION_DIRECT = 0x1, 0xA
LRN_ACROSS_CHANNELS = 0xAFF
NORM_GLOBAL_STATS, NORM_SCALE, NORM_SHIFT = 1, 2, 4
SCRATCHPAD_USER = 1
FPMATH = {"strict": 0, "bf16": 1, "f16": 2, "any": 3, "tf32": 4}

QUERY_IMPL_INFO = 8
QUERY_STRIDES, QUERY_INNER_BLOCKS = 14, 263
QUERY_SRC, QUERY_WEIGHTS, QUERY_DST, QUERY_SCRATCHPAD, QUERY_EXEC_ARG = 129, 131, 133, 136, 255

SRC, SRC_1, DST, WEIGHTS, BIAS = 1, 2, 17, 33, 41
MEAN, VARIANCE, SCALE, SHIFT = 49, 50, 51, 52
SCRATCHPAD = 80
MULTIPLE_SRC = 1024


def post_op_source(index: int) -> int:
    """Return the argument index of the second operand of binary post-op number `index`."""
    return 32768 * (index + 1) | SRC_1


class ExecArg(ctypes.Structure):
    """One argument of a primitive."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


_OUT = POINTER(c_void_p)
_DIMS = POINTER(c_int64)
_P = c_void_p
_PROTOTYPES: dict[str, list[type]] = {
    "dnnl_engine_create": [_OUT, c_int, c_size_t],
    "dnnl_stream_create": [_OUT, _P, c_uint],
    "dnnl_stream_destroy": [_P],
    "dnnl_stream_wait": [_P],
    "dnnl_memory_desc_create_with_strides": [_OUT, c_int, _DIMS, c_int, _DIMS],
    "dnnl_memory_desc_create_with_tag": [_OUT, c_int, _DIMS, c_int, c_int],
    "dnnl_memory_desc_permute_axes": [_OUT, _P, POINTER(c_int)],
    "dnnl_memory_desc_clone": [_OUT, _P],
    "dnnl_memory_desc_destroy": [_P],
    "dnnl_memory_desc_query": [_P, c_int, _P],
    "dnnl_memory_create": [_OUT, _P, _P, _P],
    "dnnl_memory_destroy": [_P],
    "dnnl_memory_set_data_handle": [_P, _P],
    "dnnl_primitive_desc_destroy": [_P],
    "dnnl_primitive_desc_query": [_P, c_int, c_int, _P],
    "dnnl_primitive_create": [_OUT, _P],
    "dnnl_primitive_destroy": [_P],
    "dnnl_primitive_execute": [_P, _P, c_int, POINTER(ExecArg)],
    "dnnl_primitive_attr_create": [_OUT],
    "dnnl_primitive_attr_destroy": [_P],
    "dnnl_primitive_attr_set_scratchpad_mode": [_P, c_int],
    "dnnl_primitive_attr_set_fpmath_mode": [_P, c_int],
    "dnnl_primitive_attr_set_post_ops": [_P, _P],
    "dnnl_post_ops_create": [_OUT],
    "dnnl_post_ops_destroy": [_P],
    "dnnl_post_ops_append_eltwise": [_P, c_int, c_float, c_float],
    "dnnl_post_ops_append_binary": [_P, c_int, _P],
    "dnnl_post_ops_append_sum": [_P, c_float, c_int32, c_int],
    "dnnl_reorder_primitive_desc_create": [_OUT, _P, _P, _P, _P, _P],
    "dnnl_concat_primitive_desc_create": [_OUT, _P, _P, c_int, c_int, POINTER(_P), _P],
    "dnnl_binary_primitive_desc_create": [_OUT, _P, c_int, _P, _P, _P, _P],
    "dnnl_convolution_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, *[_P] * 4, *[_DIMS] * 4, _P],
    "dnnl_deconvolution_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, *[_P] * 4, *[_DIMS] * 4, _P],
    "dnnl_eltwise_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, _P, _P, c_float, c_float, _P],
    "dnnl_softmax_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, _P, _P, c_int, _P],
    "dnnl_pooling_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, _P, _P, *[_DIMS] * 5, _P],
    "dnnl_prelu_forward_primitive_desc_create": [_OUT, _P, c_int, _P, _P, _P, _P],
    "dnnl_lrn_forward_primitive_desc_create": [_OUT, _P, c_int, c_int, _P, _P, c_int64, *[c_float] * 3, _P],
    "dnnl_batch_normalization_forward_primitive_desc_create": [_OUT, _P, c_int, _P, _P, c_float, c_uint, _P],
    "dnnl_layer_normalization_forward_primitive_desc_create": [_OUT, _P, c_int, _P, _P, _P, c_float, c_uint, _P],
    "dnnl_matmul_primitive_desc_create": [_OUT, _P, _P, _P, _P, _P, _P],
    "dnnl_reduction_primitive_desc_create": [_OUT, _P, c_int, _P, _P, c_float, c_float, _P],
}


@cache
def functions() -> dict[str, Callable[..., int]]:
    """Return the typed functions that return a status, by name without `dnnl_`."""
    handle = load_library().handle
    table = {}
    for name, types in _PROTOTYPES.items():
        function = getattr(handle, name)
        function.argtypes, function.restype = types, c_int
        table[name.removeprefix("dnnl_")] = function
    return table


@cache
def typed_library() -> ctypes.CDLL:
    """Return the library, with types for the functions that do not return a status."""
    handle = load_library().handle
    handle.dnnl_memory_desc_get_size.argtypes, handle.dnnl_memory_desc_get_size.restype = [_P], c_size_t
    handle.dnnl_memory_desc_equal.argtypes, handle.dnnl_memory_desc_equal.restype = [_P, _P], c_int
    handle.dnnl_primitive_desc_query_md.argtypes = [_P, c_int, c_int]
    handle.dnnl_primitive_desc_query_md.restype = _P
    return handle


class Refused(OneDnnError):
    """A call that returned a status other than success."""

    def __init__(self, name: str, status: int) -> None:
        known = STATUS[status] if 0 <= status < len(STATUS) else f"status {status}"
        super().__init__(f"oneDNN refused dnnl_{name}: {known}")
        self.status = status


def call(name: str, *arguments: object) -> None:
    """Call a function; raise an error for a status other than success."""
    status = functions()[name](*arguments)
    if status:
        raise Refused(name, status)


class Owned:
    """An object of the library that is destroyed with its Python object."""

    def __init__(self, pointer: int, destroy: str) -> None:
        self.pointer = pointer
        self._destroy = functions()[destroy]

    def __del__(self) -> None:
        if self.pointer:
            self._destroy(self.pointer)
            self.pointer = 0


def create_object(create: str, destroy: str, *arguments: object) -> Owned:
    """Create an object through a function that returns it by its first parameter."""
    out = c_void_p()
    call(create, ctypes.byref(out), *arguments)
    assert out.value is not None
    return Owned(out.value, destroy)


def dims(values: Sequence[int]) -> ctypes.Array[c_int64]:
    """Return an array of dims for a call."""
    return (c_int64 * len(values))(*values)


@cache
def engine() -> int:
    """Return the library's CPU engine, one per process."""
    out = c_void_p()
    call("engine_create", ctypes.byref(out), 1, 0)
    assert out.value is not None
    return out.value
