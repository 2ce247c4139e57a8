"""The code generator: which products a Tensix core computes, and what regions become."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    DeclinedRegions,
    ExternalModule,
    ExternalNode,
    ExternalValue,
    Figures,
    Tunable,
    is_const,
    is_op,
    maybe,
    wildcard,
)
from mirlo.extend.rules import decline
from mirlo.extend.target import option
from mirlo_tensix.cores import MOST, SharedProduct
from mirlo_tensix.instructions import FORMATS, TILE
from mirlo_tensix.kernels import REDUCTIONS, ROWWISE
from mirlo_tensix.products import BLOCKS, Product
from mirlo_tensix.simulator import MEGAHERTZ, measure, missing, version
from mirlo_tensix.steps import (
    AttentionStep,
    ConvStep,
    Numbers,
    ProductStep,
    Step,
    Tensor,
    VectorStep,
    estimated_cycles,
    steps_of,
    to_json,
    why_not,
)
from mirlo_tensix.vector import BINARY

PHASES = (1, 2, 3, 4)
DECLINED = {
    "fp16": "wolfpine 2.2 computes it in real numbers, not as the matrix unit does",
    "int8": "wolfpine 2.2 does not execute its products (MVMUL raises AttributeError)",
    "bfp8": "wolfpine 2.2 does not unpack block floating point (AssertionError)",
}
"""Types of numbers that the core has and the simulator has not, and why."""
ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh", "exp")
KERNELS = {
    "relax.add": "add", "relax.subtract": "sub", "relax.multiply": "mul", "relax.divide": "div", "relax.maximum": "max",
    "relax.minimum": "min", "relax.relu": "relu", "relax.gelu": "gelu", "relax.exp": "exp", "relax.tanh": "tanh",
    "relax.sigmoid": "sigmoid", "relax.reciprocal": "reciprocal", "relax.softmax": "softmax",
    "relax.layer_norm": "layer_norm", "relax.reduce_sum": "reduce_sum", "relax.reduce_mean": "reduce_mean",
    "relax.reduce_max": "reduce_max", "relax.reduce_min": "reduce_min",
}  # fmt: skip
"""The kernels of operators."""


@dataclass(frozen=True)
class Tensix(CodeGenerator):
    """Products in bf16 with sums of fp32, and functions of elements and of rows in fp32."""

    name = "tensix"
    format = "tensix"
    copies = True
    static = True
    compiled_to_place = True
    phases: int = option(2, "fidelity phases of a product: 1 to 4 (exact products of bf16)")
    dtype: str = option("bf16", "how numbers are stored: bf16, or tf32 (19 bits, in 4 bytes)")

    seconds: float = option(1800.0, "the time limit of the simulator for each operator")

    cores: int = option(1, "cores that share the rows of a product: 1 to 8")
    trace: bool = option(False, "whether profiles have when each unit worked, which takes time")

    def __post_init__(self) -> None:
        if self.phases not in PHASES:
            raise ValueError(f"phases is {self.phases}: expected 1 to 4")
        if not 1 <= self.cores <= MOST:
            raise ValueError(f"cores is {self.cores}: expected 1 to {MOST}")
        if self.dtype in DECLINED:
            raise ValueError(f"dtype is {self.dtype}: {DECLINED[self.dtype]}")
        if self.dtype not in FORMATS:
            raise ValueError(f"dtype is {self.dtype}: expected {' or '.join(FORMATS)}")

    @property
    def numbers(self) -> Numbers:
        return Numbers(self.dtype, self.phases)

    def patterns(self) -> Sequence[object]:
        weighted = is_op("relax.matmul")(wildcard(), is_const()).named("matmul")
        biased = weighted.optional(lambda x: is_op("relax.add")(x, is_const().has_rank(1).named("bias")))
        both = is_op("relax.matmul")(wildcard(), wildcard()).named("matmul")
        conv = is_op("relax.conv")(x=wildcard(), weight=is_const(), bias=maybe(is_const())).named("conv")
        dense, matmul, conv = map(_with_function, (biased, both, conv))
        kernels = [
            (name.partition(".")[2], _with_function(is_op(name).named("operator"), kernel), _fits_vector)
            for name, kernel in KERNELS.items()
        ]
        return [
            ("dense", dense, _fits),
            ("matmul", matmul, _fits),
            ("conv", conv, _fits_conv),
            *kernels,
            ("attention", is_op("relax.attention").named("attention"), _fits_attention),
        ]

    def codegen(self, module: ExternalModule) -> Artifact | DeclinedRegions:
        regions, declined = {}, {}
        for function in module.functions:
            steps = [self._step(step, module) for step in function.steps]
            too_large = next(filter(None, map(why_not, steps)), None)
            if too_large is not None:
                declined[function.name] = decline(too_large)
            ends = [[value.name for value in values] for values in (function.inputs, function.outputs)]
            regions[function.name] = {"steps": [to_json(step) for step in steps], "ends": ends}
        if declined:
            return DeclinedRegions(declined)
        content = json.dumps({"seconds": self.seconds, "trace": self.trace, "regions": regions}).encode()
        return Artifact(self.format, module.names, content, tuple(module.constants))

    def _step(self, step: Any, module: ExternalModule) -> Step:
        if step.nodes[0].op == "relax.attention":
            return attention_step(step.nodes[0], self.numbers)
        if step.nodes[0].op == "relax.conv":
            return conv_step(step.nodes, self.numbers)
        if step.nodes[0].op != "relax.matmul":
            return vector_step(step.nodes, self.numbers)
        matmul, last = step.nodes[0], step.nodes[-1]
        x, weight = matmul["lhs"], matmul["rhs"]
        added = [value for node in step.nodes if node.op == "relax.add" for value in node.inputs if value.constant]
        batch, rows = _batch_and_rows(x.shape, weight.shape)
        result = ProductStep(
            last.name, _tensor(x), _tensor(weight), _tensor(added[0]) if added else None, last.output.name, batch,
            rows, weight.shape[-1], x.shape[-1], self.numbers, None if last.op in _LINEAR else function_of(last),
            cores=self.cores,
        )  # fmt: skip
        values = module.tuned_values(product_key(_part(result.product())))
        return replace(result, block=BLOCKS[values["block"]]) if values and "block" in values else result

    def tunables(self, module: ExternalModule) -> Sequence[Tunable]:
        return [] if missing() else list(self._tunables(module))

    def _tunables(self, module: ExternalModule) -> Iterator[Tunable]:
        for function in module.functions:
            for step in function.steps:
                one = self._step(step, module)
                if isinstance(one, ProductStep) and why_not(one) is None:
                    product = _part(one.product())
                    choices = [{"block": BLOCKS.index(block)} for block in product.blocks()]
                    yield Tunable(product_key(product), one.name, choices, _Measure(product))

    def times(self, artifact: Artifact) -> dict[str, float]:
        """Return the time of regions by what the units need: the matrix unit, or the loads of both unpackers."""
        regions: dict[str, Any] = json.loads(artifact.data)["regions"]
        return {
            name: sum(estimated_cycles(work) for step in steps_of(region) for work in step.works()) / MEGAHERTZ
            for name, region in regions.items()
        }

    @property
    def figures(self) -> Figures:  # type: ignore[override]
        """Return the peaks of the matrix unit and of a channel of DRAM at 1 GHz."""
        return Figures(gflops=2 * 2048 / self.phases, gbytes=24.0, call_us=1.0, transfer_gbytes=24.0, scales=False)

    @property
    def error(self) -> float:  # type: ignore[override]
        """Return how far results are off: by the bits that phases multiply, and by rounding, which exp multiplies."""
        return {1: 1e-1, 2: 4e-2}.get(self.phases, 3e-2 if self.dtype == "bf16" else 8e-3)

    def requirements(self) -> Sequence[str]:
        return ("a Tensix core, or its simulator: pip install 'mirlo-tensix[simulator]'",)

    def fingerprint(self) -> str:
        return version()


@dataclass(frozen=True)
class _Measure:
    """The time of a product on the simulator."""

    product: Product

    def __call__(self, values: Mapping[str, int]) -> float:
        block = BLOCKS[values["block"]] if "block" in values else None
        return measure(replace(self.product, block=block)).bound / MEGAHERTZ


def _with_function(pattern: Any, kernel: str = "") -> Any:
    """Return a pattern with a function of its result; those of rows and of one number have none."""
    if kernel and kernel not in BINARY:
        return pattern
    return pattern.optional(lambda x: is_op(*(f"relax.{name}" for name in ACTIVATIONS))(x))


def _part(product: Product | SharedProduct) -> Product:
    """Return what one core computes of a product."""
    return product.part if isinstance(product, SharedProduct) else product


def product_key(product: Product) -> str:
    """Return text of all that the cycles of a product depend on."""
    return f"{product.m} x {product.n} x {product.k} phases={product.phases} {product.format} {product.activation}"


_LINEAR = ("relax.matmul", "relax.add")


def _tensor(value: ExternalValue) -> Tensor:
    return Tensor(value.constant or value.name, bool(value.constant), tuple(value.shape))


def function_of(node: ExternalNode) -> str:
    """Return the kernel of an operator."""
    is_tanh = node.op == "relax.gelu" and node["approximate"] == "tanh"
    return "gelu_tanh" if is_tanh else KERNELS[node.op]


def vector_step(nodes: Sequence[ExternalNode], numbers: Numbers) -> VectorStep:
    """Return the step of an operator for the vector unit, and of a function that follows it.

    Operands of one shape are one matrix of 32 columns, so that tiles are full; else columns are those of the last dim.
    """
    node, last = nodes[0], nodes[-1]
    kernel, operands = function_of(node), [value for value in node.inputs if value is not None]
    shape = tuple(operands[0].shape if kernel in ROWWISE else node.output.shape)
    if kernel in REDUCTIONS:  # the last dims are one
        axes = list(node["axes"] or range(len(shape)))
        shape = (*shape[: len(shape) - len(axes)], math.prod(shape[len(shape) - len(axes) :]))
    is_flat = kernel not in ROWWISE and all(tuple(each.shape) == shape for each in operands)
    columns = TILE if is_flat else shape[-1]
    are_rows = tuple(
        not is_flat and tuple(each.shape)[-1:] == (columns,) == (math.prod(each.shape),) for each in operands
    )
    has_norm = kernel == "layer_norm"
    has_scale, has_bias = (has_norm and node[each] is not None for each in ("scale", "bias"))
    return VectorStep(
        last.name, kernel, tuple(map(_tensor, operands)), (False, *are_rows[1:]) if kernel in ROWWISE else are_rows,
        last.output.name, shape, -(-math.prod(shape) // columns), columns,
        numbers, node["epsilon"] if has_norm else 0.0, has_scale, has_bias,
        None if last is node else function_of(last),
    )  # fmt: skip


def conv_step(nodes: Sequence[ExternalNode], numbers: Numbers) -> ConvStep:
    """Return the step of a convolution and what follows it."""
    conv, last = nodes[0], nodes[-1]
    bias = None if conv["bias"] is None else _tensor(conv["bias"])
    return ConvStep(
        last.name, _tensor(conv["x"]), _tensor(conv["weight"]), bias, last.output.name,
        tuple(conv["strides"] or (1, 1)), tuple(conv["padding"] or (0,) * 4), tuple(conv["dilations"] or (1, 1)),
        numbers, function_of(last) if last is not conv else None,
    )  # fmt: skip


def attention_step(node: ExternalNode, numbers: Numbers) -> AttentionStep:
    """Return the step of an attention."""
    query, key, value = (_tensor(node[name]) for name in ("query", "key", "value"))
    mask = None if node["mask"] is None else _tensor(node["mask"])
    scale = query.shape[-1] ** -0.5 if node["scale"] is None else node["scale"]
    return AttentionStep(node.name, query, key, value, mask, node.output.name, scale, numbers)


def _batch_and_rows(x: Sequence[int], weight: Sequence[int]) -> tuple[int, int]:
    """Return how many products there are, and the rows of each: one matrix of weights multiplies all rows."""
    if len(weight) == 2:
        return 1, math.prod(x[:-1])
    return math.prod(x[:-2]), x[-2]


def _fits(match: Any) -> Any:
    """Return True, or why a product is not computed on a core."""
    matmul = match.op("matmul")
    x, weight = matmul.lhs, matmul.rhs
    if x.dtype.name in ("i8", "u8"):
        return decline(DECLINED["int8"], x=str(x.type))
    if x.dtype.name != "f32" or weight.dtype.name != "f32":
        return decline("operands must be f32, which is rounded to bf16 or tf32", x=str(x.type), weight=str(weight.type))
    if matmul.transpose_lhs or matmul.transpose_rhs:
        return decline("operands must not be transposed", lhs=matmul.transpose_lhs, rhs=matmul.transpose_rhs)
    if len(x.shape) < 2 or len(weight.shape) < 2:
        return decline("operands must be matrices", x=str(x.type), weight=str(weight.type))
    if len(weight.shape) != 2 and tuple(x.shape[:-2]) != tuple(weight.shape[:-2]):
        return decline("both operands must have the same matrices", x=str(x.type), weight=str(weight.type))
    if "bias" in match and match["bias"].shape[0] != weight.shape[-1]:
        return decline("the bias must have one number for each column", bias=match["bias"].shape)
    return True


def _fits_conv(match: Any) -> Any:
    """Return True, or why a convolution is not computed on a core."""
    conv = match.op("conv")
    types = {"x": str(conv.x.type), "weight": str(conv.weight.type)}
    if conv.x.dtype.name != "f32" or conv.weight.dtype.name != "f32":
        return decline("operands must be f32, which is rounded to bf16 or tf32", **types)
    if conv.groups != 1:
        return decline(
            "the matrix unit needs all channels of a group, which would leave most of it idle", groups=conv.groups
        )
    if len(conv.x.shape) != 4 or conv.data_layout != "NC*" or conv.kernel_layout != "OI*":
        return decline("images must be NCHW and kernels OIHW", **types, layout=conv.data_layout)
    return True


def _fits_attention(match: Any) -> Any:
    """Return True, or why an attention is not computed on a core."""
    node, inputs = match.op("attention"), match.inputs()
    if any(value.dtype.name != "f32" for value in inputs):
        types = [str(value.type) for value in inputs]
        return decline("operands must be f32, which is rounded to bf16 or tf32", operands=types)
    if node.causal or node.softcap:
        return decline("the core has no causal and no capped attention", causal=node.causal, softcap=node.softcap)
    query, key = node.query, node.key
    if tuple(query.shape[:-2]) != tuple(key.shape[:-2]):
        return decline("queries and keys must have the same heads", query=str(query.type), key=str(key.type))
    return True


def _fits_vector(match: Any) -> Any:
    """Return True, or why an operator is not computed on the vector unit."""
    node = match.op("operator")
    kernel, types = KERNELS[node.name], [str(value.type) for value in match.inputs()]
    if any(value.dtype.name != "f32" for value in match.inputs()):
        return decline("operands must be f32, which is rounded to bf16 or tf32", operands=types)
    shapes = [tuple(value.shape) for value in match.inputs()]
    if kernel not in ROWWISE:
        return True
    rank = len(shapes[0])
    axes = [node.axis] if kernel in ("softmax", "layer_norm") else list(node.axes or range(rank))
    if rank == 0 or sorted(axis % rank for axis in axes) != list(range(rank - len(axes), rank)):
        return decline("rows are the last dims", axes=axes, x=types[0])
    if any(each != shapes[0][-1:] for each in shapes[1:]):
        return decline("scale and bias must have one number for each column", operands=types)
    return True
