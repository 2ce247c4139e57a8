"""The quantized nodes of a network, with their operands and results, and the reasons why others are not quantized."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import field

from mirlo.frontends.onnx.graph import NodeDef
from mirlo.runtime.records import dataclass
from mirlo.tools.quantize.network import Network
from mirlo.tools.quantize.operators import Role, role_of
from mirlo.tools.quantize.prepare import weight_axis


@dataclass(frozen=True, eq=False)
class Unit:
    """A node that computes in int8, with the nodes that are computed before its result is rounded."""

    node: NodeDef
    tail: tuple[NodeDef, ...]
    data: tuple[int, ...]
    """Places of the inputs that are int8 data."""
    weight: int | None = None
    """The place of the input that is constant weights."""
    axis: int | None = None
    """The axis of the weights along which scales differ."""
    bias: str | None = None
    """The constant that is stored as i32: an input of the node, or of the sum after it."""

    @property
    def output(self) -> str:
        return (self.tail or (self.node,))[-1].outputs[0]

    @property
    def nodes(self) -> tuple[NodeDef, ...]:
        return (self.node, *self.tail)


@dataclass
class Plan:
    """The parts of a network that are int8."""

    units: list[Unit] = field(default_factory=list)
    movers: dict[int, NodeDef] = field(default_factory=dict)
    """By identity, nodes whose results keep the scale of their first input."""
    source: dict[str, str] = field(default_factory=dict)
    """By value, the one whose scale it has."""
    reasons: dict[str, str] = field(default_factory=dict)
    """By node, why it stays in f32."""

    def root(self, name: str) -> str:
        """Return the value whose range determines the scale of a value."""
        while name in self.source:
            name = self.source[name]
        return name


@dataclass(frozen=True)
class Selection:
    """The nodes that a caller wants in f32, and whether all other possible nodes are int8."""

    keep: Collection[str] = ()
    """Names of nodes, or operators."""
    whole: bool = False

    def keeps(self, node: NodeDef) -> bool:
        return node.name in self.keep or node.operator in self.keep


def make_plan(network: Network, floats: Collection[str], selection: Selection) -> Plan:
    """Return the parts that are int8; `floats` are the f32 values that nodes compute or inputs are."""
    plan = Plan()
    readers = network.readers()
    users: dict[str, list[NodeDef]] = {}
    for node in network.nodes:
        for name in node.inputs:
            users.setdefault(name, []).append(node)
    int8: set[str] = {value.name for value in network.inputs if selection.whole and value.name in floats}
    joined: set[int] = set()
    for node in network.nodes:
        if id(node) in joined:
            continue
        role = role_of(node.operator, node.domain)
        why = _refusal(network, node, floats, selection, int8)
        if role is None or why is not None:
            plan.reasons[node.name] = why or f"{node.operator} has no int8 form"
            continue
        if role.role is Role.MOVES:
            plan.movers[id(node)] = node
            for name in node.outputs:
                plan.source[name] = node.inputs[0]
                int8.add(name)
            continue
        unit = _unit(network, node, floats, selection, readers, users)
        plan.units.append(unit)
        joined.update(id(each) for each in unit.tail)
        int8.add(unit.output)
    return plan


def _refusal(
    network: Network, node: NodeDef, floats: Collection[str], selection: Selection, int8: Collection[str]
) -> str | None:
    """Return why a node stays in f32."""
    role = role_of(node.operator, node.domain)
    if role is None:
        return f"{node.operator} has no int8 form"
    if selection.keeps(node):
        return "excluded"
    if not role.always and not selection.whole:
        return f"{node.operator} is int8 only where the whole model is (--whole)"
    if not node.outputs or any(name and name not in floats for name in node.outputs):
        return "its result is not f32"
    if role.role is Role.PRODUCT:
        if any(name not in floats and network.weight(name) is None for name in node.inputs[:2]):
            return "an operand is neither f32 data nor f32 weights"
        if all(name in network.constants for name in node.inputs[:2]):
            return "both operands are constant"
        return None
    read = [name for name in _data_inputs(node, role.role) if name not in network.constants]
    if not read or any(name not in floats for name in read):
        return "an operand is not f32"
    if not selection.whole and not any(name in int8 for name in read):
        return "what it reads is not int8"
    if not selection.whole and len(read) < len(_data_inputs(node, role.role)):
        return "an operand is constant: int8 only where the whole model is (--whole)"
    return None


def _data_inputs(node: NodeDef, role: Role) -> list[str]:
    """Return the inputs that are data, not sizes or bounds."""
    role_found = role_of(node.operator, node.domain)
    single = role is Role.MOVES or (role_found is not None and role_found.activation)
    if single or node.operator in ("Resize", "ReduceMean"):
        return [node.inputs[0]]
    return [name for name in node.inputs if name]


def _unit(
    network: Network,
    node: NodeDef,
    floats: Collection[str],
    selection: Selection,
    readers: Mapping[str, int],
    users: Mapping[str, list[NodeDef]],
) -> Unit:
    role = role_of(node.operator, node.domain)
    assert role is not None
    is_product = role.role is Role.PRODUCT
    names = list(node.inputs[:2]) if is_product else _data_inputs(node, role.role)
    weight = next((i for i, name in enumerate(names) if name in network.constants), None) if is_product else None
    data = tuple(i for i, name in enumerate(names) if name in floats or (not is_product and name))
    axis = _channel_axis(network, node, weight)
    tail: list[NodeDef] = []
    name = node.outputs[0]
    bias = node.inputs[2] if is_product and len(node.inputs) > 2 and node.inputs[2] in network.constants else None
    if bias is not None and not _is_bias(network, bias, node, weight, axis):
        bias = None
    after = users.get(name, [])
    if is_product and node.operator == "MatMul" and readers[name] == 1 and len(after) == 1:
        added = after[0]
        other = [each for each in added.inputs if each != name]
        if added.operator == "Add" and not added.domain and len(other) == 1 and not selection.keeps(added):
            vector = network.weight(other[0])
            if vector is not None and vector.ndim == 1 and added.outputs[0] in floats:
                tail.append(added)
                bias = other[0] if _is_bias(network, other[0], node, weight, axis) else None
                name = added.outputs[0]
                after = users.get(name, [])
    if readers[name] == 1 and len(after) == 1:
        tail_role = role_of(after[0].operator, after[0].domain)
        is_bound = all(each in network.constants for each in after[0].inputs[1:] if each)
        if tail_role is not None and tail_role.activation and is_bound and not selection.keeps(after[0]):
            tail.append(after[0])
    return Unit(node, tuple(tail), data, weight, axis, bias)


def _channel_axis(network: Network, node: NodeDef, weight: int | None) -> int | None:
    if weight is None:
        return None
    array = network.weight(node.inputs[weight])
    if array is None or (node.operator in ("MatMul", "Gemm") and array.ndim != 2):
        return None
    if node.operator == "Gemm" and weight == 0:
        return None
    return 0 if weight == 0 else weight_axis(node)


def _is_bias(network: Network, name: str, node: NodeDef, weight: int | None, axis: int | None) -> bool:
    """Return whether a constant has one element for each channel."""
    bias = network.weight(name)
    if bias is None or weight != 1 or axis is None:
        return False
    array = network.weight(node.inputs[1])
    assert array is not None
    channels = array.shape[axis]
    return bias.ndim == 1 and bias.size == channels
