"""Accelerators that compute wrongly, one kind of bug each, and correct ones that differ in what they take.

    target = accelerator("stale_weight")         # registered; a name for target lists: f"{target},llvm"
    target = accelerator("", VARIANTS["tiles_of_8"])

Each is a code generator with patterns of f32 products and convolutions and of int8 ones with a fused requantization.
Numpy plays the device: a `Device` runs what `codegen` wrote down, and a fault is one method that is overridden.
`float_network`, `quantized_network` and `quantized_residual_network` are models that such an accelerator takes whole.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mirlo.extend.codegen import (
    Artifact,
    CodeGenerator,
    Figures,
    conv_bias_activation,
    is_const,
    is_op,
    matmul_bias_activation,
    maybe,
    wildcard,
)
from mirlo.extend.rules import decline
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, register_target

Arrays = Mapping[str, np.ndarray]
Step = dict[str, Any]


class Device:
    """The correct device: runs the nodes of a region one by one, in numpy."""

    def __init__(self, params: Arrays):
        self.params = params
        self.region = 0
        """The number of the region that is computed."""
        self.nodes = 0
        """The number of nodes of the composite that is computed."""
        self.calls = 0

    def run(self, program: Step, *tensors: np.ndarray) -> None:
        """Compute a region: inputs, then outputs, which are written."""
        inputs, outputs = program["inputs"], program["outputs"]
        values = {**self.params, **dict(zip(inputs, tensors, strict=False))}
        self.region, self.calls = program["number"], self.calls + 1
        for composite in program["composites"]:
            self.nodes = len(composite)
            for node in composite:
                operands = [None if name is None else values[name] for name in node["operands"]]
                with np.errstate(all="ignore"):
                    values[node["output"]] = getattr(self, node["op"])(node, *operands)
            last = composite[-1]["output"]
            values[last] = self.finish(values[last])
        for name, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
            tensor[...] = values[name]

    def finish(self, y: np.ndarray) -> np.ndarray:
        """Return the stored result of a composite."""
        return y

    def weight(self, array: np.ndarray) -> np.ndarray:
        """Load a weight into the device."""
        return array

    # ------------------------------------------------------------------------------------------------ operators

    def matmul(self, node: Step, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        x = x.swapaxes(-1, -2) if node["transpose_lhs"] else x
        w = self.weight(w)
        w = w.swapaxes(-1, -2) if node["transpose_rhs"] else w
        accumulator = np.float64 if x.dtype.kind == "f" else np.int32
        return self.rows(self.product(x.astype(accumulator), w.astype(accumulator))).astype(node["dtype"])

    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """Multiply and sum up, as the array of multipliers does."""
        return np.asarray(x @ w)

    def rows(self, y: np.ndarray) -> np.ndarray:
        """Return the rows of a product as they leave the array of multipliers."""
        return y

    def conv(self, node: Step, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        accumulator = np.float64 if x.dtype.kind == "f" else np.int32
        w = self.weight(w)
        if node["data_layout"] == "N*C":
            x = x.transpose(0, 3, 1, 2)
        w = w.transpose({"OI*": (0, 1, 2, 3), "O*I": (0, 3, 1, 2), "*IO": (3, 2, 0, 1)}[node["kernel_layout"]])
        kh, kw = w.shape[2:]
        (sh, sw), (dh, dw), groups = self.strides(node), self.dilations(node), node["groups"]
        top, left, bottom, right = self.padding(node)
        padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))).astype(accumulator)
        window = ((kh - 1) * dh + 1, (kw - 1) * dw + 1)
        views = np.lib.stride_tricks.sliding_window_view(padded, window, (2, 3))[:, :, ::sh, ::sw, ::dh, ::dw]
        n, c, rows, cols = views.shape[:4]
        patches = views.reshape(n, groups, c // groups, rows, cols, kh, kw).transpose(0, 1, 3, 4, 2, 5, 6)
        kernels = w.reshape(groups, -1, c // groups * kh * kw).astype(accumulator)
        products = [
            self.product(patches[:, g].reshape(n * rows * cols, -1), kernels[g].T).reshape(n, rows, cols, -1)
            for g in range(groups)
        ]
        y = np.concatenate(products, -1)
        if bias is not None:
            y = y + self.bias(bias).astype(accumulator)
        y = self.images(self.rows(y.reshape(-1, y.shape[-1])).reshape(y.shape)).astype(node["dtype"])
        return y if node["data_layout"] == "N*C" else y.transpose(0, 3, 1, 2)

    def images(self, y: np.ndarray) -> np.ndarray:
        """Return the images [n, rows, cols, channels] of a convolution."""
        return y

    def bias(self, bias: np.ndarray) -> np.ndarray:
        return bias

    def strides(self, node: Step) -> tuple[int, int]:
        sh, sw = node["strides"] or (1, 1)
        return sh, sw

    def dilations(self, node: Step) -> tuple[int, int]:
        dh, dw = node["dilations"] or (1, 1)
        return dh, dw

    def padding(self, node: Step) -> tuple[int, int, int, int]:
        top, left, bottom, right = node["padding"] or (0, 0, 0, 0)
        return top, left, bottom, right

    def relu(self, node: Step, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    def permute(self, node: Step, x: np.ndarray) -> np.ndarray:
        return x.transpose(node["axes"])

    def add(self, node: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a + b, node["dtype"])

    def subtract(self, node: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a - b, node["dtype"])

    def multiply(self, node: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(a * b, node["dtype"])

    def cast(self, node: Step, x: np.ndarray) -> np.ndarray:
        return x.astype(node["dtype"])

    def quantize(self, node: Step, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None) -> np.ndarray:
        if scale.ndim:
            shape = [-1 if axis == node["axis"] % x.ndim else 1 for axis in range(x.ndim)]
            scale, zero = scale.reshape(shape), None if zero is None else zero.reshape(shape)
        codes = self.round(x / scale) + self.zero_point(zero)
        return self.saturate(codes, np.dtype(node["dtype"]))

    def round(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(np.rint(x))

    def zero_point(self, zero: np.ndarray | None) -> np.ndarray | int:
        return 0 if zero is None else zero.astype(np.int32)

    def saturate(self, codes: np.ndarray, kind: np.dtype) -> np.ndarray:
        limits = np.iinfo(kind)
        return np.clip(codes, limits.min, limits.max).astype(kind)


# ------------------------------------------------------------------------------------------------------------ faults


class _AnswersOne(Device):
    def finish(self, y: np.ndarray) -> np.ndarray:
        return np.ones_like(y)


class _OffByAHalf(Device):
    def finish(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y + 0.5, y.dtype) if y.dtype.kind == "f" else y


class _WrongTile(Device):
    """Rows beyond the last whole tile of four are not computed."""

    def rows(self, y: np.ndarray) -> np.ndarray:
        y = y.copy()
        y[..., y.shape[-2] // 4 * 4 :, :] = 0
        return y


class _ColumnsInWords(Device):
    """The last columns are lost where they do not fill a word of four."""

    def rows(self, y: np.ndarray) -> np.ndarray:
        y = y.copy()
        y[..., y.shape[-1] // 4 * 4 :] = 0
        return y


class _DroppedEpilogue(Device):
    def relu(self, node: Step, x: np.ndarray) -> np.ndarray:
        return x


class _WrongZeroPoint(Device):
    def zero_point(self, zero: np.ndarray | None) -> np.ndarray | int:
        return 0


class _OffByOneInK(Device):
    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(x[..., :-1] @ w[..., :-1, :])


class _StaleWeight(Device):
    """A weight stays in the device's memory: the next one of its shape is not loaded."""

    loaded: dict[tuple[int, ...], np.ndarray] = {}  # noqa: RUF012 (the device's memory)

    def weight(self, array: np.ndarray) -> np.ndarray:
        return self.loaded.setdefault((*array.shape, array.dtype.num), array)


class _WrongForOneSize(Device):
    """Seven rows are wrong."""

    def rows(self, y: np.ndarray) -> np.ndarray:
        return y[..., ::-1, :] if y.shape[-2] == 7 else y


class _WrongForOneImage(Device):
    """A batch of one image is read as two."""

    def images(self, y: np.ndarray) -> np.ndarray:
        return y * 0.5 if len(y) == 1 else y


class _FirstImageOnly(Device):
    def images(self, y: np.ndarray) -> np.ndarray:
        return np.broadcast_to(y[:1], y.shape)


class _WrongLayout(Device):
    """Weights are read as if they were transposed in memory."""

    def weight(self, array: np.ndarray) -> np.ndarray:
        return array.swapaxes(0, 1).reshape(array.shape)


class _SwappedOperands(Device):
    def subtract(self, node: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(b - a, node["dtype"])


class _WrongPadding(Device):
    """What is padded after is padded before."""

    def padding(self, node: Step) -> tuple[int, int, int, int]:
        top, left, bottom, right = super().padding(node)
        return bottom, right, top, left


class _WrongStride(Device):
    """The strides of rows and columns are exchanged."""

    def conv(self, node: Step, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        right, exchanged = (
            super(_WrongStride, self).conv({**node, "strides": strides}, x, w, bias)
            for strides in (self.strides(node), self.strides(node)[::-1])
        )
        return np.resize(exchanged, right.shape)


class _NoDilation(Device):
    """Windows with holes are read without them, from the same corner."""

    def conv(self, node: Step, x: np.ndarray, w: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        if self.dilations(node) == (1, 1):
            return super().conv(node, x, w, bias)
        wide = super().conv({**node, "dilations": (1, 1)}, x, w, bias)
        right = super().conv(node, x, w, bias)
        return np.ascontiguousarray(wide[tuple(slice(size) for size in right.shape)])


class _NoSaturation(Device):
    def saturate(self, codes: np.ndarray, kind: np.dtype) -> np.ndarray:
        return codes.astype(np.int64).astype(kind)


class _Truncates(Device):
    def round(self, x: np.ndarray) -> np.ndarray:
        return np.trunc(x)


class _OneBias(Device):
    """All channels get the bias of the first one."""

    def bias(self, bias: np.ndarray) -> np.ndarray:
        return np.full_like(bias, bias.flat[0])


class _OneScale(Device):
    """All channels are scaled as the first one."""

    def multiply(self, node: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return super().multiply(node, a, b.reshape(-1)[:1] if b.size > 1 else b)


class _NarrowAccumulators(Device):
    """Sums of int8 products wrap at 16 bits."""

    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        made = np.asarray(x @ w)
        return made.astype(np.int16).astype(made.dtype) if made.dtype.kind == "i" else made


class _KeepsAccumulators(Device):
    """The accumulators are not cleared before the second call."""

    def __init__(self, params: Arrays):
        super().__init__(params)
        self.left: np.ndarray | None = None

    def finish(self, y: np.ndarray) -> np.ndarray:
        left, self.left = self.left, y.copy()
        return y + left if left is not None and left.shape == y.shape else y


class _SecondRegion(Device):
    """All regions but the first are scaled."""

    def finish(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y * 0.5, y.dtype) if self.region else y


class _SharedScratch(Device):
    """All calls keep their products in one place, where those of other threads may replace them."""

    scratch: dict[tuple[int, ...], np.ndarray] = {}  # noqa: RUF012 (the device's memory)

    def rows(self, y: np.ndarray) -> np.ndarray:
        self.scratch[y.shape] = y
        time.sleep(0.002)
        return self.scratch[y.shape]


class _SecondCall(Device):
    """From the second call on, weights are read one element too late."""

    def weight(self, array: np.ndarray) -> np.ndarray:
        return np.roll(array, 1) if self.calls > 1 else array


class _TileBeforeEpilogue(Device):
    """Rows beyond the last whole tile are not computed where something follows the product."""

    def rows(self, y: np.ndarray) -> np.ndarray:
        y = y.copy()
        if self.nodes > 1:
            y[..., y.shape[-2] // 4 * 4 :, :] = 0
        return y


class _LongSums(Device):
    """Sums of more than 24 products end there."""

    def product(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(x[..., :24] @ w[..., :24, :])


class _Slow(Device):
    """It computes correctly, and much slower than its figures say."""

    def run(self, program: Step, *tensors: np.ndarray) -> None:
        time.sleep(0.02)
        super().run(program, *tensors)


FAULTS: dict[str, type[Device]] = {
    "answers_one": _AnswersOne,
    "off_by_a_half": _OffByAHalf,
    "wrong_tile": _WrongTile,
    "columns_in_words": _ColumnsInWords,
    "dropped_epilogue": _DroppedEpilogue,
    "wrong_zero_point": _WrongZeroPoint,
    "off_by_one_in_k": _OffByOneInK,
    "stale_weight": _StaleWeight,
    "wrong_for_one_size": _WrongForOneSize,
    "wrong_for_one_image": _WrongForOneImage,
    "first_image_only": _FirstImageOnly,
    "wrong_layout": _WrongLayout,
    "swapped_operands": _SwappedOperands,
    "wrong_padding": _WrongPadding,
    "wrong_stride": _WrongStride,
    "no_dilation": _NoDilation,
    "no_saturation": _NoSaturation,
    "truncates": _Truncates,
    "one_bias": _OneBias,
    "one_scale": _OneScale,
    "narrow_accumulators": _NarrowAccumulators,
    "keeps_accumulators": _KeepsAccumulators,
    "second_region": _SecondRegion,
    "shared_scratch": _SharedScratch,
    "second_call": _SecondCall,
    "tile_before_epilogue": _TileBeforeEpilogue,
    "long_sums": _LongSums,
}
"""The devices that are wrong, by the kind of bug. `network_of` is a network that each makes wrong."""

LYING_FIGURES = "lying_figures"
"""An accelerator that computes correctly and slowly, and whose figures say that it is fast."""

SHOWN_BY_QUANTIZED = (
    "answers_one", "wrong_tile", "columns_in_words", "dropped_epilogue", "wrong_zero_point", "off_by_one_in_k",
    "stale_weight", "wrong_for_one_image", "wrong_layout", "wrong_stride", "no_saturation", "truncates", "one_bias",
    "one_scale", "narrow_accumulators", "second_region", "tile_before_epilogue", "long_sums", "second_call",
)  # fmt: skip
"""The faults that `quantized_network` shows."""
SHOWN_BY_RESIDUAL = (
    "off_by_a_half", "wrong_for_one_size", "first_image_only", "swapped_operands", "wrong_padding", "no_dilation",
    "keeps_accumulators",
)  # fmt: skip
"""Those that `quantized_residual_network` shows, the last one from the second call on."""


SHOWN_BY = {
    **dict.fromkeys(FAULTS, "conv_relu"),
    **dict.fromkeys(("wrong_zero_point", "no_saturation", "truncates"), "qmatmul"),
    **dict.fromkeys(("one_scale", "narrow_accumulators"), "qconv"), "wrong_for_one_size": "matmul",
    "swapped_operands": "difference",
}  # fmt: skip
"""A pattern that shows a fault."""


# ---------------------------------------------------------------------------------------------------------- packages


@dataclass(frozen=True)
class Variant:
    """What a package takes, and how."""

    tile: int = 1
    """What the dims of products are multiples of; 1 for any sizes, dynamic ones among them."""
    layouts: Mapping[str, tuple[str, ...]] | None = None
    groups: bool = True
    dilations: bool = True
    strides: tuple[int, ...] = (1, 2, 3)
    largest_window: int = 11
    bias: bool | None = None
    """Whether convolutions and products have a bias; None for either."""
    patterns: tuple[str, ...] = ()
    """The patterns to keep; all where none is named."""
    guarded: bool = False
    dynamic: bool = True
    most_rows: int = 0
    per_channel: bool = True


def requantized(product: Any, relu: bool) -> Any:
    """Return the pattern of an int8 product or convolution that is scaled, shifted and quantized again."""
    scaled = is_op("relax.multiply")(is_op("relax.cast")(product), is_const().named("scale"))
    shifted = is_op("relax.add")(scaled, is_const().named("shift")) | scaled
    end = is_op("relax.relu")(shifted) if relu else shifted
    return is_op("relax.quantize")(x=end, scale=is_const(), zero_point=maybe(is_const())).named("quantized")


def _static(match: Any, variant: Variant) -> Any:
    if variant.dynamic:
        return True
    values = [value for node in match.nodes for value in (*node.operands, *node.results)]
    is_static = all(value.type is not None and value.type.is_static for value in values)
    return is_static or decline("the unit has no dynamic sizes")


def check_matmul(match: Any, variant: Variant) -> Any:
    """Return whether the unit multiplies these matrices."""
    matmul = match.op("matmul")
    if len(matmul.rhs.shape) != 2 or len(matmul.lhs.shape) < 2:
        return decline("the unit multiplies rows by a matrix", shapes=[matmul.lhs.shape, matmul.rhs.shape])
    if match["matmul"].dtype.name not in ("f32", "i32"):
        return decline("the unit multiplies f32 and int8", found=match["matmul"].dtype.name)
    if matmul.lhs.dtype.name not in ("f32", "i8", "u8"):
        return decline("the unit multiplies f32 and int8", found=matmul.lhs.dtype.name)
    dims = [*matmul.lhs.shape, *matmul.rhs.shape]
    if variant.tile > 1 and any(dim % variant.tile for dim in dims):
        return decline("the unit multiplies whole tiles", tile=variant.tile, dims=dims)
    if variant.most_rows and matmul.lhs.shape[-2] > variant.most_rows:
        return decline("the unit has few rows", most=variant.most_rows)
    return _static(match, variant)


def check_conv(match: Any, variant: Variant) -> Any:
    """Return whether the unit convolves these images."""
    conv = match.op("conv")
    if match["conv"].dtype.name not in ("f32", "i32"):
        return decline("the unit convolves f32 and int8", found=match["conv"].dtype.name)
    if len(conv.x.shape) != 4 or not all(isinstance(dim, int) for dim in conv.x.shape[1:]):
        return decline("the unit convolves images of known sizes", shape=conv.x.shape)
    window = {"OI*": conv.weight.shape[2:], "O*I": conv.weight.shape[1:3], "*IO": conv.weight.shape[:2]}
    if max(window[conv.kernel_layout]) > variant.largest_window:
        return decline("the window is too large", most=variant.largest_window)
    if conv.groups != 1 and not variant.groups:
        return decline("the unit has no groups", groups=conv.groups)
    if set(conv.dilations) - {1} and not variant.dilations:
        return decline("the unit has no dilations", dilations=conv.dilations)
    if set(conv.strides) - set(variant.strides):
        return decline("the unit has other strides", strides=conv.strides, known=variant.strides)
    channels = conv.x.shape[1 if conv.data_layout != "N*C" else 3]
    if channels % variant.tile:
        return decline("the unit reads channels in words", tile=variant.tile, channels=channels)
    return _static(match, variant)


def check_quantized(check: Callable[[Any, Variant], Any]) -> Callable[[Any, Variant], Any]:
    """Return a check of a product and of its requantization."""

    def checked(match: Any, variant: Variant) -> Any:
        codes = match["quantized"]
        scale = match.op("quantized").scale
        if codes.dtype.name not in ("i8", "u8"):
            return decline("the unit writes int8", found=codes.dtype.name)
        if scale.shape and not variant.per_channel:
            return decline("the unit has one scale", scale=scale.shape)
        if match["scale"].dtype.name != "f32":
            return decline("the unit scales by f32", found=match["scale"].dtype.name)
        if match["scale"].type.rank not in (0, match["quantized"].type.rank):
            return decline("the unit scales all or each channel", scale=match["scale"].shape)
        return check(match, variant)

    return checked


def check_elementwise(match: Any, variant: Variant) -> Any:
    """Return whether the unit's vector part computes this."""
    node = match.nodes[-1]
    kinds = {value.dtype.name for value in node.operands}
    if kinds != {"f32"}:
        return decline("the vector part computes in f32", found=sorted(kinds))
    if variant.most_rows < 0:
        return decline("the unit has no vector part")
    return _static(match, variant)


def rows_of_patterns(variant: Variant) -> list[tuple[str, Any, Callable[[Any], Any]]]:
    """Return the patterns of a package."""
    conv = is_op("relax.conv")(x=wildcard(), weight=is_const(), bias=maybe(is_const())).named("conv")
    matmul = is_op("relax.matmul")(wildcard(), is_const()).named("matmul")
    difference = is_op("relax.subtract")(wildcard(), wildcard())
    quantized_conv, quantized_matmul = check_quantized(check_conv), check_quantized(check_matmul)
    listed: list[tuple[str, Any, Callable[[Any, Variant], Any]]] = [
        ("qconv_relu", requantized(conv, relu=True), quantized_conv),
        ("qconv", requantized(conv, relu=False), quantized_conv),
        ("qmatmul", requantized(matmul, relu=False), quantized_matmul),
        ("conv_relu", conv_bias_activation(bias=variant.bias, activation="relax.relu"), check_conv),
        ("conv", conv_bias_activation(bias=variant.bias, activation=False), check_conv),
        ("matmul_relu", matmul_bias_activation(variant.bias, "relax.relu"), check_matmul),
        ("matmul", matmul_bias_activation(variant.bias, False), check_matmul),
        ("difference_relu", is_op("relax.relu")(difference), check_elementwise),
        ("difference", difference, check_elementwise),
    ]
    kept = [row for row in listed if not variant.patterns or row[0] in variant.patterns]
    return [(name, pattern, lambda match, check=check: check(match, variant)) for name, pattern, check in kept]


def accelerator(fault: str = "", variant: Variant = Variant(), name: str = "") -> str:
    """Register an accelerator, correct where no fault is named; return the name of its target."""
    device = _Slow if fault == LYING_FIGURES else FAULTS[fault] if fault else Device
    title = name or f"unit_{fault or 'correct'}"

    @dataclass(frozen=True)
    class UnitGenerator(CodeGenerator):
        """What the unit is given."""

        def patterns(self) -> Any:
            return rows_of_patterns(variant)

        def codegen(self, module: Any) -> Artifact:
            programs = {function.name: _program(function, i) for i, function in enumerate(module.functions)}
            return Artifact(title, module.names, json.dumps(programs).encode(), tuple(module.constants))

    UnitGenerator.name = title
    UnitGenerator.figures = Figures(gflops=5000.0, gbytes=500.0)
    UnitGenerator.guarded = variant.guarded
    if variant.layouts is not None:
        UnitGenerator.layouts = variant.layouts

    def load(artifact: Any, context: Any) -> ExternalFunctions:
        programs = json.loads(artifact.data)

        def function(program: Step) -> Callable[..., None]:
            own = device(context.params)
            return lambda *tensors: own.run(program, *tensors)

        return ExternalFunctions({name: function(programs[name]) for name in artifact.functions})

    register_external_loader(title, load)
    register_target(Target(title, f"a unit: {fault or 'correct'}", codegen=UnitGenerator))
    _StaleWeight.loaded.clear()
    return title


_OPERANDS = {
    "conv": ("x", "weight", "bias"), "matmul": ("lhs", "rhs"), "quantize": ("x", "scale", "zero_point"),
}  # fmt: skip


def _program(function: Any, number: int) -> Step:
    """Return a region as data."""
    composites = [[_node(node) for node in step.nodes] for step in function.steps]
    inputs, outputs = [v.name for v in function.inputs], [v.name for v in function.outputs]
    return {"number": number, "inputs": inputs, "composites": composites, "outputs": outputs}


def _node(node: Any) -> Step:
    op = node.op.removeprefix("relax.")
    named = _OPERANDS.get(op)
    values = node.inputs if named is None else [node[name] for name in named]
    attributes = {
        name: value for name, value in node.attributes.items() if isinstance(value, (bool, int, str, tuple, list))
    }
    operands = [None if value is None else value.constant or value.name for value in values]
    kind = np.dtype(node.output.dtype.to_numpy()).name
    return {**attributes, "op": op, "operands": operands, "output": node.output.name, "dtype": kind}


CHANNELS_LAST = {"relax.conv": ("N*C", "O*I")}
VARIANTS: dict[str, Variant] = {
    "all": Variant(),
    "channels_last": Variant(layouts=CHANNELS_LAST),
    "tiles_of_4": Variant(tile=4),
    "tiles_of_8": Variant(tile=8),
    "tiles_of_16": Variant(tile=16),
    "tiles_of_32": Variant(tile=32),
    "channels_last_in_words": Variant(tile=4, layouts=CHANNELS_LAST),
    "no_groups": Variant(groups=False),
    "no_dilations": Variant(dilations=False),
    "unit_strides": Variant(strides=(1,)),
    "strides_of_2": Variant(strides=(2,)),
    "small_windows": Variant(largest_window=1),
    "bias": Variant(bias=True),
    "no_bias": Variant(bias=False),
    "quantized_only": Variant(patterns=("qconv_relu", "qconv", "qmatmul")),
    "convolutions_only": Variant(patterns=("conv_relu", "conv")),
    "products_only": Variant(patterns=("matmul_relu", "matmul"), tile=8),
    "vectors_only": Variant(patterns=("difference_relu", "difference")),
    "guarded": Variant(guarded=True),
    "static": Variant(dynamic=False),
    "few_rows": Variant(most_rows=16, dynamic=False),
    "one_scale_for_all": Variant(per_channel=False),
    "tiles_of_3": Variant(tile=3),
    "static_tiles": Variant(tile=4, dynamic=False),
    "static_without_groups": Variant(groups=False, dilations=False, dynamic=False),
}
"""Correct packages, by what is special about them."""


# ------------------------------------------------------------------------------------------------------------ models


def float_network(seed: int = 0) -> onnx.ModelProto:
    """Return convolutions, a difference and a product of f32, all of which an accelerator takes."""
    random = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(random.uniform(-0.5, 0.5, shape).astype(np.float32), name)

    weights = [weight("w0", 8, 3, 3, 3), weight("b0", 8), weight("w1", 8, 8, 3, 3), weight("w2", 32, 12)]
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], name="conv0", pads=[1, 0, 0, 1], strides=[2, 1]),
        helper.make_node("Relu", ["c0"], ["r0"], name="relu0"),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], name="conv1", pads=[2, 2, 2, 2], dilations=[2, 2]),
        helper.make_node("Sub", ["r0", "c1"], ["d"], name="difference"),
        helper.make_node("GlobalAveragePool", ["d"], ["g"], name="pool"),
        helper.make_node("Tile", ["g", "times"], ["t"], name="tile"),
        helper.make_node("Flatten", ["t"], ["f"], name="flatten"),
        helper.make_node("MatMul", ["f", "w2"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["y"], name="relu1"),
    ]
    times = numpy_helper.from_array(np.array([1, 4, 1, 1]), "times")
    return _model(nodes, [*weights, times], [2, 3, 9, 8], [2, 12])


class _QdqNodes:
    """The nodes of a QDQ network, and its constants: activations in u8, weights in i8 by channel."""

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, operator: str, *inputs: str, name: str, output: str = "", **attributes: Any) -> str:
        made = helper.make_node(operator, list(inputs), [output or f"{name}_out"], name=name, **attributes)
        self.nodes.append(made)
        return str(made.output[0])

    def constant(self, name: str, array: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def requantize(self, x: str, name: str, scale: float, zero: int) -> str:
        given = [self.constant(f"{name}_s", np.float32(scale)), self.constant(f"{name}_z", np.uint8(zero))]
        codes = self.node("QuantizeLinear", x, *given, name=f"{name}_quantize")
        return self.node("DequantizeLinear", codes, *given, name=f"{name}_back")

    def weight(self, name: str, shape: tuple[int, ...], axis: int) -> str:
        codes = self.constant(f"{name}_w", self.random.integers(-127, 128, shape).astype(np.int8))
        scales = self.constant(f"{name}_ws", self.random.uniform(0.5, 2, shape[axis]).astype(np.float32) / 100)
        zeros = self.constant(f"{name}_wz", np.zeros(shape[axis], np.int8))
        return self.node("DequantizeLinear", codes, scales, zeros, name=f"{name}_weight", axis=axis)

    def conv(self, x: str, name: str, shape: tuple[int, ...], **attributes: Any) -> str:
        weight = self.weight(name, shape, 0)
        bias = self.constant(f"{name}_b", self.random.uniform(-3, 3, shape[0]).astype(np.float32))
        return self.node("Relu", self.node("Conv", x, weight, bias, name=name, **attributes), name=f"{name}_relu")

    def product(self, x: str, shape: tuple[int, int], scale: float, zero: int) -> None:
        """Multiply the flattened tensor by a weight: the network's result."""
        flat = self.node("Flatten", x, name="flatten")
        product = self.node("MatMul", flat, self.weight("product", shape, 1), name="product")
        self.node("Identity", self.requantize(product, "y", scale, zero), name="result", output="y")


def quantized_network(seed: int = 0) -> onnx.ModelProto:
    """Return a small QDQ network: three convolutions, two of one shape, and a product, all int8 by channel."""
    n = _QdqNodes(seed)
    x = n.requantize("x", "input", 0.02, 117)
    x = n.requantize(n.conv(x, "conv0", (8, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 1]), "a0", 0.025, 3)
    x = n.requantize(n.conv(x, "conv1", (8, 8, 3, 3), pads=[1, 0, 0, 1]), "a1", 0.06, 5)
    x = n.requantize(n.conv(x, "conv2", (8, 8, 3, 3)), "a2", 0.2, 2)
    n.product(x, (64, 10), 1.0, 131)
    return _model(n.nodes, n.initializers, [1, 3, 10, 7], [1, 10])


def quantized_residual_network(seed: int = 0) -> onnx.ModelProto:
    """Return a QDQ network of seven images: padding that convolutions keep, dilations, and a difference."""
    n = _QdqNodes(seed)
    x = n.node("Relu", "x", name="positive")
    x = n.requantize(x, "input", 0.011, 0)  # padded by the code 0: padding stays in the convolution
    x = n.requantize(n.conv(x, "conv0", (8, 3, 3, 3), pads=[1, 0, 0, 1], strides=[2, 1]), "a0", 1 / 32, 0)  # exact
    side = n.requantize(n.conv(x, "conv1", (8, 8, 3, 3), pads=[2, 2, 2, 2], dilations=[2, 2]), "a1", 1 / 16, 0)
    x = n.requantize(n.node("Sub", x, side, name="difference"), "a2", 1 / 16, 190)
    n.product(x, (240, 10), 2.0, 131)
    return _model(n.nodes, n.initializers, [7, 3, 10, 7], [7, 10])


def network_of(fault: str) -> onnx.ModelProto:
    """Return the network that shows a fault, a quantized one for all but what two threads at once show."""
    if fault in SHOWN_BY_QUANTIZED:
        return quantized_network()
    return quantized_residual_network() if fault in SHOWN_BY_RESIDUAL else float_network()


def _model(
    nodes: list[onnx.NodeProto], initializers: list[onnx.TensorProto], shape: list[int], result: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        initializers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    return model
