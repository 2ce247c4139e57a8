"""Random graphs: nodes are added one after another, each computed at once, so that the model is always valid."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mirlo.runtime.records import dataclass
from mirlo.tools.bisect.declared import declared_operators, evaluated_operators
from mirlo.tools.fuzz.operators import load_planners
from mirlo.tools.fuzz.operators.declared import declared_planners
from mirlo.tools.fuzz.pool import LIMIT, MAX_ELEMENTS, GraphValue, NodeDraft, ValuePool

OPSET = 21
MAX_NODES = 24
MEAN_NODES = 6
"""What is wrong shows in small graphs, mostly: more of them are seen in an hour, and large ones now and then."""
FACTORS = (0.5, 1.5, 2.0)
"""What the scalars of repeated nodes are multiplied by: they stay of their sign, and floats of any width hold them."""
TRIES = 12
"""Plans per node that is to be added: many turn out not to fit."""


@dataclass
class RandomGraph:
    """A model, and arrays for its inputs."""

    seed: int
    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    operators: list[str] = field(default_factory=list)
    epsilons: dict[str, float] = field(default_factory=dict)
    """For each output, the rounding of the narrowest floats that it was computed from."""


def random_graph(
    seed: int, most_nodes: int = MAX_NODES, rng: np.random.Generator | None = None, repeats: int = 0
) -> RandomGraph:
    """Return the random graph of this seed, or of what `rng` draws.

    With `repeats`, its nodes are copied this many times with other numbers, for kernels that differ in numbers only.
    """
    pool = ValuePool(np.random.default_rng(seed) if rng is None else rng)
    planners = (*load_planners(), *declared_planners())
    weights = np.array([weight for weight, _ in planners])
    nodes: list[onnx.NodeProto] = []
    drafts: list[tuple[NodeDraft, list[GraphValue]]] = []
    computed: list[GraphValue] = []
    read: set[str] = set()

    def add(plan: NodeDraft, results: list[GraphValue]) -> None:
        nodes.append(_node(plan, results, len(nodes)))
        read.update(value.name for value in plan.inputs if value is not None)
        computed.extend(results)

    wanted = min(int(pool.rng.geometric(1 / MEAN_NODES)), most_nodes)
    for _ in range(TRIES * wanted):
        if len(nodes) == wanted:
            break
        planner = planners[int(pool.rng.choice(len(planners), p=weights / weights.sum()))][1]
        before = len(pool.inputs), len(pool.constants), len(pool.values)
        plan = planner(pool)
        results = _results(plan, len(nodes)) if plan is not None else None
        if plan is None or results is None:
            del pool.inputs[before[0] :], pool.constants[before[1] :], pool.values[before[2] :]
            continue
        add(plan, results)
        drafts.append((plan, results))
        pool.values += results
    for number in range(repeats):
        changed: dict[str, GraphValue] = {}
        for plan, results in drafts:
            other = _with_other_numbers(plan, changed, FACTORS[number % len(FACTORS)], pool)
            repeated = _results(other, len(nodes))
            if repeated is None:  # a result that is no longer fit for a comparison
                break
            add(other, repeated)
            changed.update(zip((value.name for value in results), repeated, strict=True))
    outputs = [value for value in computed if value.name not in read]
    outputs = outputs + [value for value in computed if value.name in read and pool.chance(0.1)]
    return RandomGraph(
        seed,
        _model(nodes, pool, outputs, read),
        {value.name: value.array for value in pool.inputs if value.name in read},
        [node.op_type for node in nodes],
        {value.name: value.epsilon for value in outputs},
    )


def _with_other_numbers(plan: NodeDraft, changed: dict[str, GraphValue], factor: float, pool: ValuePool) -> NodeDraft:
    """Return a node with its float scalars multiplied, on the values that are in the place of its inputs."""

    def input_of(value: GraphValue | None) -> GraphValue | None:
        if value is not None and value.name not in changed and _is_scalar_constant(value, pool):
            changed[value.name] = pool.constant((value.array * factor).astype(value.dtype))
        return value if value is None else changed.get(value.name, value)

    attributes = {name: x * factor if isinstance(x, float) else x for name, x in plan.attributes.items()}
    return replace(plan, inputs=tuple(map(input_of, plan.inputs)), attributes=attributes)


def _is_scalar_constant(value: GraphValue, pool: ValuePool) -> bool:
    return value.is_float and value.array.size == 1 and any(value is constant for constant in pool.constants)


def _results(plan: NodeDraft, index: int) -> list[GraphValue] | None:
    """Return the results of the node; None if they are not fit for a comparison."""
    names = [f"v{index}_{i}" for i in range(plan.outputs)]
    node = _proto(plan, names, index)
    feeds = {value.name: value.array for value in plan.inputs if value is not None}
    try:
        with np.errstate(all="ignore"):
            evaluator = ReferenceEvaluator(_single(node, plan, names), new_ops=evaluated_operators())
            arrays = evaluator.run(None, feeds)
    except Exception:
        # A plan that the reference evaluator does not take is one too many; there are others.
        return None
    if not _agrees_with_inference(node, plan, names, arrays):
        return None
    exact = plan.is_exact and all(value is None or value.is_exact for value in plan.inputs)
    before = max((value.epsilon for value in plan.inputs if value is not None), default=0.0)
    results = [
        GraphValue(name, np.asarray(array), exact, max(before, _epsilon(np.asarray(array).dtype)))
        for name, array in zip(names, arrays, strict=True)
    ]
    return results if all(map(_is_fit, results)) else None


def _epsilon(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0


def _agrees_with_inference(node: onnx.NodeProto, plan: NodeDraft, names: list[str], arrays: list[np.ndarray]) -> bool:
    """Return whether the evaluator's result agrees with ONNX's shape inference: it accepts some invalid nodes."""
    model = _single(node, plan, names)
    constants = (value for value in plan.inputs if value is not None and value.name.startswith("c"))
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value.array, value.name) for value in constants)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return False
    for info, array in zip(inferred.graph.output, arrays, strict=True):
        dims = info.type.tensor_type.shape.dim
        if info.type.tensor_type.HasField("shape"):
            shape = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
            pairs = zip(shape, array.shape, strict=False)
            if len(shape) != array.ndim or any(dim is not None and dim != size for dim, size in pairs):
                return False
    return True


def _is_fit(value: GraphValue) -> bool:
    if value.array.size > MAX_ELEMENTS or value.array.size == 0:
        return False
    if value.is_float:
        with np.errstate(all="ignore"):
            return bool(np.isfinite(value.array).all() and np.abs(value.array).max() < LIMIT)
    return True


def _proto(plan: NodeDraft, outputs: list[str], index: int) -> onnx.NodeProto:
    inputs = [value.name if value is not None else "" for value in plan.inputs]
    while inputs and not inputs[-1]:
        inputs.pop()
    name = f"{plan.operator}_{index}"
    return helper.make_node(plan.operator, inputs, outputs, name=name, domain=plan.domain, **plan.attributes)


def _node(plan: NodeDraft, results: list[GraphValue], index: int) -> onnx.NodeProto:
    return _proto(plan, [value.name for value in results], index)


def _single(node: onnx.NodeProto, plan: NodeDraft, outputs: list[str]) -> onnx.NodeProto:
    """Return the node as a model, which declares the operator set for the evaluator."""
    inputs = {value.name: _info(value) for value in plan.inputs if value is not None}
    shown = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return _to_model(helper.make_graph([node], "node", list(inputs.values()), shown))


def _model(nodes: list[onnx.NodeProto], pool: ValuePool, outputs: list[GraphValue], read: set[str]) -> onnx.ModelProto:
    inputs = [_info(value, pool.is_dynamic) for value in pool.inputs if value.name in read]
    constants = [numpy_helper.from_array(value.array, value.name) for value in pool.constants if value.name in read]
    shown = [helper.make_empty_tensor_value_info(value.name) for value in outputs]
    for info, value in zip(shown, outputs, strict=True):
        info.CopyFrom(_info(value))
        if pool.is_dynamic:
            info.type.tensor_type.ClearField("shape")
    return _to_model(helper.make_graph(nodes, "random", inputs, shown, constants))


def _info(value: GraphValue, is_dynamic: bool = False) -> onnx.ValueInfoProto:
    """Return the type of a value. An open dim has the name of its size: those of one size are one dim."""
    shape = [f"n{dim}" if is_dynamic and dim > 1 and value.is_float else dim for dim in value.shape]
    return helper.make_tensor_value_info(value.name, helper.np_dtype_to_tensor_dtype(value.dtype), shape)


def _to_model(graph: onnx.GraphProto) -> onnx.ModelProto:
    named = [cls.ONNX for cls in declared_operators()]
    domains = {name.domain: name.since for name in named if name is not None}
    used = sorted({node.domain for node in graph.node if node.domain in domains})
    imports = [helper.make_opsetid("", OPSET), *(helper.make_opsetid(name, domains[name]) for name in used)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)
