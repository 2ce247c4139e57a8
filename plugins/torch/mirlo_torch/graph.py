"""Import of graphs: nodes are converted in order, nested graphs with their operators."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from mirlo.extend.frontend import (
    Dim,
    OpError,
    ParameterStore,
    Tensor,
    UndecidedDim,
    UnsupportedOperation,
    call_converter,
    symbols_of,
    unexpected_result,
)
from mirlo.extend.library import Complex
from mirlo_torch.complex_tensor import component, has_complex, is_complex
from mirlo_torch.errors import UnsupportedAten
from mirlo_torch.locations import location_of, origin_of, source_line
from mirlo_torch.operation import AtenOperation, GraphImporter
from mirlo_torch.promotion import element_type
from mirlo_torch.registry import CONVERTERS, NO_VALUE, Converter, OperatorValue, find_converter
from mirlo_torch.sizes import SizeReader

if TYPE_CHECKING:
    import torch

PLACEMENT = ("layout", "device", "pin_memory", "memory_format", "non_blocking")
"""Arguments about the storage of elements, not their values."""
HIGHER_ORDER = ("torch._higher_order_ops", "torch.ops.higher_order")
"""Modules of operators with nested graphs, or that call other operators."""


class GraphImport(GraphImporter):
    """The import of one exported program."""

    def __init__(self, name: str, store: ParameterStore, checks: bool) -> None:
        super().__init__(name, store)
        self.sizes = SizeReader()
        self.checks = checks

    def graph(self, graph: torch.fx.GraphModule, operands: Sequence[object]) -> list[object]:
        """Import a graph that belongs to an operator, with these arguments; return its results."""
        module = graph if hasattr(graph, "graph") else None
        if module is None:
            raise UnsupportedOperation("calls something that is not a graph")
        placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        if len(placeholders) != len(operands):
            raise UnsupportedOperation(f"calls a graph of {len(placeholders)} arguments with {len(operands)}")
        return self.run(module, dict(zip(placeholders, operands, strict=True)))

    def run(self, module: torch.fx.GraphModule, values: dict[torch.fx.Node, object]) -> list[object]:
        """Import the nodes of a module's graph; `values` holds those of its placeholders."""
        for node in module.graph.nodes:
            if node.op == "output":
                results = self._argument(node.args[0], values)
                return results if isinstance(results, list) else [results]
            if node.op == "get_attr":
                values[node] = _attribute(module, node.target)
            elif node.op != "placeholder":
                values[node] = self._converted(node, values)
        raise UnsupportedOperation("has a graph without an output")

    def _argument(self, item: object, values: Mapping[torch.fx.Node, object]) -> object:
        """Convert an argument of a node: nodes to their values, sizes to dims."""
        if isinstance(item, (list, tuple)):
            return [self._argument(each, values) for each in item]
        if item in values if _is_node(item) else False:
            return values[item]
        return item

    def _converted(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, object]) -> object:
        name = target_name(node.target)
        operands = [each for each in (*node.args, *node.kwargs.values()) if _is_node(each)]
        try:
            size = self._size(node)
            if size is not None:
                return size
            if name == "_operator.getitem":
                held = values[node.args[0]]
                assert isinstance(held, (list, tuple)), held
                return held[node.args[1]]
            args, kwargs = self._arguments(node, values)
            declared = node.meta.get("val")
            if is_number(declared) and not hasattr(node.target, "_schema"):
                name = f"number.{name.rpartition('.')[2]}"
            convert = find_converter(name, has_complex([args, list(kwargs.values()), declared]))
            with location_of(node):
                op, self.operator = AtenOperation(node, name, self), name
                for each in (*args, *kwargs.values()):
                    if isinstance(each, OperatorValue) and not name.startswith(f"{each.namespace}."):
                        raise UnsupportedOperation(f"reads {each.what}, which only other operators of its kind read")
                require_arguments(convert, op, args, kwargs)
                result = call_converter(convert, op, *args, **kwargs)
                return self._as_declared(op, declared, result, convert)
        except UnsupportedAten as problem:  # of a node in a graph that this one holds
            problem.origins = (origin_of(node),)
            raise
        except (UnsupportedOperation, OpError, UndecidedDim) as problem:
            types = ", ".join(str(getattr(values.get(each), "type", values.get(each))) for each in operands)
            line = source_line(node)
            at = f"; {line}" if line else ""
            raise UnsupportedAten(
                name,
                f"{self.name}: operator '{name}' (node '{node.name}'): {problem} [operands: {types or 'none'}]{at}",
                [origin_of(node)],
            ) from None

    def _size(self, node: torch.fx.Node) -> Dim | None:
        """Return the value of a size, None for other nodes; refuse one that depends on unknown data."""
        import torch

        value = node.meta.get("val")
        if isinstance(value, (bool, torch.SymBool)) and target_name(node.target) not in CONVERTERS:
            return 0  # read by checks alone, which look at the trace
        if not isinstance(value, torch.SymInt) or target_name(node.target) in CONVERTERS:
            return None
        size = self.sizes.dim(value)
        unknown = sorted(symbols_of(size) - self.taken)
        if unknown:
            raise UnsupportedOperation(f"computes with '{unknown[0]}', a number in the data that no operator gives")
        return size

    def _arguments(
        self, node: torch.fx.Node, values: Mapping[torch.fx.Node, object]
    ) -> tuple[list[object], dict[str, object]]:
        """Return the arguments of an operator: the positional ones with their defaults, the others if given."""
        args = [self._argument(each, values) for each in node.args]
        kwargs = {key: self._argument(value, values) for key, value in node.kwargs.items()}
        schema = getattr(node.target, "_schema", None)
        if schema is not None:
            for index, argument in enumerate(schema.arguments):
                if argument.kwarg_only or index < len(args):
                    continue
                default = argument.default_value if argument.has_default_value() else None
                args.append(kwargs.pop(argument.name) if argument.name in kwargs else default)
            for name in PLACEMENT:
                kwargs.pop(name, None)
        return args, {key: value for key, value in kwargs.items() if value is not None}

    def _as_declared(self, op: AtenOperation, declared: object, converted: object, convert: Converter) -> object:
        """Check that results have the types of PyTorch's trace, and record their dims."""
        if converted is NO_VALUE:
            return None
        if isinstance(declared, (list, tuple)):
            results = list(converted) if isinstance(converted, (list, tuple)) else [converted]
            if len(results) != len(declared):
                raise UnsupportedOperation(f"has {len(declared)} results, its conversion gives {len(results)}")
            return [
                None if other is None and not op.is_used(index) else self._as_declared(op, one, other, convert)
                for index, (one, other) in enumerate(zip(declared, results, strict=True))
            ]
        if not hasattr(declared, "shape") or not hasattr(declared, "dtype"):
            return converted
        if isinstance(converted, OperatorValue):
            return converted
        if not isinstance(converted, (Tensor, Complex)):
            raise unexpected_result(convert, converted)
        if isinstance(converted, Complex) and is_complex(declared.dtype):
            return Complex(*(self._with_shape(op, declared, part) for part in (converted.re, converted.im)))
        if isinstance(converted, Complex) or is_complex(declared.dtype):
            raise UnsupportedOperation(f"gives {declared.dtype}, but its conversion makes it {converted!r}")
        return self._with_shape(op, declared, converted)

    def _with_shape(self, op: AtenOperation, declared: torch.Tensor, converted: Tensor) -> Tensor:
        """Return a tensor, or a part of a complex one, with the shape of PyTorch's trace."""
        shape = tuple(declared.shape)
        agree = converted.rank == len(shape) and all(
            one == other for one, other in zip(shape, converted.shape, strict=True)
            if isinstance(one, int) and isinstance(other, int)
        )  # fmt: skip
        if not agree or converted.dtype is not element_type(component(declared.dtype)):
            raise UnsupportedOperation(
                f"gives {declared.dtype}{list(shape)}, but its conversion makes it {converted.type}"
            )
        unknown = sorted({symbol for dim in converted.shape for symbol in symbols_of(dim)} - self.taken)
        if unknown:
            raise UnsupportedOperation(f"has the size '{unknown[0]}', a number in the data that no operator gives")
        for axis, size in enumerate(shape):
            number = self.sizes.only_value(size)
            if number is not None:
                converted = self.with_dim(converted, axis, number)
            else:
                self.sizes.learn(size, converted.shape[axis])
        return converted

    def require(self, condition: torch.fx.Node | torch.SymBool | bool, message: str) -> None:
        """Check a condition on sizes, a node of the trace, at run time; the error contains the message."""
        import torch

        value = condition.meta["val"] if _is_node(condition) else condition
        if isinstance(value, torch.SymBool) and not value.node.expr.free_symbols:
            value = bool(value.node.expr)  # decided by what the trace requires of data, where that is read
        if isinstance(value, (bool, int)):
            if not value:
                raise UnsupportedOperation(f"requires what does not hold: {message}")
            return
        for difference in self.sizes.differences(value.node.expr):
            self.require_nonnegative([difference], message)

    def bind_result(self, op: AtenOperation, count: Tensor) -> Dim:
        """Bind a size of a result that depends on data to a number, and return it."""
        value = op.node.meta["val"]
        results = value if isinstance(value, (list, tuple)) else (value,)
        for size in (size for each in results for size in (each.shape if hasattr(each, "shape") else (each,))):
            expression = None if isinstance(size, int) else size.node.expr
            if expression is not None and expression.is_Symbol and expression.name not in self.taken:
                self.taken.add(expression.name)
                (dim,) = self.bind(count, op.name, names=[expression.name])
                return dim
        (dim,) = self.bind(count, "count")
        return dim


def is_number(value: object) -> bool:
    """Return whether a value of the trace is a float that is computed from sizes."""
    import torch

    return isinstance(value, torch.SymFloat)


def require_arguments(convert: Converter, op: AtenOperation, args: list[object], kwargs: dict[str, object]) -> None:
    """Refuse arguments that a converter does not take."""
    try:
        inspect.signature(convert).bind(op, *args, **kwargs)
    except TypeError as problem:
        raise UnsupportedOperation(f"has arguments that its converter does not take: {problem}") from None


def target_name(target: object) -> str:
    """Return the name of an operator: `aten.add.Tensor`, `higher_order.cond`, `_operator.getitem`."""
    if hasattr(target, "_schema"):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__name__", str(target))
    if any(each.startswith(HIGHER_ORDER) for each in (module, type(target).__module__)):
        return f"higher_order.{name}"
    return f"{module}.{name}"


def _is_node(item: object) -> TypeGuard[torch.fx.Node]:
    return type(item).__name__ == "Node" and hasattr(item, "op")


def _attribute(module: torch.fx.GraphModule, path: str) -> torch.nn.Module:
    result = module
    for part in path.split("."):
        result = getattr(result, part)
    return result
