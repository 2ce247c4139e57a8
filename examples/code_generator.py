"""A code generator from nothing: convolutions on a pretend accelerator that wants them channels-last.

mirlo run model.onnx --plugin examples/code_generator.py --targets tutor,llvm
python examples/code_generator.py model.onnx
"""

import json
import sys
from dataclasses import dataclass

import numpy as np

import mirlo
from mirlo.extend.codegen import Artifact, CodeGenerator, conv_bias_activation
from mirlo.extend.rules import decline
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, option, register_target


def one_group(match):
    """Check a match: return True, or why it is not wanted."""
    conv = match.op("conv")
    if conv.groups != 1:
        return decline("the accelerator convolves all channels at once", groups=conv.groups)
    if any(d != 1 for d in conv.dilations):
        return decline("the accelerator has no dilated windows", dilations=conv.dilations)
    return True


@dataclass(frozen=True)
class Tutor(CodeGenerator):
    """The compiler's side: what is taken, in which layouts, and what it becomes."""

    name = "tutor"
    layouts = {"relax.conv": ("N*C", "O*I")}
    half: bool = option(False, "keep weights in f16")

    def patterns(self):
        relu = conv_bias_activation(activation="relax.relu")
        return [("conv_relu", relu, one_group), ("conv", conv_bias_activation(activation=False), one_group)]

    def codegen(self, module):
        programs = {function.name: [step_of(s) for s in function.steps] for function in module.functions}
        ends = {f.name: [[v.name for v in f.inputs], [v.name for v in f.outputs]] for f in module.functions}
        text = json.dumps({"programs": programs, "ends": ends}).encode()
        return Artifact("tutor", module.names, text, tuple(module.constants), {"half": self.half})


def step_of(step):
    """Describe a composite (or a single operator) as data for the accelerator."""
    conv = next(node for node in step.nodes if node.op == "relax.conv")
    added = [v for node in step.nodes if node.op == "relax.add" for v in node.inputs if v.constant]
    bias = conv["bias"] or (added[0] if added else None)
    pads = conv["padding"] or (0, 0, 0, 0)
    return {
        "x": conv["x"].name, "weight": conv["weight"].constant, "bias": bias and bias.constant,
        "strides": conv["strides"] or (1, 1), "pads": [(pads[0], pads[2]), (pads[1], pads[3])],
        "relu": step.nodes[-1].op == "relax.relu", "y": step.nodes[-1].output.name,
    }  # fmt: skip


def load(artifact, context):
    """Load the artifact at run time: return functions; weights are converted to matrices once."""
    metadata = json.loads(artifact.data)
    kind = np.float16 if artifact.metadata["half"] else np.float32
    matrices = {n: w.reshape(w.shape[0], -1).T.astype(kind) for n, w in context.params.items() if w.ndim == 4}

    def function(name):
        (inputs, outputs), steps = metadata["ends"][name], metadata["programs"][name]

        def call(*tensors):  # inputs, then outputs, which are written
            values = dict(zip(inputs, tensors, strict=False))
            for step in steps:
                values[step["y"]] = convolve(step, values[step["x"]], matrices, context.params)
            for output, tensor in zip(outputs, tensors[len(inputs) :], strict=True):
                tensor[...] = values[output]

        return call

    return ExternalFunctions({name: function(name) for name in artifact.functions}, keep=matrices)


def convolve(step, x, matrices, params):
    """Compute one convolution on the accelerator: x is [N, H, W, C], the kernel [O, KH, KW, I] flattened."""
    kh, kw = params[step["weight"]].shape[1:3]
    (top, bottom), (left, right) = step["pads"]
    padded = np.pad(x, ((0, 0), (top, bottom), (left, right), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (kh, kw), (1, 2))
    windows = windows[:, :: step["strides"][0], :: step["strides"][1]].transpose(0, 1, 2, 4, 5, 3)
    y = windows.reshape(*windows.shape[:3], -1) @ matrices[step["weight"]].astype(np.float32)
    y += params[step["bias"]].reshape(-1) if step["bias"] else 0
    return np.maximum(y, 0) if step["relu"] else y


register_external_loader("tutor", load)
register_target(Target("tutor", "a pretend accelerator", codegen=Tutor))
if __name__ == "__main__":
    executable = mirlo.compile(sys.argv[1], ["tutor", "llvm"])
    print(executable.profile(*executable.random_inputs().values(), repeats=3).table(limit=5))
