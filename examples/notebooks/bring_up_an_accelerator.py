# %% [markdown]
# # Bring up an accelerator
#
# An imaginary unit computes dense layers: a product with constant weights, a bias, `relu`. Everything else stays on
# the CPU. Its "driver" is a function in Python here.

# %%
import json
from dataclasses import dataclass

import numpy as np

import mirlo
from mirlo import R
from mirlo.extend.codegen import Artifact, CodeGenerator, is_const, is_op, wildcard
from mirlo.extend.rules import decline
from mirlo.extend.runtime import ExternalFunctions, register_external_loader
from mirlo.extend.target import Target, register_target

# %% [markdown]
# A pattern says what the unit computes, a check what it does not. A check that declines says why.


# %%
def whole_rows(match):
    rows = match.op("matmul").rhs.shape[0]
    return True if rows % 8 == 0 else decline("the unit sums eight products at a time", rows=rows)


@dataclass(frozen=True)
class DenseUnit(CodeGenerator):
    """Dense layers for the imaginary unit."""

    name = "dense_unit"

    def patterns(self):
        product = is_op("relax.matmul")(wildcard(), is_const()).named("matmul")
        return [("dense", is_op("relax.relu")(is_op("relax.add")(product, is_const())), whole_rows)]

    def codegen(self, module):
        layers = {}
        for function in module.functions:
            (step,) = function.steps
            matmul, add, _ = step.nodes
            bias = next(value.constant for value in add.inputs if value.constant)
            layers[function.name] = {"weight": matmul["rhs"].constant, "bias": bias}
        return Artifact(self.name, module.names, json.dumps(layers).encode(), tuple(module.constants))


# %% [markdown]
# The loader turns the artifact into functions at run time. It gets the constants that the artifact names.


# %%
CALLS = []


def load(artifact, context):
    layers = json.loads(artifact.data)

    def function(name):
        weight, bias = (context.params[layers[name][key]] for key in ("weight", "bias"))

        def call(x, y):
            CALLS.append(name)
            np.maximum(x @ weight + bias, 0, out=y)

        return call

    return ExternalFunctions({name: function(name) for name in artifact.functions}, keep=context.params)


register_external_loader("dense_unit", load)
register_target(Target("dense_unit", "an imaginary unit for dense layers", codegen=DenseUnit))

# %% [markdown]
# A model of two layers: the second has 12 inputs, which the unit does not take.

# %%
rng = np.random.default_rng(0)
W1, W2 = rng.standard_normal((16, 12), np.float32), rng.standard_normal((12, 4), np.float32)
B1, B2 = rng.standard_normal(12, np.float32), rng.standard_normal(4, np.float32)


@mirlo.script
def model(x: R.Tensor[(3, 16), R.f32]):
    hidden = R.relu(x @ R.const(W1) + R.const(B1))
    return R.relu(hidden @ R.const(W2) + R.const(B2))


run = mirlo.compile(model, ["dense_unit", "llvm"])
x = rng.standard_normal((3, 16), np.float32)
np.testing.assert_allclose(run(x), np.maximum(np.maximum(x @ W1 + B1, 0) @ W2 + B2, 0), rtol=1e-5, atol=1e-5)
assert len(CALLS) == 1, "the unit computes one of the layers"

# %% [markdown]
# The rest ran on the CPU. `mirlo partition MODEL --targets dense_unit,llvm` prints the reason for each node:
# "the unit sums eight products at a time". `mirlo new codegen NAME` writes a package with tests to go on from.

# %%
print(run.profile(x).table())
