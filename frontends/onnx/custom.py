"""`mirlo.onnx_operator`: an ONNX operator of a user's domain as a prim function or a packed function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from mirlo.dialects.core.errors import OpError, OpMistake
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.relax.calls import CallDpsPacked, CallTir
from mirlo.frontends.onnx.errors import NodeError
from mirlo.frontends.onnx.node import Node
from mirlo.frontends.onnx.registry import CONVERTERS
from mirlo.frontends.onnx.values import Converted
from mirlo.frontends.prims import SpecializablePrim, SpecializedPrims
from mirlo.runtime.callbacks import describe_raised, describe_value, name_of
from mirlo.runtime.errors import MirloError

Infer = Callable[..., object]
"""Maps input types, and attributes as keywords, to the output type or a tuple of types."""


def onnx_operator(
    domain: str,
    operator: str,
    *,
    prim_func: SpecializablePrim | None = None,
    packed: str | None = None,
    infer: Infer | None = None,
    attributes: Mapping[str, object] | None = None,
    since: int = 1,
) -> None:
    """Import nodes of `domain::operator` as calls of a prim function, or of a run-time function by name (`packed`).

    `infer` is the shape function: it gets a `TensorType` for each input and the attributes as keywords, and returns the
    type of the output, or a tuple. It may be left out where the types of the prim function's inputs say those of its
    outputs. `attributes` are those that a node may have, with their defaults; the ones that the prim function names
    with `T.attrs` go to it.
    """
    if (prim_func is None) == (packed is None):
        raise TypeError("onnx_operator needs either prim_func=, a prim function, or packed=, a name at run time")
    if packed is not None and infer is None:
        raise TypeError(f"onnx_operator: '{packed}' needs infer=, which returns the types of its results")
    defaults = dict(attributes or {})
    prims = None if prim_func is None else SpecializedPrims(prim_func)

    def convert(node: Node) -> Converted:
        types = [node.type(i) for i in range(len(node))]
        attribute_values = _attributes(node, defaults)
        outputs = None if infer is None else _outputs(infer, types, attribute_values)
        if prims is None:
            assert packed is not None
            return node.emit_all(CallDpsPacked, node.all(), result_types=outputs, function=packed)
        symbol, results = _specialized(prims, node, types, outputs, attribute_values)
        return node.emit_all(CallTir, node.all(), result_types=outputs or results, callee=symbol)

    # What the same module defines again, in a cell of a notebook for instance, replaces the former one.
    caller = sys._getframe(1)
    convert.__module__ = str(caller.f_globals.get("__name__", "?"))
    convert.__qualname__ = packed if packed is not None else str(getattr(prim_func, "name", "prim_func"))
    vars(convert)["place"] = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    CONVERTERS.users.add(domain, operator, since, convert)


def _specialized(
    prims: SpecializedPrims,
    node: Node,
    types: list[TensorType],
    outputs: list[TensorType] | None,
    attributes: Mapping[str, object],
) -> tuple[str, list[TensorType]]:
    """Return the symbol of the function for a node, and its result types."""
    try:
        return prims.specialize(node.builder, types, outputs, attributes)
    except (MirloError, ValueError) as error:
        raise NodeError(str(error)) from error


def _attributes(node: Node, defaults: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes of the node, with defaults for missing ones."""
    attributes = dict(defaults)
    for name in node.attr.names():
        if name in defaults:
            attributes[name] = node.attr.plain(name)
    return attributes


def _outputs(infer: Infer, types: Sequence[TensorType], attributes: Mapping[str, object]) -> list[TensorType]:
    try:
        inferred = infer(*types, **attributes)
    except (MirloError, OpError, MemoryError):
        raise
    except Exception as error:
        raise OpMistake(f"its shape function {name_of(infer)} raised {describe_raised(error)}") from error
    listed: list[TensorType] = []
    for result in inferred if isinstance(inferred, (tuple, list)) else (inferred,):
        if not isinstance(result, TensorType):
            raise NodeError(
                f"its shape function {name_of(infer)} must return TensorType, or a tuple of them; "
                f"found {describe_value(result)}"
            )
        listed.append(result)
    if not listed:
        raise NodeError(f"its shape function {name_of(infer)} returned no type: expected one for each output")
    return listed
