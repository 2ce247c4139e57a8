"""Integers of 64 bits for consumers without them: pairs of 32 bits, the low half first, as they lie in memory.

Upstream's pass converts single operations. Memory and values that loops and branches carry get the type of pairs here
before it runs, and quotients, which it does not know, become loops.
"""

from __future__ import annotations

from mirlo.dialects.bindings import ir
from mirlo.dialects.core.value import emit_constant, integer_of
from mirlo.dialects.core.walk import walk
from mirlo.dialects.tir.compute.emit import create
from mirlo.passes.lower.calls import find_all
from mirlo.passes.lower.values import Num, ValueBuilder
from mirlo.passes.schedule.loops import for_loop

EMULATE_WIDE = "canonicalize,arith-emulate-wide-int{widest-int-supported=32},canonicalize,cse"
"""Passes after which nothing has 64 bits, if memory and regions have pairs."""


def split_wide(root: ir.Module | ir.OpView) -> None:
    """Keep 64-bit integers as pairs in memory and across regions, so that upstream's pass finds single operations."""
    wide = ir.IntegerType.get_signless(64)
    _expand_quotients(root)
    _select_unshifted(root)
    structured: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        arguments = [argument for region in op.regions for block in region.blocks for argument in block.arguments]
        if op.name.startswith("scf.") and any(v.type == wide for v in (*op.operands, *op.results, *arguments)):
            structured.append(op)
        for value in (*op.results, *arguments):
            _retype_memory(value)
        if op.name == "gpu.func":
            kinds = [argument.type for argument in op.regions[0].blocks[0].arguments]
            op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(kinds, []))
        return ir.WalkResult.ADVANCE

    walk(root, visit, ir.WalkOrder.PRE_ORDER)
    for name, operations in find_all(root, "memref.load", "memref.store").items():
        for op in operations:
            _access(op, name == "memref.load")
    for op in structured:
        _carry_pairs(op)


def _pair() -> ir.VectorType:
    return ir.VectorType.get([2], ir.IntegerType.get_signless(32))


def _retype_memory(value: ir.Value) -> None:
    kind = value.type
    if isinstance(kind, ir.MemRefType) and kind.element_type == ir.IntegerType.get_signless(64):
        value.set_type(ir.MemRefType.get(kind.shape, _pair(), layout=kind.layout, memory_space=kind.memory_space))


def _access(op: ir.Operation, is_load: bool) -> None:
    """Load or store a pair in place of an integer."""
    wide = ir.IntegerType.get_signless(64)
    if not is_load and op.operands[0].type == wide:
        with ir.InsertionPoint(op), op.location:
            op.operands[0] = _halves(op.operands[0])
    if is_load and op.results[0].type == wide:
        op.results[0].set_type(_pair())
        _rebuild(op.results[0], ir.InsertionPoint.after(op))


def _carry_pairs(op: ir.Operation) -> None:
    """Give the operands, results and arguments of a structured operation the type of pairs."""
    wide = ir.IntegerType.get_signless(64)
    for position, operand in enumerate(op.operands):
        if operand.type == wide:
            with ir.InsertionPoint(op), op.location:
                op.operands[position] = _halves(operand)
    for result in op.results:
        if result.type == wide:
            result.set_type(_pair())
            _rebuild(result, ir.InsertionPoint.after(op))
    for block in [block for region in op.regions for block in region.blocks]:
        for argument in block.arguments:
            if argument.type == wide:
                argument.set_type(_pair())
                _rebuild(argument, ir.InsertionPoint.at_block_begin(block))


def _halves(value: ir.Value) -> ir.Value:
    """Return an integer as a pair."""
    word = ir.IntegerType.get_signless(32)
    high = create("arith.shrui", value.type, value, emit_constant(32, value.type))
    return create("vector.from_elements", _pair(), *(create("arith.trunci", word, half) for half in (value, high)))


def _rebuild(pair: ir.Value, point: ir.InsertionPoint) -> None:
    """Replace the uses of a value that became a pair with the integer, which is made at a point."""
    wide, word = ir.IntegerType.get_signless(64), ir.IntegerType.get_signless(32)
    uses = [(use.owner, use.operand_number) for use in pair.uses]
    with point, ir.Location.unknown():
        halves = [
            ir.Operation.create("vector.extract", [word], [pair], {"static_position": ir.DenseI64ArrayAttr.get([half])})
            for half in (0, 1)
        ]
        low, high = (create("arith.extui", wide, half.results[0]) for half in halves)
        value = create("arith.ori", wide, create("arith.shli", wide, high, emit_constant(32, wide)), low)
    for owner, number in uses:
        owner.operation.operands[number] = value


_QUOTIENTS = {
    "arith.divui": (False, True), "arith.remui": (False, False), "arith.divsi": (True, True),
    "arith.remsi": (True, False),
}  # fmt: skip
"""Divisions by name: whether they are signed, and give the quotient."""
_BITS = 64


def _expand_quotients(root: ir.Module | ir.OpView) -> None:
    """Replace divisions of 64 bits with loops over the bits of the quotient."""
    for name, operations in find_all(root, *_QUOTIENTS).items():
        is_signed, is_quotient = _QUOTIENTS[name]
        for op in operations:
            if op.results[0].type != ir.IntegerType.get_signless(_BITS):
                continue
            b = ValueBuilder(None)
            with ir.InsertionPoint(op), op.location:
                x, y = (b.num(operand) for operand in op.operands)
                quotient, rest = _divide(b, *((_magnitude(b, n) for n in (x, y)) if is_signed else (x, y)))
                value = quotient if is_quotient else rest
                if is_signed:
                    is_negative = (x ^ y) < 0 if is_quotient else x < 0
                    value = b.select(is_negative, 0 - value, value)
            op.results[0].replace_all_uses_with(value.value)
            op.erase()


def _select_unshifted(root: ir.Module | ir.OpView) -> None:
    """Take a number itself where it is shifted by zero: upstream shifts half of it by 32 bits then."""
    for operations in find_all(root, "arith.shli", "arith.shrui", "arith.shrsi").values():
        for op in operations:
            shifted = op.results[0]
            if shifted.type != ir.IntegerType.get_signless(_BITS) or integer_of(op.operands[1]):
                continue
            uses = [(use.owner.operation, use.operand_number) for use in shifted.uses]
            b = ValueBuilder(None)
            with ir.InsertionPoint.after(op), op.location:
                x, count = (b.num(operand) for operand in op.operands)
                value = b.select(count.equals(0), x, b.num(shifted)).value
            for user, number in uses:
                user.operands[number] = value


def _magnitude(b: ValueBuilder, x: Num) -> Num:
    return b.select(x < 0, 0 - x, x)


def _divide(b: ValueBuilder, x: Num, y: Num) -> tuple[Num, Num]:
    """Return the unsigned quotient and the remainder, by long division."""
    zero = b.constant("i64", 0)

    def step(_: ir.Value, left: ir.Value, rest: ir.Value, quotient: ir.Value) -> list[ir.Value]:
        bits, partial, result = b.num(left), b.num(rest), b.num(quotient)
        # With its highest bit set, the rest does not fit once it is doubled: then it is larger than any divisor.
        is_large = partial < 0
        doubled = (partial << 1) | (bits >> (_BITS - 1))
        fits = is_large | b.compare("uge", doubled, y)
        following = b.select(fits, doubled - y, doubled)
        return [(bits << 1).value, following.value, ((result << 1) | b.select(fits, zero + 1, zero)).value]

    _, rest, quotient = for_loop(0, _BITS, 1, step, [x.value, zero.value, zero.value])
    return b.num(quotient), b.num(rest)
