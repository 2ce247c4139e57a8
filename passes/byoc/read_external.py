"""The reader of external modules in IR, which returns their plain view (`view.py`)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property

import numpy as np

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import read_dense
from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.core.symbols import symbol_name
from mirlo.dialects.core.types import TensorType
from mirlo.dialects.tir.view import is_prim_func
from mirlo.passes.byoc.prim_view import ExternalPrim, read_prim
from mirlo.passes.byoc.tuned_regions import attached_values
from mirlo.passes.byoc.view import Composite, ExternalFunction, ExternalModule, ExternalNode, ExternalValue, Step
from mirlo.passes.locations import names_of
from mirlo.passes.registry import PassError
from mirlo.passes.session import Session
from mirlo.runtime.names import unused_name

EXTERNAL = "relax.external"
COMPOSITE = "relax.composite"
CALL_TIR = "relax.call_tir"


def external_modules(module: ir.Module | ir.OpView) -> list[ir.Operation]:
    """Return the nested modules of code generators."""
    members = [op.operation for op in module.operation.regions[0].blocks[0].operations]
    return [op for op in members if op.name == "builtin.module" and EXTERNAL in op.attributes]


def read_external(module: ir.Operation, session: Session) -> ExternalModule:
    """Return the view of a nested module `{relax.external = "target"}`."""
    operation = module.operation
    target = ir.StringAttr(operation.attributes[EXTERNAL]).value
    members = [op.operation for op in operation.regions[0].blocks[0].operations]
    functions = {symbol_name(op): op for op in members if op.name == "func.func"}
    constants = Constants(session)
    regions = [op for op in functions.values() if _is_region(op)]
    prims: dict[str, ExternalPrim] = {}
    read = tuple(_Reader(op, functions, constants, prims).read() for op in regions)
    return ExternalModule(target, read, constants, operation, attached_values(operation))


def node_of(op: ir.Operation | ir.OpView) -> ExternalNode:
    """Return an operation alone as a node with its operands as inputs, for checks of patterns."""
    operation = op.operation
    values: dict[ir.Value, ExternalValue] = {}
    for i, operand in enumerate(operation.operands):
        kind = TensorType.from_mlir(operand.type)
        assert kind is not None
        values.setdefault(_key(operand), ExternalValue(f"x{i}", kind))
    view = operation.opview
    operands, inputs = _operands(view, values), tuple(values[_key(operand)] for operand in operation.operands)
    node = ExternalNode(operation.name, "", inputs, (), operands, view.attribute_values(), operation)
    types = [TensorType.from_mlir(result.type) for result in operation.results]
    node.outputs = tuple(ExternalValue(f"y{i}", kind, node) for i, kind in enumerate(types) if kind is not None)
    return node


class Constants(Mapping[str, "np.ndarray"]):
    """The constants of the module by name; those that are not parameters are named by a hash of their content."""

    def __init__(self, session: Session):
        self._session = session
        self._inline: dict[str, np.ndarray] = {}
        self._names: dict[str, None] = {}

    def add(self, op: ir.OpView, kind: TensorType) -> tuple[str, Callable[[], np.ndarray]]:
        """Return the name of a `relax.constant` and a function that loads it."""
        name = op.param
        if name is None:
            array = read_dense(op.value, kind)
            name = _content_name(array, kind)
            self._inline[name] = array
        self._names[name] = None
        return name, lambda: self[name]

    @property
    def inline(self) -> Mapping[str, np.ndarray]:
        """Return the constants that are not in the parameter store."""
        return self._inline

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._names:
            raise KeyError(name)
        return self._inline[name] if name in self._inline else self._session.params.get(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _content_name(array: np.ndarray, kind: TensorType) -> str:
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    digest = hashlib.blake2b(f"{kind}".encode() + content.tobytes(), digest_size=8)
    return f"constant_{digest.hexdigest()}"


def _is_region(function: ir.Operation) -> bool:
    return COMPOSITE not in function.attributes and not is_prim_func(function) and bool(len(function.regions[0].blocks))


class _Reader:
    """A reader of one function."""

    def __init__(
        self,
        function: ir.Operation,
        functions: Mapping[str, ir.Operation],
        constants: Constants,
        prims: dict[str, ExternalPrim],
    ):
        self.prims = prims
        self.function = function
        self.functions = functions
        self.constants = constants
        self.read_constants: list[ExternalValue] = []
        self.names: set[str] = set()

    @cached_property
    def _label(self) -> str:
        return f"function '@{symbol_name(self.function)}' of an external module"

    def read(self) -> ExternalFunction:
        block = self.function.regions[0].blocks[0]
        names = _argument_names(self.function, len(block.arguments))
        inputs = tuple(self._value(names[i] or f"x{i}", argument.type) for i, argument in enumerate(block.arguments))
        known = dict(zip(map(_key, block.arguments), inputs, strict=True))
        steps, outputs = self._body(block, known, None)
        name = symbol_name(self.function)
        return ExternalFunction(name, inputs, outputs, tuple(steps), tuple(self.read_constants), self.function)

    def _body(
        self, block: ir.Block, known: dict[ir.Value, ExternalValue], composite: Composite | None
    ) -> tuple[list[Step], tuple[ExternalValue, ...]]:
        """Return the steps and results of a function's body; `known` maps values of its IR."""
        steps: list[Step] = []
        for view in block.operations:
            op = view.operation
            if op.name in ("func.return", "return"):
                return steps, tuple(known[_key(value)] for value in op.operands)
            if op.name == "relax.constant":
                known[_key(op.results[0])] = self._constant(op)
            elif op.name == "func.call":
                steps += self._call(op, known, composite)
            else:
                steps.append(self._node(op, known, composite))
        raise PassError(f"{self._label} returns nothing", self.function.location)

    def _call(self, op: ir.Operation, known: dict[ir.Value, ExternalValue], outer: Composite | None) -> list[Step]:
        callee = self.functions.get(ir.FlatSymbolRefAttr(op.attributes["callee"]).value)
        if callee is None:
            raise PassError(
                f"{self._label} calls {op.attributes['callee']}, which its module does not have", op.location
            )
        block = callee.regions[0].blocks[0]
        inputs = tuple(known[_key(value)] for value in op.operands)
        inner = dict(zip(map(_key, block.arguments), inputs, strict=True))
        result = None
        if outer is None and COMPOSITE in callee.attributes:
            result = Composite(ir.StringAttr(callee.attributes[COMPOSITE]).value, inputs, (), (), callee)
        steps, outputs = self._body(block, inner, result or outer)
        known.update(zip(map(_key, op.results), outputs, strict=True))
        if result is None:
            return steps
        result.outputs = outputs
        result.nodes = tuple(node for step in steps for node in step.nodes)
        return [result]

    def _node(
        self, op: ir.Operation, known: dict[ir.Value, ExternalValue], composite: Composite | None
    ) -> ExternalNode:
        if len(op.regions):
            raise PassError(
                f"{self._label} has control flow, {op.name}: code generators take operators and prim functions",
                op.location,
            )
        inputs = tuple(known[_key(value)] for value in op.operands)
        view = op.opview
        declared = isinstance(view, DialectOp)
        operands = _operands(view, known) if declared else {f"{i}": value for i, value in enumerate(inputs)}
        attributes = view.attribute_values() if declared else {n: op.attributes[n] for n in _names(op.attributes)}
        name = ", ".join(names_of(op.location))
        node = ExternalNode(op.name, name, inputs, (), operands, attributes, op, composite)
        node.outputs = tuple(self._value(f"v{len(self.names)}", result.type, node) for result in op.results)
        if op.name == CALL_TIR:
            node.prim = self._prim(op)
        for value in dict.fromkeys(inputs):
            value.users.append(node)
        known.update(zip(map(_key, op.results), node.outputs, strict=True))
        return node

    def _prim(self, op: ir.Operation) -> ExternalPrim:
        name = op.opview.callee
        if name not in self.prims:
            if name not in self.functions or not is_prim_func(self.functions[name]):
                raise PassError(
                    f"{self._label} calls '@{name}', which is not a prim function of its module", op.location
                )
            self.prims[name] = read_prim(self.functions[name])
        return self.prims[name]

    def _constant(self, op: ir.Operation) -> ExternalValue:
        kind = TensorType.from_mlir(op.results[0].type)
        assert kind is not None
        name, load = self.constants.add(op.opview, kind)
        value = self._value(name, op.results[0].type)
        value.constant, value._load = name, load
        self.read_constants.append(value)
        return value

    def _value(self, wanted: str, kind: ir.Type, producer: ExternalNode | None = None) -> ExternalValue:
        tensor_type = TensorType.from_mlir(kind)
        if tensor_type is None:
            raise PassError(f"{self._label} has a value of type {kind}: expected tensors", self.function.location)
        name = unused_name(wanted, self.names)
        self.names.add(name)
        return ExternalValue(name, tensor_type, producer)


def _operands(
    view: ir.OpView, known: Mapping[ir.Value, ExternalValue]
) -> dict[str, ExternalValue | None | tuple[ExternalValue, ...]]:
    operands: dict[str, ExternalValue | None | tuple[ExternalValue, ...]] = {}
    for declared in view._operand_layout.fields:
        operand = getattr(view, declared.name)
        if operand is None:
            operands[declared.name] = None
        elif isinstance(operand, (list, tuple)):
            operands[declared.name] = tuple(known[_key(value)] for value in operand)
        else:
            operands[declared.name] = known[_key(operand)]
    return operands


def _argument_names(function: ir.Operation, count: int) -> list[str | None]:
    if "arg_attrs" not in function.attributes:
        return [None] * count
    entries = [ir.DictAttr(entry) for entry in ir.ArrayAttr(function.attributes["arg_attrs"])]
    return [ir.StringAttr(e["relax.name"]).value if "relax.name" in e else None for e in entries]


def _names(attributes: ir.OpAttributeMap) -> list[str]:
    return [named if isinstance(named, str) else named.name for named in attributes]


def _key(value: ir.Value) -> ir.Value:
    return ir.Value(value)
