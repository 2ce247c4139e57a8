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
each operand the element at its map, then for each output of a reduction its accumulator.

- `maps` covers the operands, then the outputs. A `unit` in place of an operand's map passes the whole tensor to the
  body, which reads it with `tensor.extract` (gathers).
- `outside`, one entry per operand: the value that is read where the map leaves the tensor (padding); `unit` if it
  never does.
- `init`, one entry per output: the initial value of a reduction; `unit` for an output that is not a reduction.
- A reduction runs in the order of the axes, unless its body combines by one associative, commutative operation.
- In tensor form the outputs are results. In buffer form (`memref`) they are the last operands; there are no results.

The other operations of tir with regions or results are `tir.for`, a loop with a kind, and `tir.reduce_threads`, a
reduction over threads that loops are bound to.
"""

from __future__ import annotations

import re

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.attributes import Bool, Dims, Raw, Str, Strs
from mirlo.dialects.core.dialect import Dialect
from mirlo.dialects.core.dims import Dim
from mirlo.dialects.core.op import DialectOp, OpError, operand, operands, results
from mirlo.dialects.tir.affine import affine_range

DIALECT = Dialect("tir")


class TirOp(DialectOp):
    """An operation on the level of loops."""

    _dialect = DIALECT


SPATIAL = "spatial"
REDUCE = "reduce"


class Block(TirOp, name="block"):
    """A structured computation over a domain; the module's docstring defines it."""

    REGIONS = 1
    ISOLATED = True
    PURE = False  # it writes buffers in buffer form; Mirlo's passes deduplicate the tensor form
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
        for axis in axes:
            if axis not in (SPATIAL, REDUCE):
                raise OpError(f"axes are '{SPATIAL}' or '{REDUCE}', got '{axis}'")
        if len(domain) != len(axes):
            raise OpError(f"domain has {len(domain)} dims, but there are {len(axes)} axes")
        ins, outs = self._split()
        maps = list(self.maps)
        if len(maps) != len(ins) + len(outs):
            raise OpError(f"needs a map for each of {len(ins)} operands and {len(outs)} outputs, got {len(maps)}")
        outside = list(self.outside) if self.outside is not None else [ir.UnitAttr.get()] * len(ins)
        if len(outside) != len(ins):
            raise OpError(f"'outside' needs an entry for each of {len(ins)} operands, got {len(outside)}")
        for i, (attribute, value) in enumerate(zip(maps, [*ins, *outs], strict=True)):
            is_output = i >= len(ins)
            if not isinstance(attribute, ir.UnitAttr):
                padded = not is_output and not isinstance(outside[i], ir.UnitAttr)
                _check_map(f"map #{i}", attribute, value.type, domain, padded)
            elif is_output:
                raise OpError(f"map #{i} is an output's and must be an affine map")
        self._check_numbers(maps, outside, ins, outs)
        self._check_body(maps, ins, outs)

    def _check_numbers(
        self, maps: list[ir.Attribute], outside: list[ir.Attribute], ins: list[ir.Value], outs: list[ir.Value]
    ) -> None:
        for i, (number, value) in enumerate(zip(outside, ins, strict=True)):
            _check_count(f"entry #{i} of 'outside'", number, value)
            if not isinstance(number, ir.UnitAttr) and isinstance(maps[i], ir.UnitAttr):
                raise OpError(f"entry #{i} of 'outside' is for a tensor that the body reads itself and must be unit")
        for i, (number, value) in enumerate(zip(self.init, outs, strict=True)):
            _check_count(f"entry #{i} of 'init'", number, value)
        if (REDUCE in self.axes) != any(not isinstance(entry, ir.UnitAttr) for entry in self.init):
            raise OpError("an output has an initial value exactly when the block has a reduction axis")

    def _split(self) -> tuple[list[ir.Value], list[ir.Value]]:
        """Return inputs and outputs after checking their types and counts."""
        results, count = list(self.operation.results), len(self.init)
        kind, words = (ir.RankedTensorType, "ranked tensors") if results else (ir.MemRefType, "buffers (memref)")
        for value in (*self.operation.operands, *results):
            if not isinstance(value.type, kind):
                form = "with" if results else "without"
                raise OpError(f"a block {form} results is over {words}, got {value.type}")
        if results and len(results) != count:
            raise OpError(f"'init' needs an entry for each of {len(results)} outputs, got {count}")
        if not 1 <= count <= len(self.operation.operands) + len(results):
            raise OpError(f"'init' has an entry for each output, {count}, but there are fewer outputs or none")
        return split_operands(self)

    def _check_body(self, maps: list[ir.Attribute], ins: list[ir.Value], outs: list[ir.Value]) -> None:
        blocks = self.operation.regions[0].blocks
        if len(blocks) != 1:
            raise OpError(f"needs a body of one block, got {len(blocks)}")
        expected: list[ir.Type] = [ir.IndexType.get()] * len(self.axes)
        for attribute, value in zip(maps, ins, strict=False):
            expected.append(value.type if isinstance(attribute, ir.UnitAttr) else value.type.element_type)
        for number, value in zip(self.init, outs, strict=True):
            if not isinstance(number, ir.UnitAttr):
                expected.append(value.type.element_type)
        types = [argument.type for argument in blocks[0].arguments]
        if types != expected:
            raise OpError(f"the body must take ({_listed(expected)}), got ({_listed(types)})")
        last = terminator(blocks[0])
        if last is None or last.name != "tir.yield":
            raise OpError("the body must end with tir.yield")
        elements = [value.type.element_type for value in outs]
        yielded = [value.type for value in last.operands]
        if yielded != elements:
            what = f"an element of each output, ({_listed(elements)})"
            raise OpError(f"the body must yield {what}, got ({_listed(yielded)})")


def _check_map(what: str, attribute: ir.Attribute, value_type: ir.Type, domain: tuple[Dim, ...], padded: bool) -> None:
    shape = value_type.shape
    if not isinstance(attribute, ir.AffineMapAttr):
        raise OpError(f"{what} must be an affine map or unit, got {attribute}")
    map_ = attribute.value
    if map_.n_dims != len(domain) or map_.n_symbols or len(map_.results) != len(shape):
        raise OpError(f"{what} must map {len(domain)} axes to the {len(shape)} dims of {value_type}, got {map_}")
    if padded or 0 in domain:  # nothing is read where there is no element
        return
    for i, (expr, size) in enumerate(zip(map_.results, shape, strict=True)):
        taken = affine_range(expr, domain)
        if taken and not value_type.is_dynamic_dim(i) and not 0 <= taken.low <= taken.high < size:
            raise OpError(f"{what} reaches from {taken.low} to {taken.high} in dim {i} of {value_type}: {expr}")


def _check_count(what: str, number: ir.Attribute, value: ir.Value) -> None:
    element = value.type.element_type
    if isinstance(number, ir.UnitAttr):
        return
    if not isinstance(number, (ir.FloatAttr, ir.IntegerAttr)) or number.type != element:
        raise OpError(f"{what} must be unit or a number of type {element}, got {number}")


def _listed(types: list[ir.Type]) -> str:
    return ", ".join(map(str, types))


def terminator(block: ir.Block) -> ir.Operation | None:
    """Return the last operation of a block, or None if the block is empty."""
    operations = block.operations
    count = len(operations)
    return operations[count - 1].operation if count else None


def split_operands(block: ir.OpView) -> tuple[list[ir.Value], list[ir.Value]]:
    """Return the inputs and outputs of a block, in tensor form or in buffer form."""
    op = block.operation
    values = list(op.operands)
    if len(op.results):
        return values, list(op.results)
    count = len(block.init)
    return values[: len(values) - count], values[len(values) - count :]


class Yield(TirOp, name="yield"):
    """Terminate the body of a block (with one element per output) or of a loop (with none)."""

    TERMINATOR = True
    values = operands(runs=4)

    def check(self) -> None:
        parent = self.operation.parent
        name = parent.name if parent is not None else None
        if name not in ("tir.block", "tir.for", "tir.reduce_threads"):
            raise OpError(f"ends the body of 'tir.block', 'tir.for' or 'tir.reduce_threads', but is in {name!r}")


KINDS = ("serial", "parallel", "vectorized", "unrolled", "bound")


class For(TirOp, name="for"):
    """`for i in lower .. upper` with a kind; a bound loop names its hardware axis in `thread`.

    Threads do not synchronize after a loop that is `nowait`, as in OpenMP.
    """

    REGIONS = 1
    PURE = False
    lower = operand()
    upper = operand()
    kind = Str("serial", choices=KINDS)
    thread = Str(None)
    nowait = Bool(False)

    def check(self) -> None:
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if str(value.type) != "index":
                raise OpError(f"operand '{name}' must be an index, got {value.type}")
        if (self.kind == "bound") != (self.thread is not None):
            raise OpError("a loop has 'thread', a hardware axis, exactly when its kind is 'bound'")
        blocks = self.operation.regions[0].blocks
        if len(blocks) != 1 or [str(a.type) for a in blocks[0].arguments] != ["index"]:
            raise OpError("needs a body of one block that takes one index")
        last = terminator(blocks[0])
        if last is None or last.name != "tir.yield" or len(last.operands):
            raise OpError("the body must end with a tir.yield of nothing")


class ReduceThreads(TirOp, name="reduce_threads"):
    """The values of the threads of a block that differ only in these axes, reduced; each of them gets the results.

    The body combines two lists of values. All threads of a block execute the operation.
    """

    REGIONS = 1
    PURE = False
    values = operands()
    outputs = results()
    threads = Strs()

    def check(self) -> None:
        op = self.operation
        types = [value.type for value in op.operands]
        if not types or not self.threads:
            raise OpError("needs a value and a hardware axis")
        if [value.type for value in op.results] != types:
            raise OpError(f"the results must have the types of the values, {', '.join(map(str, types))}")
        blocks = op.regions[0].blocks
        if len(blocks) != 1 or [argument.type for argument in blocks[0].arguments] != [*types, *types]:
            raise OpError("needs a body of one block that takes the values twice")
        last = terminator(blocks[0])
        if last is None or last.name != "tir.yield" or [value.type for value in last.operands] != types:
            raise OpError("the body must end with a tir.yield of combined values")


_C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class CallExtern(TirOp, name="call_extern"):
    """Call the C function `function` with scalars and buffers (passed as pointers to their first element)."""

    PURE = False
    args = operands()
    outputs = results()
    function = Str()
    pure = Bool(False)

    def check(self) -> None:
        if not _C_NAME.fullmatch(self.function):
            raise OpError(f"attribute 'function' must be the name of a C function, got '{self.function}'")
        for i, value in enumerate(self.operation.operands):
            if not (_is_scalar(value.type) or isinstance(value.type, ir.MemRefType) or _is_pointer(value.type)):
                raise OpError(f"operand #{i} must be a scalar or a buffer (memref), got {value.type}")
        returned = [value.type for value in self.operation.results]
        if len(returned) > 1 or not all(_is_scalar(t) or _is_pointer(t) for t in returned):
            listed = ", ".join(map(str, returned))
            raise OpError(f"a C function returns one scalar or nothing, got ({listed})")


def _is_scalar(mlir_type: ir.Type) -> bool:
    return isinstance(mlir_type, (ir.FloatType, ir.IntegerType, ir.IndexType))


def _is_pointer(mlir_type: ir.Type) -> bool:
    return str(mlir_type) == "!llvm.ptr"
