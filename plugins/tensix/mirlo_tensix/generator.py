"""The code generator: which products a Tensix core computes, and what regions become."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    wildcard,
)
from mirlo.extend.rules import decline
from mirlo.extend.target import option
from mirlo_tensix.products import BLOCKS, JOINT_RATE, Product, tiles_of
from mirlo_tensix.simulator import MEGAHERTZ, measure, missing, version, why_too_large

BIAS_ROWS = 3
"""Rows of weights that hold a bias: it is the sum of three numbers of bf16, which the unit adds as products by one."""
FILL_CYCLES = 320
"""Cycles of a product beside those of its units: configuration, the first tiles, and the last."""
PHASES = (1, 2, 4)


@dataclass(frozen=True)
class Step:
    """A product of a region, as its artifact describes it."""

    name: str
    x: str
    weight: str
    """The name of a constant or, for products of two tensors, of a value."""
    is_constant: bool
    bias: str | None
    y: str
    batch: int
    """How many products of matrices there are."""
    rows: int
    columns: int
    depth: int
    phases: int
    relu: bool
    block: tuple[int, int] | None = None

    def product(self) -> Product:
        """Return one of the products in tiles, with the rows of the bias."""
        depth = self.depth + (BIAS_ROWS if self.bias else 0)
        return Product(tiles_of(self.rows), tiles_of(self.columns), tiles_of(depth), self.phases, self.relu, self.block)


@dataclass(frozen=True)
class Tensix(CodeGenerator):
    """Products of matrices with a bias and ReLU, in bf16 with sums of fp32."""

    name = "tensix"
    format = "tensix"
    copies = True
    static = True
    compiled_to_place = True
    phases: int = option(2, "fidelity phases of a product: 1, 2 or 4 (exact products of bf16)")

    def __post_init__(self) -> None:
        if self.phases not in PHASES:
            raise ValueError(f"phases is {self.phases}: expected 1, 2 or 4")

    def patterns(self) -> Sequence[object]:
        weighted = is_op("relax.matmul")(wildcard(), is_const()).named("matmul")
        biased = weighted.optional(lambda x: is_op("relax.add")(x, is_const().has_rank(1).named("bias")))
        dense = biased.optional(lambda x: is_op("relax.relu")(x))
        both = is_op("relax.matmul")(wildcard(), wildcard()).named("matmul")
        return [("dense", dense, _fits), ("matmul", both.optional(lambda x: is_op("relax.relu")(x)), _fits)]

    def codegen(self, module: ExternalModule) -> Artifact | DeclinedRegions:
        regions, declined = {}, {}
        for function in module.functions:
            steps = [self._step(step, module) for step in function.steps]
            too_large = next(filter(None, (why_too_large(step.product()) for step in steps)), None)
            if too_large is not None:
                declined[function.name] = decline(too_large)
            ends = [[value.name for value in values] for values in (function.inputs, function.outputs)]
            regions[function.name] = {"steps": [asdict(step) for step in steps], "ends": ends}
        if declined:
            return DeclinedRegions(declined)
        return Artifact(self.format, module.names, json.dumps(regions).encode(), tuple(module.constants))

    def _step(self, step: Any, module: ExternalModule) -> Step:
        matmul = next(node for node in step.nodes if node.op == "relax.matmul")
        x, weight = matmul["lhs"], matmul["rhs"]
        added = [value for node in step.nodes if node.op == "relax.add" for value in node.inputs if value.constant]
        is_constant = bool(weight.constant)
        batch, rows = _batch_and_rows(x.shape, weight.shape)
        result = Step(
            step.nodes[-1].name, x.name, weight.constant if is_constant else weight.name, is_constant,
            added[0].constant if added else None, step.nodes[-1].output.name, batch, rows, weight.shape[-1],
            x.shape[-1], self.phases, step.nodes[-1].op == "relax.relu",
        )  # fmt: skip
        values = module.tuned_values(product_key(result.product()))
        if not values or "block" not in values:
            return result
        return Step(**{**asdict(result), "block": BLOCKS[values["block"]]})

    def tunables(self, module: ExternalModule) -> Sequence[Tunable]:
        return [] if missing() else list(self._tunables(module))

    def _tunables(self, module: ExternalModule) -> Iterator[Tunable]:
        for function in module.functions:
            for step in function.steps:
                one = self._step(step, module)
                product = one.product()
                if why_too_large(product) is None:
                    choices = [{"block": BLOCKS.index(block)} for block in product.blocks()]
                    yield Tunable(product_key(product), one.name, choices, _Measure(product))

    def times(self, artifact: Artifact) -> dict[str, float]:
        """Return the time of regions by what the units need: the matrix unit, or the loads of both unpackers."""
        regions: dict[str, Any] = json.loads(artifact.data)
        return {
            name: sum(step.batch * estimated_cycles(step.product()) for step in steps_of(region)) / MEGAHERTZ
            for name, region in regions.items()
        }

    @property
    def figures(self) -> Figures:  # type: ignore[override]
        """Return the peaks of the matrix unit and of a channel of DRAM at 1 GHz."""
        return Figures(gflops=2 * 2048 / self.phases, gbytes=24.0, call_us=1.0, transfer_gbytes=24.0, scales=False)

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
        each = Product(**{**asdict(self.product), "block": block})
        return measure(each).bound / MEGAHERTZ


def product_key(product: Product) -> str:
    """Return text of all that the cycles of a product depend on."""
    return f"{product.m} x {product.n} x {product.k} phases={product.phases} relu={product.relu}"


def steps_of(region: Mapping[str, Any]) -> list[Step]:
    """Return the steps of a region of an artifact."""
    return [Step(**{**step, "block": tuple(step["block"]) if step["block"] else None}) for step in region["steps"]]


def estimated_cycles(product: Product) -> int:
    """Return about how many cycles a product takes."""
    rows, columns = product.block or product.blocks()[0]
    loads = min(rows, columns) * 2 + 1 if min(rows, columns) > 1 else rows + columns
    unpacked = product.m // rows * (product.n // columns) * product.k * loads * 2048
    return max(product.mvmuls, unpacked // JOINT_RATE) + FILL_CYCLES


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
        return decline("wolfpine 2.2 does not execute products of int8 (MVMUL raises AttributeError)", x=str(x.type))
    if x.dtype.name != "f32" or weight.dtype.name != "f32":
        return decline("operands must be f32, of which the unit takes bf16", x=str(x.type), weight=str(weight.type))
    if matmul.transpose_lhs or matmul.transpose_rhs:
        return decline("operands must not be transposed", lhs=matmul.transpose_lhs, rhs=matmul.transpose_rhs)
    if len(x.shape) < 2 or len(weight.shape) < 2:
        return decline("operands must be matrices", x=str(x.type), weight=str(weight.type))
    if len(weight.shape) != 2 and tuple(x.shape[:-2]) != tuple(weight.shape[:-2]):
        return decline("both operands must have the same matrices", x=str(x.type), weight=str(weight.type))
    if "bias" in match and match["bias"].shape[0] != weight.shape[-1]:
        return decline("the bias must have one number for each column", bias=match["bias"].shape)
    return True
