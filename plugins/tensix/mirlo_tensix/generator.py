"""The code generator: which operators a Tensix core computes, and the artifact of a region."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    DeclinedRegions,
    ExternalModule,
    Figures,
    Tunable,
    is_const,
    is_op,
    maybe,
    wildcard,
)
from mirlo.extend.rules import decline
from mirlo.extend.runtime import records_of_json, records_to_json
from mirlo.extend.target import option
from mirlo_tensix.cores import MOST
from mirlo_tensix.instructions import FORMATS
from mirlo_tensix.kernels import ROWWISE
from mirlo_tensix.layouts import CLASSES, Run, RunShared
from mirlo_tensix.products import BLOCKS, Product
from mirlo_tensix.region import KERNELS, MOVES, Misfit, Options, moved_in_dram, moved_tiles, plan
from mirlo_tensix.simulator import MEGAHERTZ, measure, missing, places_of, version
from mirlo_tensix.vector import BINARY

PHASES = (1, 2, 3, 4)
DECLINED = {
    "int8": "wolfpine 2.2 does not execute its products (MVMUL raises AttributeError)",
    "bfp8": "wolfpine 2.2 does not unpack block floating point (AssertionError)",
}
"""Types of numbers that the core has and the simulator has not, and why."""
ACTIVATIONS = ("relu", "clip", "gelu", "sigmoid", "tanh", "exp")


@dataclass(frozen=True)
class Tensix(CodeGenerator):
    """Products in bf16 with sums of fp32, and functions of elements and of rows in fp32."""

    name = "tensix"
    format = "tensix"
    copies = True
    static = True
    compiled_to_place = True
    phases: int = option(2, "fidelity phases of a product: 1 to 4 (exact products of bf16)")
    dtype: str = option("bf16", "the number format: bf16, fp16, or tf32 (19 bits, in 4 bytes)")
    seconds: float = option(1800.0, "the time limit of the simulator for each operator")
    cores: int = option(1, "cores that share the rows of a product or a convolution: 1 to 8")
    trace: bool = option(False, "record when each unit works, for profiles; takes time")

    def __post_init__(self) -> None:
        if self.phases not in PHASES:
            raise ValueError(f"phases is {self.phases}: expected 1 to 4")
        if not 1 <= self.cores <= MOST:
            raise ValueError(f"cores is {self.cores}: expected 1 to {MOST}")
        if self.dtype in DECLINED:
            raise ValueError(f"dtype is {self.dtype}: {DECLINED[self.dtype]}")
        if self.dtype not in FORMATS:
            raise ValueError(f"dtype is {self.dtype}: expected {', '.join(FORMATS)}")

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
            ("dense", dense, _fits_matmul),
            ("matmul", matmul, _fits_matmul),
            ("conv", conv, _fits_conv),
            *kernels,
            ("move", _moves(), _fits_move),
            ("attention", is_op("relax.attention").named("attention"), _fits_attention),
        ]

    def codegen(self, module: ExternalModule) -> Artifact | DeclinedRegions:
        regions, declined = {}, {}
        for function in module.functions:
            inputs, outputs = ([value.name for value in values] for values in (function.inputs, function.outputs))
            try:
                items = plan([step.nodes for step in function.steps], outputs, self._options(module))
            except Misfit as misfit:
                declined[function.name] = decline(str(misfit))
                continue
            regions[function.name] = {"inputs": inputs, "outputs": outputs, "items": records_to_json(items)}
        if declined:
            return DeclinedRegions(declined)
        options = {"seconds": self.seconds, "trace": self.trace, "cores": self.cores, "format": self.dtype}
        content = json.dumps({**options, "regions": regions}).encode()
        return Artifact(self.format, module.names, content, tuple(module.constants))

    def _options(self, module: ExternalModule) -> Options:
        def block(product: Product) -> tuple[int, int] | None:
            values = module.tuned_values(product_key(product))
            return BLOCKS[values["block"]] if values and "block" in values else None

        return Options(self.dtype, self.phases, self.cores, block)

    def tunables(self, module: ExternalModule) -> Sequence[Tunable]:
        return [] if missing() else list(self._tunables(module))

    def _tunables(self, module: ExternalModule) -> Iterator[Tunable]:
        options = Options(self.dtype, self.phases)
        for function in module.functions:
            try:
                items = plan([step.nodes for step in function.steps], [v.name for v in function.outputs], options)
            except Misfit:
                continue
            for item in items:
                if isinstance(item, Run) and isinstance(item.work, Product) and not item.work.windows:
                    choices = [{"block": BLOCKS.index(block)} for block in item.work.blocks()]
                    yield Tunable(product_key(item.work), item.step, choices, _Measure(item.work))

    def times(self, artifact: Artifact) -> dict[str, float]:
        """Return the estimated time of regions, of the words of threads and the bytes that units and DRAM move."""
        return {
            name: sum(map(estimated, records_of_json(region["items"], CLASSES))) / MEGAHERTZ
            for name, region in json.loads(artifact.data)["regions"].items()
        }

    @property
    def figures(self) -> Figures:  # type: ignore[override]
        """Return the peaks of the matrix unit and of a channel of DRAM at 1 GHz."""
        return Figures(gflops=2 * 2048 / self.phases, gbytes=24.0, call_us=1.0, transfer_gbytes=24.0, scales=False)

    @property
    def error(self) -> float:  # type: ignore[override]
        """Return a bound of the error of an operator: of attention, which amplifies the rounding of large scores."""
        least = {"bf16": 2e-1, "fp16": 6e-2, "tf32": 5e-2}[self.dtype]
        return {1: 4e-1, 2: 2e-1}.get(self.phases, least)

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


def product_key(product: Product) -> str:
    """Return a text key of everything that determines the cycles of a product."""
    return f"{product.m} x {product.n} x {product.k} phases={product.phases} {product.format} {product.activation}"


def estimated(item: Any) -> int:
    """Return the estimated cycles of an item of a region."""
    if isinstance(item, Run):
        return item.work.threads(item.places).estimated
    if isinstance(item, RunShared):
        part = item.work.part
        return part.threads(places_of(part)).estimated + sum(part.tensor_bytes[:2]) // 24
    return 0


def _moves() -> Any:
    """Return a pattern of consecutive operators that move elements."""
    pattern = is_op(*MOVES)(wildcard(), ...).named("first")
    for _ in range(2):
        pattern = pattern.optional(lambda x: is_op(*MOVES)(x, ...))
    return pattern


def _fits(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check of matches for operands of f32, then what `check` requires, which returns True or a reason."""

    def fits(match: Any) -> Any:
        types = [str(value.type) for value in match.inputs()]
        if types and match.inputs()[0].dtype.name in ("i8", "u8"):
            return decline(DECLINED["int8"], operands=types)
        if any(value.dtype.name != "f32" for value in match.inputs()):
            return decline("operands must be f32, which the core rounds", operands=types)
        return check(match)

    return fits


@_fits
def _fits_move(match: Any) -> Any:
    nodes = match.nodes
    steps = [
        (each.name, each.operands[0].shape, {name: each.attribute(name) for name in MOVES[each.name]}) for each in nodes
    ]
    if moved_tiles(steps, nodes[-1].results[0].shape) or moved_in_dram(steps):
        return True
    types = {"x": str(nodes[0].operands[0].type), "result": str(nodes[-1].type)}
    return decline("the network copies elements in loops with a stride each", **types)


@_fits
def _fits_matmul(match: Any) -> Any:
    matmul = match.op("matmul")
    x, weight = matmul.lhs, matmul.rhs
    if matmul.transpose_lhs or matmul.transpose_rhs:
        return decline("operands must not be transposed", lhs=matmul.transpose_lhs, rhs=matmul.transpose_rhs)
    if len(x.shape) < 2 or len(weight.shape) < 2:
        return decline("operands must be matrices", x=str(x.type), weight=str(weight.type))
    if len(weight.shape) != 2 and tuple(x.shape[:-2]) != tuple(weight.shape[:-2]):
        return decline("both operands must have the same matrices", x=str(x.type), weight=str(weight.type))
    if "bias" in match and (len(weight.shape) != 2 or match["bias"].shape[0] != weight.shape[-1]):
        bias = match["bias"].shape
        return decline("the bias must have one number for each column of one matrix", bias=bias, weight=weight.shape)
    return True


@_fits
def _fits_conv(match: Any) -> Any:
    conv = match.op("conv")
    if len(conv.x.shape) != 4 or conv.data_layout != "NC*" or conv.kernel_layout != "OI*":
        types = {"x": str(conv.x.type), "weight": str(conv.weight.type)}
        return decline("images must be NCHW and kernels OIHW", **types, layout=conv.data_layout)
    return True


@_fits
def _fits_attention(match: Any) -> Any:
    node = match.op("attention")
    if node.softcap:
        return decline("the core has no capped attention", softcap=node.softcap)
    if node.at_end and node.query.shape[2] > node.key.shape[2]:
        return decline("each query must have a key", query=str(node.query.type), key=str(node.key.type))
    return True


@_fits
def _fits_vector(match: Any) -> Any:
    node = match.op("operator")
    kernel, types = KERNELS[node.name], [str(value.type) for value in match.inputs()]
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
