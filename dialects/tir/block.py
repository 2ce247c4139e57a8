"""`tir.block`: a named structured computation.

    %y = "tir.block"(%x, %w) ({
      ^bb0(%i: index, %j: index, %k: index, %a: f32, %b: f32, %acc: f32):
        %0 = arith.mulf %a, %b : f32
        %1 = arith.addf %acc, %0 : f32
        "tir.yield"(%1) : (f32) -> ()
    }) {name = "matmul", axes = ["spatial", "spatial", "reduce"], domain = [128, 64, 256],
        maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> (k, j)>, affine_map<(i, j, k) -> (i, j)>],
        init = [0.0 : f32]} : (tensor<128x256xf32>, tensor<256x64xf32>) -> tensor<128x64xf32>

For each point of the domain the body computes one element of each output. Block arguments: one index per axis, then for
each operand the element at its map, then for each output of a reduction what was accumulated so far.

- `maps` covers the operands, then the outputs. A `unit` in place of an operand's map hands the whole tensor to the
  body, which reads it with `tensor.extract` (gathers).
- `outside`, one entry per operand: a number there says what is read where the map leaves the tensor (padding); `unit`
  says that it never does.
- `init`, one entry per output: what a reduction starts from; `unit` for an output that is not a reduction.
- Over tensors the outputs are results. Over buffers (`memref`) they are the last operands, and nothing is returned.
"""

from __future__ import annotations

from typing import Any

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import Dims, Raw, Str, Strs
from mirlo.dialects.core.op import OpError, operands, results
from mirlo.dialects.tir.base import TirOp

SPATIAL = "spatial"
REDUCE = "reduce"


class Block(TirOp, name="block"):
    """A structured computation over a domain; see the module's text."""

    REGIONS = 1
    ISOLATED = True
    PURE = False  # over buffers it writes; tensor form is deduplicated by Mirlo's own passes
    args = operands()
    outputs = results()
    name = Str()
    axes = Strs()
    domain = Dims()
    maps = Raw("ArrayAttr")
    outside = Raw("ArrayAttr", None)
    init = Raw("ArrayAttr")

    def check(self) -> None:
        axes, domain = self.axes, self.domain
        bad = [axis for axis in axes if axis not in (SPATIAL, REDUCE)]
        if bad:
            raise OpError(f"axes are '{SPATIAL}' or '{REDUCE}', got '{bad[0]}'")
        if len(domain) != len(axes):
            raise OpError(f"domain has {len(domain)} dims, but there are {len(axes)} axes")
        ins, outs = split_operands(self)
        if len(self.maps) != len(ins) + len(outs):
            raise OpError(f"needs a map for each of {len(ins)} operands and {len(outs)} outputs, got {len(self.maps)}")
        for i, (attribute, value) in enumerate(zip(self.maps, [*ins, *outs], strict=True)):
            self._check_map(i, attribute, value, is_output=i >= len(ins))
        if self.outside is not None and len(self.outside) != len(ins):
            raise OpError(f"'outside' needs an entry for each of {len(ins)} operands, got {len(self.outside)}")
        if (REDUCE in axes) != any(not isinstance(entry, ir.UnitAttr) for entry in self.init):
            raise OpError("an output has an initial value exactly when the block has a reduction axis")
        self._check_body(ins, outs)

    def _check_map(self, i: int, attribute: Any, value: Any, is_output: bool) -> None:
        what = f"map #{i}"
        if isinstance(attribute, ir.UnitAttr):
            if is_output:
                raise OpError(f"{what} is an output's and must be an affine map")
            return
        if not isinstance(attribute, ir.AffineMapAttr):
            raise OpError(f"{what} must be an affine map or unit, got {attribute}")
        found = attribute.value if hasattr(attribute, "value") else ir.AffineMap.get_identity(0)
        rank = len(value.type.shape)
        if found.n_dims != len(self.axes) or len(found.results) != rank:
            raise OpError(f"{what} must map {len(self.axes)} axes to the {rank} dims of {value.type}, got {attribute}")

    def _check_body(self, ins: list[Any], outs: list[Any]) -> None:
        blocks = self.operation.regions[0].blocks
        if len(blocks) != 1:
            raise OpError("needs a body of one block")
        expected = [ir.IndexType.get()] * len(self.axes)
        for attribute, value in zip(self.maps, ins, strict=False):
            expected.append(value.type if isinstance(attribute, ir.UnitAttr) else value.type.element_type)
        accumulated = [
            v.type.element_type for v, e in zip(outs, self.init, strict=True) if not isinstance(e, ir.UnitAttr)
        ]
        found = [argument.type for argument in blocks[0].arguments]
        if found != expected + accumulated:
            listed = ", ".join(str(t) for t in expected + accumulated)
            raise OpError(f"the body must take ({listed}), got ({', '.join(map(str, found))})")
        last = list(blocks[0].operations)[-1].operation if len(list(blocks[0].operations)) else None
        if last is None or last.name != "tir.yield":
            raise OpError("the body must end with tir.yield")
        yielded = [value.type for value in last.operands]
        if yielded != [value.type.element_type for value in outs]:
            raise OpError(f"the body must yield one element of each output, got ({', '.join(map(str, yielded))})")


def split_operands(block: Any) -> tuple[list[Any], list[Any]]:
    """Inputs and outputs of a block, in tensor form or in buffer form."""
    op = block.operation
    values = list(op.operands)
    if len(op.results):
        return values, list(op.results)
    count = len(block.init)
    return values[: len(values) - count], values[len(values) - count :]


class Yield(TirOp, name="yield"):
    """Ends the body of a block (with one element per output) or of a loop (with nothing)."""

    TERMINATOR = True
    values = operands(runs=4)
