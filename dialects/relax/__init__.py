"""relax: pure operators on ranked tensors. One file per family of operators.

relax.conv.Conv.make(x, weight, strides=[2, 2])     by class
relax.OPS["conv"].make(x, weight, strides=[2, 2])   by name
"""

from mirlo.dialects.core.op import DialectOp
from mirlo.dialects.relax import (
    activation,
    attention,
    calls,
    collectives,
    conv,
    create,
    dynamic,
    elementwise,
    fourier,
    index,
    linear_algebra,
    matmul,
    normalize,
    pool,
    quantize,
    reduce,
    shape,
    slice,
    sort,
    tree,
    vision,
)
from mirlo.dialects.relax.base import DIALECT, RelaxOp

OPS: dict[str, type[DialectOp]] = {name.partition(".")[2]: op for name, op in DIALECT.operations.items()}
"""Every operator of the dialect, by name without namespace: `OPS["conv"]` is `conv.Conv`."""

__all__ = [
    "DIALECT",
    "OPS",
    "RelaxOp",
    "activation",
    "attention",
    "calls",
    "collectives",
    "conv",
    "create",
    "dynamic",
    "elementwise",
    "fourier",
    "index",
    "linear_algebra",
    "matmul",
    "normalize",
    "pool",
    "quantize",
    "reduce",
    "shape",
    "slice",
    "sort",
    "tree",
    "vision",
]
