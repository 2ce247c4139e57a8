"""The code generator: which parts of a model the unit computes, and the programs that they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirlo.extend import CodeGenerator, Figures, NativeCode, is_const, is_op, maybe, option, wildcard
from mirlo_systolic.layers import Tiling
from mirlo_systolic.regions import compile_region, conv_fits, matmul_fits, sum_fits
from mirlo_systolic.simulator import ERRORS

FOLDER = Path(__file__).parent


def _quantized(value: Any) -> Any:
    """Return a pattern of the quantization of real values, within bounds."""
    bounded = value.optional(lambda x: is_op("relax.relu", "relax.clip")(x, ...))
    return is_op("relax.quantize")(bounded, is_const(), is_const()).named("result")


def _scaled(accumulators: Any) -> Any:
    real = is_op("relax.multiply")(is_op("relax.cast")(accumulators), is_const())
    return _quantized(real.optional(lambda x: is_op("relax.add")(x, is_const())))


@dataclass(frozen=True)
class Systolic(CodeGenerator):
    """Whole int8 layers, from the padding of their operands to the quantization of their results."""

    name = "systolic"
    layouts = {"relax.conv": ("N*C", "O*I")}
    pipeline = "simplify,convert-layout,hoist-layouts,fold-constant,simplify,remove-dead"
    format = "c"
    copies = True
    rows: int = option(0, "rows of a result in a tile; 0: as many as fit")
    chunk: int = option(64, "products whose weights are loaded together")
    tuned: bool = option(False, "measure tilings of each layer on the simulator, and take that of the fewest cycles")
    device: bool = option(False, "leave the driver out of libraries: the program links or registers it")

    def patterns(self) -> Sequence[object]:
        data = wildcard().named("x")
        weight = is_const().named("weight")
        padded = is_op("relax.pad")(data, ...) | data
        conv = is_op("relax.conv")(x=padded, weight=weight, bias=maybe(is_const())).named("conv")
        matmul = is_op("relax.matmul")(data, weight).named("matmul")
        corrected = matmul.optional(lambda x: is_op("relax.subtract")(x, is_const()))
        real = [is_op("relax.dequantize")(wildcard().named(name), is_const(), is_const()) for name in "ab"]
        return [
            ("conv", _scaled(conv), conv_fits),
            ("matmul", _scaled(corrected), matmul_fits),
            ("add", _quantized(is_op("relax.add")(*real)), sum_fits),
        ]

    def codegen(self, module: Any) -> NativeCode:
        tiling = Tiling(self.rows, self.chunk)
        regions = {function.name: compile_region(function, tiling, self.tuned) for function in module.functions}
        return NativeCode(
            driver="systolic_run", programs={name: region.content for name, region in regions.items()},
            sources={} if self.device else {"systolic.c": driver_source()}, errors=ERRORS, loader="systolic",
            metadata={"steps": {name: region.steps for name, region in regions.items()}},
        )  # fmt: skip

    @property
    def figures(self) -> Figures:
        """Return the speed at 1 GHz: 512 operations in a cycle, of which layers reach some 60 %, and 16 bytes."""
        return Figures(gflops=300.0, gbytes=32.0, call_us=1.0, transfer_gbytes=16.0, scales=False)

    def requirements(self) -> Sequence[str]:
        return ("the NPU of mirlo-systolic, or Verilator to simulate it",)


def driver_source() -> str:
    """Return the driver as one C file, which needs `systolic_execute` of a device or a simulator."""
    texts = [(FOLDER / name).read_text(encoding="utf-8") for name in ("driver.h", "driver.c", "region.c")]
    return "#define SYSTOLIC_LINKAGE static\n" + "\n".join(texts).replace('#include "driver.h"\n', "")
