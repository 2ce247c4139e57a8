"""The code generator: patterns of the supported parts, and their programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
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
from mirlo.extend.runtime import NativeCode, native_code
from mirlo.extend.target import option
from mirlo_systolic.commands import SIZE
from mirlo_systolic.expressions import ACTIVATIONS, Misfit
from mirlo_systolic.layers import AHEAD, Layer, Tiling
from mirlo_systolic.regions import (
    compile_region,
    conv_fits,
    matmul_fits,
    mean_fits,
    move_fits,
    place_region,
    pool_fits,
    sum_fits,
    table_fits,
)
from mirlo_systolic.simulator import ERRORS, MEGAHERTZ, measure, missing_tools, version
from mirlo_systolic.tuning import CHUNKS, layer_key, tunables, tuned_tiling

FOLDER = Path(__file__).parent


def _quantize(value: Any) -> Any:
    return is_op("relax.quantize")(value, is_const().has_rank(0), is_const().has_rank(0)).has_attr(dtype=_is_int8)


def _is_int8(dtype: object) -> bool:
    return str(dtype) == "i8"


def _quantized(value: Any) -> Any:
    """Return a pattern of the quantization of real values, within bounds."""
    bounded = value.optional(lambda x: is_op("relax.relu", "relax.clip")(x, ...))
    return _quantize(bounded).named("result")


def _real(value: Any) -> Any:
    return is_op("relax.dequantize")(value.has_dtype("i8"), is_const().has_rank(0), is_const().has_rank(0))


def _table(value: Any) -> Any:
    """Return a pattern of the quantization of a function of one quantized operand."""
    return _quantize(is_op(*ACTIVATIONS)(_real(value), ...))


def _scaled(accumulators: Any) -> Any:
    real = is_op("relax.multiply")(is_op("relax.cast")(accumulators), is_const().named("scale"))
    return _quantized(real.optional(lambda x: is_op("relax.add")(x, is_const().named("addend"))))


@dataclass(frozen=True)
class Systolic(CodeGenerator):
    """Whole int8 layers, from padding to requantization."""

    name = "systolic"
    layouts = {"relax.conv": ("N*C", "O*I"), "relax.max_pool": ("N*C",), "relax.avg_pool": ("N*C",)}
    pipeline = "simplify,convert-layout,hoist-layouts,fold-constant,simplify,remove-dead"
    format = "c"
    copies = True
    static = True
    compiled_to_place = True
    rows: int = option(0, "rows of a result in a tile; 0: as many as fit")
    chunk: int = option(64, "products whose weights are loaded together")
    device: bool = option(False, "omit the driver from libraries: the program links or registers it")

    def __post_init__(self) -> None:
        if self.rows < 0:
            raise ValueError(f"rows is {self.rows}: expected 0 or more")
        if not 1 <= self.chunk <= CHUNKS[0]:
            raise ValueError(f"chunk is {self.chunk}: expected 1 to {CHUNKS[0]}, of which the unit holds {AHEAD}")

    def patterns(self) -> Sequence[object]:
        data = wildcard().named("x")
        weight = is_const().named("weight")
        padded = is_op("relax.pad")(data, ...) | data
        conv = is_op("relax.conv")(x=padded, weight=weight, bias=maybe(is_const())).named("conv")
        matmul = is_op("relax.matmul")(data, weight).named("matmul")
        corrected = matmul.optional(lambda x: is_op("relax.subtract")(x, is_const().named("correction")))
        real = [_real(wildcard().named(name)) for name in "ab"]
        x = _real(wildcard().has_dtype("i8").named("x"))
        return [
            ("conv_table", _table(_scaled(conv)), conv_fits),
            ("conv", _scaled(conv), conv_fits),
            ("matmul_table", _table(_scaled(corrected)), matmul_fits),
            ("matmul", _scaled(corrected), matmul_fits),
            ("add", _quantized(is_op("relax.add")(*real)), sum_fits),
            ("pool", _quantized(is_op("relax.max_pool", "relax.avg_pool")(x).named("pool")), pool_fits),
            ("mean", _quantized(is_op("relax.reduce_mean")(x).named("mean")), mean_fits),
            ("move", _quantized(x.optional(lambda v: is_op("relax.reshape")(x=v).named("moved"))), move_fits),
            ("table", _table(wildcard().has_dtype("i8").named("x")).named("result"), table_fits),
        ]

    def codegen(self, module: ExternalModule) -> NativeCode | DeclinedRegions:
        placed, declined = {}, {}
        for function in module.functions:
            try:
                placed[function.name] = place_region(function, self.tiling)
            except Misfit as misfit:
                declined[function.name] = misfit.decline
        if declined:
            return DeclinedRegions(declined)

        def tiling(layer: Layer) -> Tiling:
            return tuned_tiling(layer, module.tuned_values(layer_key(layer)))

        regions = {each.name: compile_region(each, placed[each.name], tiling) for each in module.functions}
        return NativeCode(
            driver="systolic_run", programs={name: region.content for name, region in regions.items()},
            sources={} if self.device else {"systolic.c": driver_source()}, errors=ERRORS, loader="systolic",
            metadata={"steps": {name: region.steps for name, region in regions.items()}},
        )  # fmt: skip

    @property
    def tiling(self) -> Tiling:
        """Return the default tiling of layers that were not tuned."""
        return Tiling(self.rows, self.chunk)

    def tunables(self, module: ExternalModule) -> Sequence[Tunable]:
        return tunables(module, self.tiling)

    def times(self, artifact: Artifact) -> dict[str, float]:
        """Return the times of regions, which the simulator runs once without data, if it is available."""
        if missing_tools():
            return {}
        code = native_code(artifact)
        names: dict[str, list[str]] = code.metadata["steps"]
        steps = {name: measure(program, len(names[name])) for name, program in code.programs.items()}
        return {name: sum(step.cycles for step in region) / MEGAHERTZ for name, region in steps.items()}

    def fingerprint(self) -> str:
        return version()

    @property
    def figures(self) -> Figures:  # type: ignore[override]
        """Return the peak rates of the array and of main memory; times of regions are measured in cycles."""
        gigahertz = MEGAHERTZ / 1e3
        return Figures(
            gflops=2 * SIZE * SIZE * gigahertz, gbytes=SIZE * gigahertz, call_us=1.0, transfer_gbytes=SIZE * gigahertz,
            scales=False,
        )  # fmt: skip

    def requirements(self) -> Sequence[str]:
        return ("the NPU of mirlo-systolic, or Verilator to simulate it",)


def driver_source() -> str:
    """Return the driver as one C file, which calls `systolic_execute` of a device or a simulator."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("driver.h", "driver.c", "region.c")]
    return "#define SYSTOLIC_LINKAGE static\n" + "\n".join(texts).replace('#include "driver.h"\n', "")
