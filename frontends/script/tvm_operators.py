"""Operators of TVM's graphs whose arguments are not those of Mirlo's: `R.split(x, indices_or_sections=2, axis=1)`.

Each is a function with TVM's parameters, in TVM's order, that makes operators of Mirlo.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.script.describe import kind_of
from mirlo.frontends.script.graph_values import GraphResult, GraphTensor
from mirlo.frontends.script.syntax import TVM_TYPES
from mirlo.frontends.script.tvm_calls import TvmCall, TvmMistake
from mirlo.runtime.errors import MirloError

TvmOperator = Callable[..., GraphResult]
Function = TypeVar("Function", bound=TvmOperator)
TVM_OPERATORS: dict[str, TvmOperator] = {}
"""The operators by the name after `R.`; `nn_attention` is `R.nn.attention`, of which Mirlo has another one."""
LAYOUTS = {
    "NCHW": "NC*", "NHWC": "N*C", "NCW": "NC*", "NWC": "N*C",
    "OIHW": "OI*", "HWIO": "*IO", "OHWI": "O*I", "OIW": "OI*",
}  # fmt: skip
"""Layouts of data and kernels as TVM calls them."""


def tvm(*names: str) -> Callable[[Function], Function]:
    """Register the decorated function under names of TVM."""

    def register(function: Function) -> Function:
        TVM_OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def call_tvm(name: str, call: TvmCall, values: Sequence[object], named: dict[str, object]) -> GraphResult:
    """Make the operators of a call; raise TvmMistake for arguments that the operator does not take."""
    function = TVM_OPERATORS[name]
    signature = inspect.signature(function)
    _, *parameters = signature.parameters
    try:
        bound = signature.bind(call, *values, **named)
    except TypeError as error:
        raise TvmMistake(f"{error}; it takes {', '.join(parameters)}") from None
    try:
        return function(*bound.args, **bound.kwargs)
    except (MirloError, TvmMistake):
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        forms = ", ".join(f"{key} {kind_of(value)}" for key, value in bound.arguments.items() if key in parameters)
        raise TvmMistake(f"an argument has another form than TVM's, found {forms}") from error


def _dims(value: object) -> list[Dim]:
    """Return the dims of `R.shape([...])`, of a tuple, or of `R.shape_of(x)`."""
    if isinstance(value, GraphTensor) and _is_shape(value):
        return list(GraphTensor.of(value.value.owner.operands[0]).shape)
    listed = list(value) if isinstance(value, (tuple, list)) else [value]
    dims = [dim for dim in listed if isinstance(dim, (int, SymbolicDim)) and not isinstance(dim, bool)]
    if len(dims) != len(listed):
        raise TvmMistake(f"a shape is a tuple of integers and symbols, found {kind_of(value)}")
    return dims


def _is_shape(tensor: GraphTensor) -> bool:
    owner = tensor.value.owner
    return hasattr(owner, "operands") and owner.name == "relax.shape_of"


def _axes(value: object, rank: int) -> list[int]:
    """Return non-negative axes; all axes if there are none."""
    if value is None:
        return list(range(rank))
    listed = value if isinstance(value, (tuple, list)) else [value]
    axes = [axis for axis in listed if isinstance(axis, int) and -rank <= axis < rank]
    if len(axes) != len(listed):
        raise TvmMistake(f"an axis is from {-rank} to {rank - 1}, found {value}")
    return [axis % rank for axis in axes]


def _last_axis(axes: object, rank: int) -> int:
    """Return the first of the last axes over which a norm is computed."""
    chosen = sorted(_axes(axes, rank))
    if chosen != list(range(rank - len(chosen), rank)):
        raise TvmMistake(f"a norm is computed over the last axes, found axes={axes}")
    return chosen[0] - rank


@tvm("shape")
def _shape(call: TvmCall, values: Sequence[object]) -> Any:
    return tuple(_dims(values))


@tvm("prim_value")
def _prim_value(call: TvmCall, value: object) -> Any:
    return value


@tvm("split")
def _split(
    call: TvmCall, x: GraphTensor, indices_or_sections: int | Sequence[int], axis: int = 0
) -> tuple[GraphTensor, ...]:
    (axis,) = _axes(axis, x.type.rank)
    size = x.shape[axis]
    if not isinstance(size, int):
        raise TvmMistake(f"the dim that is split is known, found {size}")
    if isinstance(indices_or_sections, int):
        each = -(-size // indices_or_sections)
        ends = [min(each * (i + 1), size) for i in range(indices_or_sections)]
    else:
        ends = [*(min(index, size) for index in indices_or_sections), size]
    sizes = [end - start for start, end in itertools.pairwise([0, *ends])]
    return call.tensors("split", x, axis=axis, sizes=sizes)


@tvm("concat")
def _concat(call: TvmCall, tensors: Sequence[GraphTensor], axis: int | None = 0) -> GraphTensor:
    if axis is None:
        tensors, axis = [_flatten(call, tensor) for tensor in tensors], 0
    return call.tensor("concat", list(tensors), axis=axis)


@tvm("expand_dims")
def _expand_dims(call: TvmCall, x: GraphTensor, axis: int | Sequence[int]) -> GraphTensor:
    count = 1 if isinstance(axis, int) else len(axis)
    return call.tensor("expand_dims", x, axes=_axes(axis, x.type.rank + count))


@tvm("squeeze")
def _squeeze(call: TvmCall, x: GraphTensor, axis: int | Sequence[int] | None = None) -> GraphTensor:
    axes = [i for i, dim in enumerate(x.shape) if dim == 1] if axis is None else _axes(axis, x.type.rank)
    return call.tensor("squeeze", x, axes=axes)


@tvm("take")
def _take(call: TvmCall, x: GraphTensor, indices: GraphTensor, axis: int = 0, mode: str = "fast") -> GraphTensor:
    return call.tensor("gather", x, indices, axis=axis)


@tvm("reshape")
def _reshape(call: TvmCall, x: GraphTensor, shape: object) -> GraphTensor:
    dims = _dims(shape)
    if -1 in dims:
        at, count, rest = dims.index(-1), 1, 1
        for dim in x.shape:
            count = count * dim  # type: ignore[assignment]
        for dim in (*dims[:at], *dims[at + 1 :]):
            rest = rest * dim  # type: ignore[assignment]
        dims[at] = count // rest
    return call.tensor("reshape", x, shape=dims)


@tvm("flatten")
def _flatten(call: TvmCall, x: GraphTensor) -> GraphTensor:
    return _reshape(call, x, [-1])


@tvm("broadcast_to")
def _broadcast_to(call: TvmCall, x: GraphTensor, shape: object) -> GraphTensor:
    return call.tensor("expand", x, shape=_dims(shape))


@tvm("full")
def _full(call: TvmCall, shape: object, fill_value: object, dtype: str | DType | None = None) -> GraphTensor:
    if isinstance(fill_value, GraphTensor):
        value = fill_value if dtype is None else call.tensor("cast", fill_value, dtype=dtype)
        return call.tensor("expand", value, shape=_dims(shape))
    return call.tensor("full", shape=_dims(shape), value=fill_value, dtype=dtype or "f32")


@tvm("zeros")
def _zeros(call: TvmCall, shape: object, dtype: str | DType) -> GraphTensor:
    return _full(call, shape, 0.0, dtype)


@tvm("ones")
def _ones(call: TvmCall, shape: object, dtype: str | DType) -> GraphTensor:
    return _full(call, shape, 1.0, dtype)


@tvm("zeros_like")
def _zeros_like(call: TvmCall, x: GraphTensor, dtype: str | DType | None = None) -> GraphTensor:
    return _full(call, x.shape, 0.0, dtype or x.dtype)


@tvm("ones_like")
def _ones_like(call: TvmCall, x: GraphTensor, dtype: str | DType | None = None) -> GraphTensor:
    return _full(call, x.shape, 1.0, dtype or x.dtype)


@tvm("clip")
def _clip(call: TvmCall, x: GraphTensor, min: float, max: float) -> GraphTensor:
    return call.tensor("clip", x, min=float(min), max=float(max))


@tvm("tile")
def _tile(call: TvmCall, x: GraphTensor, repeats: int | Sequence[int]) -> GraphTensor:
    counts = [repeats] if isinstance(repeats, int) else list(repeats)
    if len(counts) > x.type.rank:
        x = _reshape(call, x, [*[1] * (len(counts) - x.type.rank), *x.shape])
    return call.tensor("tile", x, repeats=[*[1] * (x.type.rank - len(counts)), *counts])


@tvm("repeat")
def _repeat(call: TvmCall, x: GraphTensor, repeats: int, axis: int | None = None) -> GraphTensor:
    if axis is None:
        x, axis = _flatten(call, x), 0
    (at,) = _axes(axis, x.type.rank)
    wide = _expand_dims(call, x, at + 1)
    shape = list(wide.shape)
    shape[at + 1] = repeats
    return _reshape(call, call.tensor("expand", wide, shape=shape), [*x.shape[:at], -1, *x.shape[at + 1 :]])


@tvm("permute")
def _permute(call: TvmCall, x: GraphTensor, axes: Sequence[int] | None = None) -> GraphTensor:
    return call.tensor("permute", x, axes=_axes(axes, x.type.rank)[:: -1 if axes is None else 1])


@tvm("flip")
def _flip(call: TvmCall, x: GraphTensor, axis: int) -> GraphTensor:
    return call.tensor("reverse", x, axes=_axes(axis, x.type.rank))


@tvm("tril")
def _tril(call: TvmCall, x: GraphTensor, k: int = 0) -> GraphTensor:
    return call.tensor("tri", x, k=k)


@tvm("triu")
def _triu(call: TvmCall, x: GraphTensor, k: int = 0) -> GraphTensor:
    return call.tensor("tri", x, k=k, upper=True)


def _position(name: str) -> TvmOperator:
    def position(call: TvmCall, x: GraphTensor, axis: int | None = None, keepdims: bool = False) -> GraphTensor:
        if axis is not None:
            return call.tensor(name, x, axis=axis, keepdims=keepdims)
        positions = call.tensor(name, _flatten(call, x), axis=0, keepdims=keepdims)
        return _reshape(call, positions, [1] * x.type.rank) if keepdims else positions

    return position


TVM_OPERATORS |= {name: _position(name) for name in ("argmax", "argmin")}


@tvm("variance")
def _variance(
    call: TvmCall, x: GraphTensor, axis: int | Sequence[int] | None = None, keepdims: bool = False
) -> GraphTensor:
    axes = _axes(axis, x.type.rank)
    difference = call.tensor("subtract", x, call.tensor("reduce_mean", x, axes=axes, keepdims=True))
    return call.tensor("reduce_mean", call.tensor("square", difference), axes=axes, keepdims=keepdims)


@tvm("std")
def _std(call: TvmCall, x: GraphTensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> GraphTensor:
    return call.tensor("sqrt", _variance(call, x, axis, keepdims))


@tvm("leakyrelu")
def _leaky_relu(call: TvmCall, x: GraphTensor, alpha: float = 0.01) -> GraphTensor:
    return call.tensor("leaky_relu", x, alpha=float(alpha))


def _scale_and_shift(
    call: TvmCall, gamma: GraphTensor, beta: GraphTensor, center: bool, scale: bool
) -> tuple[GraphTensor, GraphTensor]:
    """Return the scale and the shift of a norm: ones and zeros where it has none."""
    ones, zeros = (call.number(value, gamma) for value in (1.0, 0.0))
    weight = gamma if scale else call.tensor("expand", ones, shape=gamma.shape)
    return weight, beta if center else call.tensor("expand", zeros, shape=beta.shape)


@tvm("nn_layer_norm")
def _layer_norm(
    call: TvmCall, data: GraphTensor, gamma: GraphTensor, beta: GraphTensor, axes: int | Sequence[int] = -1,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> GraphTensor:  # fmt: skip
    axis = _last_axis(axes, data.type.rank)
    weight, shift = _scale_and_shift(call, gamma, beta, center, scale)
    return call.tensor("layer_norm", data, weight, shift, axis=axis, epsilon=epsilon)


@tvm("nn_rms_norm")
def _rms_norm(
    call: TvmCall, data: GraphTensor, weight: GraphTensor, axes: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> GraphTensor:
    return call.tensor("rms_norm", data, weight, axis=_last_axis(axes, data.type.rank), epsilon=epsilon)


@tvm("nn_batch_norm")
def _batch_norm(
    call: TvmCall, data: GraphTensor, gamma: GraphTensor, beta: GraphTensor, moving_mean: GraphTensor,
    moving_var: GraphTensor, axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True,
    momentum: float = 0.1, training: bool = False,
) -> tuple[GraphTensor, ...]:  # fmt: skip
    if training:
        raise TvmMistake("a compiled model is not trained: training=False")
    if not (center and scale):
        raise TvmMistake("give zeros for beta and ones for gamma: center=True, scale=True")
    result = call.tensor(
        "batch_norm", data, gamma, beta, moving_mean, moving_var, axis=axis % data.type.rank, epsilon=epsilon
    )
    return result, moving_mean, moving_var


def _each(value: int | Sequence[int], count: int) -> list[int]:
    """Return a number per spatial dim."""
    return [value] * count if isinstance(value, int) else list(value)


def _padding(value: int | Sequence[int], count: int) -> list[int]:
    """Return the padding at the begin of each spatial dim, then at the end of each."""
    pads = _each(value, count)
    return pads if len(pads) == 2 * count else pads * 2


def _layout(name: str, *known: str) -> str:
    if name not in LAYOUTS or LAYOUTS[name] not in known:
        wanted = " or ".join(other for other, own in LAYOUTS.items() if own in known)
        raise TvmMistake(f"permute the tensor to the layout {wanted}, found {name}")
    return LAYOUTS[name]


def _same_layout(layout: str, out_layout: str | None) -> None:
    if out_layout not in (None, "", layout):
        raise TvmMistake(f"permute the result, which has the layout of the data, {layout}; found {out_layout}")


def _in_type(call: TvmCall, result: GraphTensor, dtype: str | None) -> GraphTensor:
    """Return a result in the given type; None stands for the type of the data."""
    wanted = TVM_TYPES.get(dtype or "", dtype)
    return result if wanted in (None, "", "void", result.dtype.name) else call.tensor("cast", result, dtype=wanted)


@tvm("conv2d", "conv1d")
def _conv(
    call: TvmCall, data: GraphTensor, weight: GraphTensor, strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, groups: int = 1, data_layout: str = "NCHW",
    kernel_layout: str = "OIHW", out_layout: str | None = None, out_dtype: str | None = None,
) -> GraphTensor:  # fmt: skip
    _same_layout(data_layout, out_layout)
    count = data.type.rank - 2
    result = call.tensor(
        "conv", data, weight, None, strides=_each(strides, count), padding=_padding(padding, count), groups=groups,
        dilations=_each(dilation, count), data_layout=_layout(data_layout, "NC*", "N*C"),
        kernel_layout=_layout(kernel_layout, "OI*", "O*I", "*IO"),
    )  # fmt: skip
    return _in_type(call, result, out_dtype)


@tvm("conv2d_transpose", "conv1d_transpose")
def _conv_transpose(
    call: TvmCall, data: GraphTensor, weight: GraphTensor, strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, output_padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1,
    groups: int = 1, data_layout: str = "NCHW", kernel_layout: str = "IOHW", out_layout: str | None = None,
    out_dtype: str | None = None,
) -> GraphTensor:  # fmt: skip
    _same_layout(data_layout, out_layout)
    if kernel_layout not in ("IOHW", "IOW"):
        raise TvmMistake(f"permute the kernel to the layout IOHW, found {kernel_layout}")
    count = data.type.rank - 2
    result = call.tensor(
        "conv_transpose", data, weight, None, strides=_each(strides, count), padding=_padding(padding, count),
        output_padding=_each(output_padding, count), dilations=_each(dilation, count), groups=groups,
        data_layout=_layout(data_layout, "NC*", "N*C"),
    )  # fmt: skip
    return _in_type(call, result, out_dtype)


def _pool(name: str) -> Callable[..., GraphTensor]:
    def pool(
        call: TvmCall, data: GraphTensor, pool_size: int | Sequence[int] = 1, strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
        count_include_pad: bool = False, layout: str = "NCHW", out_layout: str | None = None,
    ) -> GraphTensor:  # fmt: skip
        _same_layout(layout, out_layout)
        count = data.type.rank - 2
        own = {} if name == "max_pool" else {"count_include_pad": count_include_pad}
        return call.tensor(
            name, data, kernel=_each(pool_size, count), strides=_each(strides, count), **own,
            dilations=_each(dilation, count), padding=_padding(padding, count), ceil_mode=ceil_mode,
            data_layout=_layout(layout, "NC*", "N*C"),
        )  # fmt: skip

    return pool


_avg_pool = _pool("avg_pool")
TVM_OPERATORS |= dict.fromkeys(("avg_pool2d", "avg_pool1d"), _avg_pool)
TVM_OPERATORS |= dict.fromkeys(("max_pool2d", "max_pool1d"), _pool("max_pool"))


@tvm("adaptive_avg_pool2d", "adaptive_avg_pool1d")
def _adaptive_avg_pool(
    call: TvmCall, data: GraphTensor, output_size: object = None, layout: str = "NCHW", out_layout: str | None = None
) -> GraphTensor:
    sizes, count = data.shape[2:], data.type.rank - 2
    wanted = list(output_size) if isinstance(output_size, (tuple, list)) else [output_size] * count
    if wanted == [1] * count:
        return call.tensor("reduce_mean", data, axes=list(range(2, count + 2)), keepdims=True)
    pairs = [(size, size if out is None else out) for size, out in zip(sizes, wanted, strict=True)]
    kernel = [size // out for size, out in pairs if isinstance(size, int) and isinstance(out, int) and size % out == 0]
    if len(kernel) != count:
        raise TvmMistake(f"windows of one size divide the images: output_size={output_size} of {data.type}")
    return _avg_pool(call, data, kernel, kernel, layout=layout)


@tvm("nn_attention")
def _attention(
    call: TvmCall, query: GraphTensor, key: GraphTensor, value: GraphTensor, bias: GraphTensor | None = None,
    scale: float | None = None, causal_mask: str | None = None, window_size: int | None = None,
) -> GraphTensor:  # fmt: skip
    """Return attention of [batch, rows, heads, columns], which is how TVM lays them out."""
    if window_size is not None or causal_mask not in (None, "TopLeft", "BottomRight"):
        raise TvmMistake(f"found causal_mask={causal_mask!r}, window_size={window_size}: give a bias in their place")
    heads = [_permute(call, tensor, [0, 2, 1, 3]) for tensor in (query, key, value)]
    attributes: dict[str, object] = {} if scale is None else {"scale": float(scale)}
    attributes |= {"causal": causal_mask is not None, "at_end": causal_mask == "BottomRight"}
    return _permute(call, call.tensor("attention", *heads, bias, **attributes), [0, 2, 1, 3])


@tvm("match_cast")
def _match_cast(call: TvmCall, value: GraphTensor, struct_info: object) -> GraphTensor:
    """Return the tensor; symbols of the declared type are bound to its dims."""
    declared = getattr(struct_info, "shape", None)
    if declared is None or len(declared) != value.type.rank or getattr(struct_info, "dtype", None) != value.dtype:
        raise TvmMistake(f"{value.type} is not of the type {struct_info}")
    for name, dim, actual in ((str(dim), dim, actual) for dim, actual in zip(declared, value.shape, strict=True)):
        known = call.calls.names.get(name)
        if isinstance(dim, SymbolicDim) and known == dim and name not in _symbols_of_inputs(call):
            call.calls.names[name] = actual
        elif dim != actual:
            raise TvmMistake(f"{value.type} is not of the type {struct_info}: {dim} is {actual}")
    return value


def _symbols_of_inputs(call: TvmCall) -> set[str]:
    tensors = [value for value in call.calls.names.values() if isinstance(value, GraphTensor)]
    return {name for t in tensors for dim in t.shape if isinstance(dim, SymbolicDim) for name in dim.symbols()}


# ------------------------------------------------------------------------------------------------ arithmetic


@tvm("mod")
def _mod(call: TvmCall, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    """Return the remainder with the sign of the dividend; that of Mirlo's `mod` has the divisor's."""
    return call.tensor("fmod", x, y)


@tvm("floor_mod")
def _floor_mod(call: TvmCall, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return call.tensor("mod", x, y)


@tvm("ewise_fma")
def _multiply_add(call: TvmCall, x: GraphTensor, y: GraphTensor, z: GraphTensor) -> GraphTensor:
    return call.tensor("add", call.tensor("multiply", x, y), z)


@tvm("linear")
def _linear(
    call: TvmCall, data: GraphTensor, weight: GraphTensor, bias: GraphTensor | None = None,
    out_dtype: str | None = None,
) -> GraphTensor:  # fmt: skip
    result = _in_type(call, call.tensor("matmul", data, _permute(call, weight)), out_dtype)
    return result if bias is None else call.tensor("add", result, bias)


@tvm("outer")
def _outer(call: TvmCall, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return call.tensor("multiply", _expand_dims(call, x, 1), _expand_dims(call, y, 0))


@tvm("einsum")
def _einsum(call: TvmCall, operands: Sequence[GraphTensor], subscripts: str) -> GraphTensor:
    return call.tensor("einsum", list(operands), equation=subscripts)


def _reduction(name: str) -> TvmOperator:
    def reduction(
        call: TvmCall, x: GraphTensor, axes: int | Sequence[int] | None = None, keepdims: bool = False
    ) -> GraphTensor:
        return call.tensor(name, x, axes=_axes(axes, x.type.rank), keepdims=keepdims)

    return reduction


TVM_OPERATORS |= {f"reduce_{kind}": _reduction(f"reduce_{kind}") for kind in ("sum", "mean", "max", "min", "prod")}


@tvm("collapse_sum_to")
def _collapse_sum_to(call: TvmCall, data: GraphTensor, shape: object) -> GraphTensor:
    dims = _dims(shape)
    wide = [*[1] * (data.type.rank - len(dims)), *dims]
    axes = [i for i, (old, new) in enumerate(zip(data.shape, wide, strict=True)) if new == 1 and old != 1]
    return _reshape(call, call.tensor("reduce_sum", data, axes=axes, keepdims=True) if axes else data, dims)


def _cumulative(name: str) -> TvmOperator:
    def cumulative(
        call: TvmCall, data: GraphTensor, axis: int | None = None, dtype: str | None = None, exclusive: bool | int = 0
    ) -> GraphTensor:
        x = _in_type(call, data if axis is not None else _flatten(call, data), dtype)
        (at,) = _axes(axis or 0, x.type.rank)
        return call.tensor(name, x, axis=at, exclusive=bool(exclusive))

    return cumulative


TVM_OPERATORS |= {name: _cumulative(name) for name in ("cumsum", "cumprod")}


@tvm("quantize")
def _quantize(
    call: TvmCall, data: GraphTensor, scale: GraphTensor, zero_point: GraphTensor, axis: int = -1,
    out_dtype: str = "i8",
) -> GraphTensor:  # fmt: skip
    return call.tensor("quantize", data, scale, zero_point, axis=axis, dtype=out_dtype)


@tvm("dequantize")
def _dequantize(
    call: TvmCall, data: GraphTensor, scale: GraphTensor, zero_point: GraphTensor, axis: int = -1,
    out_dtype: str = "f32",
) -> GraphTensor:  # fmt: skip
    return call.tensor("dequantize", data, scale, zero_point, axis=axis, dtype=out_dtype)


# ----------------------------------------------------------------------------------------------- activations


@tvm("relu6")
def _relu6(call: TvmCall, x: GraphTensor) -> GraphTensor:
    return _clip(call, x, 0, 6)


@tvm("gelu_tanh")
def _gelu_tanh(call: TvmCall, x: GraphTensor) -> GraphTensor:
    return call.tensor("gelu", x, approximate="tanh")


@tvm("nn_softplus")
def _softplus(call: TvmCall, x: GraphTensor, beta: float = 1.0, threshold: float = 20.0) -> GraphTensor:
    """Return log(1 + exp(beta x)) / beta, and x where beta x is above the threshold."""
    scale = call.number(float(beta), x)
    scaled = call.tensor("multiply", x, scale)
    smooth = call.tensor("divide", call.tensor("softplus", scaled), scale)
    return call.tensor("where", call.tensor("greater", scaled, call.number(float(threshold), x)), x, smooth)


@tvm("nn_prelu")
def _prelu(call: TvmCall, data: GraphTensor, alpha: GraphTensor, axis: int = 1) -> GraphTensor:
    (at,) = _axes(axis, data.type.rank)
    return call.tensor("prelu", data, _reshape(call, alpha, [-1, *[1] * (data.type.rank - 1 - at)]))


@tvm("dropout")
def _dropout(call: TvmCall, data: GraphTensor, rate: float = 0.5) -> tuple[GraphTensor, ...]:
    """Return the data and a mask of ones: a compiled model is not trained."""
    return data, _ones_like(call, data)


def _has_spatial_axes(data: GraphTensor, channel_axis: int, axes: int | Sequence[int]) -> None:
    rank = data.type.rank
    if channel_axis % rank != 1 or sorted(_axes(axes, rank)) != list(range(2, rank)):
        raise TvmMistake(f"the channels are axis 1, the others are normalized; found {channel_axis}, axes={axes}")


@tvm("nn_group_norm")
def _group_norm(
    call: TvmCall, data: GraphTensor, gamma: GraphTensor, beta: GraphTensor, num_groups: int, channel_axis: int,
    axes: int | Sequence[int], epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> GraphTensor:  # fmt: skip
    _has_spatial_axes(data, channel_axis, axes)
    weight, shift = _scale_and_shift(call, gamma, beta, center, scale)
    return call.tensor("group_norm", data, weight, shift, groups=num_groups, epsilon=epsilon)


@tvm("nn_instance_norm")
def _instance_norm(
    call: TvmCall, data: GraphTensor, gamma: GraphTensor, beta: GraphTensor, axes: int | Sequence[int],
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> GraphTensor:  # fmt: skip
    _has_spatial_axes(data, 1, axes)
    weight, shift = _scale_and_shift(call, gamma, beta, center, scale)
    return call.tensor("instance_norm", data, weight, shift, epsilon=epsilon)


# ----------------------------------------------------------------------------------------- movement of elements


@tvm("nn_pad")
def _pad(
    call: TvmCall, data: GraphTensor, pad_width: Sequence[int] | Sequence[Sequence[int]], pad_mode: str = "constant",
    pad_value: float = 0.0,
) -> GraphTensor:  # fmt: skip
    flat = [n for each in pad_width for n in ([each] if isinstance(each, int) else each)]
    modes = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "edge": "edge", "circular": "wrap"}
    if len(flat) != 2 * data.type.rank or pad_mode not in modes:
        raise TvmMistake(f"a pair for each of {data.type.rank} dims and one of {', '.join(modes)}, found {pad_mode!r}")
    return call.tensor("pad", data, pads=[*flat[::2], *flat[1::2]], mode=modes[pad_mode], value=float(pad_value))


@tvm("strided_slice")
def _strided_slice(
    call: TvmCall, x: GraphTensor, axes: object, begin: Sequence[Dim], end: Sequence[Dim],
    strides: Sequence[int] | None = None, assume_inbound: bool = False,
) -> GraphTensor:  # fmt: skip
    """Cut out a range of each axis; where dims are known, begins and ends are limited to them, as in TVM."""
    chosen, steps = _axes(axes, x.type.rank), list(strides or [1] * len(list(begin)))
    if not len(chosen) == len(begin) == len(end) == len(steps):
        raise TvmMistake(f"{len(chosen)} axes have a begin, an end and a stride each")
    begins, ends = list(begin), list(end)
    for i, axis in enumerate(chosen):
        size, first, last = x.shape[axis], begins[i], ends[i]
        if isinstance(size, int) and isinstance(first, int) and isinstance(last, int) and steps[i] > 0:
            begins[i], ends[i], _ = slice(first, last).indices(size)
            ends[i] = max(begins[i], ends[i])
    return call.tensor("strided_slice", x, axes=chosen, begin=begins, end=ends, strides=steps)


@tvm("one_hot")
def _one_hot(
    call: TvmCall, indices: GraphTensor, on_value: float, off_value: float, depth: int, axis: int = -1
) -> GraphTensor:
    dtype = "f32" if isinstance(on_value, float) or isinstance(off_value, float) else "i64"
    values = [call.tensor("full", shape=[1], value=value, dtype=dtype) for value in (off_value, on_value)]
    return call.tensor("one_hot", indices, call.tensor("concat", values, axis=0), depth=depth, axis=axis)


@tvm("argsort")
def _argsort(
    call: TvmCall, data: GraphTensor, axis: int = -1, descending: bool = False, dtype: str = "i32"
) -> GraphTensor:
    return _in_type(call, call.tensor("argsort", data, axis=axis, descending=descending), dtype)


@tvm("topk")
def _topk(
    call: TvmCall, data: GraphTensor, k: int = 1, axis: int = -1, ret_type: str = "both", largest: bool = True,
    dtype: str = "i32",
) -> GraphResult:  # fmt: skip
    values, indices = call.tensors("topk", data, k=k, axis=axis, largest=largest)
    both = {"values": values, "indices": _in_type(call, indices, dtype)}
    if ret_type not in ("both", *both):
        raise TvmMistake(f"ret_type is 'both', 'values' or 'indices', found {ret_type!r}")
    return both[ret_type] if ret_type in both else tuple(both.values())


def _scatter(name: str) -> TvmOperator:
    def scatter(
        call: TvmCall, data: GraphTensor, indices: GraphTensor, updates: GraphTensor, *axis: int,
        reduction: str = "update", **named: int,
    ) -> GraphTensor:  # fmt: skip
        if reduction == "mean":
            raise TvmMistake("reduction='mean' has no counterpart: add, and divide by the number of updates")
        options = {"axis": axis[0]} if axis else named
        return call.tensor(name, data, indices, updates, reduction=_REDUCTIONS.get(reduction, reduction), **options)

    return scatter


_REDUCTIONS = {"update": "none"}
TVM_OPERATORS |= {name: _scatter(name) for name in ("scatter_elements", "scatter_nd")}


@tvm("arange")
def _arange(
    call: TvmCall, start: float, end: float | None = None, step: float = 1, dtype: str | None = None
) -> GraphTensor:
    first, last = (0, start) if end is None else (start, end)
    kind = dtype or ("i64" if all(isinstance(value, int) for value in (first, last, step)) else "f32")
    return call.tensor("arange", start=first, stop=last, step=step, dtype=kind)


@tvm("full_like")
def _full_like(call: TvmCall, x: GraphTensor, fill_value: GraphTensor, dtype: str | DType | None = None) -> GraphTensor:
    return _full(call, x.shape, fill_value, dtype or x.dtype)


@tvm("masked_fill")
def _masked_fill(call: TvmCall, x: GraphTensor, mask: GraphTensor, value: float) -> GraphTensor:
    return call.tensor("where", mask, call.number(float(value), x), x)


@tvm("index_tensor")
def _index_tensor(call: TvmCall, data: GraphTensor, indices: Sequence[GraphTensor]) -> GraphTensor:
    if len(indices) == 1:
        return call.tensor("gather", data, indices[0], axis=0)
    if len({tuple(index.shape) for index in indices}) > 1:
        raise TvmMistake("indices of different shapes: give them the same one by R.broadcast_to")
    return call.tensor("gather_nd", data, call.tensor("stack", list(indices), axis=-1))


@tvm("meshgrid")
def _meshgrid(call: TvmCall, tensors: Sequence[GraphTensor], indexing: str = "ij") -> tuple[GraphTensor, ...]:
    if indexing not in ("ij", "xy"):
        raise TvmMistake(f"indexing is 'ij' or 'xy', found {indexing!r}")
    count = len(tensors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[:2] = [1, 0]
    shape = [tensors[order.index(axis)].shape[0] for axis in range(count)]
    wide = [
        _reshape(call, x, [x.shape[0] if axis == at else 1 for axis in range(count)])
        for x, at in zip(tensors, order, strict=True)
    ]
    return tuple(call.tensor("expand", x, shape=shape) for x in wide)


@tvm("bucketize")
def _bucketize(
    call: TvmCall, x: GraphTensor, boundaries: GraphTensor, out_int32: bool = False, right: bool = False
) -> GraphTensor:
    """Return the number of boundaries below each element, with `right` of those that are equal too."""
    below = call.tensor("less_equal" if right else "less", boundaries, _expand_dims(call, x, x.type.rank))
    counted = call.tensor("cast", below, dtype="i32" if out_int32 else "i64")
    return call.tensor("reduce_sum", counted, axes=[x.type.rank])


@tvm("pixel_shuffle")
def _pixel_shuffle(call: TvmCall, data: GraphTensor, upscale_factor: int) -> GraphTensor:
    return call.tensor("depth_to_space", data, block=upscale_factor, mode="CRD")


@tvm("resize2d")
def _resize(
    call: TvmCall, data: GraphTensor, size: object, roi: Sequence[float] | float | None = None, layout: str = "NCHW",
    method: str = "linear", coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "round",
    cubic_alpha: float = -0.75, cubic_exclude: int = 0, extrapolation_value: float = 0.0,
    out_dtype: str | None = None,
) -> GraphTensor:  # fmt: skip
    modes = {"linear": "linear", "nearest_neighbor": "nearest", "cubic": "cubic"}
    rounding = {"round": "round_prefer_ceil", "floor": "floor", "ceil": "ceil"}
    if method not in modes or coordinate_transformation_mode == "tf_crop_and_resize":
        raise TvmMistake(
            f"method is one of {', '.join(modes)}, of whole images; found {method!r} with "
            f"{coordinate_transformation_mode!r}"
        )
    if rounding_method == "":
        rounding_method = "round" if coordinate_transformation_mode == "align_corners" else "floor"
    listed = _dims(size)
    sizes = listed * 2 if len(listed) == 1 else listed
    is_last = _layout(layout, "NC*", "N*C") == "N*C"
    shape = [data.shape[0], *sizes, data.shape[3]] if is_last else [*data.shape[:2], *sizes]
    result = call.tensor(
        "resize", data, shape=shape, mode=modes[method], coordinates=coordinate_transformation_mode,
        nearest=rounding.get(rounding_method, rounding_method), cubic_coeff=float(cubic_alpha),
        exclude_outside=bool(cubic_exclude),
    )  # fmt: skip
    return _in_type(call, result, out_dtype)
