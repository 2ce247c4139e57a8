"""The code generator: regions become a plan of convolutions and attention for the loader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirlo.passes.byoc.codegen import Artifact, CodeGenerator, ExternalModule, option
from mirlo.passes.byoc.pattern import PatternTuple
from mirlo.passes.byoc.view import Step
from mirlo.passes.figures import Figures
from mirlo.runtime.errors import MirloError
from mirlo.targets.cudnn.attention import attention_of, is_attention
from mirlo.targets.cudnn.plan import AttentionStep, Convolution
from mirlo.targets.nvvm.library_plan import write
from mirlo.targets.nvvm.library_values import Values, plan_of
from mirlo.targets.nvvm.speeds import library_figures

FORMAT = "cudnn"
_LAYOUTS = {("NC*", "OI*"): False, ("N*C", "O*I"): True}
"""Whether channels come last, by layout of data and kernels."""


class LayoutError(MirloError, ValueError):
    """A combination of layouts that the library does not support."""


@dataclass(frozen=True)
class CuDnn(CodeGenerator):
    """Convolutions of images and volumes, a bias and relu with each, channels last; attention in 16 bits."""

    name = "cudnn"
    guarded = False
    layouts = {"relax.conv": ("N*C", "O*I")}  # noqa: RUF012 - read only, as in the base class
    tf32: bool = option(False, "round factors of f32 to 10 bits of fraction, for the matrix units")

    def figures_beside(self, host: str, options: str) -> Figures | None:
        """Return the library's figures on the chip in the options of target nvvm; None beside another target."""
        return library_figures(host, options, self.tf32)

    def fingerprint(self) -> str:
        """Return the version of the library on this machine, if installed."""
        from mirlo.targets.cudnn.native.library import CUDNN

        return CUDNN.version_text()

    def patterns(self) -> Sequence[PatternTuple]:
        """Return the patterns in order of priority."""
        from mirlo.targets.cudnn.attention import attention_patterns
        from mirlo.targets.cudnn.patterns import patterns

        return [*attention_patterns(), *patterns()]

    def codegen(self, module: ExternalModule) -> Artifact:
        """Return the plan of all regions."""
        plans = [plan_of(function, _step_of) for function in module.functions]
        params = tuple(dict.fromkeys(name for plan in plans for name in plan.constants.values()))
        return Artifact(FORMAT, module.names, write(plans), params, {"device": "cuda", "tf32": self.tf32})


def _step_of(values: Values, step: Step) -> Convolution | AttentionStep:
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
