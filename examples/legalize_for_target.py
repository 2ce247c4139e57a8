"""An operator's legalization for one target, written as a prim function: `python examples/legalize_for_target.py`."""

import numpy as np

import mirlo
from mirlo import R, T
from mirlo.extend.rules import decline, legalize

S = T.shapes("S")


# What one writes: the computation, and the operator and target that it is for.
@mirlo.prim_func
def quick_gelu(x: T.Buffer[S, T.f32], y: T.Out[S, T.f32]):
    for i in T.grid(*S):
        y[i] = x[i] * T.sigmoid(1.702 * x[i])


@legalize("relax.gelu", target="llvm")
def gelu_by_sigmoid(op, b):
    return b.call_prim_func(quick_gelu, op.x) if op.x.dtype == "f32" else decline("only f32")


@mirlo.script
def model(x: R.Tensor[(64, 32), R.f32], w: R.Tensor[(32, 16), R.f32]):
    return R.gelu(x @ w)


def main() -> None:
    executable = mirlo.compile(model)
    x, w = executable.random_inputs().values()
    product = x @ w
    np.testing.assert_allclose(executable(x, w), product / (1 + np.exp(-1.702 * product)), rtol=1e-4, atol=1e-5)
    print(f"gelu is x * sigmoid(1.702 x), fused into {[kernel.symbol for kernel in executable.artifact.kernels]}")


if __name__ == "__main__":
    main()
