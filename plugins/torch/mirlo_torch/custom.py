"""`torch_operator`: an operator that a user registers with `torch.library` as a kernel, or as an operator of relax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mirlo.extend.frontend import (
    CallDpsPacked,
    CallTir,
    DialectOp,
    SpecializablePrim,
    SpecializedPrims,
    Tensor,
    TensorType,
    UnsupportedOperation,
)
from mirlo.extend.frontend import dims as D
from mirlo.extend.library import Complex
from mirlo.extend.runtime import MirloError
from mirlo_torch.operation import AtenOperation
from mirlo_torch.registry import USERS, Converter

Emit = Callable[[AtenOperation, Sequence[Tensor | None], Mapping[str, Any], "list[TensorType]"], Sequence[Any]]
"""Emits an operator for tensors, attributes and result types; returns its results."""


def torch_operator(
    name: str,
    *,
    prim_func: SpecializablePrim | None = None,
    packed: str | None = None,
    operator: type[DialectOp] | None = None,
) -> None:
    """Compile `namespace::name` of `torch.library` as a kernel of yours, or as an operator that your rules know.

    `prim_func` takes the tensors in the order of the schema; numbers of the schema are attributes that it names with
    `T.attrs`. `packed` is the name of a function at run time, which takes the tensors and the arrays of the results.
    `operator` is the class of an operator of your dialect: the tensors are its operands, other arguments its attributes
    of those names; legalizations, patterns and code generators then take it. The types of the results are those of the
    fake function that you register with PyTorch. A name may end in an overload, `acme::scale.out`.
    """
    namespace, separator, rest = name.partition("::")
    if not (namespace and separator and rest):
        raise TypeError(f"torch_operator: expected a name such as 'acme::scale', as in torch.library, found '{name}'")
    implementations = [each for each in (prim_func, packed, operator) if each is not None]
    if len(implementations) != 1:
        raise TypeError(
            f"torch_operator: '{name}' needs one of prim_func=, a prim function, packed=, a name at run time, and "
            f"operator=, a class of operators; found {len(implementations)} of them"
        )
    overload = rest if "." in rest else f"{rest}.default"
    if operator is not None:
        USERS[f"{namespace}.{overload}"] = operator_converter(operator)
        return
    emit = _packed_emitter(packed or "") if prim_func is None else _prim_emitter(prim_func)
    USERS[f"{namespace}.{overload}"] = lambda op, *args, **kwargs: _converted(op, emit, args, kwargs)


def operator_converter(operator: type[DialectOp]) -> Converter:
    """Return the converter to an operator class: tensors are its operands, other arguments its attributes."""
    emit = _operator_emitter(operator)
    return lambda op, *args, **kwargs: _converted(op, emit, args, kwargs)


def _converted(op: AtenOperation, emit: Emit, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """Return the results of an operator for the arguments of a node."""
    named = [(argument, kwargs.get(argument.name)) for argument in op.node.target._schema.arguments[len(args) :]]
    pairs = [*zip(op.node.target._schema.arguments, args, strict=False), *named]
    tensors: list[Tensor | None] = []
    attributes: dict[str, object] = {}
    for argument, value in pairs:
        if "Tensor" not in str(argument.type):
            attributes[argument.name] = value
        elif isinstance(value, (list, tuple)):
            raise UnsupportedOperation(f"takes a list of tensors, '{argument.name}': give each a parameter of its own")
        elif isinstance(value, Complex):
            raise UnsupportedOperation(f"takes complex numbers, '{argument.name}', which kernels and operators do not")
        else:
            tensors.append(value if isinstance(value, Tensor) else None)
    declared = op.node.meta["val"]
    listed = declared if isinstance(declared, (list, tuple)) else [declared]
    try:
        values = emit(op, tensors, attributes, [op.type_of(each) for each in listed])
    except MirloError as problem:
        raise UnsupportedOperation(f"cannot be compiled: {problem}") from None
    results = [op.tensor(value) for value in values]
    return results if isinstance(declared, (list, tuple)) else results[0]


def _present(tensors: Sequence[Tensor | None], what: str) -> list[Tensor]:
    if any(tensor is None for tensor in tensors):
        raise UnsupportedOperation(f"is called without an optional tensor, which {what} always takes")
    return [tensor for tensor in tensors if tensor is not None]


def _prim_emitter(prim_func: SpecializablePrim) -> Emit:
    prims = SpecializedPrims(prim_func)

    def emit(
        op: AtenOperation, tensors: Sequence[Tensor | None], attributes: Mapping[str, Any], types: list[TensorType]
    ) -> Sequence[Any]:
        present = _present(tensors, f"the prim function '{prim_func.name}'")
        unknown = sorted(set(attributes) - set(prim_func.numbers))
        if unknown:
            raise UnsupportedOperation(
                f"has the argument '{unknown[0]}', which the prim function '{prim_func.name}' does not: name it with "
                f"T.attrs('{unknown[0]}')"
            )
        present, same = _with_dims_of(prim_func, op, present)
        results = [kind.with_shape([D.substitute(dim, same) for dim in kind.shape]) for kind in types]
        symbol, _ = prims.specialize(op.builder, [tensor.type for tensor in present], results, attributes)
        values = [op.builder.full(tensor) for tensor in present]
        return list(CallTir.build(values, result_types=results, callee=symbol).operation.results)

    return emit


def _with_dims_of(
    prim_func: SpecializablePrim, op: AtenOperation, tensors: Sequence[Tensor]
) -> tuple[list[Tensor], dict[str, D.Dim]]:
    """Return tensors with equal dims where a prim function has one symbol for them; the call checks this.

    PyTorch's trace knows only what the fake function of an operator requires. The dims that are known to be others are
    returned by name.
    """
    bound: dict[str, D.Dim] = {}
    same: dict[str, D.Dim] = {}
    adapted = []
    for parameter, tensor in zip((p for p in prim_func.parameters if not p.is_output), tensors, strict=False):
        if len(parameter.shape) == tensor.rank:
            for axis, part in enumerate(parameter.shape):
                dim = tensor.shape[axis]
                name = getattr(part, "name", None)
                wanted = part if isinstance(part, int) else bound.setdefault(name, dim) if name else dim
                if isinstance(dim, D.SymbolicDim) and dim != wanted:
                    tensor = op.builder.with_dim(tensor, axis, wanted)
                    same.update({str(dim): wanted} if D.is_symbol_name(str(dim)) else {})
        adapted.append(tensor)
    return adapted, same


def _packed_emitter(packed: str) -> Emit:
    def emit(
        op: AtenOperation, tensors: Sequence[Tensor | None], attributes: Mapping[str, Any], types: list[TensorType]
    ) -> Sequence[Any]:
        if attributes:
            raise UnsupportedOperation(
                f"has the argument '{next(iter(attributes))}', a number: the packed function '{packed}' takes tensors"
            )
        values = [op.builder.full(tensor) for tensor in _present(tensors, f"the packed function '{packed}'")]
        return list(CallDpsPacked.build(values, result_types=types, function=packed).operation.results)

    return emit


def _operator_emitter(operator: type[DialectOp]) -> Emit:
    def emit(
        op: AtenOperation, tensors: Sequence[Tensor | None], attributes: Mapping[str, Any], types: list[TensorType]
    ) -> Sequence[Any]:
        unknown = sorted(set(attributes) - set(operator._attributes))
        if unknown:
            raise UnsupportedOperation(
                f"has the argument '{unknown[0]}', which is not an attribute of '{operator.OPERATION_NAME}'; those "
                f"are: {', '.join(operator._attributes) or 'none'}"
            )
        values = [None if tensor is None else op.builder.full(tensor) for tensor in tensors]
        present = {key: value for key, value in attributes.items() if value is not None}
        built = operator.build(*values, result_types=None if operator.infers else types, **present)
        return list(built.operation.results)

    return emit
