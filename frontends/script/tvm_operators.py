"""Operators of TVM's graphs whose arguments are not those of Mirlo's: `R.split(x, indices_or_sections=2, axis=1)`.

Each is a function with TVM's parameters, in TVM's order, that makes operators of Mirlo.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from mirlo.dialects.core.dims import Dim, SymbolicDim
from mirlo.dialects.core.dtypes import DType
from mirlo.frontends.script.describe import kind_of
from mirlo.frontends.script.graph_values import GraphResult, GraphTensor
from mirlo.frontends.script.syntax import TVM_TYPES

if TYPE_CHECKING:
    from mirlo.dialects.core.types import TensorType
    from mirlo.frontends.script.source import Located


class TvmMistake(ValueError):
    """An argument of an operator of TVM that has no meaning here."""


class OperatorMaker(Protocol):
    """What reads a graph and makes its operators."""

    names: dict[str, object]

    def as_tensor(self, value: object, node: Located, like: TensorType | None = None) -> GraphTensor: ...

    def make(
        self,
        node: Located,
        name: str,
        operands: Sequence[GraphTensor | list[GraphTensor] | None],
        results: list[TensorType] | None = None,
        **attributes: Any,
    ) -> GraphResult: ...


@dataclass(frozen=True)
class TvmCall:
    """A call of an operator of TVM, in whose place operators of Mirlo are made."""

    calls: OperatorMaker
    node: Located

    def tensor(self, name: str, *operands: GraphTensor | list[GraphTensor] | None, **attributes: Any) -> GraphTensor:
        """Make an operator of one result."""
        if isinstance(attributes.get("dtype"), str):
            attributes["dtype"] = TVM_TYPES.get(attributes["dtype"], attributes["dtype"])
        made = self.calls.make(self.node, name, operands, None, **attributes)
        assert isinstance(made, GraphTensor)
        return made

    def tensors(self, name: str, *operands: GraphTensor | None, **attributes: Any) -> tuple[GraphTensor, ...]:
        made = self.calls.make(self.node, name, operands, None, **attributes)
        return made if isinstance(made, tuple) else (made,)

    def number(self, value: object, like: GraphTensor) -> GraphTensor:
        return self.calls.as_tensor(value, self.node, like.type)


TvmOperator = Callable[..., GraphResult]
Function = TypeVar("Function", bound=TvmOperator)
TVM_OPERATORS: dict[str, TvmOperator] = {}
"""The operators by the name behind `R.`; `nn_attention` is `R.nn.attention`, of which Mirlo has another one."""
NOT_OF_GRAPHS = {
    "print": "a compiled graph prints nothing: return the tensor as one more result",
    "assert_op": "a compiled graph checks nothing that its caller can check: compare before the call",
    "call_tir_inplace": "call_tir with an output; the memory plan lets both share memory where that is possible",
    "call_inplace_packed": "call_dps_packed with an output",
    "invoke_closure": "a graph has no closures: call the function",
    "make_closure": "a graph has no closures: call the function",
    "builtin": "memory is planned by the compiler",
    "memory": "memory is planned by the compiler",
    "vm": "what TVM's virtual machine is told is no part of a model",
    "dist": "one device computes a graph",
    "ccl": "one device computes a graph",
    "ExternFunc": "call_dps_packed takes the name of the function",
}
"""Words of TVM without a meaning in a compiled graph, and what to write."""


def tvm(*names: str) -> Callable[[Function], Function]:
    """Register the decorated function under names of TVM."""

    def register(function: Function) -> Function:
        TVM_OPERATORS.update(dict.fromkeys(names, function))
        return function

    return register


def call_tvm(name: str, call: TvmCall, values: Sequence[object], named: dict[str, object]) -> GraphResult:
    """Make the operators of a call; raise TvmMistake for arguments that the operator does not take."""
    function = TVM_OPERATORS[name]
    try:
        bound = inspect.signature(function).bind(call, *values, **named)
    except TypeError as error:
        _, *parameters = inspect.signature(function).parameters
        raise TvmMistake(f"{error}; it takes {', '.join(parameters)}") from None
    return function(*bound.args, **bound.kwargs)


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
    """Return axes from 0; all where there is none."""
    if value is None:
        return list(range(rank))
    listed = value if isinstance(value, (tuple, list)) else [value]
    axes = [axis for axis in listed if isinstance(axis, int) and -rank <= axis < rank]
    if len(axes) != len(listed):
        raise TvmMistake(f"an axis is from {-rank} to {rank - 1}, found {value}")
    return [axis % rank for axis in axes]


def _last_axis(axes: object, rank: int) -> int:
    """Return the first of the last axes, from which on a norm is computed."""
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
    given = [repeats] if isinstance(repeats, int) else list(repeats)
    if len(given) > x.type.rank:
        x = _reshape(call, x, [*[1] * (len(given) - x.type.rank), *x.shape])
    return call.tensor("tile", x, repeats=[*[1] * (x.type.rank - len(given)), *given])


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
        found = call.tensor(name, _flatten(call, x), axis=0, keepdims=keepdims)
        return _reshape(call, found, [1] * x.type.rank) if keepdims else found

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


@tvm("nn_layer_norm")
def _layer_norm(
    call: TvmCall, data: GraphTensor, gamma: GraphTensor, beta: GraphTensor, axes: int | Sequence[int] = -1,
    epsilon: float = 1e-5, center: bool = True, scale: bool = True,
) -> GraphTensor:  # fmt: skip
    axis = _last_axis(axes, data.type.rank)
    ones, zeros = (call.number(value, gamma) for value in (1.0, 0.0))
    weight = gamma if scale else call.tensor("expand", ones, shape=gamma.shape)
    shift = beta if center else call.tensor("expand", zeros, shape=beta.shape)
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


@tvm("avg_pool2d", "avg_pool1d")
def _avg_pool(
    call: TvmCall, data: GraphTensor, pool_size: int | Sequence[int] = 1, strides: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
    count_include_pad: bool = False, layout: str = "NCHW", out_layout: str | None = None,
) -> GraphTensor:  # fmt: skip
    if layout not in ("NCHW", "NCW"):
        raise TvmMistake(f"permute the data to NCHW before the pool, found layout={layout}")
    count = data.type.rank - 2

    def each(value: int | Sequence[int]) -> list[int]:
        return [value] * count if isinstance(value, int) else list(value)

    pads = each(padding)
    return call.tensor(
        "avg_pool", data, kernel=each(pool_size), strides=each(strides), dilations=each(dilation),
        padding=pads if len(pads) == 2 * count else pads * 2, ceil_mode=ceil_mode, count_include_pad=count_include_pad,
    )  # fmt: skip


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
    """Return the tensor, whose dims symbols of the declared type now stand for."""
    declared = getattr(struct_info, "shape", None)
    if declared is None or len(declared) != value.type.rank or getattr(struct_info, "dtype", None) != value.dtype:
        raise TvmMistake(f"{value.type} is not of the type {struct_info}")
    for name, dim, found in ((str(dim), dim, found) for dim, found in zip(declared, value.shape, strict=True)):
        known = call.calls.names.get(name)
        if isinstance(dim, SymbolicDim) and known == dim and name not in _symbols_of_inputs(call):
            call.calls.names[name] = found
        elif dim != found:
            raise TvmMistake(f"{value.type} is not of the type {struct_info}: {dim} is {found}")
    return value


def _symbols_of_inputs(call: TvmCall) -> set[str]:
    tensors = [value for value in call.calls.names.values() if isinstance(value, GraphTensor)]
    return {name for t in tensors for dim in t.shape if isinstance(dim, SymbolicDim) for name in dim.symbols()}
