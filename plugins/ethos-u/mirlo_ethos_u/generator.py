"""The code generator: patterns that Ethos-U computes, and the compilation of regions to command streams."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    DeclinedRegions,
    ExternalModule,
    Figures,
    is_const,
    is_op,
    maybe,
    wildcard,
)
from mirlo.extend.rules import decline
from mirlo.extend.target import option
from mirlo_ethos_u.tools import ACCELERATORS, MissingTool, ToolError, compile_region, serialize, versions
from mirlo_ethos_u.tosa import KERNEL_AXES, tosa_text

MAX_STRIDE = 3
"""The largest stride of a convolution of Vela."""
MAX_WINDOW = 64
"""The largest height of a window of Vela."""
MAX_WINDOW_AREA = 64 * 64


@dataclass(frozen=True)
class EthosU(CodeGenerator):
    """Int8 convolutions, products with weights, means, residual sums and moves."""

    name = "ethos-u"
    format = "ethos-u"
    layouts = {"relax.conv": ("N*C", "O*I")}
    copies = True
    static = True
    compiled_to_place = True
    accelerator: str = option(
        "ethos-u55-128", "the accelerator that Vela compiles for: ethos-u55-128, ethos-u65-256, ethos-u85-256 ..."
    )

    def __post_init__(self) -> None:
        if self.accelerator not in ACCELERATORS:
            raise ValueError(f"accelerator is '{self.accelerator}': expected one of {', '.join(ACCELERATORS)}")

    def patterns(self) -> Sequence[object]:
        x, weight = wildcard().has_dtype("i8").named("x"), is_const().has_dtype("i8").named("weight")
        padded = is_op("relax.pad")(x=x).named("pad")
        padded_conv, conv = (
            is_op("relax.conv")(x=data, weight=weight, bias=maybe(is_const())).named("contraction")
            for data in (padded, x)
        )
        product = is_op("relax.matmul")(x, weight).named("contraction")
        matmul = product.optional(lambda v: is_op("relax.subtract")(v, is_const().has_dtype("i32")))
        dequantized = [_dequantize(wildcard().has_dtype("i8").named(name)) for name in ("left", "right")]
        source = _dequantize(wildcard().has_dtype("i8").named("x"))
        moved = is_op("relax.reshape", "relax.permute")
        both = [
            _scaled(wildcard().has_dtype("i8").named(name)).optional(_scaled).has_dtype("i32")
            for name in ("left", "right")
        ]
        total = is_op("relax.reduce_sum")(_rescaled(x).has_dtype("i32"))
        total = total.optional(lambda v: is_op("relax.reduce_sum")(v)).named("total")
        entry = is_op("relax.add")(is_op("relax.cast")(x), is_const(128).has_dtype("i32"))
        return [
            ("padded_conv", _requantized(padded_conv), _check_conv),
            ("conv", _requantized(conv), _check_conv),
            ("matmul", _requantized(matmul), _check_matmul),
            ("add", _quantize(_activated(is_op("relax.add")(*dequantized).named("sum"))), _check_sum),
            ("integer_add", _activated(_scaled(is_op("relax.add")(*both).named("sum")).has_dtype("i8")), _check_sum),
            ("mean", _quantize(is_op("relax.reduce_mean")(source).named("mean")), _check_mean),
            ("integer_mean", _scaled(total).has_dtype("i8"), _check_integer_mean),
            ("max_pool", is_op("relax.max_pool")(x).named("pool"), _check_pool),
            ("table", is_op("relax.gather")(is_const().has_dtype("i8").named("table"), entry), _check_table),
            ("slice", is_op("relax.strided_slice")(x).named("slice"), _check_slice),
            ("move", _quantize(moved(source).named("moved")), _check_move),
            ("reshape", is_op("relax.reshape")(x=x)),
            ("concat", is_op("relax.concat")(...).has_dtype("i8")),
        ]

    def codegen(self, module: ExternalModule) -> Artifact | DeclinedRegions:
        content, reports, declined = io.BytesIO(), {}, {}
        with zipfile.ZipFile(content, "w") as archive:
            for function in module.functions:
                try:
                    flatbuffer = serialize(tosa_text(function))
                    stream, estimate = compile_region(flatbuffer, self.accelerator)
                except MissingTool:
                    raise
                except (ToolError, ValueError) as error:
                    declined[function.name] = decline(str(error))
                    continue
                for suffix, data in (("tosa", flatbuffer), ("tflite", stream)):
                    archive.writestr(zipfile.ZipInfo(f"{function.name}.{suffix}"), data)
                reports[function.name] = {**asdict(estimate), "inputs": len(function.inputs)}
        if declined:
            return DeclinedRegions(declined)
        metadata = {"accelerator": self.accelerator, "regions": reports}
        return Artifact(self.format, module.names, content.getvalue(), metadata=metadata)

    def times(self, artifact: Artifact) -> dict[str, float]:
        megahertz = ACCELERATORS[self.accelerator].megahertz
        return {name: region["cycles"] / megahertz for name, region in artifact.metadata["regions"].items()}

    def files(self, artifact: Artifact, params: object) -> dict[str, bytes]:
        with zipfile.ZipFile(io.BytesIO(artifact.data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    @property
    def figures(self) -> Figures:  # type: ignore[override]
        configuration = ACCELERATORS[self.accelerator]
        macs = int(self.accelerator.rpartition("-")[2])
        return Figures(
            2 * macs * configuration.megahertz / 1e3, configuration.gbytes, call_us=20,
            transfer_gbytes=configuration.gbytes, scales=False,
        )  # fmt: skip

    def requirements(self) -> Sequence[str]:
        return (f"Arm {self.accelerator}, or tosa_reference_model of tosa-tools",)

    def fingerprint(self) -> str:
        return versions()


def _quantize(value: Any) -> Any:
    return is_op("relax.quantize")(value, is_const().has_rank(0), ...).has_attr(dtype=_is_int8)


def _is_int8(dtype: object) -> bool:
    return str(dtype) == "i8"


def _dequantize(value: Any) -> Any:
    return is_op("relax.dequantize")(value, is_const().has_rank(0), ...)


def _activated(value: Any) -> Any:
    return value.optional(lambda v: is_op("relax.relu", "relax.clip")(v))


def _rescaled(value: Any) -> Any:
    multiplier, shift = (is_const().has_rank(0) | is_const().has_rank(1) for _ in range(2))
    return is_op("relax.rescale")(value, multiplier.named("multiplier"), shift.named("shift"))


def _scaled(value: Any) -> Any:
    """Return a pattern of a multiplier and a shift for all elements."""
    return is_op("relax.rescale")(value, is_const().has_rank(0), is_const().has_rank(0))


def _requantized(total: Any) -> Any:
    """Return a pattern of a requantization to int8, by real scales or by multipliers and shifts."""
    scaled = is_op("relax.multiply")(is_op("relax.cast")(total), is_const())
    real = _quantize(_activated(scaled.optional(lambda v: is_op("relax.add")(v, is_const().named("addend")))))
    biased = total.optional(lambda v: is_op("relax.add")(v, is_const().has_dtype("i32")))
    return real | _activated(_rescaled(biased).has_dtype("i8"))


def _check_conv(match: Any) -> Any:
    conv = match.op("contraction")
    if len(match["weight"].shape) != 4:
        return decline("only convolutions of images", rank=len(match["weight"].shape))
    if match["x"].shape[0] != 1:
        return decline("one image at a time", batch=match["x"].shape[0])
    out_channels, *window, _ = (match["weight"].shape[axis] for axis in KERNEL_AXES[conv.kernel_layout])
    channels = match["x"].shape[-1 if conv.data_layout == "N*C" else 1]
    if conv.groups != 1 and not conv.groups == channels == out_channels:
        return decline("only one group, or a group for each channel", groups=conv.groups)
    if any(stride > MAX_STRIDE for stride in conv.strides or ()):
        return decline(f"strides are at most {MAX_STRIDE}", strides=conv.strides)
    if window[0] > MAX_WINDOW or window[0] * window[1] > MAX_WINDOW_AREA:
        return decline("the window is too large", window=window)
    if conv.data_layout != "N*C" and any(name in match and match[name].shape for name in ("multiplier", "shift")):
        return decline("multipliers must be those of channels", layout=conv.data_layout)
    if "pad" in match and match.op("pad").mode != "constant":
        return decline("pads must be constant", mode=match.op("pad").mode)
    return True


def _check_matmul(match: Any) -> Any:
    if len(match["weight"].shape) != 2:
        return decline("weights must be a matrix", rank=len(match["weight"].shape))
    if match.op("contraction").transpose_lhs:
        return decline("the data must not be transposed")
    return True


def _check_sum(match: Any) -> Any:
    left, right = match["left"].shape, match["right"].shape
    return left == right or decline("operands must have equal sizes", left=left, right=right)


def _check_mean(match: Any) -> Any:
    mean, shape = match.op("mean"), match["x"].shape
    if len(shape) != 4 or sorted(axis % 4 for axis in mean.axes) != [2, 3] or not mean.keepdims:
        return decline("only means over all pixels", axes=mean.axes)
    if shape[0] != 1:
        return decline("one image at a time", shape=shape)
    if shape[2] > MAX_WINDOW or shape[2] * shape[3] > MAX_WINDOW_AREA:
        return decline("too many pixels", shape=shape)
    return True


def _check_integer_mean(match: Any) -> Any:
    shape, total = match["x"].shape, match["total"]
    if len(shape) != 4 or tuple(total.shape) != (shape[0], 1, 1, shape[3]):
        return decline("only means over all pixels", x=shape, sums=tuple(total.shape))
    if shape[0] != 1:
        return decline("one image at a time", shape=shape)
    if shape[1] > MAX_WINDOW or shape[1] * shape[2] > MAX_WINDOW_AREA:
        return decline("too many pixels", shape=shape)
    multiplier, shift = (match[name].array() for name in ("multiplier", "shift"))
    if (multiplier != 1 << shift).any():
        return decline("elements must be summed as they are", multiplier=multiplier.reshape(-1).tolist())
    return True


def _check_pool(match: Any) -> Any:
    pool, shape = match.op("pool"), match["x"].shape
    if len(shape) != 4 or shape[0] != 1:
        return decline("one image at a time", shape=shape)
    if pool.ceil_mode:
        return decline("windows must be whole")
    if any(dilation != 1 for dilation in pool.dilations or ()):
        return decline("pools have no dilations", dilations=pool.dilations)
    if any(stride > MAX_STRIDE for stride in pool.strides or ()):
        return decline(f"strides are at most {MAX_STRIDE}", strides=pool.strides)
    return True


def _check_table(match: Any) -> Any:
    if match["table"].shape != (256,):
        return decline("only tables of the 256 elements of int8", table=match["table"].shape)
    return True


def _check_slice(match: Any) -> Any:
    part = match.op("slice")
    if any(step != 1 for step in part.strides or ()):
        return decline("slices have no strides", strides=part.strides)
    return len(match["x"].shape) <= 4 or decline("slices have at most four dims", rank=len(match["x"].shape))


def _check_move(match: Any) -> Any:
    moved = match.op("moved")
    if moved.OPERATION_NAME == "relax.permute":
        return decline("permutations stay with the rest")
    return True
