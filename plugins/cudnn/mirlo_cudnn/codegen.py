"""The code generator: regions become a plan of convolutions and attention for the loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.extend.codegen import PatternTuple, Step
from mirlo.extend.nvidia import NvidiaLibraryCalls, Values
from mirlo.extend.runtime import MirloError
from mirlo_cudnn.attention import attention_of, attention_patterns, is_attention
from mirlo_cudnn.plan import AttentionStep, Convolution

_LAYOUTS = {("NC*", "OI*"): False, ("N*C", "O*I"): True}
"""Whether channels come last, by layout of data and kernels."""


class LayoutError(MirloError, ValueError):
    """A combination of layouts that the library does not support."""


@dataclass(frozen=True)
class CuDnn(NvidiaLibraryCalls):
    """Convolutions in 2D and 3D with bias and relu, channels last; attention in 16 bits."""

    name = "cudnn"
    format = "cudnn"
    layouts = {"relax.conv": ("N*C", "O*I")}  # noqa: RUF012 - read only, as in the base class

    def requirements(self) -> Sequence[str]:
        return ("NVIDIA's cuDNN (libcudnn.so)",)

    def fingerprint(self) -> str:
        """Return the version of the library on this machine, if installed."""
        from mirlo_cudnn.native.library import CUDNN

        return CUDNN.version_text()

    def patterns(self) -> Sequence[PatternTuple]:
        """Return the patterns in order of priority."""
        from mirlo_cudnn.patterns import patterns

        return [*attention_patterns(), *patterns()]

    def plan_step(self, values: Values, step: Step) -> Convolution | AttentionStep:
        """Return the plan step of a composite."""
        return attention_of(values, step) if is_attention(step) else convolution_of(values, step)


def convolution_of(values: Values, step: Step) -> Convolution:
    """Return the plan step of a convolution composite."""
    conv = next(node for node in step.nodes if node.op == "relax.conv")
    layouts = (conv["data_layout"], conv["kernel_layout"])
    if layouts not in _LAYOUTS:
        raise LayoutError(f"{conv}: cuDNN has no data as {layouts[0]} with kernels as {layouts[1]}")
    last = _LAYOUTS[layouts]
    x, weight, y = conv["x"], conv["weight"], step.nodes[-1].output
    outputs = {node.output for node in step.nodes}
    others = [v for node in step.nodes if node.op == "relax.add" for v in node.inputs if v not in outputs]
    added = next((v for v in others if v.constant is None), None)
    bias = conv["bias"] or next((v for v in others if v.constant is not None), None)
    spatial = x.type.rank - 2
    padding = tuple(conv["padding"]) or (0,) * spatial
    ends = [_second(value.type.static_shape, last) for value in (x, weight, conv.output)]
    return Convolution(
        values.number(x), values.number(weight), values.number(y), ends[0], ends[1], ends[2],
        tuple(conv["strides"]) or (1,) * spatial, padding[:spatial], tuple(conv["dilations"]) or (1,) * spatial,
        conv["groups"], last, x.type.dtype.name, None if bias is None else values.number(bias),
        "relu" if step.nodes[-1].op == "relax.relu" else "", None if added is None else values.number(added),
    )  # fmt: skip


def _second(shape: tuple[int, ...], last: bool) -> tuple[int, ...]:
    """Return a shape with its channels second."""
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape
